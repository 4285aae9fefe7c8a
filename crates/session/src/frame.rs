//! Frames between daemon and keeper: `u32 length | u8 kind | payload`, little endian. An unknown kind and
//! bytes after the known fields are skipped, so that two versions can talk.

use abide_core::{Containment, End, Ending, Exit, Millis, Sandboxed};

pub use super::codec::Malformed;
use super::codec::{Decoder, Encoder, containment_code, containment_from, end_code, end_from};
pub use super::launch::{
    ContainmentChoice, InheritedLimits, Launch, LaunchRecord, ResourceLimit, Size, Stdin,
};

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
    StartFailed {
        /// `errno`, zero if there is none.
        errno: i32,
        /// The failed step, as one sentence.
        sentence: String,
        /// Wall time of the failure.
        at_wall_ms: u64,
    },
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

impl ToKeeper {
    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        framed(out, |to| {
            match self {
                ToKeeper::Start(launch) => launch.encode(to.u8(1).u8(VERSION)),
                ToKeeper::Kill { end, grace_ms } => to.u8(2).u8(end_code(*end)).u32(*grace_ms),
                ToKeeper::Forced { end } => to.u8(15).u8(end_code(*end)),
                ToKeeper::Deadline { in_ms } => to.u8(3).u64(*in_ms),
                ToKeeper::Look => to.u8(4),
                ToKeeper::Watch { beyond } => to.u8(5).u64(*beyond),
                ToKeeper::Input { bytes, once: None } => to.u8(INPUT_KIND).bytes(bytes),
                ToKeeper::Input {
                    bytes,
                    once: Some(once),
                } => to
                    .u8(INPUT_KIND)
                    .bytes(bytes)
                    .bytes(&once.key)
                    .u64(once.from),
                ToKeeper::CloseInput => to.u8(7),
                ToKeeper::Resize { cols, rows } => to.u8(8).u32((*cols).into()).u32((*rows).into()),
                ToKeeper::Signal { number, once: None } => to.u8(9).u32(*number as u32),
                ToKeeper::Signal {
                    number,
                    once: Some(once),
                } => to.u8(9).u32(*number as u32).bytes(once),
                ToKeeper::Ack => to.u8(10),
                ToKeeper::Renew { folder } => to.u8(11).bytes(folder),
                ToKeeper::Hello => to.u8(12),
            };
        });
    }

    /// Takes the next frame of a known kind from the front of `buffer`; `None`: the frame is incomplete.
    pub fn take_from(buffer: &mut Vec<u8>) -> Result<Option<Self>, Malformed> {
        next(buffer, Self::decode)
    }

    fn decode(kind: u8, payload: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut from = Decoder(payload);
        Ok(Some(match kind {
            1 => {
                // A newer version only adds fields.
                if from.u8()? < VERSION {
                    return Err(Malformed);
                }
                ToKeeper::Start(Box::new(Launch::decode(&mut from)?))
            }
            2 => ToKeeper::Kill {
                end: end_from(from.u8()?)?,
                grace_ms: from.u32()?,
            },
            3 => ToKeeper::Deadline { in_ms: from.u64()? },
            4 => ToKeeper::Look,
            5 => ToKeeper::Watch {
                beyond: from.u64()?,
            },
            INPUT_KIND => ToKeeper::Input {
                bytes: from.bytes()?.to_vec(),
                once: InputKey::decode(&mut from)?,
            },
            7 => ToKeeper::CloseInput,
            8 => ToKeeper::Resize {
                cols: from.u16()?,
                rows: from.u16()?,
            },
            9 => ToKeeper::Signal {
                number: from.u32()? as i32,
                once: match from.0.is_empty() {
                    true => None,
                    false => Some(from.bytes()?.to_vec()),
                },
            },
            10 => ToKeeper::Ack,
            11 => ToKeeper::Renew {
                folder: from.bytes()?.to_vec(),
            },
            12 => ToKeeper::Hello,
            15 => ToKeeper::Forced {
                end: end_from(from.u8()?)?,
            },
            _ => return Ok(None),
        }))
    }
}

