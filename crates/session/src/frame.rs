//! Frames between daemon and keeper: `u32 length | u8 kind | payload`, little endian. An unknown kind and
//! bytes after the known fields are skipped, so that two versions can talk.

use abide_core::{Containment, End, Ending, Exit, Millis, Sandboxed};

use super::clock::wall_ms;
pub use super::codec::Malformed;
use super::codec::{Wire, WireEnum};
pub use super::launch::{
    ContainmentChoice, InheritedLimits, Launch, LaunchRecord, ResourceLimit, Size, Stdin,
};
use crate::{wire_enum, wire_struct};

/// Version of the protocol.
pub const VERSION: u8 = 1;
/// Longest frame that is accepted; a launch with its environment and input must fit.
pub const FRAME_LIMIT: usize = 64 << 20;
/// Bytes of input that the daemon may have in flight before it waits for [`FromKeeper::InputTaken`].
pub const INPUT_WINDOW: usize = 256 << 10;

/// Frames from the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToKeeper {
    /// First frame on a connection that replaces another: a peer that does not send it is no daemon and
    /// replaces nothing.
    Hello,
    /// Start the command; sent once.
    Start(Box<Launch>),
    /// End the tree.
    Kill {
        /// Reason.
        end: End,
        /// Time between SIGTERM and SIGKILL; zero: SIGKILL at once.
        grace_ms: u32,
    },
    /// The daemon has killed the tree itself, because the keeper did not do it in time.
    Forced {
        /// Reason.
        end: End,
    },
    /// Change the deadline.
    Deadline {
        /// New deadline, counted from now; zero removes it.
        in_ms: u64,
    },
    /// Answer with [`FromKeeper::Grew`] at once.
    Look,
    /// Answer with [`FromKeeper::Grew`], once, as soon as there are more bytes than `beyond`.
    Watch {
        /// Number of bytes that the daemon knows of.
        beyond: u64,
    },
    /// Input for the child.
    Input {
        /// The bytes.
        bytes: Vec<u8>,
        /// Idempotency key, if the sender may repeat the input: bytes that were taken before are not taken
        /// twice.
        once: Option<InputKey>,
    },
    /// Close the input after the bytes that were sent.
    CloseInput,
    /// Change the size of the terminal.
    Resize {
        /// Number of columns.
        cols: u16,
        /// Number of lines.
        rows: u16,
    },
    /// Send a signal to the foreground process group of the terminal, or to the process group of the leader.
    Signal {
        /// Number of the signal.
        number: i32,
        /// Idempotency key, if the sender may repeat the signal: it is not sent twice.
        once: Option<Vec<u8>>,
    },
    /// The daemon has recorded the ending: the keeper may exit once the tree is empty and the streams are
    /// closed.
    Ack,
    /// The ending is recorded and the session needs its keeper no longer: the keeper becomes idle, for a session in
    /// this directory. Its next frame is [`FromKeeper::Ready`].
    Renew {
        /// Path of the new directory.
        folder: Vec<u8>,
    },
}

/// Idempotency key of a piece of input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputKey {
    /// Key of all pieces of one call.
    pub key: Vec<u8>,
    /// Number of bytes under this key before this piece.
    pub from: u64,
}

/// Frames from the keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromKeeper {
    /// First frame on every connection.
    Ready {
        /// The keeper's [`VERSION`].
        version: u8,
        /// Containment of the tree, or the one that a command would get.
        contained_by: Containment,
        /// Pid of the keeper.
        pid: u32,
    },
    /// The command runs.
    Started {
        /// Pid of the leader.
        pid: u32,
        /// Monotonic time of the start.
        at_mono_ms: u64,
        /// Containment of the tree.
        contained_by: Containment,
        /// Sandbox of the command.
        sandboxed: Sandboxed,
    },
    /// The command could not be started.
    StartFailed(StartFailure),
    /// Length of the log.
    Grew {
        /// Number of bytes so far.
        bytes: u64,
        /// Monotonic time of the last output, or of the start.
        quiet_since_mono_ms: u64,
    },
    /// The leader has ended and its output is in the log.
    Exited(Exited),
    /// The last process of the tree is gone.
    Emptied,
    /// No process has the output streams open any more: the log is complete.
    Closed,
    /// Input has reached the child.
    InputTaken {
        /// Number of bytes since the last such frame.
        bytes: u64,
    },
    /// Input that reached no process: the child has no input, or has closed it. Sent before the
    /// [`FromKeeper::InputTaken`] that counts these bytes too.
    InputDropped {
        /// Number of bytes since the last such frame.
        bytes: u64,
    },
    /// Processes outlive SIGKILL (a system call that does not return). Sent once, and again in answer to each
    /// later [`ToKeeper::Kill`]; the keeper keeps trying.
    KillPending {
        /// Number of processes.
        left: u32,
    },
}

/// Failure to start a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFailure {
    /// `errno`, zero if there is none.
    pub errno: i32,
    /// The failed step, as one sentence.
    pub sentence: String,
    /// Wall time of the failure.
    pub at_wall_ms: u64,
}

