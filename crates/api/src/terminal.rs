//! Results of `terminal_session`, one per action.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Activity, ListedSession, Session, SessionStatus, SessionSummary};

/// Fields of a `terminal_session` result.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum TerminalSessionResult {
    /// Every action on one session.
    Session(Box<TerminalState>),
    /// `list`
    List(SessionList),
}

/// A session after an action.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TerminalState {
    #[serde(flatten)]
    pub session: SessionSummary,
    pub status: SessionStatus,
    #[serde(flatten)]
    pub activity: Option<Activity>,
    /// A person is at this terminal too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub person_attached: Option<bool>,
    #[serde(flatten)]
    pub action: ActionResult,
}

/// Fields of one action.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ActionResult {
    /// `start`
    Start {
        /// True if the command has a terminal.
        pty: bool,
        /// Reason for a failure to start.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// True if a full-screen program runs. The text has its screen.
        #[serde(skip_serializing_if = "Option::is_none")]
        alternate_screen: Option<bool>,
    },
    /// `read_output` and `send_input`
    Read {
        /// Place to read on from, with `since`.
        cursor: String,
        /// Number of lines in this result.
        lines: usize,
        /// There is more to read at once.
        more: bool,
        /// True if `until` was found.
        #[serde(skip_serializing_if = "Option::is_none")]
        matched: Option<bool>,
        /// Seconds that this call could wait, fitted to the client's own limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        effective_timeout: Option<f64>,
        /// send_input: bytes typed. signal: number of the signal.
        #[serde(skip_serializing_if = "Option::is_none")]
        sent: Option<usize>,
        /// True if a full-screen program runs. The text has its screen.
        #[serde(skip_serializing_if = "Option::is_none")]
        alternate_screen: Option<bool>,
    },
    /// `screen`
    Screen {
        /// Lines of the screen.
        screen: Vec<String>,
        /// Row of the cursor, from 1.
        cursor_row: u16,
        /// Column of the cursor, from 1.
        cursor_col: u16,
        /// True if the cursor is visible.
        cursor_visible: bool,
        /// Columns of the terminal.
        cols: u16,
        /// Rows of the terminal.
        rows: u16,
        /// Title that the program has set.
        title: Option<String>,
        /// True if a full-screen program runs.
        alternate_screen: bool,
        /// True if the program asks for bracketed paste.
        bracketed_paste: bool,
        /// True if cursor keys are in application mode.
        application_cursor: bool,
        /// True if the program asks for mouse events.
        mouse: bool,
    },
    /// `search`
    Search {
        /// Number of lines that match.
        matches: u64,
        /// Number of lines in the log.
        lines_total: u64,
        /// Lines that match, and lines around them.
        found: Vec<FoundLine>,
        /// True if the whole log was searched.
        complete: bool,
    },
    /// `extend`
    Extend {
        /// New hard limit in seconds.
        timeout: Option<f64>,
        /// New limit in seconds without output.
        idle: Option<f64>,
        /// New limit in seconds without output, input or a reader.
        inactivity_timeout: Option<f64>,
    },
    /// `resize`
    Resize {
        /// Columns of the terminal.
        cols: u16,
        /// Rows of the terminal.
        rows: u16,
    },
    /// `signal`
    Signal {
        /// send_input: bytes typed. signal: number of the signal.
        sent: i32,
    },
    /// `kill`
    Kill {
        /// True if the whole process tree is gone.
        gone: bool,
    },
}

/// A line of `search`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FoundLine {
    /// Number of the line, from 1.
    pub line: u64,
    /// True if the line matches, or only surrounds one that does.
    pub r#match: bool,
    /// The line as plain text; a long one is cut around its match.
    pub text: String,
    /// Number of equal lines that match too and are not listed.
    pub equal_lines: u64,
    /// The last of them.
    pub last_equal_line: Option<u64>,
}

/// Sessions of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SessionList {
    /// list: the sessions, oldest first.
    pub sessions: Vec<ListedSession>,
    /// list: there are more.
    pub truncated: bool,
}

/// A screen as bytes that paint it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScreenPaint {
    /// The bytes, as text.
    pub paint: String,
    /// Columns of the terminal.
    pub cols: u16,
    /// Rows of the terminal.
    pub rows: u16,
    /// Offset in the log from which to go on.
    pub offset: u64,
}

/// Input that the session has taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Written")]
pub struct WrittenBytes {
    /// Number of bytes.
    pub written: usize,
}

/// A text message of a terminal's WebSocket; its output is sent as bytes.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TerminalEvent {
    /// First message.
    Hello {
        /// Columns of the terminal.
        cols: u16,
        /// Rows of the terminal.
        rows: u16,
        /// True if the command has a terminal.
        pty: bool,
        /// True if the command runs.
        running: bool,
        /// Reason why no input is taken, if the machine of the session does not allow it to this one.
        #[serde(skip_serializing_if = "Option::is_none")]
        read_only: Option<String>,
    },
    /// The terminal has a new size.
    Resized {
        /// Columns of the terminal.
        cols: u16,
        /// Rows of the terminal.
        rows: u16,
    },
    /// Last message.
    Ended(Box<Session>),
}
