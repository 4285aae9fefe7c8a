//! The bounded list of what was refused or failed, with counts, and the file it is written to.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::clock;

/// Entries of the list. What does not fit is counted.
pub const MAX_ENTRIES: usize = 256;

/// Pause between two writes of the file.
const WRITE_INTERVAL: Duration = Duration::from_millis(100);

/// Reason of an entry: the gate refused, or the world outside did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The gate did not let it through.
    Refused,
    /// Allowed, but the look-up or the connection outside failed.
    Failed,
}

/// One thing that did not get through, and how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Refused by the gate or failed outside.
    pub outcome: Outcome,
    /// Name that was meant.
    pub name: String,
    /// Port that was meant; none where the name itself was refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
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
    changed: watch::Sender<()>,
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
        } else {
            listed.left_out += 1;
        }
        drop(listed);
        self.changed.send_replace(());
    }

    /// A copy of the list.
    pub fn listed(&self) -> Listed {
        self.lock().clone()
    }

    /// A receiver that is told of each change.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Writes the list as JSON lines to a file, which is replaced as a whole.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let Listed { entries, left_out } = self.listed();
        let mut text = Vec::new();
        for entry in entries {
            serde_json::to_writer(&mut text, &entry)?;
            text.push(b'\n');
        }
        if left_out > 0 {
            writeln!(text, "{{\"left_out\":{left_out}}}")?;
        }
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        std::fs::write(&beside, text)?;
        std::fs::rename(beside, path)
    }

    /// Writes the file after each change, at most ten times a second.
    pub async fn keep_written(&self, path: PathBuf) {
        let mut changes = self.changes();
        while changes.changed().await.is_ok() {
            if let Err(error) = self.write(&path) {
                tracing::warn!(%error, path = %path.display(), "cannot write the list of refusals");
            }
            clock::pause(WRITE_INTERVAL).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Listed> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("refused.jsonl");
        refusals.write(&path).expect("written");
        let text = std::fs::read_to_string(&path).expect("the file");
        assert_eq!(
            text.lines().next(),
            Some(
                r#"{"outcome":"refused","name":"evil.example","port":443,"reason":"not allowed","count":3}"#
            )
        );
        assert_eq!(text.lines().last(), Some(r#"{"left_out":45}"#));
    }
}
