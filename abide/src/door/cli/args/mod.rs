//! The command line as it is typed, and its help.

use std::ffi::OsString;
use std::path::PathBuf;

use abide_core::Millis;
use clap::{Args, Parser, Subcommand, ValueEnum};

mod session;
mod timer;

pub use session::*;
pub use timer::*;

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
    Status(Status),
    Stop(Stop),
    Serve(Serve),
    Mcp(Mcp),
    Tools(Tools),
    Completions(Completions),
    Man(Man),
    Version(Version),
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

More examples:
  abide run --idle 5m -- ./migrate.sh        ask only after five quiet minutes
  abide run --timeout 100s -- make check     and not a second longer
  abide run --pty -- htop                    with a terminal of its own
  tar c src | abide run -- 'wc -c'           input is passed on

Ctrl-C is passed on to the command; a second one ends it and everything it started. At the
question, Ctrl-C ends it at once. If this program or the daemon goes away the command goes on:
`abide session list` finds it again.

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
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
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

const CALL_HELP: &str = "\
Example:
  abide call <<'END'
  I will wait for the server.
  <tool name=\"timer\">
    <total_duration>300</total_duration>
    <reason>Waiting for server to start</reason>
  </tool>
  END

`abide tools --format xml` prints the matching prompt text. Exit codes: 0 all results are good,
1 one is an error, 2 the text is not right and nothing was run.";

/// Run the tool blocks in a text that a model wrote, and print the results
#[derive(Debug, Args)]
#[command(after_help = CALL_HELP)]
pub struct Call {
    /// The file with the text; without it, standard input
    pub file: Option<PathBuf>,
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
    pub dir: PathBuf,
}

/// Print the version
#[derive(Debug, Args)]
pub struct Version {
    #[command(flatten)]
    pub json: Json,
}
