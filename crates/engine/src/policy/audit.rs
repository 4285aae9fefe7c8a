//! Audit log: one line of JSON per decision that a rule or a person made, written before the command is started or
//! refused. One file a day; files are removed after 90 days.

use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::clock::{Clock, SystemClock};
use crate::timestamp;

/// Days that files are kept.
const KEPT_DAYS: u64 = 90;
/// Milliseconds of a day.
const DAY: u64 = 24 * 3_600 * 1_000;

/// Audit log of one installation.
pub struct AuditLog {
    folder: PathBuf,
    today: Mutex<Option<(u64, File)>>,
}

/// One decision.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct AuditEntry {
    /// Time, in Unix milliseconds.
    pub at: u64,
    /// `allow`, `ask`, `deny`, `broken` (the rules cannot be used), `answered`, `expired` or `removed` (a rule).
    pub event: String,
    /// Agent that wants to run the command.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub agent: String,
    /// Working directory.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub folder: String,
    /// Command line, with secrets masked.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub command: String,
    /// Commands in it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub commands: Vec<String>,
    /// Name of the rule that decided.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rule: Option<String>,
    /// Reason of the decision.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
    /// Question that was asked or answered.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub question_id: Option<String>,
    /// Answer of the person.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answer: Option<String>,
    /// Channel of the answer: `person` or `client`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub by: Option<String>,
    /// Rules that the answer added.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub added: Vec<String>,
}

impl AuditLog {
    /// Log in this directory, which is created when the first line is written.
    pub fn new(folder: PathBuf) -> Self {
        AuditLog {
            folder,
            today: Mutex::default(),
        }
    }

    /// Appends a decision, with the present time. A log that cannot be written is reported in the daemon's log.
    pub fn append(&self, entry: AuditEntry) {
        let at = SystemClock.now().wall.0;
        if let Err(fault) = self.write(&AuditEntry { at, ..entry }) {
            tracing::error!(
                "cannot write the audit log in {}: {fault}",
                self.folder.display()
            );
        }
    }

    fn write(&self, entry: &AuditEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        let day = entry.at / DAY;
        let mut today = self.today.lock().expect("no holder panics");
        let file = match &mut *today {
            Some((of, file)) if *of == day => file,
            slot => {
                let mut make = std::fs::DirBuilder::new();
                make.recursive(true).mode(0o700).create(&self.folder)?;
                self.remove_old(day);
                let mut open = File::options();
                let open = open.create(true).append(true).mode(0o600);
                let file = open.open(self.folder.join(file_name(day)))?;
                &mut slot.insert((day, file)).1
            }
        };
        file.write_all(&line)
    }

    fn remove_old(&self, today: u64) {
        let oldest = file_name(today.saturating_sub(KEPT_DAYS));
        for name in names(&self.folder) {
            if name < oldest
                && let Err(fault) = std::fs::remove_file(self.folder.join(&name))
            {
                tracing::warn!("cannot remove the old audit log {name}: {fault}");
            }
        }
    }

    /// Lines from this time on, oldest first, at most `most`: the newest ones. A line that is not valid is skipped.
    pub fn read(&self, since: u64, most: usize) -> Vec<AuditEntry> {
        let first = file_name(since / DAY);
        let mut entries = std::collections::VecDeque::new();
        for name in names(&self.folder)
            .into_iter()
            .filter(|name| *name >= first)
        {
            let Ok(file) = File::open(self.folder.join(name)) else {
                continue;
            };
            for line in io::BufReader::new(file).lines().map_while(Result::ok) {
                let Ok(entry) = serde_json::from_str::<AuditEntry>(&line) else {
                    continue;
                };
                if entry.at >= since {
                    entries.push_back(entry);
                }
                if entries.len() > most {
                    entries.pop_front();
                }
            }
        }
        entries.into()
    }
}

/// Names of the files, oldest first.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".jsonl")).collect();
    names.sort();
    names
}

fn file_name(day: u64) -> String {
    let date = timestamp::rfc3339(day * DAY);
    format!("{}.jsonl", date.split('T').next().unwrap_or_default())
}
