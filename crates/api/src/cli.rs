//! Types that only commands print with `--json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    AuditLine, AuditVerified, ClosedQuestion, Daemon, Message, PolicyTested, Question,
    QuestionDetails, QuestionEvent, RunEnded, Session, TimerDetails,
};

/// `run`
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Run {
    #[serde(flatten)]
    pub ended: RunEnded,
    /// Exit code of `abide run`.
    pub return_code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// True if output was left out.
    pub truncated: bool,
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
        /// `idle`, `command` or `connection`.
        about: String,
        answer: String,
    },
    /// With `--follow`, a line for each.
    Line(QuestionLine),
    One(Box<Question>),
}

/// A change of a question, as a line of `answer --follow`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum QuestionLine {
    /// The question is open.
    Asked(Box<QuestionDetails>),
    /// The question was answered or withdrawn.
    Closed(ClosedQuestion),
}

impl From<QuestionEvent> for QuestionLine {
    fn from(event: QuestionEvent) -> Self {
        match event {
            QuestionEvent::Open(details) => QuestionLine::Asked(details),
            QuestionEvent::Closed(closed) => QuestionLine::Closed(closed),
        }
    }
}

/// `session list`
#[derive(Serialize, JsonSchema)]
pub struct SessionList {
    pub sessions: Vec<Session>,
}

/// `session attach`
#[derive(Serialize, JsonSchema)]
pub struct Attached {
    #[serde(flatten)]
    pub session: Session,
    /// True if the person left and the session goes on.
    pub left: bool,
}

/// A line of output.
#[derive(Default, Serialize, JsonSchema)]
pub struct OutputLine {
    /// Offset in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// `stdout`, `stderr` or `pty`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<&'static str>,
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
#[derive(Serialize, JsonSchema)]
pub struct TimerList {
    pub timers: Vec<TimerDetails>,
    /// While the database is away: time up to which the timers of other machines are known, in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<u64>,
    /// Sentence about a database that is away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
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
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Top {
    pub daemon: Daemon,
    /// Open questions.
    pub questions: Vec<QuestionDetails>,
    /// Running sessions.
    pub sessions: Vec<Session>,
    /// Active timers, those that are due next first.
    pub timers: Vec<TimerDetails>,
    /// Most recent messages, newest first.
    pub messages: Vec<Message>,
    /// While the database is away: time up to which the timers of other machines are known, in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<u64>,
    /// Sentence about a database that is away: timers and messages are as far as the daemon knows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// `setup`
#[derive(Serialize, JsonSchema)]
pub struct Setup {
    pub client: String,
    pub agent: String,
    /// True if there is a sign of the client on this machine.
    pub installed: bool,
    pub written: bool,
    /// Files of the client.
    pub files: Vec<SetupFile>,
}

/// File that `setup` changes.
#[derive(Serialize, JsonSchema)]
pub struct SetupFile {
    pub path: String,
    /// `none`, `create`, `remove` or `update`.
    pub change: String,
    pub diff: String,
    /// Copy of the file as it was before.
    pub backup: Option<String>,
}

/// `setup` of one client, or why it failed where several are set up.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum SetupOutput {
    Setup(Setup),
    Failed(FailedSetup),
}

/// Client that `setup` without a client could not set up.
#[derive(Serialize, JsonSchema)]
pub struct FailedSetup {
    pub client: String,
    pub error: String,
}

/// `doctor`
#[derive(Serialize, JsonSchema)]
pub struct Doctor {
    pub version: &'static str,
    /// The worst level of all findings.
    pub level: String,
    pub findings: Vec<Finding>,
}

/// `doctor`, or with `--hostile` its attacks.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum DoctorOutput {
    Doctor(Doctor),
    Hostile(Hostile),
}

/// `doctor --hostile`
#[derive(Serialize, JsonSchema)]
pub struct Hostile {
    /// `read-only` or `workspace-write`.
    pub mode: String,
    /// `off`, `allowlist` or `on`.
    pub network: String,
    /// Mechanism that enforced the sandbox.
    pub sandboxed_by: String,
    /// Promises that this mechanism does not keep.
    pub sandbox_gaps: Vec<String>,
    /// True if every attack was held off and everything that must work did.
    pub held: bool,
    /// Attacks, in the order in which they were made.
    pub attacks: Vec<HostileAttack>,
}

/// One attack of `doctor --hostile`.
#[derive(Serialize, JsonSchema)]
pub struct HostileAttack {
    /// Number of the attack.
    pub number: u16,
    /// The attempt in words.
    pub attack: String,
    /// `refused`, `unchanged` or `works`.
    pub expected: String,
    /// `ok`, `gap` (this mechanism does not keep it), `skipped` or `failed`.
    pub result: String,
    /// Details.
    pub says: String,
}

/// A finding of `doctor`.
#[derive(Serialize, JsonSchema)]
pub struct Finding {
    pub topic: String,
    /// `ok`, `off` (switched off in the configuration), `warning` or `trouble`.
    pub level: String,
    pub says: String,
    /// Next step.
    pub next: Option<String>,
}

/// `sandbox layers`
#[derive(Serialize, JsonSchema)]
pub struct Layers {
    /// Layers of each agent.
    pub layers: Vec<AgentLayers>,
    /// Agent whose layers were removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<String>,
}

/// Layers of one agent.
#[derive(Serialize, JsonSchema)]
pub struct AgentLayers {
    pub agent: String,
    /// Folder on disk.
    pub path: String,
    pub bytes: u64,
    /// Time at which a command last used them, in Unix milliseconds.
    pub used_at: u64,
    /// Sessions that use them.
    pub sessions: Vec<String>,
}

/// `stop`
#[derive(Serialize, JsonSchema)]
pub struct Stopped {
    /// `false` if no daemon ran.
    pub stopped: bool,
}

/// `version`
#[derive(Serialize, JsonSchema)]
pub struct Version {
    pub version: &'static str,
}

/// `policy replay`
#[derive(Serialize, JsonSchema)]
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
#[derive(Serialize, JsonSchema)]
pub struct PolicyReplayed {
    #[serde(flatten)]
    pub tested: PolicyTested,
    pub session_id: String,
    pub agent: String,
}

/// `audit`: a line for each decision, or with `--verify` one object.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum Audit {
    Line(Box<AuditLine>),
    Verified(AuditVerified),
}
