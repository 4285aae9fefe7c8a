//! Shapes that only commands print with `--json`, for `abide schema`.

use schemars::JsonSchema;
use serde_json::Value;

use crate::{
    Daemon, Message, Question, QuestionDetails, QuestionLine, Session, SessionEnd, TimerDetails,
};

/// `run`
#[derive(JsonSchema)]
pub struct Run {
    #[serde(flatten)]
    pub session: Session,
    /// End of the run for its caller.
    pub outcome: String,
    /// Exit code of `abide run`.
    pub return_code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// True if output was left out.
    pub truncated: bool,
    /// One sentence, if the run did not end by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Cause for which the session should have ended, if it cannot be ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-nullable" = true))]
    pub wanted_end: Option<Option<SessionEnd>>,
}

/// `answer`
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum Answer {
    List {
        questions: Vec<QuestionDetails>,
    },
    Answered {
        question_id: String,
        /// `idle` or `command`.
        about: String,
        answer: String,
    },
    /// With `--follow`, a line for each.
    Line(QuestionLine),
    One(Box<Question>),
}

/// `session list`
#[derive(JsonSchema)]
pub struct SessionList {
    pub sessions: Vec<Session>,
}

/// `session attach`
#[derive(JsonSchema)]
pub struct Attached {
    #[serde(flatten)]
    pub session: Session,
    /// True if the person left and the session goes on.
    pub left: bool,
}

/// A line of output.
#[derive(JsonSchema)]
pub struct OutputLine {
    /// Offset in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// `stdout`, `stderr` or `pty`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Time of the output, in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<u64>,
    /// The output, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The output, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Bytes that are not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<u64>,
}

/// `timer read`
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum TimerRead {
    One(Box<TimerDetails>),
    List(TimerList),
}

/// `timer list`, `timer history`
#[derive(JsonSchema)]
pub struct TimerList {
    pub timers: Vec<TimerDetails>,
}

/// `messages`
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum Messages {
    Page {
        messages: Vec<Message>,
        /// Start of the next page.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(extend("x-nullable" = true))]
        next: Option<String>,
    },
    /// With `--follow`, a line for each.
    One(Message),
}

/// `call`
#[derive(JsonSchema)]
pub struct Called {
    pub tool: String,
    /// Line of the file that has the call.
    pub line: u64,
    /// Result, as the schema of the tool says.
    #[schemars(with = "std::collections::BTreeMap<String, Value>")]
    pub result: Value,
}

/// `top`
#[derive(JsonSchema)]
pub struct Top {
    pub daemon: Daemon,
    pub questions: Vec<QuestionDetails>,
    pub sessions: Vec<Session>,
    pub timers: Vec<TimerDetails>,
    pub messages: Vec<Message>,
}

/// `setup`
#[derive(JsonSchema)]
pub struct Setup {
    pub client: String,
    pub agent: String,
    pub written: bool,
    /// Path, change, diff and backup of each file.
    pub files: Vec<Value>,
}

/// `doctor`
#[derive(JsonSchema)]
pub struct Doctor {
    pub version: String,
    /// The worst level of all findings.
    pub level: String,
    pub findings: Vec<Finding>,
}

/// A finding of `doctor`.
#[derive(JsonSchema)]
pub struct Finding {
    pub topic: String,
    /// `ok`, `warning` or `trouble`.
    pub level: String,
    pub says: String,
    /// Next step.
    pub next: Option<String>,
}

/// `stop`
#[derive(JsonSchema)]
pub struct Stopped {
    /// `false` if no daemon ran.
    pub stopped: bool,
}

/// `version`
#[derive(JsonSchema)]
pub struct Version {
    pub version: String,
}

/// `policy list`
#[derive(JsonSchema)]
pub struct PolicyList {
    /// Decision about commands that no rule names.
    pub otherwise: String,
    /// Decision about text that cannot be parsed.
    pub unparsed: String,
    pub rules: Vec<PolicyRule>,
    /// File of the rules that the answer `always` has written.
    pub always_file: String,
}

/// One rule.
#[derive(JsonSchema)]
pub struct PolicyRule {
    pub name: String,
    /// `built-in`, `configuration`, `always` or `this agent`.
    pub source: String,
    pub run: Vec<String>,
    pub with: Vec<String>,
    /// `allow`, `ask` or `deny`.
    pub r#do: String,
    pub why: String,
    pub instead: Option<String>,
    pub agent: Option<String>,
    pub folder: Option<String>,
}

/// `policy test`
#[derive(JsonSchema)]
pub struct PolicyTested {
    pub command: String,
    /// `allow`, `ask` or `deny`.
    pub decision: String,
    /// Rule that decides.
    pub rule: Option<String>,
    pub why: Option<String>,
    /// Commands in the command line.
    pub parts: Vec<PolicyPart>,
    /// Answers that a person could give.
    pub answers: Vec<String>,
}

/// One command of a command line.
#[derive(JsonSchema)]
pub struct PolicyPart {
    pub command: String,
    pub decision: String,
    pub rule: Option<String>,
}

/// `policy remove`
#[derive(JsonSchema)]
pub struct PolicyRemoved {
    /// Name of the rule.
    pub removed: String,
}

/// `policy replay`
#[derive(JsonSchema)]
pub struct PolicyReplay {
    /// Number of recorded sessions.
    pub sessions: usize,
    pub allow: usize,
    pub ask: usize,
    pub deny: usize,
    /// Decisions to ask or to deny.
    pub decisions: Vec<PolicyReplayed>,
}

/// Decision about a recorded session.
#[derive(JsonSchema)]
pub struct PolicyReplayed {
    #[serde(flatten)]
    pub tested: PolicyTested,
    pub session_id: String,
    pub agent: String,
}

/// `audit`, one line for each decision.
#[derive(JsonSchema)]
pub struct AuditLine {
    /// Time, in Unix milliseconds.
    pub at: u64,
    /// `allow`, `ask`, `deny`, `broken`, `answered` or `expired`.
    pub event: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Command line, with secrets masked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Commands in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// `person` or `client`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Rules that the answer added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added: Option<Vec<String>>,
}
