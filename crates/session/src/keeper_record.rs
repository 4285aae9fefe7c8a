//! A session's directory: its durable record. `meta` records the command and then its ending, `ending` the
//! ending if the keeper could not write it, `log` the output, and `ctl` is the keeper's socket. Environment
//! and input are not stored, because they may hold secrets; only fingerprints of secrets are.
//!
//! `meta` and `ending` are lines of `name=value` with a closing line that has a checksum. A file without its
//! closing line was torn. A torn `ending` counts as absent; if `meta` is damaged, the log is kept and the
//! fields that can be read are reported.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use abide_core::{Containment, End, Exit, SandboxGap, Sandboxed, SandboxedBy};
use rustix::fs::{Mode, OFlags};

use super::frame::{Exited, StartFailure};
use super::launch::{LaunchRecord, Size};

/// Name of the file that records the command and, appended to that, its ending. One file instead of two:
/// creating a file is most of what a session costs the disk.
pub const META: &str = "meta";
/// Name of the file that records the ending if the keeper could not.
pub const ENDING: &str = "ending";
/// Name of the keeper's socket.
pub const CTL: &str = "ctl";

const META_HEAD: &str = "abide meta 1";
const ENDING_HEAD: &str = "abide ending 1";

/// The command of a session and the identity of its keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Launch of the command.
    pub launch: LaunchRecord,
    /// Containment of the process tree.
    pub contained_by: Containment,
    /// Sandbox of the command.
    pub sandboxed: Sandboxed,
    /// Path of the cgroup, if there is one.
    pub cgroup: Option<Vec<u8>>,
    /// Pid of the init process of the pid namespace, which belongs to abide.
    pub init: Option<u32>,
    /// Identity of the keeper process.
    pub keeper: KeeperIdentity,
}

/// Identity of a keeper process: no other process has the same three values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeeperIdentity {
    /// Pid.
    pub pid: u32,
    /// Start time of the process in kernel ticks.
    pub start_ticks: u64,
    /// Boot id of the machine.
    pub boot_id: String,
}

/// Ending of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordedEnding {
    /// The command ran. `empty` is true if the tree is known to be gone.
    Ended(Exited),
    /// The command could not be started.
    Failed(StartFailure),
}

impl Meta {
    /// Encodes the file.
    pub fn to_text(&self) -> String {
        let mut lines = FieldWriter::new(META_HEAD);
        let launch = &self.launch;
        lines.bytes("session", launch.session.as_bytes());
        lines.bytes("agent", launch.agent.as_bytes());
        lines.bytes("command", &launch.command);
        lines.bytes("cwd", &launch.cwd);
        if let Some(size) = launch.pty {
            lines.number("cols", size.cols);
            lines.number("rows", size.rows);
        }
        for (name, limit) in [
            ("deadline_ms", launch.deadline_ms),
            ("idle_ms", launch.idle_ms),
            ("inactivity_ms", launch.inactivity_ms),
        ] {
            if let Some(limit) = limit {
                lines.number(name, limit);
            }
        }
        lines.number("log_quota", launch.log_quota);
        lines.number("created_wall_ms", launch.created_wall_ms);
        for key in &launch.keys {
            lines.bytes("key", key.as_bytes());
        }
        for (name, text) in [
            ("conversation", &launch.conversation),
            ("started_by", &launch.started_by),
            ("name", &launch.name),
        ] {
            if let Some(text) = text {
                lines.bytes(name, text.as_bytes());
            }
        }
        lines.number("grace_ms", launch.grace_ms);
        lines.bytes("contained_by", self.contained_by.as_str().as_bytes());
        if self.sandboxed != Sandboxed::OFF {
            let gaps = self.sandboxed.gaps.iter().map(|gap| gap.code());
            lines.number("sandboxed_by", self.sandboxed.by.code());
            lines.bytes("sandbox_gaps", &gaps.collect::<Vec<u8>>());
        }
        if let Some(cgroup) = &self.cgroup {
            lines.bytes("cgroup", cgroup);
        }
        if let Some(init) = self.init {
            lines.number("init", init);
        }
        lines.number("keeper_pid", self.keeper.pid);
        lines.number("keeper_start_ticks", self.keeper.start_ticks);
        lines.bytes("boot_id", self.keeper.boot_id.as_bytes());
        if !launch.secret_fingerprints.is_empty() {
            lines.bytes("secret_fingerprints", &launch.secret_fingerprints);
        }
        lines.close()
    }

