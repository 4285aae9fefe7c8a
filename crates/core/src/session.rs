//! One command with its whole process tree.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::id::{Agent, Conversation, Key, TimerId};
use crate::time::{Millis, Mono, Wall};
use crate::words::words;

/// Session as the core knows it. The bytes of its output are not here, only their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Owner.
    pub agent: Agent,
    /// Conversation that started it.
    pub conversation: Option<Conversation>,
    /// Command as given.
    pub command: Arc<str>,
    /// Idempotency keys of its start: of each call that asked for it.
    pub keys: Vec<Key>,
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
    /// A person has interrupted a call that waited for the command. Calls that wait for it later are told so.
    pub interrupted: bool,
    /// Time at which this daemon heard that its command had ended, which is later than its end.
    pub end_heard: Option<Wall>,
    /// Phase of its life.
    pub phase: Phase,
}

impl Session {
    /// One word for people, lists and results.
    pub fn status(&self) -> &'static str {
        match &self.phase {
            Phase::Starting => "starting",
            Phase::Running { .. } => "running",
            Phase::Leftover { .. } | Phase::Ended { .. } => "ended",
            Phase::Failed { .. } => "failed",
        }
    }

    /// Session without limits that is about to be started.
    pub(crate) fn starting(
        agent: Agent,
        conversation: Option<Conversation>,
        command: Arc<str>,
        keys: Vec<Key>,
        created: Wall,
    ) -> Self {
        Session {
            agent,
            conversation,
            command,
            keys,
            started_by: StartedBy::Call,
            created,
            idle: None,
            inactivity: None,
            unasked_until: Mono::default(),
            bytes: 0,
            unattended: false,
            interrupted: false,
            end_heard: None,
            phase: Phase::Starting,
        }
    }

    /// Time at which the whole tree had ended, if its leader did not exit with code 0 and was not ended on purpose.
    pub(crate) fn failed_at(&self) -> Option<Wall> {
        match &self.phase {
            Phase::Ended { ending } if ending.is_failure() => {
                Some(Wall(self.created.0.saturating_add(ending.duration.0)))
            }
            Phase::Failed { at, .. } => Some(*at),
            Phase::Starting
            | Phase::Running { .. }
            | Phase::Leftover { .. }
            | Phase::Ended { .. } => None,
        }
    }
}

/// Cause of the start of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartedBy {
    /// Call of its agent, or of a person on behalf of an agent, that waited for its end.
    #[default]
    Call,
    /// Call of `terminal_session`, which leaves it running on purpose, as it does with a server.
    Terminal,
    /// Person at the command line (`abide run`). Its ending is told there, never in a message to an agent.
    Person,
    /// Condition of this timer; the session is one of its tries.
    Timer(TimerId),
    /// Condition that is waited for without a timer (`abide wait`); the session is one of its tries.
    Wait,
}

impl StartedBy {
    /// Returns whether the session runs the command of a condition.
    pub const fn is_try(self) -> bool {
        match self {
            StartedBy::Call | StartedBy::Terminal | StartedBy::Person => false,
            StartedBy::Timer(_) | StartedBy::Wait => true,
        }
    }

    /// Word for results: the condition whose command the session runs.
    pub fn condition(self) -> Option<String> {
        self.name().filter(|_| self.is_try())
    }

    /// Word for records; none for an ordinary call.
    pub fn name(self) -> Option<String> {
        match self {
            StartedBy::Call => None,
            StartedBy::Terminal => Some(TERMINAL.into()),
            StartedBy::Person => Some(PERSON.into()),
            StartedBy::Timer(timer) => Some(timer.to_string()),
            StartedBy::Wait => Some(WAIT.into()),
        }
    }

    /// Parses that word.
    pub fn from_name(name: Option<&str>) -> Self {
        match name {
            None => StartedBy::Call,
            Some(TERMINAL) => StartedBy::Terminal,
            Some(PERSON) => StartedBy::Person,
            Some(WAIT) => StartedBy::Wait,
            Some(timer) => timer.parse().map_or(StartedBy::Call, StartedBy::Timer),
        }
    }
}

const TERMINAL: &str = "terminal_session";
const PERSON: &str = "person";
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
        /// Kind of the error.
        error: StartError,
        /// Time of the failure.
        at: Wall,
    },
}

impl Phase {
    /// Ending of the leader, if it has ended.
    pub fn ending(&self) -> Option<&Ending> {
        match self {
            Phase::Leftover { ending } | Phase::Ended { ending } => Some(ending),
            Phase::Starting | Phase::Running { .. } | Phase::Failed { .. } => None,
        }
    }

