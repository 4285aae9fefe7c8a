//! Setting abide up and looking after it, as it is typed.

use clap::{Args, ValueEnum};

use super::{Agent, Json};

const SETUP_HELP: &str = "\
Examples:
  abide setup claude-code             show the change, ask, and write it
  abide setup codex --print           only show it
  abide setup vscode --project --yes  for this project, without asking
  abide setup cursor --undo           take it back

Only abide's own entry is changed, and what you have set in it besides stays, as does everything
else in the file. A copy of the file as it was is kept beside it, and --undo brings exactly that
back, unless the file has changed since: then only abide's entry goes.

Exit codes: 0 it is done or there was nothing to do, 1 nothing was written.";

/// Tell a client about abide, in its configuration file
#[derive(Debug, Args)]
#[command(after_help = SETUP_HELP)]
#[command(mut_arg("agent", |agent| agent.help("Call the client's agent so; without it, as the client is called")))]
pub struct Setup {
    /// Which client
    pub client: ClientName,
    /// Only show what would be written
    #[arg(long, conflicts_with = "yes")]
    pub print: bool,
    /// Write it without asking
    #[arg(long, short)]
    pub yes: bool,
    /// Take back what setup has written
    #[arg(long)]
    pub undo: bool,
    /// Only for the project in this folder, whose file others may share
    #[arg(long)]
    pub project: bool,
    #[command(flatten)]
    pub agent: Agent,
    #[command(flatten)]
    pub json: Json,
}

const DOCTOR_HELP: &str = "\
Each line is ok, a warning (it works, but could do better) or trouble, with what to do about it.
No daemon is started, and a configuration that is broken is no hindrance.

Exit codes: 0 it works, 1 there is trouble.";

/// Check the installation and say what to mend
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_HELP)]
pub struct Doctor {
    #[command(flatten)]
    pub json: Json,
}

const TOP_HELP: &str = "\
Questions come first, then the sessions that run, the timers and the messages. `?` shows the keys.
It follows what happens and asks for nothing while nothing happens.";

/// Watch everything that goes on, live, and act on it
#[derive(Debug, Args)]
#[command(after_help = TOP_HELP)]
pub struct Top {
    /// Print what it would show once, as JSON
    #[arg(long)]
    pub json: bool,
}

const SCHEMA_HELP: &str = "\
Examples:
  abide schema session list
  abide schema > schemas.json

Later versions may add fields; a reader ignores those that it does not know.";

/// Print what --json prints, as JSON Schemas
#[derive(Debug, Args)]
#[command(after_help = SCHEMA_HELP)]
pub struct SchemaOf {
    /// The command, such as `session list`; without one, all of them
    pub command: Vec<String>,
}

/// A client that can be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClientName {
    /// Claude Code
    ClaudeCode,
    /// Codex
    Codex,
    /// Cursor
    Cursor,
    /// Visual Studio Code
    Vscode,
    /// Gemini CLI
    Gemini,
}
