//! The command `session`, and its short forms.

use std::ffi::OsString;
use std::path::PathBuf;

use abide_api::{NetworkMode, SandboxMode};
use abide_core::session_name::SessionName;
use abide_core::{Millis, limit};
use abide_engine::screen::Size;
use clap::{Args, Subcommand};

use super::{AgentArg, JsonArg, network_mode, sandbox_mode, session_name, variable};
use crate::cli::duration::{self, DurationLimit};
use crate::cli::number;

/// Parses a number without a limit of the command line; the daemon may have one.
fn any_number<T: TryFrom<u64>>(text: &str) -> Result<T, number::InvalidNumber> {
    number::parse::<T, 0, { u64::MAX }>(text)
}

fn columns(text: &str) -> Result<u16, number::InvalidNumber> {
    number::parse::<u16, { Size::LEAST_COLS as u64 }, { Size::MOST_COLS as u64 }>(text)
}

fn rows(text: &str) -> Result<u16, number::InvalidNumber> {
    number::parse::<u16, { Size::LEAST_ROWS as u64 }, { Size::MOST_ROWS as u64 }>(text)
}

/// Start, attach to, read, search and end sessions
///
/// Every command runs in a session: the command, all processes it started, and their output.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    Start(StartArgs),
    Attach(AttachArgs),
    List(ListArgs),
    Read(LogsArgs),
    Send(SendArgs),
    Screen(ScreenArgs),
    Search(SearchArgs),
    Extend(ExtendArgs),
    Resize(ResizeArgs),
    Signal(SignalArgs),
    Rename(RenameArgs),
    Kill(KillArgs),
    Rm(RemoveArgs),
    Rerun(RerunArgs),
}

const START_HELP: &str = "\
Examples:
  abide session start -- python3 -i
  abide session start --name dev --inactivity never -- 'npm run dev'

The session runs in the background: `abide attach` connects to it.";

/// Start a command in a terminal in the background
#[derive(Debug, Args)]
#[command(after_help = START_HELP)]
pub struct StartArgs {
    /// Give the session a name, which can be typed instead of its id
    #[arg(long, value_name = "NAME", value_parser = session_name)]
    pub name: Option<SessionName>,
    /// Run it on the machine of the fleet with this name or label
    #[arg(long, value_name = "MACHINE")]
    pub on: Option<String>,
    /// Run it in this directory
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Set an environment variable, in addition to those inherited
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Use pipes instead of a terminal
    #[arg(long)]
    pub no_pty: bool,
    /// Width of the terminal
    #[arg(long, default_value_t = limit::COLS_DEFAULT, value_parser = columns)]
    pub cols: u16,
    /// Height of the terminal
    #[arg(long, default_value_t = limit::ROWS_DEFAULT, value_parser = rows)]
    pub rows: u16,
    /// Close it after this long without output, input or a reader, or `never`
    #[arg(long, value_name = "TIME", value_parser = duration::parse_limit, default_value_t = DurationLimit::After(limit::INACTIVITY_DEFAULT))]
    pub inactivity: DurationLimit,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
    /// The command to run; a single word is run by the shell
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

const ATTACH_HELP: &str = "\
Ctrl-] detaches; the session continues. Agents and people who use the session too see what you type
and that you are attached.

Sequences that change this terminal (title, clipboard, colour palette) are removed unless you pass
--unfiltered. Terminal queries of the program are answered by the session.";

/// Attach to the terminal of a session; others can use it at the same time
#[derive(Debug, Default, Args)]
#[command(after_help = ATTACH_HELP)]
pub struct AttachArgs {
    /// Session id or its beginning, its name, or `last`; without it, the only terminal that runs
    pub session: Option<String>,
    /// Let the program change this terminal's title, clipboard and colour palette
    #[arg(long)]
    pub unfiltered: bool,
    /// Do not resize the session's terminal to this window
    #[arg(long)]
    pub keep_size: bool,
    #[command(flatten)]
    pub agent: AgentArg,
    /// Print the session as JSON after detaching
    #[arg(long)]
    pub json: bool,
}

const SEND_HELP: &str = "\
Examples:
  abide session send session_k3v9x2bc 'print(6 * 7)' --key enter
  abide session send session_k3v9x2bc --key ctrl-c
  abide session send session_k3v9x2bc --key esc --key up
  abide session send session_k3v9x2bc --key enter -- '-v'   a text that begins with a dash";

/// Type text and press keys, then show the output that follows
#[derive(Debug, Args)]
#[command(after_help = SEND_HELP)]
pub struct SendArgs {
    /// Session id or its beginning, its name, or `last`
    pub session: String,
    /// Text to type
    pub text: Option<String>,
    /// Key to press after the text: enter, ctrl-c, up, f5 and so on (repeatable)
    #[arg(long = "key", short, value_name = "KEY")]
    pub keys: Vec<String>,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}

/// Show the current screen of a session
#[derive(Debug, Args)]
pub struct ScreenArgs {
    /// Session id or its beginning, its name, or `last`
    pub session: String,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}

const SEARCH_HELP: &str = "\
Example:
  abide session search session_k3v9x2bc 'error|warning' --context 2";

/// Search the output of a session
#[derive(Debug, Args)]
#[command(after_help = SEARCH_HELP)]
pub struct SearchArgs {
    /// Session id or its beginning, its name, or `last`
    pub session: String,
    /// Regular expression
    pub pattern: String,
    /// Lines to show around each match
    #[arg(long, short = 'C', value_name = "LINES", default_value_t = 0, value_parser = any_number::<u64>)]
    pub context: u64,
    /// Maximum number of matching lines
    #[arg(long, value_name = "LINES", default_value_t = limit::LINES_DEFAULT, value_parser = any_number::<usize>)]
    pub max_lines: usize,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}

/// Resize the terminal of a session
#[derive(Debug, Args)]
#[command(override_usage = "abide session resize <SESSION> <COLS> <ROWS>")]
pub struct ResizeArgs {
    /// Session id or its beginning, its name, or `last`
    pub session: String,
    /// Width in characters
    #[arg(value_parser = columns)]
    pub cols: u16,
    /// Height in lines
    #[arg(value_parser = rows)]
    pub rows: u16,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}

/// Send a signal to the foreground process group of a session
#[derive(Debug, Args)]
pub struct SignalArgs {
    /// Session id or its beginning, its name, or `last`
    pub session: String,
    /// Signal name such as INT, or number
    #[arg(default_value = "INT")]
    pub signal: String,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}

/// List running sessions
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Include sessions that have ended, and checks of conditions
    #[arg(long, short)]
    pub all: bool,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}

