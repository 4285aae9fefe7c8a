//! Audit log: one line of JSON per decision about a command of an agent, written before the command is started or refused.
//! One file a day; files are removed after 90 days.
//!
//! Every line has the SHA-256 hash of the line before it, across files. A line that is changed, removed or inserted later
//! breaks the chain there. A process that can write the files can also write a new chain: the hash of the last line, kept
//! elsewhere, shows that.

mod verify;

use std::fs::File;
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use abide_api::AuditLine;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

pub use verify::{Verified, VerifyFault};

use crate::clock::{Clock, SystemClock};
use crate::lock::lock;
use crate::{secret, timestamp};

/// Days that files are kept.
const KEPT_DAYS: u64 = 90;
/// End of the name of a file.
const SUFFIX: &str = ".jsonl";
/// Milliseconds of a day.
const DAY: u64 = 24 * 3_600 * 1_000;
/// Bytes at the end of a file in which its last line is looked for first.
const TAIL: u64 = 64 << 10;

/// Audit log of one installation.
pub struct AuditLog {
    folder: PathBuf,
    today: Mutex<Option<Today>>,
}

/// File that lines are appended to.
struct Today {
    day: u64,
    file: File,
    /// Length of the file after the last line that this process wrote. Another process may have written since.
    length: u64,
    /// Hash of the last line.
    last: String,
}

/// Decision that could not be recorded, so that it must not start anything.
#[derive(Debug, thiserror::Error)]
#[error("the audit log in '{}' cannot be written: {fault}", folder.display())]
pub struct Unrecorded {
    folder: PathBuf,
    fault: io::Error,
}

impl Unrecorded {
    /// True if the disk is full or the daemon can open no more files. Then a start fails by itself, or its result says
    /// what could not be read.
    pub fn is_shortage(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        let is_full = matches!(self.fault.kind(), QuotaExceeded | StorageFull);
        let fault = Errno::from_io_error(&self.fault);
        is_full || fault.is_some_and(|fault| [Errno::MFILE, Errno::NFILE].contains(&fault))
    }
}

/// Page of an audit log.
#[derive(Debug, Default)]
pub struct AuditPage {
    /// Lines, newest first.
    pub entries: Vec<AuditLine>,
    /// Place from which older lines are read. `None`: there are none.
    pub next: Option<AuditPlace>,
    /// Place of the last line of the page.
    last: Option<AuditPlace>,
}

/// Place in an audit log: only older lines follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditPlace {
    file: String,
    line: usize,
}

impl std::fmt::Display for AuditPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let day = self.file.trim_end_matches(SUFFIX);
        write!(f, "{day}.{}", self.line)
    }
}

impl std::str::FromStr for AuditPlace {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (day, line) = text.split_once('.').ok_or(())?;
        let is_day = day.len() == 10
            && day
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'-');
        let line = line.parse().map_err(drop)?;
        let file = format!("{day}{SUFFIX}");
        is_day.then_some(AuditPlace { file, line }).ok_or(())
    }
}

impl AuditLog {
    /// Log in this directory, which is created when the first line is written.
    pub fn new(folder: PathBuf) -> Self {
        AuditLog {
            folder,
            today: Mutex::default(),
        }
    }

    /// Appends a line about what has happened. A log that cannot be written is reported in the daemon's log.
    pub fn append(&self, entry: AuditLine) {
        let _ = self.record(entry);
    }

    /// Appends a decision before it is carried out, with the present time.
    pub fn record(&self, entry: AuditLine) -> Result<(), Unrecorded> {
        let at = SystemClock.now().wall.0;
        self.write(AuditLine { at, ..entry }).map_err(|fault| {
            let folder = self.folder.clone();
            let unrecorded = Unrecorded { folder, fault };
            tracing::error!("{unrecorded}");
            unrecorded
        })
    }

    fn write(&self, mut entry: AuditLine) -> io::Result<()> {
        let day = entry.at / DAY;
        let mut today = lock(&self.today);
        let today = match &mut *today {
            Some(today) if today.day == day && !today.is_deleted()? => today,
            slot => slot.insert(self.open(day)?),
        };
        // A daemon that takes over writes while the former one still does.
        flock(&today.file, FlockOperation::LockExclusive)?;
        let written = today.append(&mut entry, &self.folder);
        flock(&today.file, FlockOperation::Unlock)?;
        written
    }

