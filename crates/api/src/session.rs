//! Sessions: one command with its process tree.

use abide_core::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Id;
use crate::words::words;

/// A session that was removed, as an event of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RemovedSession {
    /// Id of the session.
    pub session_id: Id<SessionId>,
}

/// Part that every result about a session has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionSummary {
    /// Id of the session.
    pub session_id: Id<SessionId>,
    /// Exit code; `null` if no exit was seen.
    pub exit_code: Option<i32>,
    /// Signal that ended the command.
    pub signal: Option<i32>,
    /// Cause of the end.
    pub end: Option<SessionEnd>,
    /// Seconds that the command ran, or has run so far; 0 if it could not be started.
    pub duration: f64,
    /// Bytes written so far.
    pub bytes_total: u64,
    /// Bytes written that are not kept.
    pub bytes_dropped: u64,
    /// Processes that the command left in the background.
    pub still_running: Vec<Process>,
    /// Mechanism that keeps track of the process tree.
    pub contained_by: Option<Containment>,
    /// Mechanism that enforces the sandbox; `off`: the command has none, `null`: nothing was run.
    pub sandboxed_by: Option<SandboxedBy>,
    /// Promises of the sandbox that this mechanism does not keep.
    pub sandbox_gaps: Vec<String>,
    /// Ports on which the sandboxed command listens and that are reachable on 127.0.0.1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// Timer whose condition runs this command, or `wait` for a command of `abide wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_by: Option<String>,
    /// Fault in the record on disk; the log is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Command line.
    pub command: String,
}

words! {
    /// State of a session in a result.
    SessionStatus {
        Running = "running",
        Exited = "exited",
        Failed = "failed",
        Unreachable = "unreachable",
        Lost = "lost",
    };

    /// State of a session in a list.
    SessionState {
        Starting = "starting",
        Running = "running",
        Ending = "ending",
        Background = "background",
        Ended = "ended",
        Failed = "failed",
        Unreachable = "unreachable",
        Lost = "lost",
    };

    /// Cause of the end of a session.
    SessionEnd {
        Exited = "exited",
        Signaled = "signaled",
        Deadline = "deadline",
        IdleDeclined = "idle_declined",
        User = "user",
        Agent = "agent",
        Inactivity = "inactivity",
        OutOfMemory = "out_of_memory",
        Sandbox = "sandbox",
        Lost = "lost",
    } from abide_core::session::End;

    /// Kind of error for which a command could not be started.
    StartError {
        NotFound = "not_found",
        NotExecutable = "not_executable",
        Other = "other",
    } from abide_core::StartError;

    /// Mechanism that keeps track of a process tree.
    Containment {
        Cgroup = "cgroup",
        PidNamespace = "pid_namespace",
        Subreaper = "subreaper",
    } from abide_core::session::Containment;

    /// End of a run for its caller. `undying`: the session cannot be ended.
    RunOutcome {
        Ended = "ended",
        Declined = "declined",
        Cancelled = "cancelled",
        Failed = "failed",
        Refused = "refused",
        Undying = "undying",
    };

    /// Mechanism that enforces a sandbox.
    SandboxedBy {
        Namespaces = "namespaces",
        Bubblewrap = "bubblewrap",
        Landlock = "landlock",
        Off = "off",
    } from abide_core::SandboxedBy;
}

/// Activity of a running command, as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Activity {
    /// True if the command waits for input.
    pub waiting_for_input: bool,
    /// Percent of one processor, recently.
    pub cpu: u32,
    /// Activity in words: busy, sleeping, stopped or waiting for input.
    pub doing: String,
}

/// One command with its whole process tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    #[serde(flatten)]
    pub summary: SessionSummary,
    /// `failed`: the command could not be started.
    pub status: SessionStatus,
    /// Command as given.
    pub command: String,
    /// Name that a person or agent gave the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Agent that owns the session.
    pub agent: String,
    /// Start, in Unix milliseconds.
    pub created_at: u64,
    /// End, or failure to start, in Unix milliseconds; absent while the command runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// Working directory.
    pub cwd: String,
    /// True if the command has a terminal.
    pub pty: bool,
    /// Hard limit in seconds, counted from the start.
    pub timeout: Option<f64>,
    /// Seconds without output after which a person is asked.
    pub idle: Option<f64>,
    /// Seconds without output, input or a reader after which the session is closed.
    pub inactivity_timeout: Option<f64>,
    /// Last sign of life, in Unix milliseconds.
    pub last_activity: u64,
    /// Seconds since then, while the command runs.
    pub idle_for: Option<f64>,
    /// Reason for a failure to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Machine of the fleet that runs it, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Time at which that machine said so, in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<u64>,
    /// With `tails`, while the command runs.
    #[serde(flatten)]
    pub live_activity: Option<LiveActivity>,
}

/// Last lines of a running session and its use of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LiveActivity {
    /// Last lines as plain text (with `tails`, while the command runs).
    pub tail: Vec<String>,
    /// Use of the processor; 1 is one processor.
    #[schemars(extend("x-nullable" = true))]
    pub cpu: Option<f64>,
    /// Memory in bytes.
    #[schemars(extend("x-nullable" = true))]
    pub memory: Option<u64>,
    /// True if the command waits for input.
    pub waiting_for_input: bool,
}

/// A page of sessions, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Sessions")]
pub struct SessionPage {
    /// Sessions of this page.
    pub sessions: Vec<Session>,
    /// `after` of the next page.
    pub next: Option<String>,
    /// Number of sessions in all pages.
    pub total: usize,
}

/// A session in the list of `terminal_session`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ListedSession {
    /// Id of the session.
    pub session_id: Id<SessionId>,
    /// Command, shortened.
    pub command: String,
    /// State of the session.
    pub state: SessionState,
    /// Seconds since the start.
    pub age: f64,
    /// Seconds since the last output, input or read.
    pub last_activity: f64,
    /// Agent that owns the session.
    pub agent: String,
    /// Working directory.
    pub cwd: String,
    /// True if the command has a terminal.
    pub pty: bool,
    /// Exit code; `null` if no exit was seen.
    pub exit_code: Option<i32>,
    /// Signal that ended the command.
    pub signal: Option<i32>,
    /// Cause of the end.
    pub end: Option<SessionEnd>,
    /// Timer whose condition runs this command, or `wait` for a command of `abide wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_by: Option<String>,
    /// Fault in the record on disk; the log is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
    /// Machine of the fleet that runs it, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Time at which that machine said so, in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<u64>,
}

/// First frame of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunAccepted {
    /// Id of the session.
    pub session_id: Id<SessionId>,
    /// Offset in the log of the first output that is sent.
    pub from: u64,
}

/// Last frame of a run: the session and how the run ended for its caller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunEnded {
    /// `None`: the command was refused before it had a session.
    #[serde(flatten)]
    #[schemars(with = "Session")]
    pub session: Option<Session>,
    /// End of the run for its caller.
    pub outcome: RunOutcome,
    /// One sentence, if the run did not end by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Kind of the error, if the command could not be started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_error: Option<StartError>,
    /// Cause for which the session should have ended, if it cannot be ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted_end: Option<SessionEnd>,
    /// Refusals of its sandbox as text, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Last frame of followed output.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OutputEnded {
    #[serde(flatten)]
    pub session: Session,
    /// Offset in the log from which to read on.
    pub next: u64,
}