impl FromKeeper {
    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        framed(out, |to| {
            match self {
                FromKeeper::Ready {
                    version,
                    contained_by,
                    pid,
                } => to
                    .u8(1)
                    .u8(*version)
                    .u8(containment_code(*contained_by))
                    .u32(*pid),
                FromKeeper::Started {
                    pid,
                    at_mono_ms,
                    contained_by,
                    sandboxed,
                } => to
                    .u8(2)
                    .u32(*pid)
                    .u64(*at_mono_ms)
                    .u8(containment_code(*contained_by))
                    .sandboxed(sandboxed),
                FromKeeper::StartFailed {
                    errno,
                    sentence,
                    at_wall_ms,
                } => to
                    .u8(3)
                    .u32(*errno as u32)
                    .bytes(sentence.as_bytes())
                    .u64(*at_wall_ms),
                FromKeeper::Grew {
                    bytes,
                    quiet_since_mono_ms,
                } => to.u8(4).u64(*bytes).u64(*quiet_since_mono_ms),
                FromKeeper::Exited(exited) => exited.encode(to.u8(5)),
                FromKeeper::Emptied => to.u8(6),
                FromKeeper::Closed => to.u8(7),
                FromKeeper::InputTaken { bytes } => to.u8(8).u64(*bytes),
                FromKeeper::KillPending { left } => to.u8(9).u32(*left),
                FromKeeper::InputDropped { bytes } => to.u8(10).u64(*bytes),
            };
        });
    }

    /// Takes the next frame of a known kind from the front of `buffer`; `None`: the frame is incomplete.
    pub fn take_from(buffer: &mut Vec<u8>) -> Result<Option<Self>, Malformed> {
        next(buffer, Self::decode)
    }

    fn decode(kind: u8, payload: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut from = Decoder(payload);
        Ok(Some(match kind {
            1 => FromKeeper::Ready {
                version: from.u8()?,
                contained_by: containment_from(from.u8()?)?,
                pid: from.u32()?,
            },
            2 => FromKeeper::Started {
                pid: from.u32()?,
                at_mono_ms: from.u64()?,
                contained_by: containment_from(from.u8()?)?,
                sandboxed: from.sandboxed()?,
            },
            3 => FromKeeper::StartFailed {
                errno: from.u32()? as i32,
                sentence: from.text()?,
                at_wall_ms: from.u64()?,
            },
            4 => FromKeeper::Grew {
                bytes: from.u64()?,
                quiet_since_mono_ms: from.u64()?,
            },
            5 => FromKeeper::Exited(Exited::decode(&mut from)?),
            6 => FromKeeper::Emptied,
            7 => FromKeeper::Closed,
            8 => FromKeeper::InputTaken { bytes: from.u64()? },
            9 => FromKeeper::KillPending { left: from.u32()? },
            10 => FromKeeper::InputDropped { bytes: from.u64()? },
            _ => return Ok(None),
        }))
    }
}

impl InputKey {
    fn decode(from: &mut Decoder<'_>) -> Result<Option<Self>, Malformed> {
        if from.0.is_empty() {
            return Ok(None);
        }
        Ok(Some(InputKey {
            key: from.bytes()?.to_vec(),
            from: from.u64()?,
        }))
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

    fn encode<'e, 'b>(&self, to: &'e mut Encoder<'b>) -> &'e mut Encoder<'b> {
        to.exit(self.exit)
            .u8(end_code(self.end))
            .u64(self.duration_ms)
            .u64(self.bytes)
            .u64(self.dropped)
            .flag(self.empty)
            .flag(self.closed)
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        Ok(Exited {
            exit: from.exit()?,
            end: end_from(from.u8()?)?,
            duration_ms: from.u64()?,
            bytes: from.u64()?,
            dropped: from.u64()?,
            empty: from.flag()?,
            closed: from.flag()?,
        })
    }
}

const INPUT_KIND: u8 = 6;
const HEADER: usize = 5;

fn framed(out: &mut Vec<u8>, body: impl FnOnce(&mut Encoder<'_>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(&mut Encoder(out));
    let len = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
}

fn next<T>(
    buffer: &mut Vec<u8>,
    decode: impl Fn(u8, &[u8]) -> Result<Option<T>, Malformed>,
) -> Result<Option<T>, Malformed> {
    loop {
        if buffer.len() < HEADER {
            return Ok(None);
        }
        let len = Decoder(buffer).u32()? as usize;
        if len == 0 || len > FRAME_LIMIT {
            return Err(Malformed);
        }
        let Some(frame) = buffer.get(4..4 + len) else {
            return Ok(None);
        };
        let decoded = decode(frame[0], &frame[1..])?;
        buffer.drain(..4 + len);
        if decoded.is_some() {
            return Ok(decoded);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::{Folder, Mode, Network, Plan};
    use abide_core::{Gap, SandboxedBy};

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
                at_least: SandboxedBy::Landlock,
                mode: Mode::WorkspaceWrite,
                network: Network::Off,
                workspace: Folder {
                    path: "/w".into(),
                    device: 1,
                    inode: u64::MAX,
                },
                home: "/h".into(),
                layers: "/l".into(),
                write: vec!["/a b".into()],
                hide: Vec::new(),
                own: vec!["/s".into(), "/c".into()],
                layer_bytes: Some(1 << 40),
            }),
        }
    }