impl StartFailure {
    /// Failure of a step by an error of the kernel, at this moment.
    pub(crate) fn new(step: impl std::fmt::Display, fault: &std::io::Error) -> Self {
        StartFailure::now(
            fault.raw_os_error().unwrap_or(0),
            format!("{step}: {fault}"),
        )
    }

    /// Failure at this moment.
    pub(crate) fn now(errno: i32, sentence: impl Into<String>) -> Self {
        StartFailure {
            errno,
            sentence: sentence.into(),
            at_wall_ms: wall_ms(),
        }
    }
}

/// Ending of the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exited {
    /// Exit code or signal.
    pub exit: Option<Exit>,
    /// Reason.
    pub end: End,
    /// Duration on the boot-time clock.
    pub duration_ms: u64,
    /// Number of bytes of output.
    pub bytes: u64,
    /// Number of bytes that are not in the log.
    pub dropped: u64,
    /// True if the whole tree is gone too.
    pub empty: bool,
    /// True if the streams are closed too.
    pub closed: bool,
}

impl From<&Exited> for Ending {
    fn from(exited: &Exited) -> Self {
        Ending {
            exit: exited.exit,
            end: exited.end,
            duration: Millis(exited.duration_ms),
            bytes: exited.bytes,
            dropped: exited.dropped,
        }
    }
}

// A newer version adds kinds, and fields at the end of a kind. A kind never changes its meaning.
wire_enum!(ToKeeper {
    1 => Start(launch),
    2 => Kill { end, grace_ms },
    3 => Deadline { in_ms },
    4 => Look,
    5 => Watch { beyond },
    6 => Input { bytes, once },
    7 => CloseInput,
    8 => Resize { cols, rows },
    9 => Signal { number, once },
    10 => Ack,
    11 => Renew { folder },
    12 => Hello,
    15 => Forced { end },
});

wire_enum!(FromKeeper {
    1 => Ready { version, contained_by, pid },
    2 => Started { pid, at_mono_ms, contained_by, sandboxed },
    3 => StartFailed(failure),
    4 => Grew { bytes, quiet_since_mono_ms },
    5 => Exited(exited),
    6 => Emptied,
    7 => Closed,
    8 => InputTaken { bytes },
    9 => KillPending { left },
    10 => InputDropped { bytes },
});

wire_struct!(InputKey { key, from });

wire_struct!(StartFailure {
    errno,
    sentence,
    at_wall_ms
});

wire_struct!(Exited {
    exit,
    end,
    duration_ms,
    bytes,
    dropped,
    empty,
    closed
});

impl ToKeeper {
    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        framed(out, self);
    }

    /// Takes the next frame of a known kind from the front of `buffer`; `None`: the frame is incomplete.
    pub fn take_from(buffer: &mut Vec<u8>) -> Result<Option<Self>, Malformed> {
        next(buffer)
    }
}

impl FromKeeper {
    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        framed(out, self);
    }

    /// Takes the next frame of a known kind from the front of `buffer`; `None`: the frame is incomplete.
    pub fn take_from(buffer: &mut Vec<u8>) -> Result<Option<Self>, Malformed> {
        next(buffer)
    }
}

impl Exited {
    /// Ending of a session whose keeper did not see it end. `empty`: none of its processes was found running.
    pub fn unseen(end: End, duration_ms: u64, bytes: u64, dropped: u64, empty: bool) -> Self {
        Exited {
            exit: None,
            end,
            duration_ms,
            bytes,
            dropped,
            empty,
            closed: true,
        }
    }
}

/// Bytes before the kind of a frame: its length.
const HEADER: usize = 4;

fn framed(out: &mut Vec<u8>, frame: &impl Wire) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    frame.put(out);
    let len = (out.len() - start - HEADER) as u32;
    out[start..start + HEADER].copy_from_slice(&len.to_le_bytes());
}