    /// The fields that can still be read of a damaged record. They are only shown: a damaged value may look
    /// like a valid one, so no process may be looked up by them.
    fn remnant(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let found = Fields(text.lines().filter_map(|l| l.split_once('=')).collect());
        let mut launch = found.launch();
        if found.text("agent").is_none() {
            launch.agent = "unknown".into();
        }
        Meta {
            launch,
            contained_by: Containment::Subreaper,
            sandboxed: Sandboxed::OFF,
            cgroup: None,
            init: None,
            keeper: KeeperIdentity::default(),
        }
    }

    /// Decodes the file. `None`: it was torn, or is no meta file.
    pub fn from_text(text: &[u8]) -> Option<Self> {
        let found = Fields::read(META_HEAD, text)?;
        if !LAUNCH_FIELDS.iter().all(|name| found.raw(name).is_some()) {
            return None;
        }
        Some(Meta {
            launch: found.launch(),
            contained_by: match found.text("contained_by")?.as_str() {
                "cgroup" => Containment::Cgroup,
                "pid_namespace" => Containment::PidNamespace,
                _ => Containment::Subreaper,
            },
            sandboxed: found.sandboxed(),
            cgroup: found.bytes("cgroup"),
            init: found.number("init"),
            keeper: KeeperIdentity {
                pid: found.number("keeper_pid")?,
                start_ticks: found.number("keeper_start_ticks")?,
                boot_id: found.text("boot_id")?,
            },
        })
    }
}

impl RecordedEnding {
    /// Encodes the file.
    pub fn to_text(&self) -> String {
        let mut lines = FieldWriter::new(ENDING_HEAD);
        match self {
            RecordedEnding::Ended(exited) => {
                match exited.exit {
                    Some(Exit::Code(code)) => lines.number("code", code),
                    Some(Exit::Signal(signal)) => lines.number("signal", signal),
                    None => {}
                }
                lines.bytes("end", exited.end.as_str().as_bytes());
                lines.number("duration_ms", exited.duration_ms);
                lines.number("bytes", exited.bytes);
                lines.number("dropped", exited.dropped);
                lines.number("closed", u8::from(exited.closed));
            }
            RecordedEnding::Failed(failure) => {
                lines.number("errno", failure.errno);
                lines.number("at_wall_ms", failure.at_wall_ms);
                lines.bytes("failed", failure.sentence.as_bytes());
            }
        }
        let mut text = lines.close();
        if let RecordedEnding::Ended(Exited { empty: true, .. }) = self {
            text.push_str(EMPTIED);
        }
        text
    }

    /// Decodes the file. `None`: it was torn, or is no ending.
    pub fn from_text(text: &[u8]) -> Option<Self> {
        let (head, tail) = split_closed(text)?;
        let found = Fields::read(ENDING_HEAD, head)?;
        if let Some(sentence) = found.text("failed") {
            return Some(RecordedEnding::Failed(StartFailure {
                errno: found.number("errno")?,
                sentence,
                at_wall_ms: found.number("at_wall_ms")?,
            }));
        }
        let code = found.number("code").map(Exit::Code);
        let later = AppendedLines::read(tail);
        Some(RecordedEnding::Ended(Exited {
            exit: code.or_else(|| found.number("signal").map(Exit::Signal)),
            end: found.text("end").and_then(|word| End::of_word(&word))?,
            duration_ms: found.number("duration_ms")?,
            bytes: later.bytes.or_else(|| found.number("bytes"))?,
            dropped: later.dropped.or_else(|| found.number("dropped"))?,
            empty: later.emptied,
            closed: later.bytes.is_some() || found.number("closed") == Some(1_u8),
        }))
    }
}

/// Line that is appended when a client has received the ending. No other line can look like it, since those
/// have a name before the value.
const ENDING_DELIVERED: &str = "delivered=1\n";

/// Line that is appended when the tree is empty.
pub(super) const EMPTIED: &str = "emptied=1\n";