    fn all_to() -> Vec<ToKeeper> {
        vec![
            ToKeeper::Start(Box::new(launch())),
            ToKeeper::Forced { end: End::User },
            ToKeeper::Kill {
                end: End::User,
                grace_ms: 5,
            },
            ToKeeper::Deadline { in_ms: 9 },
            ToKeeper::Look,
            ToKeeper::Watch { beyond: 1 << 40 },
            ToKeeper::Watch { beyond: 7 },
            ToKeeper::Input {
                bytes: vec![0, 255],
                once: None,
            },
            ToKeeper::Input {
                bytes: vec![1],
                once: Some(InputKey {
                    key: b"k".to_vec(),
                    from: 1 << 40,
                }),
            },
            ToKeeper::CloseInput,
            ToKeeper::Resize { cols: 2, rows: 3 },
            ToKeeper::Signal {
                number: 15,
                once: None,
            },
            ToKeeper::Signal {
                number: 2,
                once: Some(b"k".to_vec()),
            },
            ToKeeper::Ack,
            ToKeeper::Renew {
                folder: b"/s/session_k3v9x2bc".to_vec(),
            },
            ToKeeper::Hello,
        ]
    }

    fn all_from() -> Vec<FromKeeper> {
        let exited = Exited {
            exit: Some(Exit::Signal(9)),
            end: End::Deadline,
            duration_ms: 1,
            bytes: 2,
            dropped: 3,
            empty: true,
            closed: false,
        };
        vec![
            FromKeeper::Ready {
                version: VERSION,
                contained_by: Containment::Cgroup,
                pid: 12,
            },
            FromKeeper::Started {
                pid: 13,
                at_mono_ms: 14,
                contained_by: Containment::Subreaper,
                sandboxed: Sandboxed {
                    by: SandboxedBy::Namespaces,
                    gaps: vec![Gap::Layers],
                },
            },
            FromKeeper::StartFailed {
                errno: 2,
                sentence: "no".into(),
                at_wall_ms: 15,
            },
            FromKeeper::Grew {
                bytes: 1,
                quiet_since_mono_ms: 2,
            },
            FromKeeper::Exited(exited),
            FromKeeper::Exited(Exited {
                exit: None,
                ..exited
            }),
            FromKeeper::Exited(Exited {
                exit: Some(Exit::Code(-1)),
                ..exited
            }),
            FromKeeper::Emptied,
            FromKeeper::Closed,
            FromKeeper::InputTaken { bytes: 8 },
            FromKeeper::InputDropped { bytes: 7 },
            FromKeeper::KillPending { left: 1 },
        ]
    }

    #[test]
    fn frames_come_back_whole_from_any_cut() {
        let mut wire = Vec::new();
        for frame in all_to() {
            frame.encode(&mut wire);
        }
        let (mut buffer, mut seen) = (Vec::new(), Vec::new());
        for byte in wire {
            buffer.push(byte);
            while let Some(frame) = ToKeeper::take_from(&mut buffer).unwrap() {
                seen.push(frame);
            }
        }
        assert_eq!(seen, all_to());
        assert!(buffer.is_empty());
    }

    #[test]
    fn unknown_kinds_and_trailing_bytes_are_passed_over() {
        let mut wire = vec![3, 0, 0, 0, 200, 1, 2];
        for frame in all_from() {
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
        assert_eq!(seen, all_from());
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
        framed(&mut wire, |to| {
            to.u8(1).u8(VERSION).bytes(b"s").bytes(b"a").bytes(b"c");
            to.u32(u32::MAX);
        });
        assert_eq!(ToKeeper::take_from(&mut wire), Err(Malformed));
    }
}
