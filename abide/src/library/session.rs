//! Session that is known by its id.

use std::time::Duration;

use serde_json::json;

use super::calls::Call;
use super::{Abide, Error, ToolResult};

/// A command with its whole process tree and its log.
///
/// ```no_run
/// # async fn example(abide: abide::Abide) -> Result<(), abide::Error> {
/// let started = abide.start("python3 -i").await?;
/// let python = abide.session(started.session_id().expect("an id"));
/// let answer = python.send_input("6 * 7\n").await?;
/// assert!(answer.text.contains("42"));
/// let more = python.read_output().with("timeout_seconds", 5).await?;
/// println!("{}", more.text);
/// python.kill().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Session {
    abide: Abide,
    id: String,
}

impl Session {
    pub(super) fn new(abide: Abide, id: String) -> Self {
        Session { abide, id }
    }

    /// Id of the session.
    pub fn id(&self) -> &str {
        &self.id
    }

    fn action(&self, action: &str) -> Call {
        Call::new(&self.abide, "terminal_session")
            .with("action", action)
            .with("session_id", self.id.as_str())
    }

    /// Reads the next unread lines.
    pub fn read_output(&self) -> Call {
        self.action("read_output")
    }

    /// Types text, and returns the output that follows within a short time.
    pub fn send_input(&self, text: &str) -> Call {
        self.action("send_input").with("input", text)
    }

    /// Presses keys, such as `enter`, `ctrl-c` or `up`.
    pub fn press<K: Into<String>>(&self, keys: impl IntoIterator<Item = K>) -> Call {
        let keys: Vec<String> = keys.into_iter().map(Into::into).collect();
        self.action("send_input").with("keys", keys)
    }

    /// Reads the terminal screen as a person would see it now.
    pub fn screen(&self) -> Call {
        self.action("screen")
    }

    /// Searches the whole log for lines that match a regular expression.
    pub fn search(&self, pattern: &str) -> Call {
        self.action("search").with("pattern", pattern)
    }

    /// Kills the session. The whole process tree is gone when this returns.
    pub fn kill(&self) -> Call {
        self.action("kill")
    }

    /// Sends a signal, such as `INT`, to the foreground processes of its terminal, or without one to the command.
    pub fn signal(&self, name: &str) -> Call {
        self.action("signal").with("signal", name)
    }

    /// Changes the size of the terminal.
    pub fn resize(&self, cols: u16, rows: u16) -> Call {
        self.action("resize").with("cols", cols).with("rows", rows)
    }

    /// Moves the limits `timeout`, `idle` or `inactivity_timeout`, counted from now.
    pub fn extend(&self) -> Call {
        self.action("extend")
    }

    /// Waits until the session has ended, for at most `time`.
    pub async fn ended(&self, time: Duration) -> Result<ToolResult, Error> {
        self.abide
            .wait("the session ends", time)
            .with("until", json!({"session": self.id, "is": "ended"}))
            .await
    }
}