/// Line that is appended when the streams are closed after the leader has ended.
pub(super) fn closed_line(bytes: u64, dropped: u64) -> String {
    format!("closed={bytes},{dropped};\n")
}

#[derive(Default)]
struct AppendedLines {
    emptied: bool,
    bytes: Option<u64>,
    dropped: Option<u64>,
}

impl AppendedLines {
    fn read(tail: &[u8]) -> Self {
        let mut later = AppendedLines::default();
        for line in tail.split_inclusive(|byte| *byte == b'\n') {
            let Ok(line) = std::str::from_utf8(line) else {
                continue;
            };
            if line == EMPTIED {
                later.emptied = true;
            } else if let Some(pair) = line.strip_prefix("closed=")
                && let Some(pair) = pair.strip_suffix(";\n")
                && let Some((bytes, dropped)) = pair.split_once(',')
            {
                later.bytes = bytes.parse().ok();
                later.dropped = dropped.parse().ok();
            }
        }
        later
    }
}

/// State of the `meta` file of a session.
pub enum MetaState {
    /// The file is complete.
    Whole(Meta),
    /// The directory was made in advance by a keeper, and no session began.
    Unused,
    /// The file cannot be read, or only a part of it.
    Damaged {
        /// The fields that can be read.
        remnant: Meta,
        /// The damage, as half a sentence.
        why: String,
    },
}

/// The record of a session: command and ending.
pub struct SessionRecord {
    /// The command.
    pub meta: MetaState,
    /// The ending; `None` if the session has not ended or the ending was torn.
    pub ending: Option<RecordedEnding>,
    /// True once a client has received the ending.
    pub ending_delivered: bool,
}

/// Reads the whole record at once: a daemon that starts may find very many sessions. Damage is reported in
/// the result and is no error.
pub fn read_all(folder: &Path) -> SessionRecord {
    let found = read(&folder.join(META));
    let text = match &found {
        Ok(Some(text)) => text.as_slice(),
        Ok(None) | Err(_) => &[],
    };
    let (first, rest) = first_and_rest(text);
    // If the meta could not be written, the file holds only the failure.
    let alone = RecordedEnding::from_text(first);
    let began = alone.is_none() && !is_blank(text);
    let ending = RecordedEnding::from_text(rest).or(alone);
    let ending = ending.or_else(|| {
        let text = read(&folder.join(ENDING)).ok()??;
        RecordedEnding::from_text(&text)
    });
    let damaged = |why: String| MetaState::Damaged {
        remnant: Meta::remnant(first),
        why,
    };
    let meta = match (Meta::from_text(first), &found) {
        (Some(meta), _) => MetaState::Whole(meta),
        (None, Err(fault)) => damaged(fault.to_string()),
        (None, Ok(_)) if !began && holds_nothing_else(folder) => MetaState::Unused,
        (None, Ok(None)) => damaged("it is missing".into()),
        (None, Ok(Some(_))) => damaged(what_is_wrong(first).into()),
    };
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    SessionRecord {
        meta,
        ending,
        ending_delivered: lines.any(|line| line == ENDING_DELIVERED.as_bytes()),
    }
}

/// True if nothing was ever written to the record; see [`create`].
fn is_blank(text: &[u8]) -> bool {
    text.iter().all(|byte| matches!(byte, b'\n' | 0))
}

/// True if a directory holds only the files that each keeper makes in advance.
fn holds_nothing_else(folder: &Path) -> bool {
    let Ok(mut entries) = std::fs::read_dir(folder) else {
        return false;
    };
    entries
        .all(|entry| entry.is_ok_and(|entry| entry.file_name() == META || entry.file_name() == CTL))
}

fn what_is_wrong(text: &[u8]) -> &'static str {
    let head = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    if is_blank(text) {
        "it is empty"
    } else if head != META_HEAD.as_bytes() && head.starts_with(b"abide meta ") {
        "it was written by another version"
    } else if !text.windows(CLOSING.len()).any(|part| part == CLOSING) {
        "it is cut short"
    } else {
        "its content does not fit its checksum"
    }
}

/// Records that a client has received the ending. Not synced: at worst it is delivered twice.
pub fn mark_ending_delivered(folder: &Path) -> io::Result<()> {
    let record = File::options()
        .append(true)
        .custom_flags(PLAIN)
        .open(folder.join(META))?;
    io::Write::write_all(&mut &record, ENDING_DELIVERED.as_bytes())
}