    fn open(&self, day: u64) -> io::Result<Today> {
        let mut make = std::fs::DirBuilder::new();
        make.recursive(true).mode(0o700).create(&self.folder)?;
        self.remove_old(day);
        let mut open = File::options();
        let open = open.create(true).append(true).read(true).mode(0o600);
        Ok(Today {
            day,
            file: open.open(self.folder.join(file_name(day)))?,
            length: u64::MAX,
            last: String::new(),
        })
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

    /// Page of lines that match, newest first. `after` is the [`AuditPage::next`] of the page before.
    pub fn page(
        &self,
        after: Option<&AuditPlace>,
        most: usize,
        matches: impl Fn(&AuditLine) -> bool,
    ) -> AuditPage {
        let mut page = AuditPage::default();
        let files = names(&self.folder).into_iter().rev();
        for name in files.filter(|name| after.is_none_or(|place| *name <= place.file)) {
            let Ok(file) = File::open(self.folder.join(&name)) else {
                continue;
            };
            let lines: Vec<_> = io::BufReader::new(file)
                .split(b'\n')
                .map_while(Result::ok)
                .collect();
            let before = match after {
                Some(place) if place.file == name => place.line.min(lines.len()),
                _ => lines.len(),
            };
            for (line, text) in lines[..before].iter().enumerate().rev() {
                let Ok(entry) = serde_json::from_slice(text) else {
                    continue;
                };
                if !matches(&entry) {
                    continue;
                }
                if page.entries.len() == most {
                    page.next = page.last.take();
                    return page;
                }
                page.entries.push(entry);
                page.last = Some(AuditPlace {
                    file: name.clone(),
                    line,
                });
            }
        }
        page
    }

    /// Lines from this time on, oldest first, at most `most`: the newest ones. A line that is not valid is skipped.
    pub fn read(&self, since: u64, most: usize) -> Vec<AuditLine> {
        self.read_matching(since, most, |_| true)
    }

    /// The same, of the lines that match.
    pub fn read_matching(
        &self,
        since: u64,
        most: usize,
        matches: impl Fn(&AuditLine) -> bool,
    ) -> Vec<AuditLine> {
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
                let Ok(entry) = serde_json::from_str::<AuditLine>(&line) else {
                    continue;
                };
                if entry.at >= since && matches(&entry) {
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

impl Today {
    /// True if the file was removed: lines written to it would be lost.
    fn is_deleted(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.nlink() == 0)
    }

    fn append(&mut self, entry: &mut AuditLine, folder: &Path) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        let mut lines = Vec::new();
        if length != self.length {
            let (last, is_torn) = last_line(&mut self.file)?;
            self.last = match last {
                Some(line) => hash(&line),
                None => hash_before(folder, &file_name(self.day))?,
            };
            if is_torn {
                lines.push(b'\n');
            }
        }
        entry.previous.clone_from(&self.last);
        let line = serde_json::to_vec(entry)?;
        self.last = hash(&line);
        lines.extend_from_slice(&line);
        lines.push(b'\n');
        // Unknown until the line is complete.
        self.length = u64::MAX;
        self.file.write_all(&lines)?;
        self.length = length + lines.len() as u64;
        Ok(())
    }
}

/// Hash of a line, without its newline.
fn hash(line: &[u8]) -> String {
    secret::hex(&Sha256::digest(line))
}

/// Hash of the last line of the newest file before this one. Empty: there is none.
fn hash_before(folder: &Path, file: &str) -> io::Result<String> {
    let earlier = names(folder).into_iter().rev();
    for name in earlier.filter(|name| name.as_str() < file) {
        let (last, _) = last_line(&mut File::open(folder.join(name))?)?;
        if let Some(line) = last {
            return Ok(hash(&line));
        }
    }
    Ok(String::new())
}

/// Last line of a file, without its newline. `true`: it has none, because writing it was interrupted.
fn last_line(file: &mut File) -> io::Result<(Option<Vec<u8>>, bool)> {
    let length = file.seek(SeekFrom::End(0))?;
    let mut span = TAIL;
    loop {
        let from = length.saturating_sub(span);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        let mut tail = (&*file).take(length - from);
        tail.read_to_end(&mut bytes)?;
        let is_torn = bytes.last().is_some_and(|byte| *byte != b'\n');
        if !is_torn {
            bytes.pop();
        }
        let begin = bytes.iter().rposition(|byte| *byte == b'\n');
        if begin.is_some() || from == 0 {
            let line = bytes.split_off(begin.map_or(0, |at| at + 1));
            return Ok(((length > 0).then_some(line), is_torn));
        }
        span *= 4;
    }
}

/// Names of the files, oldest first.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(SUFFIX)).collect();
    names.sort();
    names
}

fn file_name(day: u64) -> String {
    let date = timestamp::rfc3339(day * DAY);
    format!("{}{SUFFIX}", date.split('T').next().unwrap_or_default())
}
