//! One command with its whole process tree.

use alloc::string::{String, ToString};
use alloc::sync::Arc;

use crate::id::{Agent, Conversation, Key, TimerId};
use crate::time::{Millis, Mono, Wall};

/// What the core knows of a session. Bytes of output are never here, only how many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Whose it is.
    pub agent: Agent,
    /// The conversation that started it.
    pub conversation: Option<Conversation>,
    /// The command as given.
    pub command: Arc<str>,
    /// The key it was started under, if any.
    pub key: Option<Key>,
    /// What had it started.
    pub started_by: StartedBy,
    /// When it was created.
    pub created: Wall,
    /// How long it may be quiet before a person is asked, whether or not a call waits.
    pub idle: Option<Millis>,
    /// How long it may go without output, input or a reader before it is closed. `None`: for ever.
    pub inactivity: Option<Millis>,
    /// A person does not want to be asked about its idleness before this moment.
    pub unasked_until: Mono,
    /// Bytes of output seen so far.
    pub bytes: u64,
    /// Its end, or the end of what it left behind, was told to no call.
    pub unattended: bool,
    /// Where it stands.
    pub phase: Phase,
}

/// What had a session started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartedBy {
    /// A call of its agent or of a person.
    #[default]
    Call,
    /// The condition of this timer, as one of its tries.
    Timer(TimerId),
    /// A condition that is waited for without a timer (`abide wait`), as one of its tries.
    Wait,
}

impl StartedBy {
    /// Whether it runs the command of a condition.
    pub const fn is_try(self) -> bool {
        match self {
            StartedBy::Call => false,
            StartedBy::Timer(_) | StartedBy::Wait => true,
        }
    }

    /// The word used in results and records; none for a call, which is the ordinary case.
    pub fn name(self) -> Option<String> {
        match self {
            StartedBy::Call => None,
            StartedBy::Timer(timer) => Some(timer.to_string()),
            StartedBy::Wait => Some(WAIT.into()),
        }
    }

    /// Reads that word.
    pub fn from_name(name: Option<&str>) -> Self {
        match name {
            None => StartedBy::Call,
            Some(WAIT) => StartedBy::Wait,
            Some(timer) => timer.parse().map_or(StartedBy::Call, StartedBy::Timer),
        }
    }
}

const WAIT: &str = "wait";

/// Where a session stands. Leader exited, tree empty and streams closed are three events; a phase
/// names the combination that matters to those who wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Handed to a keeper; nothing is known to run yet.
    Starting,
    /// The leader runs.
    Running {
        /// The last moment it wrote anything (or started).
        quiet_since: Mono,
        /// Set once somebody has decided that the tree must go.
        ending: Option<End>,
    },
    /// The leader has ended; something it left behind still runs.
    Leftover {
        /// How the leader ended.
        ending: Ending,
    },
    /// The tree is empty. Final.
    Ended {
        /// How the leader ended.
        ending: Ending,
    },
    /// It could not be run at all. Final.
    Failed {
        /// Which step failed and how, as one sentence.
        fault: Arc<str>,
        /// When it failed.
        at: Wall,
    },
}

impl Phase {
    /// Why the tree of a session that runs must go, where somebody has decided that.
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

/// How a session's leader ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// What the kernel said. `None`: nobody saw it.
    pub exit: Option<Exit>,
    /// Why it ended.
    pub end: End,
    /// How long it ran.
    pub duration: Millis,
    /// All bytes it wrote until then.
    pub bytes: u64,
    /// Bytes that no longer are in the log because of its quota.
    pub dropped: u64,
}

/// What the kernel reports of an ended process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It called exit.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

impl Exit {
    /// The number a shell would show: the code, or 128 + the signal.
    pub fn shell_code(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
        }
    }
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with a code.
    Exited,
    /// By a signal that was not ours.
    Signaled,
    /// At its hard limit.
    Deadline,
    /// A person did not want to go on waiting.
    IdleDeclined,
    /// A person ended or interrupted it.
    User,
    /// Its agent ended it.
    Agent,
    /// Nobody used it for too long.
    Inactivity,
    /// The kernel had no memory left for it.
    OutOfMemory,
    /// Its keeper vanished; nobody saw how it ended.
    Lost,
}

/// By what means the tree is held together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Containment {
    /// A control group of its own.
    Cgroup,
    /// A process namespace of its own.
    PidNamespace,
    /// A subreaper that walks the tree.
    Subreaper,
}

impl End {
    /// Whether it ended because the tree was killed on purpose, which is done only when it is empty.
    pub const fn is_kill(self) -> bool {
        match self {
            End::Deadline | End::IdleDeclined | End::User | End::Agent | End::Inactivity => true,
            End::Exited | End::Signaled | End::OutOfMemory | End::Lost => false,
        }
    }

    /// The word used in results, records and on the page.
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
    /// The word used in results.
    pub const fn as_str(self) -> &'static str {
        match self {
            Containment::Cgroup => "cgroup",
            Containment::PidNamespace => "pid_namespace",
            Containment::Subreaper => "subreaper",
        }
    }
}
