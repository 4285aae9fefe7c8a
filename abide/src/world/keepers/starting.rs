//! Commands that are being started. A keeper stands still until its command has entered its folder and found
//! its program. On a file server that is gone that takes for ever, and the keeper hears nothing meanwhile:
//! no limit, no kill. So whoever has not started by then is given up.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_core::time::Mono;
use abide_core::{Millis, SessionId};
use tokio::task::AbortHandle;

use super::{Keepers, found};
use crate::keeper::folder::{self, EndingFile};
use crate::world::clock::{Clock, SystemClock, pause};

/// How long a start may take, and how often it is looked whether one takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Those that may not have started yet.
#[derive(Default)]
pub(super) struct Starting(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    begun: Vec<(Mono, SessionId)>,
    /// Ends whoever looks after them.
    watch: Option<AbortHandle>,
}

impl Starting {
    /// A command is being started.
    pub fn begun(&self, keepers: &Arc<Keepers>, id: SessionId) {
        let mut waiting = self.0.lock().expect("no holder panics");
        waiting.begun.push((SystemClock.now().mono, id));
        if waiting.watch.is_none() {
            let watch = tokio::spawn(watch(keepers.clone()));
            waiting.watch = Some(watch.abort_handle());
        }
    }

    /// It has been started, or cannot be. Where it was the last, nobody is woken for them any more.
    pub fn over(&self, id: SessionId) {
        let mut waiting = self.0.lock().expect("no holder panics");
        waiting.begun.retain(|(_, begun)| *begun != id);
        if waiting.begun.is_empty()
            && let Some(watch) = waiting.watch.take()
        {
            watch.abort();
        }
    }

    /// Those that have had their time, and whether there are others to look after.
    fn overdue(&self) -> (Vec<SessionId>, bool) {
        let now = SystemClock.now().mono;
        let patience = Millis(u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX));
        let mut waiting = self.0.lock().expect("no holder panics");
        let had_time = |(begun, _): &mut (Mono, SessionId)| now.since(*begun) >= patience;
        let overdue = waiting.begun.extract_if(.., had_time).map(|(_, id)| id);
        let overdue: Vec<SessionId> = overdue.collect();
        let others = !waiting.begun.is_empty();
        if !others {
            waiting.watch = None;
        }
        (overdue, others)
    }
}

/// Gives up what does not start, until nothing is being started.
async fn watch(keepers: Arc<Keepers>) {
    loop {
        tokio::select! {
            () = keepers.leaving.cancelled() => return,
            () = pause(PATIENCE) => {}
        }
        let (overdue, others) = keepers.starting.overdue();
        for id in overdue {
            if let Some(link) = keepers.link(id) {
                link.give_up_unless_started();
            }
        }
        if !others {
            return;
        }
    }
}

/// The keeper of a command that did not start has been killed: what to say of it. The next daemon says it
/// too.
pub(super) async fn given_up(keepers: &Arc<Keepers>, id: SessionId) {
    let path = keepers.folder(id);
    let said = tokio::task::spawn_blocking(move || {
        found::end_orphans(&path);
        let cwd = folder::read_meta(&path).ok().flatten().map(|meta| meta.cwd);
        let sentence = sentence(&cwd.unwrap_or_default());
        let failed = EndingFile::Failed {
            errno: libc::ETIMEDOUT,
            sentence: sentence.clone(),
        };
        if let Err(e) = folder::write_ending(&path, &failed) {
            tracing::warn!("cannot write the ending of {}: {e}", path.display());
        }
        sentence
    });
    keepers.fail(id, &said.await.unwrap_or_else(|_| sentence(b"")));
}

fn sentence(cwd: &[u8]) -> String {
    format!(
        "cannot start the command: its folder '{}' or its program does not answer, as on a file server that is \
         gone; choose a folder on another disk",
        String::from_utf8_lossy(cwd)
    )
}
