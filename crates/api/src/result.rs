//! Result of a tool call: the text for a model and the same facts as fields.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    DeliveredMessage, ErrorCode, ExecuteCommandResult, NotStartedResult, ReadMessagesResult,
    ReadTimerResult, ShellResult, TerminalSessionResult, TimerResult,
};

/// Result of a tool call. The fields hold the text too, because some clients show a model nothing else.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ToolResult<O = ToolOutput> {
    /// The whole result as text.
    pub text: String,
    /// Messages that waited for the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<DeliveredMessage>>,
    /// Fields of this tool.
    #[serde(flatten)]
    pub output: O,
    /// Cause of a failed call. An exit code that is not 0 is no failure.
    #[serde(skip)]
    pub error: Option<ErrorCode>,
}

/// Fields of a result, by tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ToolOutput {
    /// A refused call has its text only.
    None,
    /// A command that was not started.
    NotStarted(Box<NotStartedResult>),
    /// `shell`
    Shell(Box<ShellResult>),
    /// `execute_command`
    ExecuteCommand(Box<ExecuteCommandResult>),
    /// `terminal_session`
    TerminalSession(TerminalSessionResult),
    /// `timer`, `stop_timer`, `cancel_timer`, `pause_timer` and `resume_timer`
    Timer(Box<TimerResult>),
    /// `read_timer`
    ReadTimer(ReadTimerResult),
    /// `read_messages`
    ReadMessages(ReadMessagesResult),
    /// Result of a call that another machine of the fleet has answered.
    Elsewhere(Box<ElsewhereResult>),
}

/// Fields of a result that another machine has made. That machine may be of another version, so they are passed on as
/// they are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ElsewhereResult {
    /// Machine that has answered.
    pub machine: String,
    /// Time of the answer, in Unix milliseconds.
    pub as_of: u64,
    /// Fields of its result, without the text.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

impl ToolResult {
    /// Result of a call that succeeded.
    pub fn new(text: String, output: ToolOutput) -> Self {
        ToolResult {
            text,
            messages: None,
            output,
            error: None,
        }
    }

    /// Result of a call that failed, with one sentence.
    pub fn error(code: ErrorCode, text: String) -> Self {
        ToolResult {
            error: Some(code),
            ..ToolResult::new(text, ToolOutput::None)
        }
    }

    /// True if the call failed as a call.
    pub fn is_error(&self) -> bool {
        self.error.is_some()
    }

    /// All fields as JSON, for a protocol to send.
    pub fn to_fields(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::from_iter([("text".to_owned(), self.text.clone().into())]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_call_has_its_text_only() {
        let failed = ToolResult::error(ErrorCode::NotFound, "Session 'x' not found".into());
        let fields = Value::Object(failed.to_fields());
        assert_eq!(fields, serde_json::json!({"text": "Session 'x' not found"}));
        assert!(failed.is_error());
    }
}
