//! Commands that are being started. A keeper stands still until its command has entered its folder and found
//! its program. On a file server that is gone that takes for ever, and the keeper hears nothing meanwhile:
//! no limit, no kill. So whoever has not started by then is given up.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_core::time::Mono;
use abide_core::{Millis, SessionId};
use tokio::task::AbortHandle;

use super::Keepers;
use crate::clock::{Clock, SystemClock, pause};
use abide_session::folder::{self, EndingFile};
use abide_session::tree;

/// Time limit of a start, and the interval of checks.
const PATIENCE: Duration = Duration::from_secs(20);
/// The same where nobody stands still, and there are only too many for the machine.
const PATIENCE_IN_A_CROWD: Duration = Duration::from_secs(120);

/// How soon after a start nobody is woken any more where there are no others. Not at once: the next one may be about to
/// begin, and to watch over it anew takes longer than to go on.
const LATER: Duration = Duration::from_millis(500);

/// Those that may not have started yet.
#[derive(Default)]
pub(super) struct Starting(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    begun: Vec<(Mono, SessionId)>,
    /// Ends whoever looks after them.
    watch: Option<AbortHandle>,
    /// It will be seen whether that is to be done.
    tidying: bool,
}

impl Starting {
    /// A command is being started.
    pub fn begun(&self, keepers: &Arc<Keepers>, id: SessionId) {
        let mut waiting = self.0.lock().expect("no holder panics");
        waiting.begun.push((SystemClock.mono(), id));
        if waiting.watch.is_none() {
            let watch = tokio::spawn(watch(keepers.clone()));
            waiting.watch = Some(watch.abort_handle());
        }
    }

    /// Removes a session whose command was started or cannot be started.
    pub fn over(&self, id: SessionId) {
        let mut waiting = self.0.lock().expect("no holder panics");
        waiting.begun.retain(|(_, begun)| *begun != id);
    }

    /// Where there is none any more, nobody is woken for them after a while.
    pub fn tidy_later(&self, keepers: &Arc<Keepers>) {
        let mut waiting = self.0.lock().expect("no holder panics");
        let unneeded = waiting.begun.is_empty() && waiting.watch.is_some();
        if unneeded && !std::mem::replace(&mut waiting.tidying, true) {
            let keepers = keepers.clone();
            tokio::spawn(async move {
                pause(LATER).await;
                keepers.starting.tidy();
            });
        }
    }

    fn tidy(&self) {
        let mut waiting = self.0.lock().expect("no holder panics");
        waiting.tidying = false;
        if waiting.begun.is_empty()
            && let Some(watch) = waiting.watch.take()
        {
            watch.abort();
        }
    }

    /// Those that have had their time, and for how long they have been waited for.
    fn overdue(&self) -> Vec<(Millis, SessionId)> {
        let now = SystemClock.mono();
        let waiting = self.0.lock().expect("no holder panics");
        let all = waiting.begun.iter();
        all.map(|(begun, id)| (now.since(*begun), *id))
            .filter(|(waited, _)| *waited >= millis(PATIENCE))
            .collect()
    }

    /// Lets go of those that are not waited for any more. Whether there are others to look after.
    fn let_go(&self, given_up: &[SessionId]) -> bool {
        let mut waiting = self.0.lock().expect("no holder panics");
        waiting.begun.retain(|(_, id)| !given_up.contains(id));
        let others = !waiting.begun.is_empty();
        if !others {
            waiting.watch = None;
        }
        others
    }
}

fn millis(time: Duration) -> Millis {
    Millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Gives up what does not start, until nothing is being started.
async fn watch(keepers: Arc<Keepers>) {
    loop {
        tokio::select! {
            () = keepers.leaving.cancelled() => return,
            () = pause(PATIENCE) => {}
        }
        let overdue = keepers.starting.overdue().into_iter();
        let given_up = overdue.filter(|(waited, id)| is_given_up(&keepers, *waited, *id));
        let given_up: Vec<SessionId> = given_up.map(|(_, id)| id).collect();
        if !keepers.starting.let_go(&given_up) {
            return;
        }
    }
}

/// Gives up a command that was waited for in vain, unless it can be seen to come.
fn is_given_up(keepers: &Keepers, waited: Millis, id: SessionId) -> bool {
    let Some(link) = keepers.link(id) else {
        return true;
    };
    if waited < millis(PATIENCE_IN_A_CROWD) && link.is_on_its_way() {
        return false;
    }
    link.give_up_unless_started();
    true
}

/// The keeper of a command that did not start has been killed: what to say of it. The next daemon says it
/// too.
pub(super) async fn given_up(keepers: &Arc<Keepers>, id: SessionId) {
    let path = keepers.folder(id);
    let at = SystemClock.now().wall;
    let said = tokio::task::spawn_blocking(move || {
        let meta = folder::read_meta(&path).ok().flatten();
        let _ = meta.as_ref().map(tree::end_orphans);
        let cwd = meta.map(|meta| meta.cwd);
        let sentence = sentence(&cwd.unwrap_or_default());
        let failed = EndingFile::Failed {
            errno: libc::ETIMEDOUT,
            sentence: sentence.clone(),
            at_wall_ms: at.0,
        };
        if let Err(e) = folder::write_ending(&path, &failed) {
            tracing::warn!("cannot write the ending of {}: {e}", path.display());
        }
        sentence
    });
    keepers.failed_at(id, &said.await.unwrap_or_else(|_| sentence(b"")), at);
}

fn sentence(cwd: &[u8]) -> String {
    format!(
        "cannot start the command: its folder '{}' or its program does not answer, as on a file server that is \
         gone; choose a folder on another disk",
        String::from_utf8_lossy(cwd)
    )
}
