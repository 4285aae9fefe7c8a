//! Names of the tools, tools as HTTP lists them, and objects without fields of their own.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// Tool that an agent can call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolName {
    /// One that runs a command.
    Command(CommandTool),
    /// `terminal_session`
    TerminalSession,
    /// One about timers.
    Timer(TimerTool),
    /// `read_messages`
    ReadMessages,
}

/// Tool that runs a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandTool {
    /// `execute_command`
    Execute,
    /// `shell`
    Shell,
}

/// Tool about timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerTool {
    /// `timer`
    Timer,
    /// `read_timer`
    Read,
    /// `stop_timer`
    Stop,
    /// `cancel_timer`
    Cancel,
    /// `pause_timer`
    Pause,
    /// `resume_timer`
    Resume,
}

impl ToolName {
    /// All tools, in the order in which a model should read them.
    pub const ALL: [ToolName; 10] = [
        ToolName::Command(CommandTool::Execute),
        ToolName::Command(CommandTool::Shell),
        ToolName::TerminalSession,
        ToolName::Timer(TimerTool::Timer),
        ToolName::Timer(TimerTool::Read),
        ToolName::Timer(TimerTool::Stop),
        ToolName::Timer(TimerTool::Cancel),
        ToolName::Timer(TimerTool::Pause),
        ToolName::Timer(TimerTool::Resume),
        ToolName::ReadMessages,
    ];

    /// Name in a call.
    pub const fn as_str(self) -> &'static str {
        match self {
            ToolName::Command(tool) => tool.as_str(),
            ToolName::TerminalSession => "terminal_session",
            ToolName::Timer(tool) => tool.as_str(),
            ToolName::ReadMessages => "read_messages",
        }
    }

    /// True if the tool starts commands, in a fleet also on another machine.
    pub const fn starts_commands(self) -> bool {
        matches!(self, ToolName::Command(_) | ToolName::TerminalSession)
    }
}

impl CommandTool {
    /// Name in a call.
    pub const fn as_str(self) -> &'static str {
        match self {
            CommandTool::Execute => "execute_command",
            CommandTool::Shell => "shell",
        }
    }
}

impl TimerTool {
    /// Name in a call.
    pub const fn as_str(self) -> &'static str {
        match self {
            TimerTool::Timer => "timer",
            TimerTool::Read => "read_timer",
            TimerTool::Stop => "stop_timer",
            TimerTool::Cancel => "cancel_timer",
            TimerTool::Pause => "pause_timer",
            TimerTool::Resume => "resume_timer",
        }
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// There is no tool of this name; the text lists those that there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownTool(String);

impl fmt::Display for UnknownTool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = ToolName::ALL.map(ToolName::as_str).join(", ");
        write!(out, "there is no tool '{}'; the tools are {known}", self.0)
    }
}

impl std::error::Error for UnknownTool {}

impl FromStr for ToolName {
    type Err = UnknownTool;

    fn from_str(name: &str) -> Result<Self, UnknownTool> {
        let mut all = Self::ALL.into_iter();
        all.find(|tool| tool.as_str() == name)
            .ok_or_else(|| UnknownTool(name.to_owned()))
    }
}

/// All tools.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Tools")]
pub struct PublishedTools {
    /// Tools, in the order in which a model should read them.
    pub tools: Vec<PublishedTool>,
}

/// One tool.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Tool")]
pub struct PublishedTool {
    /// Name in a call.
    pub name: &'static str,
    /// Name for people.
    pub title: &'static str,
    /// Purpose, for a model.
    pub description: String,
    /// Schema of the arguments.
    #[schemars(with = "BTreeMap<String, Value>")]
    pub input_schema: Value,
    /// Schema of the result.
    #[schemars(with = "BTreeMap<String, Value>")]
    pub output_schema: Value,
}

/// An object whose fields are described elsewhere.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Object {
    /// All fields.
    #[serde(flatten)]
    pub fields: BTreeMap<String, Value>,
}

/// An object without fields.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Nothing {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_each_tool_is_read_back() {
        for tool in ToolName::ALL {
            assert_eq!(tool.as_str().parse(), Ok(tool));
        }
    }

    #[test]
    fn error_of_an_unknown_tool_lists_the_tools() {
        let unknown = "shel".parse::<ToolName>().expect_err("no tool");
        let said = unknown.to_string();
        assert!(
            said.starts_with("there is no tool 'shel'; the tools are execute_command, shell, ")
        );
    }
}
