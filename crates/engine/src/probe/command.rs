//! Whether a command succeeds. Each try is a session of its own, ended with everything it started as soon as
//! the search for the condition ends.

use std::time::Duration;

use abide_core::{End, Exit};

use super::condition::Command;
use super::{Search, Slots, Tried};
use crate::clock::pause;

/// A try that takes longer is ended, and did not succeed.
pub const LIMIT: Duration = Duration::from_secs(60);

pub(super) async fn until_succeeds(wanted: &Command, search: Search<'_>, slots: &Slots) -> String {
    let shown = shown(&wanted.command);
    slots.begin(|| format!("`{shown}` has not ended yet"));
    loop {
        match look(wanted, search, slots.first).await {
            Ok(()) => {
                let seen = format!("`{shown}` exited with code 0");
                slots.say(seen.as_str());
                return seen;
            }
            Err(why) => slots.say(format!("`{shown}` {why}")),
        }
        pause(Duration::from_millis(wanted.every_ms)).await;
    }
}

/// One try.
pub(super) async fn look(wanted: &Command, search: Search<'_>, leaf: usize) -> Result<(), String> {
    let Some(sessions) = search.tools.sessions.get() else {
        return std::future::pending().await;
    };
    let (ending, last_line) = match sessions.try_once(wanted, search.owner, leaf).await {
        Tried::Ended { ending, last_line } => (ending, last_line),
        Tried::NotRun(why) => return Err(format!("cannot be run: {why}")),
    };
    let last = match last_line.trim() {
        "" => String::new(),
        line => format!(": {}", shown(line)),
    };
    match (ending.end, ending.exit) {
        (End::Deadline, _) => Err(format!("had not ended after {}s{last}", LIMIT.as_secs())),
        (_, Some(Exit::Code(0))) => Ok(()),
        (_, Some(Exit::Code(code))) => Err(format!("exited with code {code}{last}")),
        (_, Some(Exit::Signal(signal))) => Err(format!("was ended by signal {signal}{last}")),
        (_, None) => Err(format!("was lost{last}")),
    }
}

fn shown(text: &str) -> String {
    const MOST: usize = 120;
    let clean: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    match clean.char_indices().nth(MOST) {
        None => clean,
        Some((cut, _)) => format!("{}…", &clean[..cut]),
    }
}
