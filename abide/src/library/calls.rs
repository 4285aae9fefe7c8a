//! One builder per tool: created with the required arguments, extended with optional ones, and awaited.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{Abide, Error, ToolResult};

/// Call that has not been made yet. `T` selects the tool.
#[must_use = "a call is made when it is awaited"]
#[derive(Clone, Debug)]
pub struct Call<T> {
    abide: Abide,
    tool: &'static str,
    arguments: Map<String, Value>,
    kind: PhantomData<T>,
}

impl<T> Call<T> {
    pub(super) fn new(abide: &Abide, tool: &'static str) -> Self {
        Call {
            abide: abide.clone(),
            tool,
            arguments: Map::new(),
            kind: PhantomData,
        }
    }

    /// Sets any field of the tool's schema.
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.arguments.insert(field.to_owned(), value.into());
        self
    }
}

impl<T: std::marker::Send + 'static> IntoFuture for Call<T> {
    type Output = Result<ToolResult, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + std::marker::Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.abide.call(self.tool, self.arguments).await })
    }
}

/// Seconds as the tools take them: whole seconds as integers.
pub(super) fn seconds(time: Duration) -> Value {
    match time.subsec_nanos() {
        0 => json!(time.as_secs()),
        _ => json!(time.as_secs_f64()),
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident),* $(,)?) => {
        $($(#[$doc])* #[derive(Clone, Copy, Debug)] pub struct $kind;)*
    };
}

kinds! {
    /// `shell`.
    Shell,
    /// `execute_command`.
    Execute,
    /// `timer`.
    Timer,
    /// `read_timer`.
    Timers,
    /// `stop_timer`, `cancel_timer` and `resume_timer`.
    Reason,
    /// `pause_timer`.
    Pause,
    /// `read_messages`.
    Messages,
    /// `terminal_session` with `start`.
    Start,
    /// `terminal_session` with `read_output`.
    Read,
    /// `terminal_session` with `send_input`.
    Send,
    /// `terminal_session` with `search`.
    Search,
    /// `terminal_session` with `list`.
    List,
    /// Action of `terminal_session` without optional arguments.
    Action,
}

/// Calls that start a command.
pub trait StartsCommand {}

impl StartsCommand for Shell {}
impl StartsCommand for Execute {}
impl StartsCommand for Start {}

/// Calls whose result is the output of a command.
pub trait ReturnsOutput {}

impl ReturnsOutput for Shell {}
impl ReturnsOutput for Execute {}

impl<T: StartsCommand> Call<T> {
    /// Sets the working directory of the command.
    pub fn cwd(self, folder: impl AsRef<Path>) -> Self {
        self.with("cwd", folder.as_ref().to_string_lossy().into_owned())
    }

    /// Sets an environment variable in addition to the inherited ones.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        let env = self.arguments.entry("env").or_insert_with(|| json!({}));
        env[name] = json!(value);
        self
    }
}

impl<T: ReturnsOutput> Call<T> {
    /// Sets the deadline of a `shell`; for an `execute_command`, the time without output after which a person is asked.
    pub fn timeout(self, time: Duration) -> Self {
        self.with("timeout", seconds(time))
    }

    /// Sets the standard input of the command.
    pub fn stdin(self, text: &str) -> Self {
        self.with("stdin", text)
    }

    /// Limits the characters of each output stream in the result; the log keeps everything.
    pub fn max_output(self, characters: u64) -> Self {
        self.with("max_output", characters)
    }

    /// Returns the output unprocessed, not as a terminal would have shown it.
    pub fn raw(self) -> Self {
        self.with("raw", true)
    }
}

impl Call<Start> {
    /// Uses pipes instead of a terminal.
    pub fn without_terminal(self) -> Self {
        self.with("pty", false)
    }

    /// Sets the size of the terminal.
    pub fn size(self, cols: u16, rows: u16) -> Self {
        self.with("cols", cols).with("rows", rows)
    }

    /// Sets the time without output, input or reader after which the session is closed; zero: never.
    pub fn inactivity_timeout(self, time: Duration) -> Self {
        self.with("inactivity_timeout", seconds(time))
    }
}

impl Call<Read> {
    /// Limits the number of lines.
    pub fn max_lines(self, lines: u64) -> Self {
        self.with("max_lines", lines)
    }

    /// Waits up to this time for a line if there is none.
    pub fn timeout(self, time: Duration) -> Self {
        self.with("timeout_seconds", seconds(time))
    }

    /// Waits until this regular expression matches.
    pub fn until(self, pattern: &str) -> Self {
        self.with("until", pattern)
    }

    /// Reads from a cursor that an earlier read returned.
    pub fn since(self, cursor: &str) -> Self {
        self.with("since", cursor)
    }
}

