//! The daemon's record of a session, in one file beside the keeper's record ([`keeper_record`]): the name that the session
//! was given later, changed limits, the size of its terminal, an interruption, the requests that acted on it, and read
//! cursors. The next daemon reads it. If it is lost, everything counts as unread and unchanged again.
//!
//! A change appends one line, and the last line about a thing counts. A line that cannot be read is skipped. A file that
//! has grown is replaced by a shorter one with the same content. Nothing is synced: a power cut may lose the last
//! changes.
//!
//! A reader gets its answer first; its new cursor is applied when the answer has left. A daemon that dies
//! in between shows the same output once more, which is better than never. A deferred change is visible to
//! all readers in this daemon.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use abide_core::{Millis, Mono};
use sha2::{Digest, Sha256};

use super::launch::Size;
use super::{crash_point, keeper_record, private_file};

const FILE: &str = "daemon";
/// Number of requests that are remembered. A client only repeats what a daemon that died has not answered.
const REQUEST_LIMIT: usize = 64;
/// Hex digits of a request's hash that are stored.
const REQUEST_DIGITS: usize = 32;
/// Length of the file, in bytes, from which it is replaced by a shorter one.
const LONG: u64 = 64 << 10;

/// Limits of a session after they were changed while it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedLimits {
    /// The idle limit.
    pub idle: Option<Millis>,
    /// The inactivity limit.
    pub inactivity: Option<Millis>,
    /// The deadline, counted from the start of the session. For display only; the keeper enforces it.
    pub deadline: Option<Millis>,
    /// Monotonic time before which no question about idleness is asked. Valid only within the boot in which the
    /// session runs.
    pub unasked_until: Mono,
}

/// Names of readers and their cursors, as they are stored.
pub type Cursors = Vec<(String, String)>;

/// Content of the record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonRecord {
    /// The name that the session was given last; empty if its name was removed, `None` if it was not changed.
    pub name: Option<String>,
    /// The limits after the last change.
    pub limits: Option<ChangedLimits>,
    /// The size of the terminal after the last change.
    pub size: Option<Size>,
    /// True if a person has interrupted a call that waited for the session.
    pub interrupted: bool,
    /// Hashes of the last requests that acted on the session, the oldest first.
    requests: VecDeque<String>,
    cursors: Cursors,
}

impl DaemonRecord {
    /// Reads the record of the session in this directory. A record that cannot be read counts as empty.
    pub fn read(session_folder: &Path) -> Self {
        let bytes = keeper_record::read(&session_folder.join(FILE))
            .ok()
            .flatten();
        DaemonRecord::decode(&bytes.unwrap_or_default())
    }

    pub(super) fn decode(bytes: &[u8]) -> Self {
        let mut record = DaemonRecord::default();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\n");
            let line = line.and_then(|line| std::str::from_utf8(line).ok());
            if let Some(change) = line.and_then(Change::decode) {
                record.apply(&change);
            }
        }
        record
    }

    /// The lines that make this record.
    pub(super) fn encode(&self) -> String {
        let name = self.name.as_deref().map(Change::Name);
        let limits = self.limits.map(Change::Limits);
        let size = self.size.map(Change::Size);
        let interrupted = self.interrupted.then_some(Change::Interrupted);
        let requests = self.requests.iter().map(|hash| Change::Request(hash));
        let cursors =
            (self.cursors.iter()).map(|(reader, cursor)| Change::Cursor { reader, cursor });
        let changes = name.into_iter().chain(limits).chain(size);
        let changes = changes.chain(interrupted).chain(requests).chain(cursors);
        changes.map(|change| change.to_string()).collect()
    }

    pub(super) fn apply(&mut self, change: &Change<'_>) {
        match *change {
            Change::Name(name) => self.name = Some(name.to_owned()),
            Change::Limits(limits) => self.limits = Some(limits),
            Change::Size(size) => self.size = Some(size),
            Change::Interrupted => self.interrupted = true,
            Change::Request(hash) => {
                self.requests.push_back(hash.to_owned());
                if self.requests.len() > REQUEST_LIMIT {
                    self.requests.pop_front();
                }
            }
            Change::Cursor { reader, cursor } => {
                match self.cursors.iter_mut().find(|(name, _)| name == reader) {
                    Some((_, stored)) => *stored = cursor.to_owned(),
                    None => self.cursors.push((reader.to_owned(), cursor.to_owned())),
                }
            }
            Change::CursorRemoved { reader } => self.cursors.retain(|(name, _)| name != reader),
        }
    }
}

