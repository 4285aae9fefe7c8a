//! The bounded list of what was refused or failed, with counts.

use std::sync::{Mutex, MutexGuard, PoisonError};

use abide_session::sandbox::RefusalKind;
use tokio::sync::Notify;

use crate::questions::OpenQuestion;

/// Entries of the list. What does not fit is counted.
pub const MAX_ENTRIES: usize = 256;

/// Entries that the record of a session has room for.
const MAX_RECORDED: usize = 20;
/// Longest reason in the record, in characters.
const MAX_REASON: usize = 300;

/// Reason of an entry: the gate refused, or the world outside did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The gate did not let it through.
    Refused,
    /// The same, and no permission would help.
    Unreachable,
    /// Allowed, but the look-up or the connection outside failed.
    Failed,
}

/// One thing that did not get through, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Refused by the gate or failed outside.
    pub outcome: Outcome,
    /// Name that was meant.
    pub name: String,
    /// Port that was meant; none where the name itself was refused.
    pub port: Option<u16>,
    /// Half a sentence that says why.
    pub reason: String,
    /// Number of times.
    pub count: u64,
}

/// The list as readers see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Entries in the order of their first occurrence.
    pub entries: Vec<Entry>,
    /// Occurrences that found no place in the list.
    pub left_out: u64,
}

/// The list of one session.
#[derive(Debug, Default)]
pub struct Refusals {
    listed: Mutex<Listed>,
    added: Notify,
}

impl Refusals {
    /// Counts one more occurrence.
    pub fn record(&self, outcome: Outcome, name: &str, port: Option<u16>, reason: &str) {
        tracing::info!(?outcome, name, port, reason, "not let through");
        let mut listed = self.lock();
        let same =
            |entry: &&mut Entry| entry.name == name && entry.port == port && entry.reason == reason;
        if let Some(entry) = listed.entries.iter_mut().find(same) {
            entry.count += 1;
        } else if listed.entries.len() < MAX_ENTRIES {
            listed.entries.push(Entry {
                outcome,
                name: name.to_owned(),
                port,
                reason: reason.to_owned(),
                count: 1,
            });
            self.added.notify_one();
        } else {
            listed.left_out += 1;
        }
    }

    /// Waits for a new entry, also one that was added since the last call.
    pub async fn added(&self) {
        self.added.notified().await;
    }

    /// A copy of the list.
    pub fn listed(&self) -> Listed {
        self.lock().clone()
    }

    /// The list for the record of the session: the number of refusals, then one line for each entry of which the record
    /// has room. Connections that wait for a person are among them: the command may end while they do.
    pub fn for_keeper(&self, waiting: &[OpenQuestion]) -> Vec<u8> {
        let Listed {
            mut entries,
            left_out,
        } = self.listed();
        entries.extend(waiting.iter().map(|question| Entry {
            outcome: Outcome::Refused,
            name: question.target.name.as_str().to_owned(),
            port: Some(question.target.port),
            reason: "waiting for a person's answer".to_owned(),
            count: 1,
        }));
        let refused = entries
            .iter()
            .filter(|entry| entry.outcome != Outcome::Failed);
        let count: u64 = refused.map(|entry| entry.count).sum();
        let mut text = format!("{}\n", count + left_out).into_bytes();
        for entry in entries.iter().take(MAX_RECORDED) {
            let kind = match entry.outcome {
                Outcome::Refused => RefusalKind::Name,
                Outcome::Unreachable => RefusalKind::Unreachable,
                Outcome::Failed => RefusalKind::Failed,
            };
            let port = entry
                .port
                .map_or_else(String::new, |port| format!(":{port}"));
            let what = format!("{}{port} {}", entry.name, in_one_line(&entry.reason));
            kind.append(entry.count, what.as_bytes(), &mut text);
        }
        text
    }

    fn lock(&self) -> MutexGuard<'_, Listed> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn in_one_line(reason: &str) -> String {
    let one = |letter: char| if letter.is_control() { ' ' } else { letter };
    reason.chars().take(MAX_REASON).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allowlist::HostName;
    use crate::questions::Target;

    #[test]
    fn equal_refusals_are_counted_and_the_list_is_bounded() {
        let refusals = Refusals::default();
        for _ in 0..3 {
            refusals.record(Outcome::Refused, "evil.example", Some(443), "not allowed");
        }
        for number in 0..300 {
            refusals.record(
                Outcome::Refused,
                &format!("n{number}.example"),
                None,
                "not allowed",
            );
        }
        let listed = refusals.listed();
        assert_eq!(listed.entries[0].count, 3);
        assert_eq!(listed.entries.len(), MAX_ENTRIES);
        assert_eq!(listed.left_out, 301 - MAX_ENTRIES as u64);

        let text = String::from_utf8(refusals.for_keeper(&[])).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("303"), "{text}");
        assert_eq!(lines.next(), Some("name 3 evil.example:443 not allowed"));
        assert_eq!(lines.next(), Some("name 1 n0.example not allowed"));
        assert_eq!(lines.count(), MAX_RECORDED - 2);
    }

    #[test]
    fn failures_outside_are_told_and_not_counted() {
        let refusals = Refusals::default();
        refusals.record(
            Outcome::Failed,
            "late.example",
            Some(80),
            "cannot connect: timed\nout",
        );
        let expected = b"0\nfailed 1 late.example:80 cannot connect: timed out\n";
        assert_eq!(refusals.for_keeper(&[]), expected);
    }

    #[test]
    fn connections_that_wait_for_a_person_are_listed_and_counted() {
        let refusals = Refusals::default();
        refusals.record(Outcome::Refused, "evil.example", None, "not allowed");
        let waiting = OpenQuestion {
            id: 1,
            target: Target {
                name: HostName::parse("new.example").unwrap(),
                port: 443,
            },
        };
        let text = String::from_utf8(refusals.for_keeper(&[waiting])).unwrap();
        let expected = "2\nname 1 evil.example not allowed\n\
                        name 1 new.example:443 waiting for a person's answer\n";
        assert_eq!(text, expected);
    }
}
