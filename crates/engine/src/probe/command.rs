//! Probe for a command that succeeds. Each try is a session of its own. It is ended with its whole tree when the wait
//! ends.

use std::time::Duration;

use abide_core::session::StartedBy;
use abide_core::{End, Exit};
use abide_output::mask::Mask;
use anstream::adapter::strip_str;

use super::condition::Command;
use super::{Observation, Observations, ProbeContext, TryResult};
use crate::clock::pause;

/// Time limit of a try. A try that takes longer is ended and has failed.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Runs the command again and again until it succeeds.
pub(super) async fn until_succeeds(
    condition: &Command,
    context: ProbeContext<'_>,
    observations: &Observations,
) -> String {
    let shown = shown(&condition.command);
    observations.set_if_empty(|| format!("`{shown}` has not ended yet"));
    loop {
        match try_once(condition, context, observations.first).await {
            Observation::Holds(how) => {
                let seen = format!("`{shown}` {how}");
                observations.set(seen.as_str());
                return seen;
            }
            Observation::NotYet(why) => observations.set(format!("`{shown}` {why}")),
        }
        if let (Some(sessions), StartedBy::Timer(timer)) =
            (context.services.sessions.get(), context.owner.started_by)
        {
            sessions.try_observed(timer);
        }
        pause(Duration::from_millis(condition.every_ms)).await;
    }
}

/// Runs the command once.
pub(super) async fn try_once(
    condition: &Command,
    context: ProbeContext<'_>,
    leaf: usize,
) -> Observation {
    use Observation::{Holds, NotYet};
    let Some(sessions) = context.services.sessions.get() else {
        return std::future::pending().await;
    };
    let (ending, last_line, sandbox) = match sessions.try_once(condition, context.owner, leaf).await
    {
        TryResult::Ended {
            ending,
            last_line,
            sandbox,
        } => (ending, last_line, sandbox),
        TryResult::NotRun(why) => return NotYet(format!("cannot be run: {why}")),
    };
    let last = match last_line.trim() {
        "" => String::new(),
        line => format!(": {}", shown(line)),
    };
    let sandbox = sandbox.map_or_else(String::new, |sandbox| format!("; {sandbox}"));
    let last = format!("{last}{sandbox}");
    match (ending.end, ending.exit) {
        (End::Deadline, _) => NotYet(format!("had not ended after {}s{last}", LIMIT.as_secs())),
        (_, Some(Exit::Code(0))) => Holds(format!("exited with code 0{last}")),
        (_, Some(Exit::Code(code))) => NotYet(format!("exited with code {code}{last}")),
        (_, Some(Exit::Signal(signal))) => NotYet(format!("was ended by signal {signal}{last}")),
        (_, None) => NotYet(format!("was lost{last}")),
    }
}

/// Text on one line, shortened, without control sequences and tokens of known formats: timers tell it to their agents.
fn shown(text: &str) -> String {
    const MAX_CHARS: usize = 120;
    // A colour would hide where a token begins.
    let clean: String = Mask::default()
        .apply(strip_str(text).to_string())
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    abide_core::shorten(&clean, MAX_CHARS)
}