const LOGS_HELP: &str = "\
Examples:
  abide logs last --follow
  abide logs build --tail 20 --timestamps
  abide logs session_k3v9x2bc --since 5m
  abide logs session_k3v9x2bc --raw > output.bin

Without --raw, escape sequences and control characters are removed, so that a log cannot affect the
terminal, and a carriage return begins a new line: every step of a progress bar is a line.";

/// Show the output of a session
#[derive(Debug, Args)]
#[command(after_help = LOGS_HELP)]
pub struct LogsArgs {
    /// Session id or its beginning, its name, or `last`
    pub session: String,
    /// Follow the output until the command ends
    #[arg(long, short)]
    pub follow: bool,
    /// Show the last lines only
    #[arg(long, value_name = "LINES", conflicts_with = "from", value_parser = any_number::<u64>)]
    pub tail: Option<u64>,
    /// Show only what was written within this time
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub since: Option<Millis>,
    /// Begin each line with the time (UTC) at which it began
    #[arg(long, conflicts_with_all = ["json", "raw"])]
    pub timestamps: bool,
    /// Print the original bytes
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
    /// Start at this byte offset of the log
    #[arg(long, value_name = "OFFSET", default_value_t = 0, value_parser = any_number::<u64>)]
    pub from: u64,
    /// Show standard output only
    #[arg(long, conflicts_with = "stderr")]
    pub stdout: bool,
    /// Show standard error only
    #[arg(long)]
    pub stderr: bool,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}

/// End a session: the command and every process it started
///
/// With --all you are asked first on a terminal. Elsewhere --yes is needed.
#[derive(Debug, Args)]
pub struct KillArgs {
    /// Session id or its beginning, its name, or `last`
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub session: Option<String>,
    /// End all running sessions
    #[arg(long)]
    pub all: bool,
    /// With --all: end them without asking
    #[arg(long, short)]
    pub yes: bool,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}

/// Give a session another name, which can be typed instead of its id
#[derive(Debug, Args)]
pub struct RenameArgs {
    /// Session id or its beginning, its name, or `last`
    pub session: String,
    /// New name: letters, digits, `-`, `_` and `.`; without it, the session has none
    #[arg(value_parser = session_name)]
    pub name: Option<SessionName>,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}

/// Delete a session that has ended, with its log
///
/// On a terminal you are asked first. Elsewhere --yes is needed.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// Session id or its beginning, its name, or `last`
    pub session: String,
    /// Delete it without asking
    #[arg(long, short)]
    pub yes: bool,
    #[command(flatten)]
    pub json: JsonArg,
}

const RERUN_HELP: &str = "\
Examples:
  abide rerun last
  abide rerun build --timeout 10m

It runs as `abide run` would: live output, exit code of the command, the environment of this shell.
Folder, name, agent, idle limit and terminal are those of the session. A command that ran in a
sandbox needs --sandbox, because a person's command has none by default.";

/// Run the command of a session again, in a new session
#[derive(Debug, Args)]
#[command(after_help = RERUN_HELP)]
pub struct RerunArgs {
    /// Session id or its beginning, its name, or `last`
    pub session: String,
    /// Ask after this long without output, or `never` [default: as in the session]
    #[arg(long, value_name = "TIME", value_parser = duration::parse_limit)]
    pub idle: Option<DurationLimit>,
    /// Hard limit: end the command and everything it started after this long
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub timeout: Option<Millis>,
    /// Run it in a sandbox; the folder it runs in is the workspace
    #[arg(long, value_name = "MODE", value_parser = sandbox_mode())]
    pub sandbox: Option<SandboxMode>,
    /// Network of the sandbox [default: as configured]
    #[arg(long, value_name = "NETWORK", value_parser = network_mode(), requires = "sandbox")]
    pub network: Option<NetworkMode>,
    /// Print the result as one JSON object at the end, without live output
    #[arg(long)]
    pub json: bool,
}

const EXTEND_HELP: &str = "\
Example:
  abide session extend session_k3v9x2bc --timeout 10m";

const EXTEND_USAGE: &str = "\
abide session extend <SESSION> --timeout <TIME>
       abide session extend <SESSION> --idle <TIME>";

/// Change the limits of a running session, counted from now
#[derive(Debug, Args)]
#[command(after_help = EXTEND_HELP, override_usage = EXTEND_USAGE)]
#[group(id = "limits", required = true, multiple = true, args = ["timeout", "idle"])]
pub struct ExtendArgs {
    /// Session id or its beginning, its name, or `last`
    pub session: String,
    /// End it this long from now
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub timeout: Option<Millis>,
    /// Ask after this long without output
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub idle: Option<Millis>,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}