fn next<T: WireEnum>(buffer: &mut Vec<u8>) -> Result<Option<T>, Malformed> {
    loop {
        if buffer.len() <= HEADER {
            return Ok(None);
        }
        let len = u32::take(&mut buffer.as_slice())? as usize;
        if len == 0 || len > FRAME_LIMIT {
            return Err(Malformed);
        }
        let Some(mut frame) = buffer.get(HEADER..HEADER + len) else {
            return Ok(None);
        };
        let is_known = T::CODES.contains(&frame[0]);
        let decoded = is_known.then(|| T::take(&mut frame)).transpose()?;
        buffer.drain(..HEADER + len);
        if decoded.is_some() {
            return Ok(decoded);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::{Folder, Mode, Plan};
    use abide_core::{SandboxGap, SandboxedBy};

    fn launch() -> Launch {
        Launch {
            record: LaunchRecord {
                session: "session_k3v9x2bc".into(),
                agent: "default".into(),
                command: b"echo \xff".to_vec(),
                cwd: b"/tmp".to_vec(),
                pty: Some(Size { cols: 80, rows: 24 }),
                deadline_ms: Some(1),
                idle_ms: None,
                inactivity_ms: Some(u64::MAX),
                log_quota: 1 << 28,
                created_wall_ms: 7,
                keys: vec!["k".into(), "l".into()],
                conversation: Some("c".into()),
                started_by: Some("timer_00000001".into()),
                name: Some("build".into()),
                grace_ms: 2_000,
                secret_fingerprints: b"{}".to_vec(),
            },
            argv: vec![b"/bin/sh".to_vec(), b"-c".to_vec(), b"echo \xff".to_vec()],
            env: vec![(b"A".to_vec(), b"1".to_vec()), (b"B".to_vec(), Vec::new())],
            stdin: Stdin::Bytes(b"in".to_vec()),
            containment: ContainmentChoice::Auto,
            max_processes: 100,
            inherited: Some(InheritedLimits {
                umask: 0o27,
                limits: vec![ResourceLimit {
                    resource: 7,
                    soft: 64,
                    hard: u64::MAX,
                }],
            }),
            sandbox: Some(Plan {
                mode: Mode::WorkspaceWrite,
                write: vec!["/a b".into()],
                own: vec!["/s".into(), "/c".into()],
                layer_bytes: Some(1 << 40),
                ..Plan::read_only(Folder {
                    path: "/w".into(),
                    device: 1,
                    inode: u64::MAX,
                })
            }),
        }
    }

    fn to_keeper() -> Vec<ToKeeper> {
        let once = Some(InputKey {
            key: b"k".to_vec(),
            from: 1 << 40,
        });
        let bytes = vec![0, 255];
        vec![
            ToKeeper::Start(Box::new(launch())),
            ToKeeper::Forced { end: End::User },
            ToKeeper::Input { bytes, once },
            ToKeeper::CloseInput,
            ToKeeper::Resize { cols: 2, rows: 3 },
            ToKeeper::Signal {
                number: 15,
                once: None,
            },
        ]
    }

    fn from_keeper() -> Vec<FromKeeper> {
        let exited = Exited {
            exit: Some(Exit::Code(-1)),
            end: End::Deadline,
            duration_ms: 1,
            bytes: 2,
            dropped: 3,
            empty: true,
            closed: false,
        };
        vec![
            FromKeeper::Started {
                pid: 13,
                at_mono_ms: 14,
                contained_by: Containment::Subreaper,
                sandboxed: Sandboxed {
                    by: SandboxedBy::Namespaces,
                    gaps: vec![SandboxGap::Layers],
                },
            },
            FromKeeper::StartFailed(StartFailure {
                errno: 2,
                sentence: "no".into(),
                at_wall_ms: 15,
            }),
            FromKeeper::Exited(exited),
            FromKeeper::Exited(Exited {
                exit: None,
                ..exited
            }),
            FromKeeper::Emptied,
        ]
    }

    #[test]
    fn frames_come_back_whole_from_any_cut() {
        let mut wire = Vec::new();
        for frame in to_keeper() {
            frame.encode(&mut wire);
        }
        let (mut buffer, mut seen) = (Vec::new(), Vec::new());
        for byte in wire {
            buffer.push(byte);
            while let Some(frame) = ToKeeper::take_from(&mut buffer).unwrap() {
                seen.push(frame);
            }
        }
        assert_eq!(seen, to_keeper());
        assert!(buffer.is_empty());
    }

    #[test]
    fn unknown_kinds_and_trailing_bytes_are_passed_over() {
        let mut wire = vec![3, 0, 0, 0, 200, 1, 2];
        for frame in from_keeper() {
            let start = wire.len();
            frame.encode(&mut wire);
            wire.extend_from_slice(b"later");
            let len = (wire.len() - start - 4) as u32;
            wire[start..start + 4].copy_from_slice(&len.to_le_bytes());
        }
        let mut seen = Vec::new();
        while let Some(frame) = FromKeeper::take_from(&mut wire).unwrap() {
            seen.push(frame);
        }
        assert_eq!(seen, from_keeper());
    }

    #[test]
    fn a_frame_that_lies_about_its_length_is_malformed() {
        let mut empty = vec![0; 5];
        assert_eq!(ToKeeper::take_from(&mut empty), Err(Malformed));
        let mut huge = vec![255, 255, 255, 255, 1];
        assert_eq!(ToKeeper::take_from(&mut huge), Err(Malformed));
        let mut short = vec![3, 0, 0, 0, 2, 0, 0];
        assert_eq!(ToKeeper::take_from(&mut short), Err(Malformed));
    }

    #[test]
    fn a_list_that_lies_about_its_count_makes_no_room() {
        let mut wire = Vec::new();
        let frame = (1_u8, (String::from("session"), u32::MAX));
        framed(&mut wire, &frame);
        assert_eq!(ToKeeper::take_from(&mut wire), Err(Malformed));
    }
}