/// One line of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change<'a> {
    Name(&'a str),
    Limits(ChangedLimits),
    Size(Size),
    Interrupted,
    Request(&'a str),
    Cursor { reader: &'a str, cursor: &'a str },
    CursorRemoved { reader: &'a str },
}

impl fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Change::Name(name) => writeln!(f, "name={name}"),
            Change::Limits(limits) => {
                f.write_str("limits=")?;
                for limit in [limits.idle, limits.inactivity, limits.deadline] {
                    match limit {
                        Some(limit) => write!(f, "{} ", limit.0)?,
                        None => f.write_str("none ")?,
                    }
                }
                writeln!(f, "{}", limits.unasked_until.0)
            }
            Change::Size(size) => writeln!(f, "size={} {}", size.cols, size.rows),
            Change::Interrupted => writeln!(f, "interrupted=1"),
            Change::Request(hash) => writeln!(f, "request={hash}"),
            Change::Cursor { reader, cursor } => writeln!(f, "cursor={cursor} {reader}"),
            Change::CursorRemoved { reader } => writeln!(f, "cursor_removed={reader}"),
        }
    }
}

impl<'a> Change<'a> {
    fn decode(line: &'a str) -> Option<Self> {
        let (kind, value) = line.split_once('=')?;
        Some(match kind {
            "name" => Change::Name(value),
            "limits" => {
                let words: Vec<&str> = value.split(' ').collect();
                let &[idle, inactivity, deadline, unasked_until] = words.as_slice() else {
                    return None;
                };
                let limit = |word: &str| match word {
                    "none" => Some(None),
                    word => word.parse().ok().map(|ms| Some(Millis(ms))),
                };
                Change::Limits(ChangedLimits {
                    idle: limit(idle)?,
                    inactivity: limit(inactivity)?,
                    deadline: limit(deadline)?,
                    unasked_until: Mono(unasked_until.parse().ok()?),
                })
            }
            "size" => {
                let (cols, rows) = value.split_once(' ')?;
                Change::Size(Size {
                    cols: cols.parse().ok()?,
                    rows: rows.parse().ok()?,
                })
            }
            "interrupted" => Change::Interrupted,
            "request" => Change::Request(value),
            "cursor" => {
                let (cursor, reader) = value.split_once(' ')?;
                Change::Cursor { reader, cursor }
            }
            "cursor_removed" => Change::CursorRemoved { reader: value },
            _ => return None,
        })
    }
}

/// The records that are open in this daemon. All who use the record of a session share one.
#[derive(Default)]
pub struct DaemonRecords(Mutex<HashMap<PathBuf, Shared>>);

struct Shared {
    file: Arc<Mutex<RecordFile>>,
    users: usize,
}

impl DaemonRecords {
    /// Opens the record of the session in this directory. The file need not exist.
    pub fn open(self: &Arc<Self>, session_folder: &Path) -> OpenRecord {
        let mut all = self.0.lock().expect("no holder panics");
        let shared = all
            .entry(session_folder.to_owned())
            .or_insert_with(|| Shared {
                file: Arc::new(Mutex::new(RecordFile::load(session_folder))),
                users: 0,
            });
        shared.users += 1;
        OpenRecord {
            records: self.clone(),
            folder: session_folder.to_owned(),
            file: shared.file.clone(),
            has_deferred: AtomicBool::new(false),
        }
    }
}