/// Reads the meta of the session in this folder. `None`: there is no meta, or it was torn.
pub fn read_meta(folder: &Path) -> io::Result<Option<Meta>> {
    let text = read(&folder.join(META))?;
    Ok(text.and_then(|text| Meta::from_text(first_and_rest(&text).0)))
}

/// Reads the ending of the session in this folder. `None`: there is no ending yet, or it was torn.
pub fn read_ending(folder: &Path) -> io::Result<Option<RecordedEnding>> {
    Ok(read_all(folder).ending)
}

/// Splits the text after its first closing line.
fn first_and_rest(text: &[u8]) -> (&[u8], &[u8]) {
    let closing = text
        .windows(CLOSING.len())
        .position(|window| window == CLOSING);
    let end = closing.map_or(text.len(), |at| at + CLOSING.len() + SUM_SIZE);
    text.split_at(end.min(text.len()))
}

/// Writes the ending of a session whose keeper is gone.
pub fn write_ending(folder: &Path, ending: &RecordedEnding) -> io::Result<()> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    append(&create(&folder, ENDING)?, &ending.to_text())
}

/// Flags with which every file of a session is opened: a symbolic link or a FIFO in its place must not
/// redirect or block the reader.
pub const PLAIN: i32 = libc::O_NONBLOCK | libc::O_NOFOLLOW;
/// Limit of a file's size, except the log: a command has at most 1 MiB, and each byte takes up to three.
pub(super) const LONGEST: u64 = 8 << 20;

/// Reads a file of a session, other than its log; `None` if there is none. A file that is not regular or
/// too long is an error.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::options().read(true).custom_flags(PLAIN).open(path) {
        Ok(file) => file,
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(fault) => return Err(fault),
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if found.len() > LONGEST {
        return Err(io::Error::other(format!("it has {} bytes", found.len())));
    }
    let mut text = Vec::with_capacity(found.len() as usize);
    file.take(LONGEST).read_to_end(&mut text)?;
    Ok(Some(text))
}

/// Creates a file that counts as absent until a complete text is written to it. Its first page is allocated
/// already, which is most of the cost of a first write; the text overwrites it.
pub(super) fn create(folder: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC;
    let flags = flags | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = rustix::fs::openat(folder.as_fd(), name, flags, mode)?;
    rustix::io::pwrite(&file, b"\n", 0)?;
    Ok(file)
}

/// Sets `O_APPEND`: from now on other processes may append to the file too.
pub(super) fn share(file: &OwnedFd) -> io::Result<()> {
    Ok(rustix::fs::fcntl_setfl(file, OFlags::APPEND)?)
}

/// Appends text in one write.
pub(super) fn append(file: &OwnedFd, text: &str) -> io::Result<()> {
    let wrote = rustix::io::write(file, text.as_bytes())?;
    if wrote < text.len() {
        return Err(io::ErrorKind::StorageFull.into());
    }
    Ok(())
}

/// Size of a page of the disk, and room for an ending with the lines after it.
const PAGE: usize = 4 << 10;
const ENDING_ROOM: usize = 512;

/// Writes the first text into the file that [`create`] made, and allocates room for the ending: the disk
/// may be full by then. Mostly the first page is enough.
pub(super) fn write_first(file: &OwnedFd, text: &str) -> io::Result<()> {
    append(file, text)?;
    let last_page = (text.len() + ENDING_ROOM) / PAGE;
    if last_page > text.len().saturating_sub(1) / PAGE {
        rustix::io::pwrite(file, b"\n", (last_page * PAGE) as u64)?;
    }
    Ok(())
}

const CLOSING: &[u8] = b"\nchecksum=";
/// Length of the checksum and its newline, after [`CLOSING`].
const SUM_SIZE: usize = 9;

struct FieldWriter(String);

impl FieldWriter {
    fn new(head: &str) -> Self {
        FieldWriter(format!("{head}\n"))
    }

    fn number(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0.push_str(&format!("{name}={value}\n"));
    }

