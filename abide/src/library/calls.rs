//! One constructor per tool, with its required arguments. Optional ones are added by name, and the call is awaited.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{Abide, Error, ToolResult};

/// Call that has not been made yet.
#[must_use = "a call is made when it is awaited"]
#[derive(Clone, Debug)]
pub struct Call {
    abide: Abide,
    tool: &'static str,
    arguments: Map<String, Value>,
}

impl Call {
    pub(super) fn new(abide: &Abide, tool: &'static str) -> Self {
        Call {
            abide: abide.clone(),
            tool,
            arguments: Map::new(),
        }
    }

    /// Sets a field of the tool's schema, such as `cwd`, `timeout` (in seconds) or `until`. A field that the tool does
    /// not have is refused.
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.arguments.insert(field.to_owned(), value.into());
        self
    }
}

impl IntoFuture for Call {
    type Output = Result<ToolResult, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.abide.call(self.tool, self.arguments).await })
    }
}

/// Seconds as the tools take them: whole seconds as integers.
fn seconds(time: Duration) -> Value {
    match time.subsec_nanos() {
        0 => json!(time.as_secs()),
        _ => json!(time.as_secs_f64()),
    }
}

impl Abide {
    /// Runs a command to its end under a deadline (100 s by default).
    pub fn shell(&self, command: &str) -> Call {
        Call::new(self, "shell").with("command", command)
    }

    /// Runs a command as long as it shows activity. After too long without output (60 s by default) a person is asked.
    pub fn execute_command(&self, command: &str) -> Call {
        Call::new(self, "execute_command").with("command", command)
    }

    /// Starts a program in a terminal. Use [`Abide::session`] to interact with it.
    pub fn start(&self, command: &str) -> Call {
        Call::new(self, "terminal_session")
            .with("action", "start")
            .with("command", command)
    }

    /// Lists the running sessions.
    pub fn sessions(&self) -> Call {
        Call::new(self, "terminal_session").with("action", "list")
    }

    /// Creates a waiting timer and waits for it.
    pub fn wait(&self, reason: &str, total: Duration) -> Call {
        Call::new(self, "timer")
            .with("reason", reason)
            .with("total_duration", seconds(total))
    }

    /// Creates a mission timer. The call returns at once; a message is sent when the timer completes.
    pub fn mission(&self, mission: &str, total: Duration) -> Call {
        Call::new(self, "timer")
            .with("mission", mission)
            .with("total_duration", seconds(total))
    }

    /// Waits for an existing timer again.
    pub fn continue_timer(&self, id: &str) -> Call {
        Call::new(self, "timer").with("timer_id", id)
    }

    /// Lists the timers that have not ended.
    pub fn timers(&self) -> Call {
        Call::new(self, "read_timer")
    }

    /// Reads one timer.
    pub fn read_timer(&self, id: &str) -> Call {
        Call::new(self, "read_timer").with("timer_id", id)
    }

    /// Ends a timer. No message is sent.
    pub fn stop_timer(&self, id: &str) -> Call {
        Call::new(self, "stop_timer").with("timer_id", id)
    }

    /// Stops waiting for a timer, which continues and sends a message when it completes.
    pub fn cancel_timer(&self, id: &str) -> Call {
        Call::new(self, "cancel_timer").with("timer_id", id)
    }

    /// Pauses a timer for this time.
    pub fn pause_timer(&self, id: &str, time: Duration) -> Call {
        Call::new(self, "pause_timer")
            .with("timer_id", id)
            .with("pause_duration", seconds(time))
    }

    /// Resumes a paused timer now.
    pub fn resume_timer(&self, id: &str) -> Call {
        Call::new(self, "resume_timer").with("timer_id", id)
    }

    /// Reads the unread messages, oldest first, and marks them as seen.
    pub fn read_messages(&self) -> Call {
        Call::new(self, "read_messages")
    }
}
