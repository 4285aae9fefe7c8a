//! Sessions that could open a port on this machine. Only sessions of the waiting agent are known: if some of them ran
//! and all have ended, the port will not open any more.

use std::time::Duration;

use super::session::{PortCandidates, SessionEnd};
use super::{Impossible, ProbeContext};
use crate::clock::pause;

/// Extra time after a session that ended with code 0, which may have launched a server elsewhere, such as in a
/// container.
const LAUNCH_GRACE: Duration = Duration::from_secs(5);

/// Follows the sessions that could open a port; `None`: nothing is known about such a port.
pub(super) fn follow(context: ProbeContext<'_>, local: bool) -> Option<Box<dyn PortCandidates>> {
    let since = context.owner.since.filter(|_| local)?;
    let sessions = context.services.sessions.get()?;
    Some(sessions.port_candidates(context.owner, since))
}

/// Waits until no session is left that could open the port, and returns the last one.
pub(super) async fn all_ended(candidates: Option<Box<dyn PortCandidates>>) -> SessionEnd {
    let Some(mut candidates) = candidates else {
        return std::future::pending().await;
    };
    let mut last = candidates.all_ended().await;
    while !last.failed {
        pause(LAUNCH_GRACE).await;
        let now = candidates.all_ended().await;
        let same = now.session == last.session;
        last = now;
        if same {
            break;
        }
    }
    last
}

/// Reason why the port cannot open any more. `attempt`: the result of the last attempt.
pub(super) fn impossible(attempt: &str, last: &SessionEnd) -> Impossible {
    let SessionEnd {
        session,
        command,
        how,
        ..
    } = last;
    let reason = last.with_output(format!(
        "{attempt}. No session is left that could open it: {session} (`{command}`) has ended, {how}"
    ));
    Impossible {
        reason,
        ended_sessions: vec![*session],
    }
}
