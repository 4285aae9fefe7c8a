//! Sessions that could open a port on this machine. Only sessions of the waiting agent are known: if one of them
//! failed and none is left, the port will not open any more.

use super::session::SessionEnd;
use super::{Impossible, ProbeContext};
use crate::session_access::CandidateFollower;

/// Follows the sessions that could open a port; `None`: nothing is known about such a port.
pub(super) fn follow(context: ProbeContext<'_>, local: bool) -> Option<CandidateFollower> {
    let since = context.owner.since.filter(|_| local)?;
    let sessions = context.services.sessions.get()?;
    Some(sessions.port_candidates(context.owner, since))
}

/// Waits until no session is left that could open the port, and returns the last one that failed.
pub(super) async fn all_failed(candidates: Option<CandidateFollower>) -> SessionEnd {
    match candidates {
        Some(mut candidates) => candidates.all_failed().await,
        None => std::future::pending().await,
    }
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