/// The record of one session, open. Dropping this writes the deferred changes of cursors to the file.
pub struct OpenRecord {
    records: Arc<DaemonRecords>,
    folder: PathBuf,
    file: Arc<Mutex<RecordFile>>,
    /// This user has deferred a change.
    has_deferred: AtomicBool,
}

impl OpenRecord {
    /// Stores another name; an empty one if the session has no name now.
    pub fn set_name(&self, name: &str) -> io::Result<()> {
        self.change(&Change::Name(name))
    }

    /// Stores changed limits.
    pub fn set_limits(&self, limits: ChangedLimits) -> io::Result<()> {
        self.change(&Change::Limits(limits))
    }

    /// Stores another size of the terminal.
    pub fn set_size(&self, size: Size) -> io::Result<()> {
        self.change(&Change::Size(size))
    }

    /// Stores that a person has interrupted a call that waited for the session.
    pub fn mark_interrupted(&self) -> io::Result<()> {
        self.change(&Change::Interrupted)
    }

    fn change(&self, change: &Change<'_>) -> io::Result<()> {
        let mut file = self.file.lock().expect("no holder panics");
        file.record.apply(change);
        file.append(&change.to_string())
    }

    /// Records that a request begins. If that fails, the request is carried out all the same.
    pub fn begin_request(&self, request: &RequestName) {
        if let RequestName(Some(hash)) = request
            && !self.has_begun(request)
            && let Err(fault) = self.change(&Change::Request(hash))
        {
            let folder = self.folder.display();
            tracing::warn!("cannot record in {folder} that a request has begun: {fault}");
        }
    }

    /// True if the request has begun before.
    pub fn has_begun(&self, RequestName(hash): &RequestName) -> bool {
        let file = self.file.lock().expect("no holder panics");
        (hash.as_ref()).is_some_and(|hash| file.record.requests.contains(hash))
    }

    /// Applies the deferred changes and reads the cursors.
    pub fn with_cursors<T>(&self, see: impl FnOnce(&Cursors) -> T) -> T {
        let mut file = self.file.lock().expect("no holder panics");
        file.apply_deferred();
        see(&file.record.cursors)
    }

    /// Defers a change of the cursors until they are read, and at the latest until this is dropped.
    pub fn defer(&self, change: impl FnOnce(&mut Cursors) + Send + 'static) {
        let mut file = self.file.lock().expect("no holder panics");
        file.deferred.push(Box::new(change));
        self.has_deferred.store(true, Ordering::Relaxed);
    }
}

impl Drop for OpenRecord {
    fn drop(&mut self) {
        // The lock is held: the next user finds the cursors in memory or on disk.
        let mut all = self.records.0.lock().expect("no holder panics");
        if self.has_deferred.load(Ordering::Relaxed) {
            self.file.lock().expect("no holder panics").save_cursors();
        }
        if let Some(shared) = all.get_mut(&self.folder) {
            shared.users -= 1;
            if shared.users == 0 {
                all.remove(&self.folder);
            }
        }
    }
}

/// Name of a request that acts on a session, if it has a key and may be repeated. If a daemon dies before it has answered,
/// the next daemon recognises the repeated request, even if the first one ended the session.
pub struct RequestName(Option<String>);

impl RequestName {
    /// The request to do `what` to a session, under this key. The same key with another `what` is another request.
    pub fn new(what: &str, key: Option<&[u8]>) -> Self {
        RequestName(key.map(|key| {
            let hash = Sha256::new()
                .chain_update(what)
                .chain_update([0])
                .chain_update(key)
                .finalize();
            let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            digits[..REQUEST_DIGITS].to_owned()
        }))
    }
}

/// A change of the cursors that is not applied yet.
type Deferred = Box<dyn FnOnce(&mut Cursors) + Send>;

/// The file of one record. It stays open.
struct RecordFile {
    path: PathBuf,
    file: Option<File>,
    /// Length of the file.
    length: u64,
    /// The last line has no end, so the next one must not continue it.
    is_torn: bool,
    record: DaemonRecord,
    deferred: Vec<Deferred>,
    /// Cursors that the file has.
    stored: Cursors,
}

