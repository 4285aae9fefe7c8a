//! State of the daemon.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of the daemon.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The daemon.
    pub daemon: Daemon,
    /// Number of sessions.
    pub sessions: SessionCounts,
    /// Number of questions.
    pub questions: QuestionCounts,
    /// Number of timers.
    pub timers: TimerCounts,
    /// Containment of process trees.
    pub containment: Containments,
    /// Configuration in force.
    pub configuration: Configuration,
    /// Rules about commands of agents.
    pub policy: PolicyState,
    /// Database of timers, questions and messages.
    pub database: Database,
    /// HTTP over TCP; `null` if it is switched off.
    pub http: Option<HttpListener>,
    /// Directories and files.
    pub places: Places,
}

/// The daemon.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Daemon {
    /// Process id.
    pub pid: u32,
    /// Version.
    pub version: String,
    /// Start, in Unix milliseconds.
    pub started_at: u64,
}

/// Number of sessions.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SessionCounts {
    /// Sessions that run.
    pub running: usize,
    /// Sessions whose command has ended and left something running.
    pub background: usize,
    /// Sessions that have ended.
    pub ended: usize,
}

/// Number of questions.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct QuestionCounts {
    /// Questions without an answer.
    pub open: usize,
}

/// Number of timers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TimerCounts {
    /// Timers that have not ended.
    pub running: Option<usize>,
}

/// Containment of process trees.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Held")]
pub struct Containments {
    /// Setting of the configuration.
    pub wanted: String,
    /// Mechanism of the newest session.
    pub last_used: Option<crate::Containment>,
}

/// Configuration in force.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Configuration {
    /// Time at which it was read, in Unix milliseconds.
    pub read_at: u64,
    /// Reason why the file cannot be used as it is now; the former configuration stays in force. `null` if it can.
    pub trouble: Option<String>,
    /// Settings of the file that take effect when the daemon is started again.
    pub at_next_start: Vec<String>,
}

/// Rules about commands of agents.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PolicyState {
    /// Reason why the rules cannot be used, so that all commands of agents are refused; `null` if they can.
    pub trouble: Option<String>,
}

/// The database.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Database {
    /// Fault of the database, now or when the daemon started; `null` if there is none.
    pub trouble: Option<String>,
}

/// HTTP over TCP.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Served")]
pub struct HttpListener {
    /// Address and port; `null` if the port could not be opened.
    pub address: Option<String>,
    /// File that holds the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<String>,
    /// Reason why the port could not be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Directories and files.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Places {
    /// State directory.
    pub state: String,
    /// Directory of sockets and locks.
    pub runtime: String,
    /// Configuration file.
    pub config: String,
}

/// A daemon that is about to end.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Stopping {
    /// Always true.
    pub stopping: bool,
    /// Process id.
    pub pid: u32,
}

/// A sign of life.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Health {
    /// `ok`.
    pub status: &'static str,
}

/// A link that logs one browser in.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Link {
    /// The link; its fragment holds the code.
    pub url: String,
    /// Seconds for which the link is valid, once.
    pub expires_in: u64,
}
