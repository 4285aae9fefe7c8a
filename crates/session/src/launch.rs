//! The command that a keeper is to start.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::codec::{Decoder, Encoder, Malformed};
use super::sandbox::Plan;

/// Everything needed to start a command. It is sent once; only its record is written to the session's directory, because
/// the other parts may hold secrets (environment, input).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The part that the session's directory records.
    pub record: LaunchRecord,
    /// Program and arguments.
    pub argv: Vec<Vec<u8>>,
    /// The complete environment.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Standard input.
    pub stdin: Stdin,
    /// Required containment.
    pub containment: ContainmentChoice,
    /// Limit of processes and threads in the cgroup. 0: no limit.
    pub max_processes: u32,
    /// Sandbox of the command. `None`: it has none.
    pub sandbox: Option<Plan>,
    /// umask and resource limits of the process that asked for the command. `None`: the keeper's own.
    pub inherited: Option<InheritedLimits>,
}

/// Part of a launch that the session's directory records. The keeper enforces the deadline and the size of the log; the
/// rest is for the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchRecord {
    /// The session's id.
    pub session: String,
    /// The agent that owns the session.
    pub agent: String,
    /// The command as given.
    pub command: Vec<u8>,
    /// Working directory.
    pub cwd: Vec<u8>,
    /// Size of the terminal at the start. `None`: the command gets pipes.
    pub pty: Option<Size>,
    /// The deadline, counted from the start.
    pub deadline_ms: Option<u64>,
    /// The idle limit.
    pub idle_ms: Option<u64>,
    /// The inactivity limit.
    pub inactivity_ms: Option<u64>,
    /// Maximum size of the log in bytes.
    pub log_quota: u64,
    /// Wall time of the creation of the session.
    pub created_wall_ms: u64,
    /// Idempotency keys of the start, at most 255.
    pub keys: Vec<String>,
    /// Conversation in which the session was started.
    pub conversation: Option<String>,
    /// Timer, wait or person that started the session, if no call of an agent did.
    pub started_by: Option<String>,
    /// Name of the session at its start; the daemon's record has a later one.
    pub name: Option<String>,
    /// Time between SIGTERM and SIGKILL.
    pub grace_ms: u32,
    /// Stored form of `SecretFingerprints`: finds the secrets of the environment in the output.
    pub secret_fingerprints: Vec<u8>,
}

/// umask and resource limits that a command inherits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InheritedLimits {
    /// umask.
    pub umask: u32,
    /// Resource limits.
    pub limits: Vec<ResourceLimit>,
}

/// A resource limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceLimit {
    /// Number of the resource.
    pub resource: u32,
    /// Soft limit; `u64::MAX`: unlimited.
    pub soft: u64,
    /// Hard limit; `u64::MAX`: unlimited.
    pub hard: u64,
}

impl InheritedLimits {
    /// Appends limits, if there are some.
    pub fn encode(limits: Option<&Self>, to: &mut Encoder<'_>) {
        to.flag(limits.is_some());
        if let Some(InheritedLimits { umask, limits }) = limits {
            to.u32(*umask).u32(limits.len() as u32);
            for bound in limits {
                to.u32(bound.resource).u64(bound.soft).u64(bound.hard);
            }
        }
    }

    /// Decodes limits.
    pub fn decode(from: &mut Decoder<'_>) -> Result<Option<Self>, Malformed> {
        if !from.flag()? {
            return Ok(None);
        }
        Ok(Some(InheritedLimits {
            umask: from.u32()?,
            limits: from.list(|from| {
                Ok(ResourceLimit {
                    resource: from.u32()?,
                    soft: from.u64()?,
                    hard: from.u64()?,
                })
            })?,
        }))
    }
}

/// Standard input of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stdin {
    /// Empty.
    None,
    /// These bytes, then the end of file.
    Bytes(Vec<u8>),
    /// Bytes that are sent later, until the input is closed.
    Open,
}

impl Stdin {
    /// Appends the standard input.
    pub fn encode(&self, to: &mut Encoder<'_>) {
        match self {
            Stdin::None => to.u8(0),
            Stdin::Bytes(bytes) => to.u8(1).bytes(bytes),
            Stdin::Open => to.u8(2),
        };
    }