    fn bytes(&mut self, name: &str, value: &[u8]) {
        self.0.push_str(name);
        self.0.push('=');
        for &byte in value {
            match byte {
                b'\\' => self.0.push_str("\\\\"),
                b' '..=b'~' => self.0.push(byte.into()),
                _ => self.0.push_str(&format!("\\{byte:02x}")),
            }
        }
        self.0.push('\n');
    }

    fn close(mut self) -> String {
        let sum = checksum(self.0.as_bytes());
        self.0.push_str(&format!("checksum={sum:08x}\n"));
        self.0
    }
}

/// Splits a text after its closing line, if that is present and the checksum is right.
fn split_closed(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text
        .windows(CLOSING.len())
        .rposition(|window| window == CLOSING)?;
    let body = &text[..at + 1];
    let closing = &text[at + CLOSING.len()..];
    let sum = std::str::from_utf8(closing.get(..8)?).ok()?;
    let right =
        closing.get(8) == Some(&b'\n') && u32::from_str_radix(sum, 16).ok() == Some(checksum(body));
    right.then(|| text.split_at(at + CLOSING.len() + SUM_SIZE))
}

fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| {
        (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

/// Fields that every record of a launch has.
const LAUNCH_FIELDS: [&str; 7] = [
    "session",
    "agent",
    "command",
    "cwd",
    "log_quota",
    "created_wall_ms",
    "grace_ms",
];

struct Fields<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Fields<'a> {
    fn read(head: &str, text: &'a [u8]) -> Option<Self> {
        let (body, _) = split_closed(text)?;
        let mut lines = std::str::from_utf8(body).ok()?.lines();
        (lines.next() == Some(head))
            .then(|| Fields(lines.filter_map(|l| l.split_once('=')).collect()))
    }

    fn raw(&self, name: &str) -> Option<&'a str> {
        self.0
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| *value)
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.raw(name)?.parse().ok()
    }

    /// Record of a launch, with defaults for what is missing.
    fn launch(&self) -> LaunchRecord {
        LaunchRecord {
            session: self.text("session").unwrap_or_default(),
            agent: self.text("agent").unwrap_or_default(),
            command: self.bytes("command").unwrap_or_default(),
            cwd: self.bytes("cwd").unwrap_or_default(),
            pty: self.size(),
            deadline_ms: self.number("deadline_ms"),
            idle_ms: self.number("idle_ms"),
            inactivity_ms: self.number("inactivity_ms"),
            log_quota: self.number("log_quota").unwrap_or(0),
            created_wall_ms: self.number("created_wall_ms").unwrap_or(0),
            keys: self.texts("key"),
            conversation: self.text("conversation"),
            started_by: self.text("started_by"),
            name: self.text("name"),
            grace_ms: self.number("grace_ms").unwrap_or(0),
            secret_fingerprints: self.bytes("secret_fingerprints").unwrap_or_default(),
        }
    }

    fn sandboxed(&self) -> Sandboxed {
        let by = self.number("sandboxed_by").and_then(SandboxedBy::from_code);
        let gaps = self.bytes("sandbox_gaps").unwrap_or_default();
        Sandboxed {
            by: by.unwrap_or(SandboxedBy::Off),
            gaps: gaps.into_iter().filter_map(SandboxGap::from_code).collect(),
        }
    }

    fn size(&self) -> Option<Size> {
        Some(Size {
            cols: self.number("cols")?,
            rows: self.number("rows")?,
        })
    }

    fn text(&self, name: &str) -> Option<String> {
        String::from_utf8(self.bytes(name)?).ok()
    }

    /// Texts of a field that is there several times.
    fn texts(&self, name: &str) -> Vec<String> {
        let values = self.0.iter().filter(|(key, _)| *key == name);
        let texts = values.filter_map(|(_, value)| String::from_utf8(unescaped(value)?).ok());
        texts.collect()
    }

    fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        unescaped(self.raw(name)?)
    }
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut rest = text.as_bytes();
    let mut out = Vec::with_capacity(rest.len());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
        } else if let Some(after) = rest.strip_prefix(b"\\") {
            out.push(b'\\');
            rest = after;
        } else {
            let (hex, after) = rest.split_at_checked(2)?;
            out.push(u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?);
            rest = after;
        }
    }
    Some(out)
}