impl RecordFile {
    fn load(session_folder: &Path) -> Self {
        let path = session_folder.join(FILE);
        let file = options().open(&path).ok();
        let mut bytes = Vec::new();
        if let Some(file) = &file
            && let Err(fault) = file.take(keeper_record::LONGEST).read_to_end(&mut bytes)
        {
            tracing::warn!("cannot read {}: {fault}", path.display());
        }
        let record = DaemonRecord::decode(&bytes);
        RecordFile {
            path,
            file,
            length: bytes.len() as u64,
            is_torn: bytes.last().is_some_and(|last| *last != b'\n'),
            stored: record.cursors.clone(),
            record,
            deferred: Vec::new(),
        }
    }

    fn apply_deferred(&mut self) {
        for change in std::mem::take(&mut self.deferred) {
            change(&mut self.record.cursors);
        }
    }

    /// Writes the cursors that have changed.
    fn save_cursors(&mut self) {
        self.apply_deferred();
        if self.stored == self.record.cursors {
            return;
        }
        crash_point("cursors.before_write");
        let is_stored = |entry: &&(String, String)| self.stored.contains(entry);
        let is_removed = |entry: &&(String, String)| {
            !(self.record.cursors.iter()).any(|(reader, _)| *reader == entry.0)
        };
        let removed = (self.stored.iter().filter(is_removed))
            .map(|(reader, _)| Change::CursorRemoved { reader });
        let changed = (self.record.cursors.iter().filter(|entry| !is_stored(entry)))
            .map(|(reader, cursor)| Change::Cursor { reader, cursor });
        let lines: String = removed.chain(changed).map(|of| of.to_string()).collect();
        if let Err(fault) = self.append(&lines) {
            let path = self.path.display();
            tracing::warn!("cannot record in {path} how far the output was read: {fault}");
        }
        self.stored.clone_from(&self.record.cursors);
        crash_point("cursors.after_write");
    }

    fn append(&mut self, lines: &str) -> io::Result<()> {
        if self.length > LONG {
            return self.replace();
        }
        let file = match &mut self.file {
            Some(file) => file,
            file @ None => file.insert(options().create(true).open(&self.path)?),
        };
        let end = if self.is_torn { "\n" } else { "" };
        file.write_all(format!("{end}{lines}").as_bytes())?;
        self.is_torn = false;
        self.length += lines.len() as u64;
        Ok(())
    }

    /// Replaces the file by one that holds only what counts.
    fn replace(&mut self) -> io::Result<()> {
        let lines = self.record.encode();
        private_file::write(&self.path, &lines)?;
        self.file = None;
        self.length = lines.len() as u64;
        self.is_torn = false;
        Ok(())
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).append(true);
    options.mode(0o600).custom_flags(keeper_record::PLAIN);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Arc<DaemonRecords> {
        Arc::default()
    }

    fn cursors(cursors: &[(&str, &str)]) -> Cursors {
        let owned = |(name, cursor): &(&str, &str)| ((*name).to_owned(), (*cursor).to_owned());
        cursors.iter().map(owned).collect()
    }

    #[test]
    fn written_cursors_replace_the_old_ones() {
        let folder = tempfile::tempdir().unwrap();
        let records = records();
        assert_eq!(records.open(folder.path()).with_cursors(Cursors::clone), []);
        for written in [
            cursors(&[("a", "1")]),
            cursors(&[("a", "123456o100E99p"), ("b", "7")]),
            cursors(&[("a", "8"), ("c", "7")]),
        ] {
            let record = records.open(folder.path());
            let new = written.clone();
            record.defer(|known| *known = new);
            drop(record);
            assert_eq!(DaemonRecord::read(folder.path()).cursors, written);
        }
    }

