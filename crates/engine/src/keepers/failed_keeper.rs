//! Sessions whose keeper is gone or does not respond. A command can kill or stop its own keeper; its limits hold
//! anyway, because the daemon then ends its process tree.

use std::sync::Arc;
use std::time::Duration;

use abide_core::{End, Event, SessionId, Wall};
use rustix::process::Signal;

use super::connection::{KeeperConnection, Lifecycle};
use super::{Keepers, recovery};
use crate::clock::{Clock, SystemClock, pause};
use crate::lock::lock;
use crate::seams::KeeperControl;
use abide_session::frame::ToKeeper;
use abide_session::proc::{self, ProcessHandle};
use abide_session::{keeper_record, tree};

const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// Maximum of such waits while the keeper is runnable and only waits for a CPU.
const MAX_BUSY_WAITS: u32 = 10;
/// Number of such waits after the tree was ended.
const WAITS_AFTER_KILL: u32 = 5;

/// Ends an overdue session unless its keeper answers and so handles it. A keeper that was only stopped continues once
/// its tree is gone, and records the ending with all output. A keeper that does not is killed.
pub(super) async fn end_overdue(keepers: Arc<Keepers>, id: SessionId, end: End) {
    let Some(connection) = keepers.connection(id) else {
        return end_without_keeper(&keepers, id).await;
    };
    let meta = keeper_record::read_meta(&keepers.folder(id)).ok().flatten();
    let Some(keeper) = meta.as_ref().and_then(tree::keeper) else {
        return;
    };
    // A keeper that is starting its command reads no frames; a start that takes too long is abandoned elsewhere.
    let stopped = proc::stat(keeper.pid).is_some_and(|stat| stat.is_stopped());
    if connection.is_starting() && !stopped || answers(&connection, &keeper, 1).await {
        return;
    }
    tracing::warn!("the keeper of {id} does not answer; the daemon ends the session itself");
    *lock(&connection.forced_end) = Some(end);
    connection.send(&ToKeeper::Forced { end });
    end_tree(&keepers, id).await;
    keeper.signal(Signal::CONT);
    if !answers(&connection, &keeper, WAITS_AFTER_KILL).await {
        keeper.signal(Signal::KILL);
        // A process in an uninterruptible wait does not even die of SIGKILL, so the daemon stops waiting for it.
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
        let meta = keeper_record::read_meta(&folder).ok().flatten();
        meta.as_ref().is_none_or(tree::end_orphans)
    };
    tokio::task::spawn_blocking(end).await.unwrap_or(false)
}

/// Ends the tree of a session without a keeper, and reports the result.
async fn end_without_keeper(keepers: &Keepers, session: SessionId) {
    let event = match end_tree(keepers, session).await {
        true => Event::Emptied { session },
        false => Event::SurvivesKill { session },
    };
    let _ = keepers.events.send(event).await;
}

/// Ends what is left of a running session whose keeper is gone, and reports its ending.
pub(super) async fn report_lost(
    keepers: &Keepers,
    session: SessionId,
    seen: Option<Wall>,
    forced: Option<End>,
) {
    let folder = keepers.folder(session);
    let lost = move || recovery::kill_and_record_lost(&folder, seen, forced);
    if let Ok((ending, empty)) = tokio::task::spawn_blocking(lost).await {
        let ended = Event::Exited {
            session,
            ending,
            empty,
        };
        let _ = keepers.events.send(ended).await;
    }
}

/// Handles the exit of a keeper.
pub(super) async fn keeper_gone(
    keepers: &Arc<Keepers>,
    id: SessionId,
    connection: &KeeperConnection,
    life: Lifecycle,
) {
    keepers.drop_idle(id);
    let folder = keepers.folder(id);
    let meta = keeper_record::read_meta(&folder).ok().flatten();
    match life {
        Lifecycle::Ended { empty: true } => meta.iter().for_each(tree::discard_group),
        // A keeper exits when its tree is empty, unless it is killed.
        Lifecycle::Ended { empty: false } => end_without_keeper(keepers, id).await,
        // A keeper that wrote `meta` may have started the command, even if it could not report it.
        Lifecycle::Preparing | Lifecycle::Ready | Lifecycle::Started
            if life.has_started() || meta.is_some() =>
        {
            let forced = *lock(&connection.forced_end);
            report_lost(keepers, id, Some(SystemClock.now().wall), forced).await;
        }
        Lifecycle::Preparing | Lifecycle::Ready | Lifecycle::Started => {
            lock(&keepers.containment).remove(&id);
            if !connection.is_idle() {
                keepers.fail(id, "its keeper ended before the command was started");
            }
            // A killed keeper has left its directory and its control group.
            let _ = tokio::task::spawn_blocking(move || recovery::remove_unused(id, &folder)).await;
        }
    }
}
