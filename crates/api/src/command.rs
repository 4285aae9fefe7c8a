//! Results of the tools that run one command: `shell` and `execute_command`.

use schemars::JsonSchema;
use serde::Serialize;

use crate::words::words;
use crate::{Activity, SessionStatus, SessionSummary};

/// Fields of a `shell` result.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ShellResult {
    #[serde(flatten)]
    pub session: SessionSummary,
    pub status: ShellStatus,
    /// -1 at the time limit, -2 if the command could not be started, `null` while it runs.
    pub return_code: Option<i32>,
    /// Seconds that this call could wait, fitted to the client's own limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_timeout: Option<f64>,
    /// Reason for a failure to start, or to read the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(flatten)]
    pub activity: Option<Activity>,
}

words! {
    /// Status of a `shell` call.
    ShellStatus {
        Success = "SUCCESS",
        Error = "ERROR",
        TimeoutError = "TIMEOUT_ERROR",
        FatalError = "FATAL_ERROR",
        Running = "RUNNING",
    };
}

/// Fields of an `execute_command` result.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ExecuteCommandResult {
    #[serde(flatten)]
    pub session: SessionSummary,
    pub status: SessionStatus,
    /// Seconds that this call could wait, fitted to the client's own limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_timeout: Option<f64>,
    /// Reason for a failed call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(flatten)]
    pub activity: Option<Activity>,
}
