//! Arguments of `timer`, `wait`, `messages` and `call`.

use std::path::PathBuf;

use abide_core::Millis;
use clap::{Args, Subcommand, ValueEnum};

use super::super::{duration, number};
use super::{AgentArg, InvalidValue, JsonArg};

/// Start and control timers; they survive restarts and reboots
#[derive(Debug, Subcommand)]
pub enum TimerCommand {
    Start(TimerStartArgs),
    Wait(TimerWaitArgs),
    Read(TimerReadArgs),
    /// Stop a timer for good; nobody is notified
    Stop(TimerActionArgs),
    /// Stop waiting for a timer; it continues in the background and sends a message
    Cancel(TimerActionArgs),
    Pause(TimerPauseArgs),
    /// Resume a paused timer now
    Resume(TimerActionArgs),
    /// List active timers
    List(TimerListArgs),
    History(TimerHistoryArgs),
    /// Show statistics of all timers
    Stats(TimerListArgs),
}

const TIMER_START_HELP: &str = "\
Examples:
  abide timer start 10m --reason 'the build'              wait until it completes
  abide timer start 10m --reason 'the build' --standby 1m wait for a minute at most
  abide timer start 2h --mission 'look at the logs'       send a message in two hours
  abide timer start 5m --reason server --until '{\"port\": 3000}'

Ctrl-C ends the wait, and the timer continues: `abide timer wait` waits for it again.

Exit codes: 0 completed (a mission: created), 1 the standby time ended first, 2 invalid arguments,
no timer was created, 3 stopped, cancelled or paused meanwhile, 130 Ctrl-C.";

const TIMER_START_USAGE: &str = "\
abide timer start <TIME> --reason <TEXT> [OPTIONS]
       abide timer start <TIME> --mission <TEXT> [OPTIONS]";

/// Start a timer
#[derive(Debug, Args)]
#[command(after_help = TIMER_START_HELP, override_usage = TIMER_START_USAGE)]
#[group(id = "purpose", required = true, multiple = false, args = ["reason", "mission"])]
pub struct TimerStartArgs {
    /// Total duration
    #[arg(value_name = "TIME", value_parser = duration::parse)]
    pub total: Millis,
    /// Reason for waiting; the command waits
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Task for later; the command returns at once
    #[arg(long, value_name = "TEXT")]
    pub mission: Option<String>,
    /// Wait for at most this long; the timer continues
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub standby: Option<Millis>,
    /// Complete early when this condition is met (JSON, as for the tool)
    #[arg(long, value_name = "JSON", value_parser = condition)]
    pub until: Option<serde_json::Value>,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}

fn condition(text: &str) -> Result<serde_json::Value, InvalidValue> {
    Ok(serde_json::from_str(text)?)
}

const TIMER_WAIT_HELP: &str = "\
Exit codes: 0 completed, 1 the standby time ended first, 2 there is no such timer, 3 stopped,
cancelled or paused, 130 Ctrl-C.";

/// Wait for a timer that was started before
#[derive(Debug, Args)]
#[command(after_help = TIMER_WAIT_HELP)]
pub struct TimerWaitArgs {
    /// Timer id or its beginning, or `last`
    pub timer: String,
    /// Wait for at most this long; the timer continues
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub standby: Option<Millis>,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}

/// Show one timer, or all active timers
#[derive(Debug, Args)]
pub struct TimerReadArgs {
    /// Timer id or its beginning, or `last`; without it, all active timers
    pub timer: Option<String>,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}

/// A timer and a reason
#[derive(Debug, Args)]
pub struct TimerActionArgs {
    /// Timer id or its beginning, or `last`
    pub timer: String,
    /// Reason, shown to the waiting agent
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}

/// Pause a timer for a while; it resumes by itself
#[derive(Debug, Args)]
pub struct TimerPauseArgs {
    #[command(flatten)]
    pub timer: TimerActionArgs,
    /// Duration of the pause
    #[arg(value_name = "TIME", value_parser = duration::parse)]
    pub time: Millis,
}

#[derive(Debug, Args)]
pub struct TimerListArgs {
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}

/// List timers that have ended, newest first
#[derive(Debug, Args)]
pub struct TimerHistoryArgs {
    /// Maximum number of timers
    #[arg(long, default_value_t = 20, value_name = "COUNT", value_parser = number::parse::<u16, 1, 1_000>)]
    pub limit: u16,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}

const WAIT_HELP: &str = "\
Examples:
  abide wait --port 3000 --for 5m
  abide wait --url http://localhost:3000/health --for 30s
  abide wait --file build/done --for 1h
  abide wait --file app.log --matches 'listening on' --for 1m
  abide wait --session session_k3v9x2bc --for 10m
  abide wait --command 'pg_isready -q' --for 1m

