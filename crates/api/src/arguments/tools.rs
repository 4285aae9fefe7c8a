//! Arguments of each tool. The comment of a field is what a model is told about it.

use std::borrow::Cow;

use abide_core::limit;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

use super::{
    AnySeconds, AnyText, BadInput, ConditionFields, Env, FilledText, FromArgument, IdleSeconds,
    KeyText, Needs, NetworkArgument, PositiveSeconds, SandboxArgument, ShellSeconds, Text,
    TextOrNumber, WholeNumber, Words, arguments, field_name, finish, take,
};

/// The actions of `terminal_session`, in the order in which they are described.
pub const ACTIONS: [&str; 10] = [
    "start",
    "read_output",
    "send_input",
    "screen",
    "search",
    "extend",
    "resize",
    "signal",
    "kill",
    "list",
];

/// Arguments about the sandbox of a command. Models are told of them only where a sandbox is configured.
pub const SANDBOX_FIELDS: [&str; 4] = ["sandbox", "network", "needs", "justification"];

/// Longest duration of a timer, in seconds: 100 years.
const LONGEST: u64 = 3_153_600_000;

/// Columns of a terminal.
pub type Cols = WholeNumber<2, 1_000>;
/// Rows of a terminal.
pub type Rows = WholeNumber<1, 500>;
/// Number of lines that a call returns at most.
pub type MaxLines = WholeNumber<1, { limit::LINES_MAX }>;
/// Arguments of `shell`.
pub type ShellArgs = CommandArgs<ShellSeconds>;
/// Arguments of `execute_command`.
pub type ExecuteCommandArgs = CommandArgs<IdleSeconds>;

