//! Arguments of `setup`, `doctor`, `top` and `schema`.

use clap::{Args, ValueEnum};

use super::{AgentArg, JsonArg};

const SETUP_HELP: &str = "\
Examples:
  abide setup                         set up every client that is installed
  abide setup claude-code             show the change, ask, then write it
  abide setup codex --print           only show the change
  abide setup vscode --project --yes  for this project only, without asking
  abide setup cursor --undo           remove it again
  abide setup gemini --sandbox workspace-write --approve --yes
  abide setup codex --waker --yes

Only abide's own entry is changed; settings that you added to it are kept. The original file is
kept as a copy beside it. --undo restores that copy, or removes only abide's entry if the file has
changed in the meantime. Without a terminal to ask at, nothing is written unless you pass --yes.

Exit codes: 0 done or nothing to do, 1 a change was not written.";

/// Add abide to the configuration of your clients
#[derive(Debug, Args)]
#[command(after_help = SETUP_HELP)]
#[command(mut_arg("agent", |agent| agent.help("Name of the client's agent [default: that of an earlier setup, else the name of the client]")))]
pub struct SetupArgs {
    /// Client; without it, every client that is installed
    pub client: Option<ClientName>,
    /// Show the change without writing it
    #[arg(long, conflicts_with = "yes")]
    pub print: bool,
    /// Write it without asking
    #[arg(long, short)]
    pub yes: bool,
    /// Remove what setup has written
    #[arg(long)]
    pub undo: bool,
    /// Write the project's configuration in this directory, which others may share
    #[arg(long)]
    pub project: bool,
    /// Sandbox of the client's commands. Without this, you are asked at a terminal, and nothing changes elsewhere
    #[arg(long, value_name = "MODE", conflicts_with = "undo")]
    pub sandbox: Option<SetupSandbox>,
    /// Let the client call abide's tools without asking you each time, if it has a setting for that
    #[arg(long, conflicts_with = "undo")]
    pub approve: bool,
    /// Let abide wake the client for messages, if it can; you pay for such turns as for any other
    #[arg(long, conflicts_with = "undo")]
    pub waker: bool,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}

/// Sandbox that setup writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SetupSandbox {
    /// Commands can change only the workspace
    WorkspaceWrite,
    /// Remove the sandbox entry of this agent
    Off,
}

const DOCTOR_HELP: &str = "\
Each line is ok, off, a warning or trouble, with what to do about it. No daemon is started, and an
invalid configuration is reported like any other problem.

Exit codes: 0 no trouble, 1 trouble.";

/// Check the installation and say how to fix problems
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_HELP)]
pub struct DoctorArgs {
    /// Attack the sandbox on this machine with harmless attempts, and print a table; exit code 1 if one succeeds
    #[arg(long)]
    pub hostile: bool,
    /// The part of `--hostile` that runs inside the sandbox
    #[arg(long, hide = true, value_name = "SCENE", conflicts_with = "hostile")]
    pub attack: Option<String>,
    #[command(flatten)]
    pub json: JsonArg,
}

const TOP_HELP: &str = "\
Shows questions first, then running sessions, timers and messages. `?` lists the keys.";

/// Watch and control questions, sessions and timers live
#[derive(Debug, Args)]
#[command(after_help = TOP_HELP)]
pub struct TopArgs {
    /// Include checks of conditions
    #[arg(long, short)]
    pub all: bool,
    /// Print the current state once as JSON
    #[arg(long)]
    pub json: bool,
}

const SCHEMA_HELP: &str = "\
Examples:
  abide schema session list
  abide schema > schemas.json

Later versions may add fields; ignore those that you do not know.";

/// Print the JSON Schemas of --json output
#[derive(Debug, Args)]
#[command(after_help = SCHEMA_HELP)]
pub struct SchemaArgs {
    /// Command such as `session list`; without it, all commands
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
