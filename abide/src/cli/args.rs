//! The command line as it is typed, and its help.

use std::ffi::OsString;
use std::path::PathBuf;

use abide_api::{NetworkMode, SandboxMode};
use abide_core::Millis;
use abide_core::session_name::{InvalidName, SessionName};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

mod fleet;
mod policy;
mod session;
mod setup;
mod waiting;

pub use fleet::{
    FleetCommand, FleetInitArgs, FleetJoinArgs, MachineActArgs, MachineCommand, MachineLabelArgs,
};
pub use policy::{AuditArgs, PolicyCommand, PolicyTestArgs};
pub use session::{
    AttachArgs, ExtendArgs, KillArgs, ListArgs, LogsArgs, RemoveArgs, RenameArgs, RerunArgs,
    ResizeArgs, ScreenArgs, SearchArgs, SendArgs, SessionCommand, SignalArgs, StartArgs,
};
pub use setup::{ClientName, DoctorArgs, SchemaArgs, SetupArgs, SetupSandbox, TopArgs};
pub use waiting::{
    CallArgs, Hook, MessagesArgs, MessagesCommand, TimerActionArgs, TimerCommand, TimerStartArgs,
    TimerWaitArgs, WaitArgs,
};

use super::duration::{self, DurationLimit};
use abide_engine::config;

/// Runs commands and terminals for AI agents and people, and waits for them.
#[derive(Debug, Parser)]
#[command(
    name = "abide",
    version,
    about = "Runs commands and terminals for AI agents and people, and waits for them.",
    after_help = "`abide setup` connects your agents. `abide run -- cargo build` runs a command of your own. Every command has its own help: `abide help run`.",
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Run(RunArgs),
    Answer(AnswerArgs),
    Ps(ListArgs),
    Logs(LogsArgs),
    Attach(AttachArgs),
    Kill(KillArgs),
    Rm(RemoveArgs),
    Rerun(RerunArgs),
    #[command(subcommand)]
    Session(SessionCommand),
    #[command(subcommand)]
    Sandbox(SandboxCommand),
    #[command(subcommand)]
    Timer(TimerCommand),
    Wait(WaitArgs),
    Messages(MessagesArgs),
    #[command(subcommand)]
    Policy(PolicyCommand),
    Audit(AuditArgs),
    #[command(subcommand)]
    Fleet(FleetCommand),
    #[command(subcommand)]
    Machine(MachineCommand),
    Call(CallArgs),
    Open(OpenArgs),
    /// Show the state of the daemon
    Status(JsonArg),
    Top(TopArgs),
    Setup(SetupArgs),
    Doctor(DoctorArgs),
    /// Stop the daemon; sessions continue, and the next command starts it again
    Stop(JsonArg),
    Serve(ServeArgs),
    Mcp(McpArgs),
    /// Carry a link of another machine of the fleet; its `ssh` runs this
    Relay,
    Tools(ToolsArgs),
    Schema(SchemaArgs),
    Completions(CompletionsArgs),
    #[command(hide = true)]
    Complete(CompleteArgs),
    Man(ManArgs),
    /// Print the version
    Version(JsonArg),
}

/// Open the page in a browser
///
/// Prints a link that logs in one browser and opens it if there is a display. The link works once,
/// for one minute; the login lasts 30 days.
#[derive(Debug, Args)]
pub struct OpenArgs {
    /// Only print the link
    #[arg(long)]
    pub print: bool,
    #[command(flatten)]
    pub json: JsonArg,
}

