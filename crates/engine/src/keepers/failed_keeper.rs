//! Sessions whose keeper is gone or does nothing. A command can kill or stop its own keeper; its limits hold all the same,
//! because then the daemon ends its tree itself.

use std::sync::Arc;
use std::time::Duration;

use abide_core::{End, Event, SessionId};
use rustix::process::Signal;

use super::connection::{KeeperConnection, Lifecycle};
use super::{Keepers, recovery};
use crate::clock::{Clock, SystemClock, pause};
use abide_session::frame::ToKeeper;
use abide_session::proc::{self, ProcessHandle};
use abide_session::{folder, tree};

/// Time for a keeper to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// Number of such waits while the keeper only waits for a CPU, and after its tree was ended.
const MAX_BUSY_WAITS: u32 = 10;
const WAITS_AFTER_KILL: u32 = 5;

/// Ends a session that should have ended, unless its keeper answers and so sees to it. A keeper that was only
/// stopped goes on once its tree is gone, and records the end with all output; one that does not is killed.
pub(super) async fn end_session(keepers: Arc<Keepers>, id: SessionId, end: End) {
    let Some(connection) = keepers.connection(id) else {
        return end_without_keeper(&keepers, id).await;
    };
    let meta = folder::read_meta(&keepers.folder(id)).ok().flatten();
    let Some(keeper) = meta.as_ref().and_then(tree::keeper) else {
        return;
    };
    // One that is starting its command hears nothing; should that take for ever, it is given up.
    let stopped = proc::stat(keeper.pid).is_some_and(|stat| stat.is_stopped());
    if connection.is_starting() && !stopped || answers(&connection, &keeper, 1).await {
        return;
    }
    tracing::warn!("the keeper of {id} does not answer; the daemon ends the session itself");
    *connection.forced_end.lock().expect("no holder panics") = Some(end);
    connection.send(&ToKeeper::Forced { end });
    end_tree(&keepers, id).await;
    keeper.signal(Signal::CONT);
    if !answers(&connection, &keeper, WAITS_AFTER_KILL).await {
        keeper.signal(Signal::KILL);
        // One that the kernel holds does not even die; nothing is waited for that it might still say.
        connection.close();
    }
}

/// True if the keeper sends a frame within this number of waits, or is gone.
async fn answers(connection: &KeeperConnection, keeper: &ProcessHandle, waits: u32) -> bool {
    let mut waited = 0;
    loop {
        match proc::stat(keeper.pid).filter(|_| keeper.lives()) {
            Some(stat) if stat.is_stopped() => return false,
            Some(stat) if stat.state == b'R' && waited < MAX_BUSY_WAITS => {}
            Some(_) if waited < waits => {}
            Some(_) => return false,
            None => return true,
        }
        let answer = connection.frame_received.notified();
        connection.send(&ToKeeper::Look);
        tokio::select! {
            () = answer => return true,
            () = pause(ANSWER_LIMIT) => waited += 1,
        }
    }
}

/// True if no process of the tree is left.
async fn end_tree(keepers: &Keepers, id: SessionId) -> bool {
    let folder = keepers.folder(id);
    let end = move || {
        let meta = folder::read_meta(&folder).ok().flatten();
        meta.as_ref().is_none_or(tree::end_orphans)
    };
    tokio::task::spawn_blocking(end).await.unwrap_or(false)
}

async fn end_without_keeper(keepers: &Keepers, session: SessionId) {
    let event = match end_tree(keepers, session).await {
        true => Event::Emptied { session },
        false => Event::Undying { session },
    };
    let _ = keepers.events.send(event).await;
}

/// A keeper has gone.
pub(super) async fn keeper_gone(
    keepers: &Arc<Keepers>,
    id: SessionId,
    connection: &KeeperConnection,
    life: &Lifecycle,
) {
    keepers.drop_idle(id);
    let folder = keepers.folder(id);
    let meta = folder::read_meta(&folder).ok().flatten();
    // A keeper that wrote down what it was to run may have run it, whatever it managed to say.
    let ran = life.started || meta.is_some();
    if ran && !life.ended {
        let forced = *connection.forced_end.lock().expect("no holder panics");
        let now = SystemClock.now().wall;
        let lost = move || recovery::record_lost_ending(&folder, Some(now), forced);
        if let Ok((ending, empty)) = tokio::task::spawn_blocking(lost).await {
            let ended = Event::Exited {
                session: id,
                ending,
                empty,
            };
            let _ = keepers.events.send(ended).await;
        }
    } else if ran && life.empty {
        meta.iter().for_each(tree::discard_group);
    } else if ran {
        // A keeper goes when nothing of the tree is left, unless it is killed.
        end_without_keeper(keepers, id).await;
    } else {
        keepers.fail(id, "its keeper ended before the command was started");
        // One that was killed has left its folder and its control group.
        let _ = tokio::task::spawn_blocking(move || recovery::remove_unused(id, &folder)).await;
    }
}
