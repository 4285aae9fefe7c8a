//! Public types of abide. A fact that leaves the daemon has one type here, and everything that is published is
//! derived from it: tool results and their output schemas, HTTP answers and the OpenAPI document, `abide schema` and the
//! types of the page. A new field is one line here and one line where the value is filled in.
//!
//! The crate knows the ids and words of `abide-core`. It knows no session on disk, no engine and no protocol.
//!
//! Conventions: durations are seconds, times are Unix milliseconds. A field that may be missing is an `Option` with
//! `skip_serializing_if`; an `Option` without it is `null` when there is no value.

#![forbid(unsafe_code)]

pub mod arguments;
pub mod cli;
mod command;
mod event;
mod fleet;
mod held;
mod known_id;
mod log;
mod message;
mod number;
mod policy;
mod problem;
mod question;
mod request;
mod result;
mod sandbox;
pub mod schema;
mod search;
mod session;
mod session_stats;
mod status;
mod terminal;
mod timer;
mod tool;
mod words;

pub use command::{ExecuteCommandResult, ShellResult, ShellStatus};
pub use event::{Hello, SessionPulse};
pub use fleet::{FleetMachine, FleetMachines, MachineActed, MachineState, SshRoute};
pub use held::{
    AnswerOffer, Killed, NotStartedResult, NotStartedStatus, QuestionCommand, StartsCommand,
};
pub use known_id::{KnownId, KnownIds};
pub use log::{LogLine, LogLines, LogMatches, LogRange, LogStream, LogStyle};
pub use message::{DeliveredMessage, Delivery, Message, MessagePage, ReadMessagesResult};
pub use number::{Id, Seconds};
pub use policy::{
    AuditLine, AuditPage, AuditVerified, PolicyDecision, PolicyPart, PolicyRemoved, PolicyRule,
    PolicyRules, PolicyTest, PolicyTested, RefusalPage, RuleSource, SandboxRefusal,
    SandboxRefusals,
};
pub use problem::{ErrorCode, Problem};
pub use question::{
    Answered, ClosedQuestion, Question, QuestionAbout, QuestionDetails, QuestionEvent, QuestionPage,
};
pub use request::{NewSession, NewTimer, QuestionAnswer, Rename, SignalRequest, TimerAction};
pub use result::{ElsewhereResult, ToolOutput, ToolResult};
pub use sandbox::{NetworkMode, SandboxMode};
pub use search::{Match, MatchPage};
pub use session::{
    Activity, Containment, ListedSession, LiveActivity, OutputEnded, Process, RemovedSession,
    RunAccepted, RunEnded, RunOutcome, SandboxedBy, Session, SessionEnd, SessionPage, SessionState,
    SessionStatus, SessionSummary, StartError,
};
pub use session_stats::{AgentSessions, SessionDay, SessionOutcomes, SessionStats};
pub use status::{
    Configuration, Containments, Daemon, Database, Health, HttpListener, Link, Places, PolicyState,
    QuestionCounts, SessionCounts, Status, Stopping, TimerCounts,
};
pub use terminal::{
    ActionResult, FoundLine, ScreenPaint, SessionList, TerminalEvent, TerminalSessionResult,
    TerminalState, WrittenBytes,
};
pub use timer::{
    CompletedBy, ReadTimerResult, Timer, TimerChange, TimerDay, TimerDetails, TimerIds, TimerList,
    TimerMade, TimerPage, TimerResult, TimerStats, TimerStatus, TimerType, Waited,
};
pub use tool::{
    CommandTool, Nothing, Object, PublishedTool, PublishedTools, TimerTool, ToolName, UnknownTool,
};
