//! Commands that are being started. A keeper blocks until its command has entered its directory and found its
//! program. On an unreachable file server that takes for ever, and the keeper reads no frames meanwhile: no limit, no
//! kill. So a start that takes too long is abandoned.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_core::time::Mono;
use abide_core::{Millis, SessionId};

use super::Keepers;
use crate::clock::{Clock, SystemClock, pause};
use crate::lock::lock;
use abide_session::frame::StartFailure;
use abide_session::keeper_record::{self, RecordedEnding};
use abide_session::tree;

/// Time limit of a start, and the interval of checks.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Time limit of a start if the keeper is not blocked and the machine is only busy.
const BUSY_START_LIMIT: Duration = Duration::from_secs(120);

/// Sessions whose command may not have started yet.
#[derive(Default)]
pub(super) struct PendingStarts(Mutex<StartTable>);

/// Pending starts and the task that watches them.
#[derive(Default)]
struct StartTable {
    pending: Vec<(Mono, SessionId)>,
    /// True while a task watches them. It ends when it finds none, so that not each start needs a new one.
    is_watched: bool,
}

impl PendingStarts {
    /// Adds a session whose command is being started.
    pub fn add(&self, keepers: &Arc<Keepers>, id: SessionId) {
        let mut waiting = lock(&self.0);
        waiting.pending.push((SystemClock.mono(), id));
        if !std::mem::replace(&mut waiting.is_watched, true) {
            tokio::spawn(watch(keepers.clone()));
        }
    }

    /// Removes a session whose command was started or cannot be started.
    pub fn remove(&self, id: SessionId) {
        let mut waiting = lock(&self.0);
        waiting.pending.retain(|(_, pending)| *pending != id);
    }

    /// Sessions whose start takes too long, with the time waited.
    fn overdue(&self) -> Vec<(Millis, SessionId)> {
        let now = SystemClock.mono();
        let waiting = lock(&self.0);
        let all = waiting.pending.iter();
        all.map(|(since, id)| (now.since(*since), *id))
            .filter(|(waited, _)| *waited >= millis(START_LIMIT))
            .collect()
    }

    /// Removes sessions whose start was abandoned. Returns true if others are left.
    fn remove_all(&self, abandoned: &[SessionId]) -> bool {
        let mut waiting = lock(&self.0);
        waiting.pending.retain(|(_, id)| !abandoned.contains(id));
        waiting.is_watched = !waiting.pending.is_empty();
        waiting.is_watched
    }
}

fn millis(time: Duration) -> Millis {
    Millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Abandons starts that take too long, until none is pending.
async fn watch(keepers: Arc<Keepers>) {
    loop {
        tokio::select! {
            () = keepers.shutdown.cancelled() => return,
            () = pause(START_LIMIT) => {}
        }
        let overdue = keepers.starting.overdue().into_iter();
        let abandoned = overdue.filter(|(waited, id)| abandon_if_overdue(&keepers, *waited, *id));
        let abandoned: Vec<SessionId> = abandoned.map(|(_, id)| id).collect();
        if !keepers.starting.remove_all(&abandoned) {
            return;
        }
    }
}

/// Abandons an overdue start, unless its keeper is seen to make progress.
fn abandon_if_overdue(keepers: &Keepers, waited: Millis, id: SessionId) -> bool {
    let Some(connection) = keepers.connection(id) else {
        return true;
    };
    if waited < millis(BUSY_START_LIMIT) && connection.may_still_start() {
        return false;
    }
    connection.abandon_start();
    true
}

/// Records the failure of a start whose keeper has been killed. The next daemon reads the same record.
pub(super) async fn record_abandoned_start(keepers: &Arc<Keepers>, id: SessionId) {
    let path = keepers.folder(id);
    let at = SystemClock.now().wall;
    let fault = tokio::task::spawn_blocking(move || {
        let meta = keeper_record::read_meta(&path).ok().flatten();
        let _ = meta.as_ref().map(tree::end_orphans);
        let cwd = meta.map(|meta| meta.launch.cwd);
        let sentence = sentence(&cwd.unwrap_or_default());
        let failed = RecordedEnding::Failed(StartFailure {
            errno: libc::ETIMEDOUT,
            sentence: sentence.clone(),
            at_wall_ms: at.0,
        });
        if let Err(e) = keeper_record::write_ending(&path, &failed) {
            tracing::warn!("cannot write the ending of {}: {e}", path.display());
        }
        sentence
    });
    keepers.failed_at(id, &fault.await.unwrap_or_else(|_| sentence(b"")), at);
}

/// Fault of an abandoned start, as a sentence.
fn sentence(cwd: &[u8]) -> String {
    format!(
        "cannot start the command: its folder '{}' or its program does not answer, as on a file server that is \
         gone; choose a folder on another disk",
        String::from_utf8_lossy(cwd)
    )
}