/// The `--json` option.
#[derive(Clone, Copy, Debug, Args)]
pub struct JsonArg {
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// The `--agent` option.
#[derive(Clone, Debug, Default, Args)]
pub struct AgentArg {
    /// Act as this agent, which sees only what it owns
    #[arg(long, env = "ABIDE_AGENT", hide_env_values = true, value_name = "NAME")]
    agent: Option<String>,
}

impl AgentArg {
    /// The name, if one is given.
    pub fn name(&self) -> Option<String> {
        self.agent.clone().filter(|name| !name.is_empty())
    }
}

const RUN_HELP: &str = "\
A single word is run by the shell; several words are executed as they are:
  abide run -- 'cargo build && cargo test'
  abide run -- cargo test --workspace

Options of abide come before the command, and `--` ends them. Without `--`, the command begins at
the first word that is not an option.

More examples:
  abide run --idle 5m -- ./migrate.sh        ask after five minutes without output
  abide run --timeout 100s -- make check     end it after 100 seconds
  abide run --pty -- htop                    run it in a terminal
  tar c src | abide run -- 'wc -c'           standard input is forwarded

Sequences that change this terminal (title, clipboard, colour palette) are removed unless you pass
--unfiltered. A pipe or a file gets every byte.

The first Ctrl-C is forwarded to the command, a second one ends it with everything it started.
With --pty, a program that reads single keys, such as an editor, gets every Ctrl-C. At the
question, Ctrl-C ends the command at once. If this program or the daemon exits, the command
continues: `abide ps` shows it.

Exit codes:
  that of the command; 128+n if signal n ended it
  124  --timeout was reached, or the question was answered with no
  125  abide itself failed, or its own options are wrong
  126  the command cannot be executed
  127  the command was not found
  130  interrupted with Ctrl-C";

/// Run a command with live output and return its exit code
///
/// A command may run for as long as it writes output. After --idle without output you are
/// asked whether to continue waiting. If there is no terminal to ask at, it continues.
#[derive(Debug, Default, Args)]
#[command(after_long_help = RUN_HELP, after_help = "`abide run --help` has examples and the exit codes.")]
pub struct RunArgs {
    /// Ask after this long without output, or `never` [default: 60s, with --pty never]
    #[arg(long, value_name = "TIME", value_parser = duration::parse_limit)]
    pub idle: Option<DurationLimit>,
    /// Hard limit: end the command and everything it started after this long
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub timeout: Option<Millis>,
    /// Run it in this directory
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Set an environment variable, in addition to those inherited
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Run it in a terminal that is connected to this one
    #[arg(long)]
    pub pty: bool,
    /// Give the session a name, which can be typed instead of its id
    #[arg(long, value_name = "NAME", value_parser = session_name)]
    pub name: Option<SessionName>,
    /// Run it in a sandbox; the folder it runs in is the workspace
    #[arg(long, value_name = "MODE", value_parser = sandbox_mode())]
    pub sandbox: Option<SandboxMode>,
    /// Network of the sandbox [default: as configured]
    #[arg(long, value_name = "NETWORK", value_parser = network_mode(), requires = "sandbox")]
    pub network: Option<NetworkMode>,
    /// Let the command change this terminal's title, clipboard and colour palette
    #[arg(long)]
    pub unfiltered: bool,
    #[command(flatten)]
    pub agent: AgentArg,
    /// Print the result as one JSON object at the end, without live output
    #[arg(long)]
    pub json: bool,
    /// The command to run
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Open a shell in a sandbox, and list what agents wrote in theirs
#[derive(Debug, Subcommand)]
pub enum SandboxCommand {
    Shell(SandboxShellArgs),
    Layers(SandboxLayersArgs),
}

/// List what agents have written to their layers of your home and temporary folders
///
/// Layers that no command has used for 30 days are removed by themselves.
#[derive(Debug, Args)]
pub struct SandboxLayersArgs {
    /// Remove the layers of this agent
    #[arg(long, value_name = "AGENT")]
    pub remove: Option<String>,
    #[command(flatten)]
    pub json: JsonArg,
}

const SANDBOX_SHELL_HELP: &str = "\
Examples:
  abide sandbox shell                     see what a command of an agent sees in this folder
  abide sandbox shell --mode read-only    the same without permission to write here";

/// Open a shell in a sandbox, with this folder as the workspace
#[derive(Debug, Args)]
#[command(after_help = SANDBOX_SHELL_HELP)]
pub struct SandboxShellArgs {
    /// Mode of the sandbox
    #[arg(long, value_name = "MODE", value_parser = sandbox_mode(), default_value = "workspace-write")]
    pub mode: SandboxMode,
    /// Network of the sandbox [default: as configured]
    #[arg(long, value_name = "NETWORK", value_parser = network_mode())]
    pub network: Option<NetworkMode>,
    #[command(flatten)]
    pub agent: AgentArg,
}

impl From<SandboxShellArgs> for RunArgs {
    fn from(args: SandboxShellArgs) -> Self {
        RunArgs {
            pty: true,
            sandbox: Some(args.mode),
            network: args.network,
            agent: args.agent,
            command: vec![config::shell_program()],
            ..RunArgs::default()
        }
    }
}

/// Text that is no valid value of an option.
#[derive(Debug, thiserror::Error)]
enum InvalidValue {
    #[error("{0}")]
    SessionName(InvalidName),
    #[error("write it as NAME=VALUE")]
    Variable,
    #[error("not JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Reads the name of a session.
fn session_name(text: &str) -> Result<SessionName, InvalidValue> {
    SessionName::parse(text).map_err(InvalidValue::SessionName)
}

fn sandbox_mode() -> impl TypedValueParser<Value = SandboxMode> {
    let mode = |mode: SandboxMode, help| PossibleValue::new(mode.as_str()).help(help);
    PossibleValuesParser::new([
        mode(
            SandboxMode::ReadOnly,
            "Nothing can be written except to private layers",
        ),
        mode(
            SandboxMode::WorkspaceWrite,
            "The folder can be written, except for protected paths",
        ),
        mode(SandboxMode::Off, "No sandbox"),
    ])
    .map(|word| SandboxMode::of(&word).unwrap_or_default())
}

fn network_mode() -> impl TypedValueParser<Value = NetworkMode> {
    let mode = |mode: NetworkMode, help| PossibleValue::new(mode.as_str()).help(help);
    PossibleValuesParser::new([
        mode(NetworkMode::On, "The network of the machine"),
        mode(
            NetworkMode::Allowlist,
            "Names that the configuration or a person allows",
        ),
        mode(NetworkMode::Off, "Only the sandbox's own loopback"),
    ])
    .map(|word| NetworkMode::of(&word).unwrap_or_default())
}

fn variable(text: &str) -> Result<(String, String), InvalidValue> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err(InvalidValue::Variable),
    }
}

const ANSWER_HELP: &str = "\
Examples:
  abide answer                            show the open questions and answer them here
  abide answer --follow                   wait for questions
  abide answer question_k3v9x2bc no       stop waiting: the command is ended
  abide answer question_k3v9x2bc always here
  abide answer question_k3v9x2bc no, because the release is tomorrow

The first answer counts. Only a person can answer, not a command and not an agent.";

/// Answer questions: keep waiting for a quiet command, or allow a command of an agent
#[derive(Debug, Args)]
#[command(after_help = ANSWER_HELP)]
pub struct AnswerArgs {
    /// Question id or its beginning, or `last`; without it, all open questions are shown
    #[arg(requires = "answer", value_name = "QUESTION")]
    pub question: Option<String>,
    /// `yes` or `no`; about a command of an agent also `once`, `this agent`, `always here`, `always` or `no, because …`
    #[arg(num_args = 0..)]
    pub answer: Vec<String>,
    /// Wait for new questions
    #[arg(long, short, conflicts_with = "question")]
    pub follow: bool,
    #[command(flatten)]
    pub json: JsonArg,
}

/// Run the daemon in the foreground
///
/// Usually not needed: every command starts the daemon if it is not running. Use it to watch the
/// daemon or to start it from a service manager.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Started by another abide, which waits to hear that it is ready
    #[arg(long, hide = true)]
    pub background: bool,
}

