//! Whether anything is left that could open a port on this machine. The sessions of the agent that waits are
//! all that is known here: where some of them ran and all have ended, the port will not open any more.

use std::time::Duration;

use super::ProbeContext;
use super::session::{PortCandidates, SessionEnd};
use crate::clock::pause;

/// A session that ended with code 0 may have launched a server elsewhere, such as in a container; that gets
/// this much longer.
const LAUNCH_GRACE: Duration = Duration::from_secs(5);

/// The sessions that could open a port, followed from now on; `None`: of such a port nothing is known.
pub(super) fn follow(context: ProbeContext<'_>, local: bool) -> Option<Box<dyn PortCandidates>> {
    let since = context.owner.since.filter(|_| local)?;
    let sessions = context.services.sessions.get()?;
    Some(sessions.port_candidates(&context.owner.agent, since))
}

/// Ends when no session is left that could open the port, and says which was the last.
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

fn describe(last: &SessionEnd) -> String {
    let SessionEnd {
        session,
        command,
        how,
        ..
    } = last;
    last.with_output(format!(
        "No session is left that could open it: {session} (`{command}`) has ended, {how}"
    ))
}