arguments! {
    /// Arguments of `shell` and `execute_command`.
    CommandArgs<L> {
        command: Text,
        /// Instead of command: wait for this running session.
        session_id: AnyText,
        timeout: L,
        /// Working directory.
        cwd: FilledText,
        env: Env,
        stdin: AnyText,
        /// Characters of output.
        #[schemars(extend("default" = 10_000))]
        max_output: WholeNumber<1, 1_000_000>,
        /// Return output unfolded.
        raw: bool,
        sandbox: SandboxArgument,
        network: NetworkArgument,
        /// Ask a person: `{"write": [paths], "network": [names], "sandbox": "off"}`
        needs: Needs,
        justification: Text,
        /// Repeated with the same key, a call only gets the first result.
        idempotency_key: KeyText,
    }

    /// Arguments of `terminal_session start`.
    StartArgs {
        action: ActionName,
        /// start
        command: Text,
        /// start
        cwd: FilledText,
        /// start
        env: Env,
        /// start: false separates stdout and stderr.
        #[schemars(extend("default" = true))]
        pty: bool,
        /// start, resize
        #[schemars(extend("default" = limit::COLS_DEFAULT))]
        cols: Cols,
        /// start, resize
        #[schemars(extend("default" = limit::ROWS_DEFAULT))]
        rows: Rows,
        /// start, extend: closed after so long without output, input, reads; 0 (servers) = never.
        #[schemars(extend("default" = limit::INACTIVITY_DEFAULT.as_secs()))]
        inactivity_timeout: AnySeconds,
        /// start
        sandbox: SandboxArgument,
        /// start
        network: NetworkArgument,
        needs: Needs,
        justification: Text,
        /// start: a call repeated with the same key runs nothing.
        idempotency_key: KeyText,
    }

    /// Arguments of `terminal_session read_output`.
    ReadOutputArgs {
        action: ActionName,
        /// Required except for start and list.
        session_id: AnyText,
        /// read_output, search, list
        #[schemars(extend("default" = limit::LINES_DEFAULT))]
        max_lines: MaxLines,
        /// read_output: wait for output.
        #[schemars(extend("default" = 0))]
        timeout_seconds: AnySeconds,
        /// read_output: wait for this regex.
        until: FilledText,
        /// read_output: cursor of an earlier result; "0": all.
        since: TextOrNumber,
    }

    /// Arguments of `terminal_session send_input`.
    SendInputArgs {
        action: ActionName,
        session_id: AnyText,
        /// send_input: text to type; \n is Enter.
        input: AnyText,
        /// send_input: enter, tab, esc, ctrl-c, eof, up, f5, alt-x …; after the text.
        keys: Words,
    }

    /// Arguments of `terminal_session search`.
    SearchArgs {
        action: ActionName,
        session_id: AnyText,
        /// search: regex.
        pattern: Text,
        /// search: lines around a match.
        #[schemars(extend("default" = 0))]
        context: WholeNumber<0, 50>,
        max_lines: MaxLines,
    }

    /// Arguments of `terminal_session extend`.
    ExtendArgs {
        action: ActionName,
        session_id: AnyText,
        /// extend: hard limit, seconds from now.
        timeout: PositiveSeconds,
        /// extend: seconds of silence until a question.
        idle: PositiveSeconds,
        inactivity_timeout: AnySeconds,
    }

    /// Arguments of `terminal_session resize`.
    ResizeArgs {
        action: ActionName,
        session_id: AnyText,
        cols: Cols,
        rows: Rows,
    }

    /// Arguments of `terminal_session signal`.
    SignalArgs {
        action: ActionName,
        session_id: AnyText,
        /// signal, such as INT.
        #[schemars(extend("type" = ["string", "integer"]))]
        signal: Value,
    }

    /// Arguments of `terminal_session screen` and `kill`.
    SessionArgs {
        action: ActionName,
        session_id: AnyText,
    }

    /// Arguments of `terminal_session list`.
    ListArgs {
        action: ActionName,
        /// list: also ended sessions.
        #[schemars(extend("default" = false))]
        include_ended: bool,
        max_lines: MaxLines,
    }

    /// Arguments of `timer`.
    TimerArgs {
        /// Longest time, in seconds. Required for a new timer; with timer_id: new remaining time.
        #[schemars(extend("maximum" = LONGEST))]
        total_duration: PositiveSeconds,
        /// Seconds this call waits. Default: until it completes.
        #[schemars(extend("maximum" = LONGEST))]
        timeout_duration: PositiveSeconds,
        /// Purpose of waiting now.
        reason: Text,
        /// Task to do when it completes.
        mission: Text,
        /// Existing timer.
        timer_id: Text,
        /// Complete when this holds: {"port": 3000 or "host:3000"}, {"url", "status", "body": regex}, {"file", "is": "present|gone|changed", "matches": regex}, {"session", "is": "ended"}, {"session", "output": regex}, {"command", "every": seconds} (exit code 0), {"all": […]}, {"any": […]}.
        until: ConditionFields,
        /// Repeated with the same key, a call waits on the first timer.
        idempotency_key: KeyText,
    }

    /// Arguments of `read_timer`.
    ReadTimerArgs {
        /// Default: all active timers.
        timer_id: FilledText,
        /// Also ended timers.
        include_ended: bool,
    }

    /// Arguments of `stop_timer`, `cancel_timer` and `resume_timer`.
    TimerActionArgs {
        #[schemars(required)]
        timer_id: Text,
        reason: FilledText,
    }

    /// Arguments of `pause_timer`.
    PauseTimerArgs {
        #[schemars(required)]
        timer_id: Text,
        /// Seconds
        #[schemars(required, extend("maximum" = LONGEST))]
        pause_duration: PositiveSeconds,
        reason: FilledText,
    }

    /// Arguments of `read_messages`.
    ReadMessagesArgs {
        /// Time to wait if there is none.
        #[schemars(extend("default" = 0))]
        timeout_seconds: AnySeconds,
    }

    /// New limits, counted from now. At least one is needed.
    #[schemars(rename = "Limits")]
    LimitArgs {
        /// Hard limit in seconds.
        timeout: PositiveSeconds,
        /// Limit in seconds without output.
        idle: PositiveSeconds,
        /// Limit in seconds without output, input and readers. 0: never.
        inactivity_timeout: AnySeconds,
    }

    /// New size of a terminal. A missing dimension keeps its value; at least one is needed.
    #[schemars(rename = "Size")]
    SizeArgs {
        /// Columns.
        cols: Cols,
        /// Rows.
        rows: Rows,
    }

    /// A condition to wait for.
    #[schemars(rename = "Wait")]
    WaitArgs {
        /// The condition, as for the tool `timer`.
        #[schemars(required)]
        until: ConditionFields,
        /// Seconds to wait at most.
        #[schemars(required)]
        r#for: PositiveSeconds,
    }
}

/// Arguments of `terminal_session`, by action.
#[derive(JsonSchema)]
#[serde(untagged)]
pub enum TerminalSessionArgs {
    Start(StartArgs),
    Read(ReadOutputArgs),
    Send(SendInputArgs),
    Search(SearchArgs),
    Extend(ExtendArgs),
    Resize(ResizeArgs),
    Signal(SignalArgs),
    Session(SessionArgs),
    List(ListArgs),
}

/// Name of an action, which decides how the other fields are read.
#[derive(Clone, Copy, Debug)]
pub struct ActionName;

impl FromArgument for ActionName {
    fn read(_: &str, _: Value) -> Result<Self, BadInput> {
        Ok(ActionName)
    }
}

impl JsonSchema for ActionName {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ActionName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "enum": ACTIONS})
    }
}
