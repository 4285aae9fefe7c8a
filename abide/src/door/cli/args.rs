//! The command line as it is typed, and its help.

use std::ffi::OsString;
use std::path::PathBuf;

use abide_core::Millis;
use clap::{Args, Parser, Subcommand, ValueEnum};

mod setting;
mod waiting;

pub use setting::{ClientName, Doctor, SchemaOf, Setup, Top};
pub use waiting::{Call, Hook, Messages, MessagesAct, Timer, TimerAct, TimerStart, Wait};

use super::span::{self, Limit};

/// Runs commands with patience: never killed too early, never a byte lost.
#[derive(Debug, Parser)]
#[command(
    name = "abide",
    version,
    about = "Runs commands with patience: never killed too early, never hung on, never a byte lost.",
    after_help = "Start with `abide run -- cargo build`. Each command explains itself: `abide run --help`.",
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub struct Line {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Run(Run),
    Answer(Answer),
    #[command(subcommand)]
    Session(Session),
    Logs(Logs),
    #[command(subcommand)]
    Timer(Timer),
    Wait(Wait),
    Messages(Messages),
    Call(Call),
    Open(Open),
    Status(Status),
    Top(Top),
    Setup(Setup),
    Doctor(Doctor),
    Stop(Stop),
    Serve(Serve),
    Mcp(Mcp),
    Tools(Tools),
    Schema(SchemaOf),
    Completions(Completions),
    Man(Man),
    Version(Version),
}

/// Open the page in a browser
///
/// Prints a link that logs one browser in, once and within a minute, and opens it where there is a
/// display. The login lasts for 30 days.
#[derive(Debug, Args)]
pub struct Open {
    /// Only print the link
    #[arg(long)]
    pub print: bool,
    #[command(flatten)]
    pub json: Json,
}

/// Print JSON for programs.
#[derive(Clone, Copy, Debug, Args)]
pub struct Json {
    /// Print JSON for programs instead of text for people
    #[arg(long)]
    pub json: bool,
}

/// On whose behalf.
#[derive(Clone, Debug, Args)]
pub struct Agent {
    /// Act as this agent, who sees only its own sessions
    #[arg(long, env = "ABIDE_AGENT", hide_env_values = true, value_name = "NAME")]
    agent: Option<String>,
}

impl Agent {
    /// Nobody in particular.
    pub fn none() -> Self {
        Agent { agent: None }
    }

    /// The name, where one is given.
    pub fn name(self) -> Option<String> {
        self.agent.filter(|name| !name.is_empty())
    }
}

const RUN_HELP: &str = "\
One word is a command line for the shell; several are executed as they are:
  abide run -- 'cargo build && cargo test'
  abide run -- cargo test --workspace

Options of abide come before the command. `--` ends them: every word after it belongs to the
command. Without `--` the command begins at the first word that is not an option.

More examples:
  abide run --idle 5m -- ./migrate.sh        ask only after five quiet minutes
  abide run --timeout 100s -- make check     and not a second longer
  abide run --pty -- htop                    with a terminal of its own
  tar c src | abide run -- 'wc -c'           input is passed on

Ctrl-C is passed on to the command; a second one ends it and everything it started. With --pty a
program that takes keys, such as an editor or a shell, gets every one. At the question, Ctrl-C
ends it at once. If this program or the daemon goes away the command goes on: `abide session list`
finds it again.

Exit codes:
  the command's own; 128+n where signal n ended it
  124  it reached --timeout, or `no` was the answer to the question
  125  abide itself is in trouble
  126  the command cannot be executed
  127  the command was not found
  130  it was interrupted with Ctrl-C";

/// Run a command to its end: live output, exit code passed through
///
/// As long as the command shows life it is left alone, however long it takes. When it has been quiet
/// for --idle, whoever sits at the terminal is asked whether to go on waiting; where nobody can be
/// asked, it simply goes on.
#[derive(Debug, Args)]
#[command(after_long_help = RUN_HELP, after_help = "`abide run --help` has examples and the exit codes.")]
pub struct Run {
    /// Ask after this long without output; `never` asks never [default: 60s, with --pty never]
    #[arg(long, value_name = "TIME", value_parser = span::parse_limit)]
    pub idle: Option<Limit>,
    /// End the command and all it started after this long, whatever it does
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    pub timeout: Option<Millis>,
    /// Run it in this folder
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Set a variable besides the inherited ones
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Give it a terminal of its own, connected to this one
    #[arg(long)]
    pub pty: bool,
    #[command(flatten)]
    pub agent: Agent,
    /// Print the result as one JSON object at the end instead of the live output
    #[arg(long)]
    pub json: bool,
    /// The command
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("write it as NAME=VALUE".into()),
    }
}