Several conditions must be met at the same time. Exit codes: 0 met, 1 the time ran out or the
condition can no longer be met, 2 invalid arguments.";

const WAIT_USAGE: &str = "abide wait [OPTIONS] <--port <PORT>|--url <URL>|…>";

/// Wait until a condition is met
#[derive(Debug, Args)]
#[command(after_help = WAIT_HELP, override_usage = WAIT_USAGE)]
pub struct WaitArgs {
    /// A server listens at this port, such as 3000 or host:3000
    #[arg(long, value_name = "PORT")]
    pub port: Option<String>,
    /// This URL answers with a success status
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// With --url: this status code
    #[arg(long, value_name = "CODE", value_parser = number::parse::<u16, 100, 599>)]
    pub status: Option<u16>,
    /// With --url: the body matches this
    #[arg(long, value_name = "REGEX")]
    pub body: Option<String>,
    /// This file exists
    #[arg(long, value_name = "PATH")]
    pub file: Option<String>,
    /// With --file: `present`, `gone` or `changed`
    #[arg(long, value_name = "STATE")]
    pub is: Option<String>,
    /// With --file: its content matches this
    #[arg(long, value_name = "REGEX")]
    pub matches: Option<String>,
    /// This session has ended (its id or its beginning, its name, or `last`)
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
    /// With --session: its output matches this
    #[arg(long, value_name = "REGEX")]
    pub output: Option<String>,
    /// This command exits with code 0
    #[arg(long, value_name = "COMMAND")]
    pub command: Option<String>,
    /// With --port, --url or --command: time between two checks
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub every: Option<Millis>,
    /// This condition is met (JSON, as for the timer tool)
    #[arg(long, value_name = "JSON", value_parser = condition)]
    pub until: Option<serde_json::Value>,
    /// Maximum time to wait
    #[arg(long = "for", value_name = "TIME", default_value = "5m", value_parser = duration::parse)]
    pub time: Millis,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}

const MESSAGES_HELP: &str = "\
Examples:
  abide messages --deliveries               show the delivery attempts of each message
  abide messages resend message_k3v9x2bc    deliver one again with every waker of its agent

As a Stop hook of Claude Code, which wakes an idle conversation (`settings.json`):
  {\"hooks\": {\"Stop\": [{\"hooks\": [{\"type\": \"command\", \"asyncRewake\": true,
    \"timeout\": 86400, \"command\": \"abide messages --hook claude-code\"}]}]}}
It waits while the agent has active timers or running sessions. When messages arrive it prints them
to standard error and exits with code 2; they then count as seen.";

/// Show messages to agents without marking them as seen
#[derive(Debug, Args)]
#[command(after_help = MESSAGES_HELP, args_conflicts_with_subcommands = true)]
pub struct MessagesArgs {
    #[command(subcommand)]
    pub act: Option<MessagesCommand>,
    /// Show only messages that the agent has not seen
    #[arg(long)]
    pub unseen: bool,
    /// Show the delivery attempts of each message
    #[arg(long)]
    pub deliveries: bool,
    /// Wait for new messages
    #[arg(long, short)]
    pub follow: bool,
    /// Maximum number of past messages
    #[arg(long, default_value_t = 20, value_name = "COUNT", value_parser = number::parse::<u16, 1, 1_000>)]
    pub limit: u16,
    /// Act as a hook of this client: wait for messages
    #[arg(long, value_name = "CLIENT", conflicts_with_all = ["unseen", "deliveries", "follow", "json"])]
    pub hook: Option<Hook>,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}

#[derive(Debug, Subcommand)]
pub enum MessagesCommand {
    Resend(ResendArgs),
}

/// Deliver a message to its agent again, seen or not
///
/// Only a person can do this, so that an agent cannot wake itself in a loop.
#[derive(Debug, Args)]
pub struct ResendArgs {
    /// Message id
    pub message: String,
    #[command(flatten)]
    pub json: JsonArg,
}

/// A client with hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Hook {
    /// Claude Code: a Stop hook with asyncRewake
    ClaudeCode,
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

`abide tools --format xml` prints the matching prompt text. Exit codes: 0 no tool answered with an
error, 1 at least one did or was of another host, 2 the text is invalid and nothing was run.";

/// Run the XML tool calls in a model's text and print the results
#[derive(Debug, Args)]
#[command(after_help = CALL_HELP)]
pub struct CallArgs {
    /// File with the text; without it, or with `-`, standard input
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub agent: AgentArg,
    #[command(flatten)]
    pub json: JsonArg,
}