    /// Decodes a standard input.
    pub fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        Ok(match from.u8()? {
            0 => Stdin::None,
            1 => Stdin::Bytes(from.bytes()?.to_vec()),
            2 => Stdin::Open,
            _ => return Err(Malformed),
        })
    }
}

/// Size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Number of columns.
    pub cols: u16,
    /// Number of lines.
    pub rows: u16,
}

/// Containment that the caller requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainmentChoice {
    /// The best containment that is available.
    Auto,
    /// A cgroup; otherwise the start fails.
    Cgroup,
    /// A PID namespace; otherwise the start fails.
    PidNamespace,
    /// A subreaper, which works everywhere.
    Subreaper,
}

impl Launch {
    /// The same command with a variable set to a path.
    pub(super) fn with_variable(&self, name: &str, value: &Path) -> Self {
        let mut launch = self.clone();
        launch.env.retain(|(known, _)| known != name.as_bytes());
        let value = value.as_os_str().as_bytes().to_vec();
        launch.env.push((name.into(), value));
        launch
    }

    pub(super) fn encode<'e, 'b>(&self, to: &'e mut Encoder<'b>) -> &'e mut Encoder<'b> {
        let record = &self.record;
        to.bytes(record.session.as_bytes())
            .bytes(record.agent.as_bytes())
            .bytes(&record.command)
            .bytes(&record.cwd);
        match record.pty {
            None => to.u8(0),
            Some(size) => to.u8(1).u32(size.cols.into()).u32(size.rows.into()),
        };
        to.maybe_u64(record.deadline_ms)
            .maybe_u64(record.idle_ms)
            .maybe_u64(record.inactivity_ms)
            .u64(record.log_quota)
            .u64(record.created_wall_ms)
            .texts(&record.keys)
            .maybe_text(record.conversation.as_deref())
            .maybe_text(record.started_by.as_deref())
            .maybe_text(record.name.as_deref())
            .u32(record.grace_ms)
            .bytes(&record.secret_fingerprints)
            .u32(self.argv.len() as u32);
        for arg in &self.argv {
            to.bytes(arg);
        }
        to.u32(self.env.len() as u32);
        for (name, value) in &self.env {
            to.bytes(name).bytes(value);
        }
        self.stdin.encode(to);
        to.u8(match self.containment {
            ContainmentChoice::Auto => 0,
            ContainmentChoice::Cgroup => 1,
            ContainmentChoice::PidNamespace => 2,
            ContainmentChoice::Subreaper => 3,
        });
        to.u32(self.max_processes);
        match &self.sandbox {
            None => to.u8(0),
            Some(plan) => plan.encode(to.u8(1)),
        };
        InheritedLimits::encode(self.inherited.as_ref(), to);
        to
    }

    /// Decodes a launch.
    pub(super) fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        Ok(Launch {
            record: LaunchRecord {
                session: from.text()?,
                agent: from.text()?,
                command: from.bytes()?.to_vec(),
                cwd: from.bytes()?.to_vec(),
                pty: match from.u8()? {
                    0 => None,
                    _ => Some(Size {
                        cols: from.u16()?,
                        rows: from.u16()?,
                    }),
                },
                deadline_ms: from.maybe_u64()?,
                idle_ms: from.maybe_u64()?,
                inactivity_ms: from.maybe_u64()?,
                log_quota: from.u64()?,
                created_wall_ms: from.u64()?,
                keys: from.texts()?,
                conversation: from.maybe_text()?,
                started_by: from.maybe_text()?,
                name: from.maybe_text()?,
                grace_ms: from.u32()?,
                secret_fingerprints: from.bytes()?.to_vec(),
            },
            argv: from.list(|from| Ok(from.bytes()?.to_vec()))?,
            env: from.list(|from| Ok((from.bytes()?.to_vec(), from.bytes()?.to_vec())))?,
            stdin: Stdin::decode(from)?,
            containment: match from.u8()? {
                0 => ContainmentChoice::Auto,
                1 => ContainmentChoice::Cgroup,
                2 => ContainmentChoice::PidNamespace,
                3 => ContainmentChoice::Subreaper,
                _ => return Err(Malformed),
            },
            max_processes: from.u32()?,
            sandbox: match from.u8()? {
                0 => None,
                _ => Some(Plan::decode(from)?),
            },
            inherited: InheritedLimits::decode(from)?,
        })
    }
}
