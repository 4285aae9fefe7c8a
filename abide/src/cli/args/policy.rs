//! Arguments of `abide policy` and `abide audit`.

use std::path::PathBuf;

use abide_core::Millis;
use clap::{Args, Subcommand};

use super::{AgentArg, JsonArg};
use crate::cli::duration;

/// Show and test the rules about commands of agents
///
/// Rules decide which commands of agents are started, asked about or refused. They are in `config.toml`; the answer
/// `always` to a question writes one into `policy.toml` beside it. Your own `abide run` is not judged.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// List all rules
    List(JsonArg),
    Test(PolicyTestArgs),
    Remove(PolicyRemoveArgs),
    /// Show what the rules would have decided about the recorded sessions
    Replay(JsonArg),
}

/// Show what the rules decide about a command, without running it
///
/// Exit codes: 0 allow, 3 ask, 4 deny.
#[derive(Debug, Args)]
pub struct PolicyTestArgs {
    /// The command; a single word is a command line for the shell
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Folder of the command. Default: this folder
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}

/// Remove a rule that the answer `always` has written
#[derive(Debug, Args)]
pub struct PolicyRemoveArgs {
    /// Name of the rule, such as `always-1`
    pub name: String,
    #[command(flatten)]
    pub json: JsonArg,
}

/// Print the decisions about commands of agents, oldest first
///
/// Commands that no rule matches are listed too, as `allow` without a reason. A command of an agent sees the decisions about
/// that agent only. With `--json`, one JSON object per line. Entries are kept for 90 days.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Only decisions of the last time span, such as `1h` or `7d`
    #[arg(long, value_parser = duration::parse, value_name = "TIME")]
    pub since: Option<Millis>,
    /// Leave out commands that no rule matches
    #[arg(long)]
    pub ruled: bool,
    /// Check that no line was changed, removed or inserted; exit code 1 if one was
    #[arg(long, conflicts_with_all = ["since", "ruled"])]
    pub verify: bool,
    #[command(flatten)]
    pub json: JsonArg,
}
