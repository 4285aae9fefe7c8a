//! Sessions that could open a port on this machine. Only sessions of the waiting agent are known: if some of them ran
//! and all have ended, the port will not open any more.

use std::time::Duration;

use abide_core::SessionId;

use super::ProbeContext;
use super::session::{PortCandidates, SessionEnd};
use crate::clock::pause;

/// Extra time after a session that ended with code 0, which may have launched a server elsewhere, such as in a
/// container.
const LAUNCH_GRACE: Duration = Duration::from_secs(5);

/// Follows the sessions that could open a port; `None`: nothing is known about such a port.
pub(super) fn follow(context: ProbeContext<'_>, local: bool) -> Option<Box<dyn PortCandidates>> {
    let since = context.owner.since.filter(|_| local)?;
    let sessions = context.services.sessions.get()?;
    Some(sessions.port_candidates(&context.owner.agent, since))
}

/// Waits until no session is left that could open the port, and describes the last one.
pub(super) async fn all_ended(candidates: Option<Box<dyn PortCandidates>>) -> String {
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
    describe(&last)
}

/// Reason why the port cannot open any more.
fn describe(last: &SessionEnd) -> String {
    let SessionEnd {
        session,
        command,
        how,
        ..
    } = last;
    last.with_output(format!(
        "{NONE_LEFT}{session} (`{command}`) has ended, {how}"
    ))
}

/// Beginning of the reason why a port cannot open any more; the session follows.
const NONE_LEFT: &str = "No session is left that could open it: ";

/// Session whose end is the reason why a port cannot open any more.
pub fn last_port_candidate(reason: &str) -> Option<SessionId> {
    let (_, rest) = reason.split_once(NONE_LEFT)?;
    rest.split_once(' ')?.0.parse().ok()
}