impl Call<Send> {
    /// Sets the text to type; `\n` is Enter.
    pub fn input(self, text: &str) -> Self {
        self.with("input", text)
    }

    /// Sets the keys to press after the text, such as `enter`, `ctrl-c` or `up`.
    pub fn keys<K: Into<String>>(self, keys: impl IntoIterator<Item = K>) -> Self {
        let keys: Vec<Value> = keys.into_iter().map(|key| json!(key.into())).collect();
        self.with("keys", keys)
    }
}

impl Call<Search> {
    /// Returns this many lines before and after each match.
    pub fn context(self, lines: u64) -> Self {
        self.with("context", lines)
    }
}

impl Call<List> {
    /// Includes ended sessions.
    pub fn include_ended(self) -> Self {
        self.with("include_ended", true)
    }
}

impl Call<Timers> {
    /// Includes ended timers.
    pub fn include_ended(self) -> Self {
        self.with("include_ended", true)
    }
}

impl Call<Timer> {
    /// Sets the time for which this call waits; the timer continues after it.
    pub fn standby(self, time: Duration) -> Self {
        self.with("timeout_duration", seconds(time))
    }

    /// Completes the timer as soon as this condition holds.
    pub fn until(self, condition: Value) -> Self {
        self.with("until", condition)
    }

    /// Sets the remaining time of a timer that is continued.
    pub fn remaining(self, time: Duration) -> Self {
        self.with("total_duration", seconds(time))
    }
}

impl Call<Reason> {
    /// Sets the reason.
    pub fn because(self, reason: &str) -> Self {
        self.with("reason", reason)
    }
}

impl Call<Pause> {
    /// Sets the reason.
    pub fn because(self, reason: &str) -> Self {
        self.with("reason", reason)
    }
}

impl Call<Messages> {
    /// Waits up to this time for a message if there is none.
    pub fn timeout(self, time: Duration) -> Self {
        self.with("timeout_seconds", seconds(time))
    }
}

impl Abide {
    /// Runs a command to its end under a deadline (100 s by default).
    pub fn shell(&self, command: &str) -> Call<Shell> {
        Call::new(self, "shell").with("command", command)
    }

    /// Runs a command as long as it shows activity. After too long without output (60 s by default) a person is asked.
    pub fn execute_command(&self, command: &str) -> Call<Execute> {
        Call::new(self, "execute_command").with("command", command)
    }

    /// Starts a program in a terminal. Use [`Abide::session`] to interact with it.
    pub fn start(&self, command: &str) -> Call<Start> {
        Call::new(self, "terminal_session")
            .with("action", "start")
            .with("command", command)
    }

    /// Lists the running sessions.
    pub fn sessions(&self) -> Call<List> {
        Call::new(self, "terminal_session").with("action", "list")
    }

    /// Creates a waiting timer and waits for it.
    pub fn wait(&self, reason: &str, total: Duration) -> Call<Timer> {
        Call::new(self, "timer")
            .with("reason", reason)
            .with("total_duration", seconds(total))
    }

    /// Creates a mission timer. The call returns at once; a message is sent when the timer completes.
    pub fn mission(&self, mission: &str, total: Duration) -> Call<Timer> {
        Call::new(self, "timer")
            .with("mission", mission)
            .with("total_duration", seconds(total))
    }

    /// Waits for an existing timer again.
    pub fn continue_timer(&self, id: &str) -> Call<Timer> {
        Call::new(self, "timer").with("timer_id", id)
    }

    /// Lists the timers that have not ended.
    pub fn timers(&self) -> Call<Timers> {
        Call::new(self, "read_timer")
    }

    /// Reads one timer.
    pub fn read_timer(&self, id: &str) -> Call<Timers> {
        Call::new(self, "read_timer").with("timer_id", id)
    }

    /// Ends a timer. No message is sent.
    pub fn stop_timer(&self, id: &str) -> Call<Reason> {
        Call::new(self, "stop_timer").with("timer_id", id)
    }

    /// Stops waiting for a timer, which continues and sends a message when it completes.
    pub fn cancel_timer(&self, id: &str) -> Call<Reason> {
        Call::new(self, "cancel_timer").with("timer_id", id)
    }

    /// Pauses a timer for this time.
    pub fn pause_timer(&self, id: &str, time: Duration) -> Call<Pause> {
        Call::new(self, "pause_timer")
            .with("timer_id", id)
            .with("pause_duration", seconds(time))
    }

    /// Resumes a paused timer now.
    pub fn resume_timer(&self, id: &str) -> Call<Reason> {
        Call::new(self, "resume_timer").with("timer_id", id)
    }

    /// Reads the unread messages, oldest first, and marks them as seen.
    pub fn read_messages(&self) -> Call<Messages> {
        Call::new(self, "read_messages")
    }
}
