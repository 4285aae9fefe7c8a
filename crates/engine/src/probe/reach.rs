//! Repeated attempts to reach a server, for ports and URLs. On this machine only sessions of the waiting agent are expected to
//! open the port: if one of them failed and none is left, the port will not open any more.

use std::pin::pin;

use super::session::SessionEnd;
use super::{Impossible, Observations, OutOfBounds, ProbeContext};
use crate::session_access::CandidateFollower;

/// Error of an attempt at a port of this machine that no command of the agent has opened.
pub(super) const NOT_OPENED: &str = "no command of this agent listens there";

/// Result of one attempt, as the end of a sentence about the server.
pub(super) enum Attempt {
    Holds(String),
    /// The server answers, but not as it should.
    Mismatch(String),
    NoAnswer(String),
}

impl Attempt {
    pub fn holds(&self) -> bool {
        matches!(self, Attempt::Holds(_))
    }
}

/// Repeats an attempt, with a back-off, until it succeeds or no session is left that could open the port. `name`: name of the
/// server in sentences; `local`: it is on this machine.
pub(super) async fn until_reached<F: Future<Output = Result<Attempt, OutOfBounds>>>(
    name: &str,
    local: bool,
    every_ms: Option<u64>,
    context: ProbeContext<'_>,
    observations: &Observations,
    attempt: impl Fn() -> F,
) -> Result<String, Impossible> {
    observations.set_if_empty(|| format!("{name}: no answer yet"));
    let mut backoff = context.services.active.begin(local, every_ms);
    let mut candidates = pin!(all_failed(follow(context, local)));
    let mut last = None;
    loop {
        let answered = match attempt().await? {
            Attempt::Holds(seen) => {
                let seen = format!("{name} {seen}");
                observations.set(seen.as_str());
                return Ok(seen);
            }
            Attempt::Mismatch(why) => {
                observations.set(format!("{name}: {why}"));
                true
            }
            Attempt::NoAnswer(why) => {
                let why = format!("{name}: {why}");
                observations.set(why.as_str());
                // This attempt was the last one: nothing other than the agent's sessions answers.
                if let Some(last) = &last {
                    return Err(impossible(&why, last));
                }
                false
            }
        };
        tokio::select! {
            ended = &mut candidates, if last.is_none() => last = Some(ended),
            () = backoff.pause(answered) => {}
        }
    }
}

/// Follows the sessions that could open a port; `None`: nothing is known about such a port.
fn follow(context: ProbeContext<'_>, local: bool) -> Option<CandidateFollower> {
    let since = context.owner.since.filter(|_| local)?;
    let sessions = context.services.sessions.get()?;
    Some(sessions.port_candidates(context.owner, since))
}

/// Waits until no session is left that could open the port, and returns the last one that failed.
async fn all_failed(candidates: Option<CandidateFollower>) -> SessionEnd {
    match candidates {
        Some(mut candidates) => candidates.all_failed().await,
        None => std::future::pending().await,
    }
}

/// Reason why the port cannot open any more. `attempt`: the result of the last attempt.
fn impossible(attempt: &str, last: &SessionEnd) -> Impossible {
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