    /// A deferred change is visible at once in this daemon, and in the next daemon when its reader is dropped,
    /// even if others still read.
    #[test]
    fn deferred_change_is_visible_at_once_and_written_on_drop() {
        let folder = tempfile::tempdir().unwrap();
        let here = records();
        let on_disk = || DaemonRecord::read(folder.path()).cursors;
        let (one, other) = (here.open(folder.path()), here.open(folder.path()));
        one.defer(|known| known.push(("a".into(), "5".into())));
        assert_eq!(other.with_cursors(Cursors::clone), cursors(&[("a", "5")]));
        drop(here.open(folder.path()));
        assert_eq!(on_disk(), []);
        drop(one);
        assert_eq!(on_disk(), cursors(&[("a", "5")]));
        other.defer(|known| known.push(("b".into(), "7".into())));
        drop(other);
        assert_eq!(on_disk(), cursors(&[("a", "5"), ("b", "7")]));
        assert!(here.0.lock().unwrap().is_empty());
    }

    #[test]
    fn last_name_limits_and_size_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(DaemonRecord::read(folder.path()), DaemonRecord::default());
        let limits = ChangedLimits {
            idle: Some(Millis(5)),
            inactivity: None,
            deadline: Some(Millis(u64::MAX)),
            unasked_until: Mono(7),
        };
        for (name, size) in [("build", 80), ("", 132)] {
            let size = Size {
                cols: size,
                rows: 24,
            };
            let record = records().open(folder.path());
            record.set_name(name).unwrap();
            record.set_limits(limits).unwrap();
            record.set_size(size).unwrap();
            drop(record);
            let found = DaemonRecord::read(folder.path());
            assert_eq!(found.name.as_deref(), Some(name));
            assert_eq!(found.limits, Some(limits));
            assert_eq!(found.size, Some(size));
        }
    }

    #[test]
    fn begun_request_is_known_by_its_key_and_what_it_does() {
        let folder = tempfile::tempdir().unwrap();
        let request = |what: &str, key: &str| RequestName::new(what, Some(key.as_bytes()));
        let record = records().open(folder.path());
        assert!(!record.has_begun(&request("signal", "a")));
        record.begin_request(&request("signal", "a"));
        let next = records().open(folder.path());
        assert!(next.has_begun(&request("signal", "a")));
        assert!(!next.has_begun(&request("signal", "b")));
        assert!(!next.has_begun(&request("input", "a")));
        let without_key = RequestName::new("signal", None);
        next.begin_request(&without_key);
        assert!(!next.has_begun(&without_key));
    }

    #[test]
    fn oldest_requests_are_forgotten_over_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let request = |n: usize| RequestName::new("x", Some(n.to_string().as_bytes()));
        let record = records().open(folder.path());
        for n in 0..REQUEST_LIMIT + 2 {
            record.begin_request(&request(n));
            record.begin_request(&request(n));
        }
        assert!(!record.has_begun(&request(1)) && record.has_begun(&request(2)));
        let next = records().open(folder.path());
        assert!(!next.has_begun(&request(1)) && next.has_begun(&request(2)));
    }

    #[test]
    fn long_file_is_replaced_and_keeps_what_counts() {
        let folder = tempfile::tempdir().unwrap();
        let record = records().open(folder.path());
        record.set_name("build").unwrap();
        let length = || std::fs::metadata(folder.path().join(FILE)).unwrap().len();
        let size = |cols| Size { cols, rows: 24 };
        for _ in 0..LONG / 10 {
            record.set_size(size(80)).unwrap();
        }
        record.set_size(size(132)).unwrap();
        assert!(length() <= LONG + 100, "{}", length());
        let found = DaemonRecord::read(folder.path());
        assert_eq!(found.name.as_deref(), Some("build"));
        assert_eq!(found.size, Some(size(132)));
    }

    #[test]
    fn torn_line_is_skipped_and_not_continued() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), "name=a\nsize=80 2").unwrap();
        let found = DaemonRecord::read(folder.path());
        assert_eq!((found.name.as_deref(), found.size), (Some("a"), None));
        let record = records().open(folder.path());
        record.set_name("b").unwrap();
        let found = DaemonRecord::read(folder.path());
        assert_eq!(found.name.as_deref(), Some("b"));
    }
}
