//! One command with its whole process tree.

use alloc::string::{String, ToString};
use alloc::sync::Arc;

use crate::id::{Agent, Conversation, Key, TimerId};
use crate::time::{Millis, Mono, Wall};

/// Session as the core knows it. The bytes of its output are not here, only their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Owner.
    pub agent: Agent,
    /// Conversation that started it.
    pub conversation: Option<Conversation>,
    /// Command as given.
    pub command: Arc<str>,
    /// Idempotency key of its start, if any.
    pub key: Option<Key>,
    /// Cause of its start.
    pub started_by: StartedBy,
    /// Time of its creation.
    pub created: Wall,
    /// Idle limit: a person is asked after this time without output, whether or not a call waits.
    pub idle: Option<Millis>,
    /// Inactivity limit: the session is closed after this time without output, input and readers. `None`: never.
    pub inactivity: Option<Millis>,
    /// No question about its idleness is opened before this moment, because a person asked for that.
    pub unasked_until: Mono,
    /// Number of bytes of output so far.
    pub bytes: u64,
    /// No answer to a call reported its end, or the end of the processes that it left behind.
    pub unattended: bool,
    /// Phase of its life.
    pub phase: Phase,
}

/// Cause of the start of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartedBy {
    /// Call of its agent or of a person.
    #[default]
    Call,
    /// Condition of this timer; the session is one of its tries.
    Timer(TimerId),
    /// Condition that is waited for without a timer (`abide wait`); the session is one of its tries.
    Wait,
}

impl StartedBy {
    /// Returns whether the session runs the command of a condition.
    pub const fn is_try(self) -> bool {
        match self {
            StartedBy::Call => false,
            StartedBy::Timer(_) | StartedBy::Wait => true,
        }
    }

    /// Word for results and records; none for a call, which is the ordinary case.
    pub fn name(self) -> Option<String> {
        match self {
            StartedBy::Call => None,
            StartedBy::Timer(timer) => Some(timer.to_string()),
            StartedBy::Wait => Some(WAIT.into()),
        }
    }

    /// Parses that word.
    pub fn from_name(name: Option<&str>) -> Self {
        match name {
            None => StartedBy::Call,
            Some(WAIT) => StartedBy::Wait,
            Some(timer) => timer.parse().map_or(StartedBy::Call, StartedBy::Timer),
        }
    }
}

const WAIT: &str = "wait";

/// Phase of a session. Leader exited, tree empty and streams closed are three events; a phase is the
/// combination that matters to waiting calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A keeper has the command; no process is known to run yet.
    Starting,
    /// The leader runs.
    Running {
        /// Time of the last output, or of the start.
        quiet_since: Mono,
        /// Reason of the kill, once it is decided.
        ending: Option<End>,
    },
    /// The leader has ended; other processes of the tree still run.
    Leftover {
        /// Ending of the leader.
        ending: Ending,
    },
    /// The tree is empty. Final.
    Ended {
        /// Ending of the leader.
        ending: Ending,
    },
    /// The command could not be started. Final.
    Failed {
        /// Step that failed and its error, as one sentence.
        fault: Arc<str>,
        /// Time of the failure.
        at: Wall,
    },
}

impl Phase {
    /// Reason of the kill of a running session, once it is decided.
    pub fn wanted_end(&self) -> Option<End> {
        match self {
            Phase::Running { ending, .. } => *ending,
            Phase::Starting
            | Phase::Leftover { .. }
            | Phase::Ended { .. }
            | Phase::Failed { .. } => None,
        }
    }
}

/// Ending of a session's leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Exit status from the kernel. `None`: unknown.
    pub exit: Option<Exit>,
    /// Reason.
    pub end: End,
    /// Run time.
    pub duration: Millis,
    /// Number of bytes of output until then.
    pub bytes: u64,
    /// Number of bytes that were dropped from the log because of its quota.
    pub dropped: u64,
}

/// Exit status of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Exit code.
    Code(i32),
    /// Signal that killed it.
    Signal(i32),
}

impl Exit {
    /// Number that a shell shows: the exit code, or 128 + the signal.
    pub fn shell_code(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
        }
    }
}

/// Reason of a session's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The leader exited by itself.
    Exited,
    /// A signal that abide did not send.
    Signaled,
    /// The deadline.
    Deadline,
    /// A person answered no to the idle question.
    IdleDeclined,
    /// A person killed or interrupted it.
    User,
    /// The agent killed it.
    Agent,
    /// The inactivity limit.
    Inactivity,
    /// The OOM killer of the kernel.
    OutOfMemory,
    /// The keeper vanished; the exit status is unknown.
    Lost,
}

/// Mechanism that keeps track of the process tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Containment {
    /// A cgroup of its own.
    Cgroup,
    /// A PID namespace of its own.
    PidNamespace,
    /// A subreaper that walks the tree.
    Subreaper,
}

impl End {
    /// Returns whether the tree was killed on purpose. Such an end is reported when the tree is empty.
    pub const fn is_kill(self) -> bool {
        match self {
            End::Deadline | End::IdleDeclined | End::User | End::Agent | End::Inactivity => true,
            End::Exited | End::Signaled | End::OutOfMemory | End::Lost => false,
        }
    }

    /// Word for results, records and the page.
    pub const fn as_str(self) -> &'static str {
        match self {
            End::Exited => "exited",
            End::Signaled => "signaled",
            End::Deadline => "deadline",
            End::IdleDeclined => "idle_declined",
            End::User => "user",
            End::Agent => "agent",
            End::Inactivity => "inactivity",
            End::OutOfMemory => "out_of_memory",
            End::Lost => "lost",
        }
    }
}

impl Containment {
    /// Word for results.
    pub const fn as_str(self) -> &'static str {
        match self {
            Containment::Cgroup => "cgroup",
            Containment::PidNamespace => "pid_namespace",
            Containment::Subreaper => "subreaper",
        }
    }
}
