//! Arguments of each tool. The comment of a field is what a model is told about it.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

use super::{
    AnySeconds, AnyText, BadInput, ConditionFields, Env, FromArgument, IdleSeconds,
    PositiveSeconds, ShellSeconds, Text, TextOrNumber, Whole, Words, arguments, field_name, finish,
    take,
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

/// Longest duration of a timer, in seconds: 100 years.
const LONGEST: u64 = 3_153_600_000;

/// Columns of a terminal.
pub type Cols = Whole<2, 1_000>;
/// Rows of a terminal.
pub type Rows = Whole<1, 500>;
/// Arguments of `shell`.
pub type ShellArgs = CommandArgs<ShellSeconds>;
/// Arguments of `execute_command`.
pub type ExecuteCommandArgs = CommandArgs<IdleSeconds>;

arguments! {
    /// Arguments of `shell` and `execute_command`.
    CommandArgs<L> {
        /// The command line, as for sh -c.
        #[schemars(required)]
        command: Text,
        timeout: L,
        /// Folder to run in; a relative one is meant from the agent's root folder. Default: the agent's root folder.
        cwd: Text,
        /// Variables to set, in addition to the inherited ones.
        env: Env,
        /// Text for the command's standard input. Default: none, reading it gives end of file at once.
        stdin: AnyText,
        /// Most characters of output to return (per stream). Default: 10000. The whole log is kept in any case.
        max_output: Whole<1, 1_000_000>,
        /// Return the output byte for byte up to max_output instead of as a person would see it. Default: false.
        raw: bool,
        /// A call repeated with the same key never runs the command twice; it gets the result of the first.
        idempotency_key: Text,
    }

    /// Arguments of `terminal_session start`.
    StartArgs {
        action: ActionName,
        /// start: the command line, as for sh -c.
        command: Text,
        /// start: folder to run in; a relative one is meant from the agent's root folder.
        cwd: Text,
        /// start: variables to set, in addition to the inherited ones.
        env: Env,
        /// start: give it a terminal. Without one, stdout and stderr are told apart.
        #[schemars(extend("default" = true))]
        pty: bool,
        /// start, resize: columns of the terminal. With resize, what is not given stays.
        #[schemars(extend("default" = 120))]
        cols: Cols,
        /// start, resize: rows of the terminal. With resize, what is not given stays.
        #[schemars(extend("default" = 40))]
        rows: Rows,
        /// start, extend: seconds without output, input or a reader after which the session is closed; 0: never.
        #[schemars(extend("default" = 300))]
        inactivity_timeout: AnySeconds,
        /// start: a call repeated with the same key never runs the command twice.
        idempotency_key: Text,
    }

    /// Arguments of `terminal_session read_output`.
    ReadOutputArgs {
        action: ActionName,
        /// Which session. For every action but start and list.
        session_id: AnyText,
        /// read_output, search, list: most lines to return. A list without it leaves out nothing that runs.
        #[schemars(extend("default" = 100))]
        max_lines: Whole<1, 10_000>,
        /// read_output: how long to wait where nothing is unread, or for `until`.
        #[schemars(extend("default" = 0))]
        timeout_seconds: AnySeconds,
        /// read_output: a regular expression; return as soon as a line matches, with everything up to it.
        until: Text,
        /// read_output: a cursor from an earlier result; read on from there instead of from what is unread.
        since: TextOrNumber,
    }

    /// Arguments of `terminal_session send_input`.
    SendInputArgs {
        action: ActionName,
        session_id: AnyText,
        /// send_input: text to type. A newline is the Enter key.
        input: AnyText,
        /// send_input: keys to press after the text, such as enter, tab, esc, ctrl-c, up, page-down, f5, alt-x, shift-tab.
        keys: Words,
    }

    /// Arguments of `terminal_session search`.
    SearchArgs {
        action: ActionName,
        session_id: AnyText,
        /// search: a regular expression.
        pattern: Text,
        /// search: lines to show before and after each match.
        #[schemars(extend("default" = 0))]
        context: Whole<0, 50>,
        max_lines: Whole<1, 10_000>,
    }

    /// Arguments of `terminal_session extend`.
    ExtendArgs {
        action: ActionName,
        session_id: AnyText,
        /// extend: new hard limit in seconds from now.
        timeout: PositiveSeconds,
        /// extend: new limit in seconds without output, from now.
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
        /// signal: a name such as INT, TERM or HUP, or a number.
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
        /// list: ended sessions too.
        #[schemars(extend("default" = false))]
        include_ended: bool,
        max_lines: Whole<1, 10_000>,
    }

    /// Arguments of `timer`.
    TimerArgs {
        /// Seconds that the timer runs. Required for a new timer. With timer_id: what shall remain from now on.
        #[schemars(extend("maximum" = LONGEST))]
        total_duration: PositiveSeconds,
        /// Seconds that this call stands by. Default and upper bound: what remains.
        #[schemars(extend("maximum" = LONGEST))]
        timeout_duration: PositiveSeconds,
        /// The thing you wait for. For a new timer, instead of mission.
        reason: Text,
        /// Your task when it completes. For a new timer, instead of reason.
        mission: Text,
        /// Continue this timer instead of making one.
        timer_id: Text,
        /// End early, the moment this holds, or as soon as it no longer can. One of: {"port": 3000} or {"port": "host:3000"}; {"url": "http://…", "status": 200, "body": "regex"}; {"file": "path", "is": "present|gone|changed", "matches": "regex"}; {"session": "session_…", "is": "ended"} or {"session": "session_…", "output": "regex"}; {"command": "test -f x", "every": 2} (holds on exit code 0); {"all": […]}; {"any": […]}.
        until: ConditionFields,
        /// A call repeated with the same key makes no second timer; it stands by on the first.
        idempotency_key: Text,
    }

    /// Arguments of `read_timer`.
    ReadTimerArgs {
        /// Which timer. Default: all that have not ended.
        timer_id: Text,
        /// List ended timers too. Default: false.
        include_ended: bool,
    }

    /// Arguments of `stop_timer`, `cancel_timer` and `resume_timer`.
    TimerActionArgs {
        /// Which timer.
        #[schemars(required)]
        timer_id: Text,
        /// Why; shown to the waiting call.
        reason: Text,
    }

    /// Arguments of `pause_timer`.
    PauseTimerArgs {
        /// Which timer.
        #[schemars(required)]
        timer_id: Text,
        /// Seconds until it goes on by itself.
        #[schemars(required, extend("maximum" = LONGEST))]
        pause_duration: PositiveSeconds,
        /// Why; shown to the waiting call.
        reason: Text,
    }

    /// Arguments of `read_messages`.
    ReadMessagesArgs {
        /// Seconds to wait if there is none.
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
        json_schema!({"type": "string", "enum": ACTIONS, "description": "What to do."})
    }
}