/// Serve the tools to an MCP client over standard input and output
#[derive(Debug, Args)]
pub struct McpArgs {
    #[command(flatten)]
    pub agent: AgentArg,
}

/// Print the tool descriptions for a client or a model
#[derive(Debug, Args)]
pub struct ToolsArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t = ToolFormat::Mcp)]
    pub format: ToolFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ToolFormat {
    /// MCP `tools/list`
    Mcp,
    /// OpenAI function tools
    Openai,
    /// Anthropic tools
    Anthropic,
    /// Prompt text for models that write tool calls as XML
    Xml,
    /// Markdown, as in the guide's reference
    Markdown,
}

const COMPLETIONS_HELP: &str = "\
Example:
  abide completions bash > ~/.local/share/bash-completion/completions/abide

With bash, zsh and fish, ids and names of sessions, timers and questions are completed too, if the
daemon runs.";

/// Print shell completions
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_HELP)]
pub struct CompletionsArgs {
    /// Shell
    pub shell: clap_complete::Shell,
}

/// Print the ids that complete the last word of a command line
#[derive(Debug, Args)]
pub struct CompleteArgs {
    /// Words of the command line after `abide`, up to the cursor
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// Write the manual pages to a directory
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Target directory; created if it does not exist
    #[arg(required_unless_present = "markdown")]
    pub dir: Option<PathBuf>,
    /// Print one Markdown page with all commands, as in the guide's reference
    #[arg(long, conflicts_with = "dir")]
    pub markdown: bool,
}