const ANSWER_HELP: &str = "\
Examples:
  abide answer                            show what is asked, and answer it here
  abide answer --follow                   stay, and be asked as questions come
  abide answer question_k3v9x2bc no       give up waiting: the command is ended

The first answer counts. Only a person can answer: never a command, never an agent.";

/// Answer the questions that commands have raised
#[derive(Debug, Args)]
#[command(after_help = ANSWER_HELP)]
pub struct Answer {
    /// Which question; without it, all open ones are shown
    #[arg(requires = "answer")]
    pub question: Option<String>,
    /// Go on waiting, or give up
    pub answer: Option<YesNo>,
    /// Stay and wait for questions
    #[arg(long, short, conflicts_with = "question")]
    pub follow: bool,
    #[command(flatten)]
    pub json: Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum YesNo {
    #[value(alias = "y")]
    Yes,
    #[value(alias = "n")]
    No,
}

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
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
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
    /// Print how the session stands afterwards, as JSON for programs
    #[arg(long)]
    pub json: bool,
}

const SEND_HELP: &str = "\
Examples:
  abide session send session_k3v9x2bc 'print(6 * 7)' --key enter
  abide session send session_k3v9x2bc --key ctrl-c
  abide session send session_k3v9x2bc --key esc --key up
  abide session send session_k3v9x2bc --key enter -- '-v'   text that begins with a dash";

/// Type text and press keys, and show what came back
#[derive(Debug, Args)]
#[command(after_help = SEND_HELP)]
pub struct Send {
    /// Which session
    pub session: String,
    /// Text to type
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
#[command(override_usage = "abide session resize <SESSION> <COLS> <ROWS>")]
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

const EXTEND_USAGE: &str = "\
abide session extend <SESSION> --timeout <TIME>
       abide session extend <SESSION> --idle <TIME>";

/// Give a running session other limits, counted from now
#[derive(Debug, Args)]
#[command(after_help = EXTEND_HELP, override_usage = EXTEND_USAGE)]
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

/// Show how the daemon is and what it keeps
#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    pub json: Json,
}

/// Stop the daemon; sessions go on, and the next command starts it again
#[derive(Debug, Args)]
pub struct Stop {
    #[command(flatten)]
    pub json: Json,
}

/// Run the daemon here, in the foreground
///
/// Every command starts the daemon where there is none, so this is only for those who want to see it
/// or to have it started by something else.
#[derive(Debug, Args)]
pub struct Serve {
    /// Started by another abide, which waits to hear that it is ready
    #[arg(long, hide = true)]
    pub background: bool,
}

/// Serve the tools to an MCP client over standard input and output
#[derive(Debug, Args)]
pub struct Mcp {
    #[command(flatten)]
    pub agent: Agent,
}

/// Print the tools as a model or its client wants them described
#[derive(Debug, Args)]
pub struct Tools {
    /// For whom
    #[arg(long, value_enum, default_value_t = Format::Mcp)]
    pub format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// As an MCP client lists them
    Mcp,
    /// As OpenAI's function tools
    Openai,
    /// As Anthropic's tools
    Anthropic,
    /// As prompt text for models that call tools by writing XML
    Xml,
    /// As a page for people, which is the guide's reference
    Markdown,
}

const COMPLETIONS_HELP: &str = "\
Example:
  abide completions bash > ~/.local/share/bash-completion/completions/abide";

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_HELP)]
pub struct Completions {
    /// Which shell
    pub shell: clap_complete::Shell,
}

/// Write the manual pages into a folder
#[derive(Debug, Args)]
pub struct Man {
    /// Where to; it is made where it does not exist
    #[arg(required_unless_present = "markdown")]
    pub dir: Option<PathBuf>,
    /// Print one page with all commands instead, which is the guide's reference
    #[arg(long, conflicts_with = "dir")]
    pub markdown: bool,
}

/// Print the version
#[derive(Debug, Args)]
pub struct Version {
    #[command(flatten)]
    pub json: Json,
}
