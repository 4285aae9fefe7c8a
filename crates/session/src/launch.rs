//! The command that a keeper is to start.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::sandbox::Plan;
use crate::{wire_enum, wire_struct};

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
    /// Idempotency keys of the start.
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

wire_struct!(InheritedLimits { umask, limits });
wire_struct!(ResourceLimit {
    resource,
    soft,
    hard
});

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

wire_enum!(Stdin {
    0 => None,
    1 => Bytes(bytes),
    2 => Open,
});

/// Size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Number of columns.
    pub cols: u16,
    /// Number of lines.
    pub rows: u16,
}

wire_struct!(Size { cols, rows });

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
}

wire_enum!(ContainmentChoice {
    0 => Auto,
    1 => Cgroup,
    2 => PidNamespace,
    3 => Subreaper,
});

wire_struct!(LaunchRecord {
    session,
    agent,
    command,
    cwd,
    pty,
    deadline_ms,
    idle_ms,
    inactivity_ms,
    log_quota,
    created_wall_ms,
    keys,
    conversation,
    started_by,
    name,
    grace_ms,
    secret_fingerprints,
});

wire_struct!(Launch {
    record,
    argv,
    env,
    stdin,
    containment,
    max_processes,
    sandbox,
    inherited,
});
