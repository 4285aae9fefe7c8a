//! `abide session …` and `abide logs`, as they are typed.

use std::ffi::OsString;
use std::path::PathBuf;

use abide_core::Millis;
use clap::{Args, Subcommand};

use super::{Agent, Json, variable};
use crate::door::cli::span::{self, Limit};

/// Start, join, read, search and end sessions
///
/// Every command runs as a session: the command, everything it started, and all its output.
#[derive(Debug, Subcommand)]
pub enum Session {
    Start(Start),
    Attach(Attach),
    List(List),
    Read(Logs),
    Send(Send),
    Screen(Screen),
    Search(Search),
    Extend(Extend),
    Resize(Resize),
    Signal(Signal),
    Kill(Kill),
}

const START_HELP: &str = "\
Examples:
  abide session start -- python3 -i
  abide session start --inactivity never -- 'npm run dev'

The session goes on when this returns: `abide session attach` joins it.";

/// Start a command in a terminal that stays
#[derive(Debug, Args)]
#[command(after_help = START_HELP)]
pub struct Start {
    /// Run it in this folder
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Set a variable besides the inherited ones
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Give it pipes instead of a terminal
    #[arg(long)]
    pub no_pty: bool,
    /// Columns of its terminal
    #[arg(long, default_value_t = 120)]
    pub cols: u16,
    /// Rows of its terminal
    #[arg(long, default_value_t = 40)]
    pub rows: u16,
    /// Close it after this long without output, input or a reader; `never` keeps it
    #[arg(long, value_name = "TIME", value_parser = span::parse_limit, default_value = "5m")]
    pub inactivity: Limit,
    #[command(flatten)]
    pub agent: Agent,
    #[command(flatten)]
    pub json: Json,
    /// The command; one word is a command line for the shell
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

const ATTACH_HELP: &str = "\
Ctrl-] leaves; the session goes on. Whoever else uses it, an agent too, sees what you type and is
told that you are there.

What a program could reprogram this terminal with (its title, the clipboard, colours) is left out
unless you ask for it with --unfiltered. What it asks its terminal is always answered by the session.";

/// Join a session at its terminal, together with whoever uses it
#[derive(Debug, Args)]
#[command(after_help = ATTACH_HELP)]
pub struct Attach {
    /// Which session
    pub session: String,
    /// Let the program set this terminal's title, clipboard and colours
    #[arg(long)]
    pub unfiltered: bool,
    /// Leave the size of the session's terminal as it is
    #[arg(long)]
    pub keep_size: bool,
    #[command(flatten)]
    pub agent: Agent,
}

const SEND_HELP: &str = "\
Examples:
  abide session send session_k3v9x2bc 'print(6 * 7)' --key enter
  abide session send session_k3v9x2bc --key ctrl-c
  abide session send session_k3v9x2bc --key esc --key up";

/// Type text and press keys, and show what came back
#[derive(Debug, Args)]
#[command(after_help = SEND_HELP)]
pub struct Send {
    /// Which session
    pub session: String,
    /// Text to type
    #[arg(allow_hyphen_values = true)]
    pub text: Option<String>,
    /// Keys to press after it, such as enter, ctrl-c, up or f5
    #[arg(long = "key", short, value_name = "KEY")]
    pub keys: Vec<String>,
    #[command(flatten)]
    pub agent: Agent,
    #[command(flatten)]
    pub json: Json,
}

/// Show what is on a session's screen now
#[derive(Debug, Args)]
pub struct Screen {
    /// Which session
    pub session: String,
    #[command(flatten)]
    pub agent: Agent,
    #[command(flatten)]
    pub json: Json,
}

const SEARCH_HELP: &str = "\
Example:
  abide session search session_k3v9x2bc 'error|warning' --context 2";

/// Find lines in all that a session has written
#[derive(Debug, Args)]
#[command(after_help = SEARCH_HELP)]
pub struct Search {
    /// Which session
    pub session: String,
    /// A regular expression
    pub pattern: String,
    /// Lines to show around each match
    #[arg(long, short = 'C', value_name = "LINES", default_value_t = 0)]
    pub context: u64,
    /// Most matching lines to show
    #[arg(long, value_name = "LINES", default_value_t = 100)]
    pub max_lines: u64,
    #[command(flatten)]
    pub agent: Agent,
    #[command(flatten)]
    pub json: Json,
}

/// Give a session's terminal another size
#[derive(Debug, Args)]
pub struct Resize {
    /// Which session
    pub session: String,
    /// Characters in a line
    pub cols: u16,
    /// Lines
    pub rows: u16,
    #[command(flatten)]
    pub agent: Agent,
    #[command(flatten)]
    pub json: Json,
}

/// Send a signal to what stands in the foreground of a session
#[derive(Debug, Args)]
pub struct Signal {
    /// Which session
    pub session: String,
    /// A name such as INT, or a number
    #[arg(default_value = "INT")]
    pub signal: String,
    #[command(flatten)]
    pub agent: Agent,
    #[command(flatten)]
    pub json: Json,
}

/// Show the sessions that run, or all that are kept
#[derive(Debug, Args)]
pub struct List {
    /// Show ended sessions too
    #[arg(long, short)]
    pub all: bool,
    #[command(flatten)]
    pub agent: Agent,
    #[command(flatten)]
    pub json: Json,
}

const LOGS_HELP: &str = "\
Examples:
  abide logs session_k3v9x2bc --follow
  abide logs session_k3v9x2bc --raw > output.bin

Without --raw, escape sequences and control characters are taken out, so that reading a log does
nothing to the terminal.";

/// Show what a session has written
#[derive(Debug, Args)]
#[command(after_help = LOGS_HELP)]
pub struct Logs {
    /// Which session
    pub session: String,
    /// Go on until the command has ended
    #[arg(long, short)]
    pub follow: bool,
    /// Print the very bytes that were written
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
    /// Begin at this byte of the log
    #[arg(long, value_name = "OFFSET", default_value_t = 0)]
    pub from: u64,
    /// Only standard output
    #[arg(long, conflicts_with = "stderr")]
    pub stdout: bool,
    /// Only standard error
    #[arg(long)]
    pub stderr: bool,
    #[command(flatten)]
    pub agent: Agent,
    #[command(flatten)]
    pub json: Json,
}

/// End a session: the command and everything it started is gone when this returns
#[derive(Debug, Args)]
pub struct Kill {
    /// Which session
    pub session: String,
    #[command(flatten)]
    pub agent: Agent,
    #[command(flatten)]
    pub json: Json,
}

const EXTEND_HELP: &str = "\
Example:
  abide session extend session_k3v9x2bc --timeout 10m";

/// Give a running session other limits, counted from now
#[derive(Debug, Args)]
#[command(after_help = EXTEND_HELP)]
#[group(id = "limits", required = true, multiple = true, args = ["timeout", "idle"])]
pub struct Extend {
    /// Which session
    pub session: String,
    /// End it this long from now
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    pub timeout: Option<Millis>,
    /// Ask after this long without output
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    pub idle: Option<Millis>,
    #[command(flatten)]
    pub agent: Agent,
    #[command(flatten)]
    pub json: Json,
}