    /// True if no process of the session is left, or none was started. Final.
    pub fn is_final(&self) -> bool {
        matches!(self, Phase::Ended { .. } | Phase::Failed { .. })
    }

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

impl Ending {
    /// Returns whether the command failed by itself, or by what its sandbox does not let it do.
    pub fn is_failure(&self) -> bool {
        let on_purpose = self.end.is_kill() && self.end != End::Sandbox;
        self.exit != Some(Exit::Code(0)) && !on_purpose
    }
}

/// Kind of error for which a command could not be started, as exit codes distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError {
    /// The program, or its folder, does not exist.
    NotFound,
    /// The program exists but cannot be executed.
    NotExecutable,
    /// Any other error.
    Other,
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

words! {
    /// Reason of a session's end.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum End {
        /// The leader exited by itself.
        Exited = "exited",
        /// A signal that abide did not send.
        Signaled = "signaled",
        /// The deadline.
        Deadline = "deadline",
        /// A person answered no to the idle question.
        IdleDeclined = "idle_declined",
        /// A person killed or interrupted it.
        User = "user",
        /// The agent killed it.
        Agent = "agent",
        /// The inactivity limit.
        Inactivity = "inactivity",
        /// The OOM killer of the kernel.
        OutOfMemory = "out_of_memory",
        /// The sandbox, because the tree did what the kernel cannot refuse.
        Sandbox = "sandbox",
        /// The keeper vanished; the exit status is unknown.
        Lost = "lost",
    }
}

words! {
    /// Mechanism that keeps track of the process tree.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Containment {
        /// A cgroup of its own.
        Cgroup = "cgroup",
        /// A PID namespace of its own.
        PidNamespace = "pid_namespace",
        /// A subreaper that walks the tree.
        Subreaper = "subreaper",
    }
}

/// Sandbox of a command that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandboxed {
    /// Mechanism that enforces it.
    pub by: SandboxedBy,
    /// Promises of the mode that the mechanism does not keep.
    pub gaps: Vec<SandboxGap>,
}

impl Sandboxed {
    /// A command without a sandbox.
    pub const OFF: Sandboxed = Sandboxed {
        by: SandboxedBy::Off,
        gaps: Vec::new(),
    };
}

words! {
    /// Mechanism that enforces a sandbox, from the weakest to the strongest.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum SandboxedBy {
        /// None: the command can do what its user can.
        Off = "off",
        /// Landlock and a system call filter.
        Landlock = "landlock",
        /// The same as `Namespaces`, but the user namespace was made by the program `bwrap` of the system.
        Bubblewrap = "bubblewrap",
        /// Namespaces, mounts, Landlock and a system call filter.
        Namespaces = "namespaces",
    }
}

words! {
    /// A promise of a sandbox that the mechanism in use does not keep.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SandboxGap {
        /// The home folder is not layered.
        Layers = "the home folder is read-only instead of layered",
        /// Abstract unix sockets are reachable.
        AbstractSockets = "abstract unix sockets of other programs can be reached",
        /// Protected paths of the workspace can be written.
        Protected = "protected paths of the workspace can be written",
        /// Names and metadata of hidden files are visible.
        Metadata = "names of hidden files can be seen, and file modes and times can be changed",
        /// Processes outside are visible.
        Processes = "processes outside the sandbox can be seen",
        /// Not all repositories inside the workspace were found.
        NestedRepositories = "the workspace has too many folders to find all repositories in it; hooks of some can be \
                              written",
        /// Protected names that do not exist in the workspace can be made, and those that are replaced outside can be written.
        AbsentNames = "protected names that do not exist in the workspace can be made, which the result tells, and those \
                       that are replaced outside can be written",
        /// A temporary folder is not layered.
        TemporaryLayers = "a temporary folder is private and begins empty instead of layered",
    }
}

impl End {
    /// Returns whether the tree was killed on purpose. Such an end is reported when the tree is empty.
    pub const fn is_kill(self) -> bool {
        match self {
            End::Deadline
            | End::IdleDeclined
            | End::User
            | End::Agent
            | End::Inactivity
            | End::Sandbox => true,
            End::Exited | End::Signaled | End::OutOfMemory | End::Lost => false,
        }
    }
}

impl SandboxedBy {
    /// Number in records and frames.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Mechanism with this number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.code() == code)
    }
}

impl SandboxGap {
    /// Number in records and frames.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// SandboxGap with this number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|gap| gap.code() == code)
    }
}
