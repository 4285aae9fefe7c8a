//! One call for each tool. Each is made with what it needs, given what is optional, and awaited.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{Abide, Error, ToolResult};

/// A call that has not been made yet. `T` says of which tool.
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

    /// Gives any field of the tool's schema.
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

/// Seconds as the tools count them: whole ones as integers.
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
    /// An action of `terminal_session` that needs nothing more.
    Act,
}

/// Calls that start a command.
pub trait Starts {}

impl Starts for Shell {}
impl Starts for Execute {}
impl Starts for Start {}

/// Calls whose result is the output of a command.
pub trait Yields {}

impl Yields for Shell {}
impl Yields for Execute {}

impl<T: Starts> Call<T> {
    /// The folder in which the command runs.
    pub fn cwd(self, folder: impl AsRef<Path>) -> Self {
        self.with("cwd", folder.as_ref().to_string_lossy().into_owned())
    }

    /// A variable that the command gets besides those it inherits.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        let env = self.arguments.entry("env").or_insert_with(|| json!({}));
        env[name] = json!(value);
        self
    }
}

impl<T: Yields> Call<T> {
    /// For a `shell` the hard limit; for an `execute_command` how long the command may be quiet
    /// before a person is asked.
    pub fn timeout(self, time: Duration) -> Self {
        self.with("timeout", seconds(time))
    }

    /// What the command reads.
    pub fn stdin(self, text: &str) -> Self {
        self.with("stdin", text)
    }

    /// The most characters of output a stream in the result; the log has all of it.
    pub fn max_output(self, characters: u64) -> Self {
        self.with("max_output", characters)
    }

    /// The output as it came, not as a person would have seen it.
    pub fn raw(self) -> Self {
        self.with("raw", true)
    }
}

impl Call<Start> {
    /// Pipes instead of a terminal.
    pub fn without_terminal(self) -> Self {
        self.with("pty", false)
    }

    /// The size of the terminal.
    pub fn size(self, cols: u16, rows: u16) -> Self {
        self.with("cols", cols).with("rows", rows)
    }

    /// How long nobody may read, write or print before the session is closed; zero: for ever.
    pub fn inactivity_timeout(self, time: Duration) -> Self {
        self.with("inactivity_timeout", seconds(time))
    }
}

impl Call<Read> {
    /// At most so many lines.
    pub fn max_lines(self, lines: u64) -> Self {
        self.with("max_lines", lines)
    }

    /// Waits so long for a line where there is none.
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
    /// Text to type; `\n` is Enter.
    pub fn input(self, text: &str) -> Self {
        self.with("input", text)
    }

    /// Keys to press after the text, such as `enter`, `ctrl-c` or `up`.
    pub fn keys<K: Into<String>>(self, keys: impl IntoIterator<Item = K>) -> Self {
        let keys: Vec<Value> = keys.into_iter().map(|key| json!(key.into())).collect();
        self.with("keys", keys)
    }
}

impl Call<Search> {
    /// Lines before and after each match.
    pub fn context(self, lines: u64) -> Self {
        self.with("context", lines)
    }
}

impl Call<List> {
    /// Those that have ended too.
    pub fn include_ended(self) -> Self {
        self.with("include_ended", true)
    }
}

impl Call<Timers> {
    /// Those that have ended too.
    pub fn include_ended(self) -> Self {
        self.with("include_ended", true)
    }
}

impl Call<Timer> {
    /// How long this call stands by; the timer runs on after it.
    pub fn standby(self, time: Duration) -> Self {
        self.with("timeout_duration", seconds(time))
    }

    /// Ends the timer the moment this condition holds.
    pub fn until(self, condition: Value) -> Self {
        self.with("until", condition)
    }

    /// For a timer that is continued: the remaining time becomes this.
    pub fn remaining(self, time: Duration) -> Self {
        self.with("total_duration", seconds(time))
    }
}

impl Call<Reason> {
    /// Why.
    pub fn because(self, reason: &str) -> Self {
        self.with("reason", reason)
    }
}

impl Call<Pause> {
    /// Why.
    pub fn because(self, reason: &str) -> Self {
        self.with("reason", reason)
    }
}

impl Call<Messages> {
    /// Waits so long for a message where there is none.
    pub fn timeout(self, time: Duration) -> Self {
        self.with("timeout_seconds", seconds(time))
    }
}

impl Abide {
    /// Runs a command to its end under a hard limit (100 s unless told otherwise).
    pub fn shell(&self, command: &str) -> Call<Shell> {
        Call::new(self, "shell").with("command", command)
    }

    /// Runs a command as long as it shows life; when it has been quiet for too long (60 s unless told
    /// otherwise) a person is asked.
    pub fn execute_command(&self, command: &str) -> Call<Execute> {
        Call::new(self, "execute_command").with("command", command)
    }

    /// Starts a program in a terminal. [`Abide::session`] talks to it.
    pub fn start(&self, command: &str) -> Call<Start> {
        Call::new(self, "terminal_session")
            .with("action", "start")
            .with("command", command)
    }

    /// The sessions that run.
    pub fn sessions(&self) -> Call<List> {
        Call::new(self, "terminal_session").with("action", "list")
    }

    /// Makes a waiting timer and stands by on it.
    pub fn wait(&self, reason: &str, total: Duration) -> Call<Timer> {
        Call::new(self, "timer")
            .with("reason", reason)
            .with("total_duration", seconds(total))
    }

    /// Makes a mission timer. It returns at once; a message comes when the time is over.
    pub fn mission(&self, mission: &str, total: Duration) -> Call<Timer> {
        Call::new(self, "timer")
            .with("mission", mission)
            .with("total_duration", seconds(total))
    }

    /// Stands by on a timer again.
    pub fn continue_timer(&self, id: &str) -> Call<Timer> {
        Call::new(self, "timer").with("timer_id", id)
    }

    /// The timers that have not ended.
    pub fn timers(&self) -> Call<Timers> {
        Call::new(self, "read_timer")
    }

    /// One timer.
    pub fn read_timer(&self, id: &str) -> Call<Timers> {
        Call::new(self, "read_timer").with("timer_id", id)
    }

    /// Ends a timer. It will tell nobody.
    pub fn stop_timer(&self, id: &str) -> Call<Reason> {
        Call::new(self, "stop_timer").with("timer_id", id)
    }

    /// Stops waiting for a timer, which runs on and sends a message when it completes.
    pub fn cancel_timer(&self, id: &str) -> Call<Reason> {
        Call::new(self, "cancel_timer").with("timer_id", id)
    }

    /// Lets nothing elapse for a while.
    pub fn pause_timer(&self, id: &str, time: Duration) -> Call<Pause> {
        Call::new(self, "pause_timer")
            .with("timer_id", id)
            .with("pause_duration", seconds(time))
    }

    /// Lets a paused timer go on now.
    pub fn resume_timer(&self, id: &str) -> Call<Reason> {
        Call::new(self, "resume_timer").with("timer_id", id)
    }

    /// The unread messages, oldest first. Starts marks them seen.
    pub fn read_messages(&self) -> Call<Messages> {
        Call::new(self, "read_messages")
    }
}
