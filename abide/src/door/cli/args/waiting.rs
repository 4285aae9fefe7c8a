//! Timers, waits, messages and calls in text, as they are typed.

use std::path::PathBuf;

use abide_core::Millis;
use clap::{Args, Subcommand, ValueEnum};

use super::super::span;
use super::{Agent, Json};

/// Start timers that survive everything, and see what becomes of them
#[derive(Debug, Subcommand)]
pub enum Timer {
    Start(TimerStart),
    Read(TimerRead),
    /// End a timer for good; it tells nobody
    Stop(TimerAct),
    /// Stop waiting for a timer; it runs on and tells by a message
    Cancel(TimerAct),
    Pause(TimerPause),
    /// Let a paused timer go on now
    Resume(TimerAct),
    List(TimerList),
    History(TimerHistory),
    Stats(TimerStats),
}

const TIMER_START_HELP: &str = "\
Examples:
  abide timer start 10m --reason 'the build'              stand by until it completes
  abide timer start 10m --reason 'the build' --standby 1m stand by for a minute at most
  abide timer start 2h --mission 'look at the logs'       come back later
  abide timer start 5m --reason server --until '{\"port\": 3000}'

Exit codes: 0 it completed (a mission: it was made), 1 the standby ended first, 2 it makes no sense
and none was made, 3 it was stopped, cancelled or paused meanwhile.";

const TIMER_START_USAGE: &str = "\
abide timer start <TIME> --reason <TEXT> [OPTIONS]
       abide timer start <TIME> --mission <TEXT> [OPTIONS]";

/// Start a timer
#[derive(Debug, Args)]
#[command(after_help = TIMER_START_HELP, override_usage = TIMER_START_USAGE)]
#[group(id = "purpose", required = true, multiple = false, args = ["reason", "mission"])]
pub struct TimerStart {
    /// How long it runs in all
    #[arg(value_name = "TIME", value_parser = span::parse)]
    pub total: Millis,
    /// What is waited for; stands by
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// What is to be done later; returns at once
    #[arg(long, value_name = "TEXT")]
    pub mission: Option<String>,
    /// Stand by for at most this long; the timer runs on
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    pub standby: Option<Millis>,
    /// Complete early, the moment this holds (JSON, as for the tool)
    #[arg(long, value_name = "JSON", value_parser = condition)]
    pub until: Option<serde_json::Value>,
    #[command(flatten)]
    pub agent: Agent,
    #[command(flatten)]
    pub json: Json,
}

fn condition(text: &str) -> Result<serde_json::Value, String> {
    serde_json::from_str(text).map_err(|fault| format!("not JSON: {fault}"))
}

/// Show one timer, or all that have not ended
#[derive(Debug, Args)]
pub struct TimerRead {
    /// Which timer; without it, all that have not ended
    pub timer: Option<String>,
    #[command(flatten)]
    pub agent: Agent,
    #[command(flatten)]
    pub json: Json,
}

/// Do this to a timer
#[derive(Debug, Args)]
pub struct TimerAct {
    /// Which timer
    pub timer: String,
    /// Why; whoever stands by is told
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    #[command(flatten)]
    pub agent: Agent,
    #[command(flatten)]
    pub json: Json,
}

/// Let nothing elapse for a while; it goes on by itself
#[derive(Debug, Args)]
pub struct TimerPause {
    /// Which timer
    pub timer: String,
    /// For how long
    #[arg(value_name = "TIME", value_parser = span::parse)]
    pub time: Millis,
    /// Why; whoever stands by is told
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    #[command(flatten)]
    pub agent: Agent,
    #[command(flatten)]
    pub json: Json,
}

/// Show the timers that have not ended
#[derive(Debug, Args)]
pub struct TimerList {
    #[command(flatten)]
    pub agent: Agent,
    #[command(flatten)]
    pub json: Json,
}

/// Show the timers that have ended, the newest first
#[derive(Debug, Args)]
pub struct TimerHistory {
    /// At most so many
    #[arg(long, default_value_t = 20, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub limit: u16,
    #[command(flatten)]
    pub agent: Agent,
    #[command(flatten)]
    pub json: Json,
}

/// Show what all timers come to
#[derive(Debug, Args)]
pub struct TimerStats {
    #[command(flatten)]
    pub agent: Agent,
    #[command(flatten)]
    pub json: Json,
}

const WAIT_HELP: &str = "\
Examples:
  abide wait --port 3000 --for 5m
  abide wait --url http://localhost:3000/health --for 30s
  abide wait --file build/done --for 1h
  abide wait --file app.log --matches 'listening on' --for 1m
  abide wait --session session_k3v9x2bc --for 10m
  abide wait --command 'pg_isready -q' --for 1m

Several conditions must hold at one time. Exit codes: 0 it holds, 1 the time ran out or it can no
longer hold, 2 it makes no sense.";

const WAIT_USAGE: &str = "abide wait [OPTIONS] <--port <PORT>|--url <URL>|…>";

/// Wait until something holds
#[derive(Debug, Args)]
#[command(after_help = WAIT_HELP, override_usage = WAIT_USAGE)]
#[group(id = "what", required = true, multiple = true, args = ["port", "url", "file", "session", "command", "until"])]
pub struct Wait {
    /// Somebody listens at this port, such as 3000 or host:3000
    #[arg(long, value_name = "PORT")]
    pub port: Option<String>,
    /// This address answers with success
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// With --url: with this status
    #[arg(long, value_name = "CODE", requires = "url")]
    pub status: Option<u16>,
    /// With --url: with this in its body
    #[arg(long, value_name = "REGEX", requires = "url")]
    pub body: Option<String>,
    /// This file is there
    #[arg(long, value_name = "PATH")]
    pub file: Option<String>,
    /// With --file: it is `present`, `gone` or `changed`
    #[arg(long, value_name = "STATE", requires = "file")]
    pub is: Option<String>,
    /// With --file: this is in it
    #[arg(long, value_name = "REGEX", requires = "file")]
    pub matches: Option<String>,
    /// This session has ended
    #[arg(long, value_name = "SESSION")]
    pub session: Option<String>,
    /// With --session: it has written this
    #[arg(long, value_name = "REGEX", requires = "session")]
    pub output: Option<String>,
    /// This command ends with code 0
    #[arg(long, value_name = "COMMAND")]
    pub command: Option<String>,
    /// With --command: try it this often
    #[arg(long, value_name = "TIME", requires = "command", value_parser = span::parse)]
    pub every: Option<Millis>,
    /// This holds (JSON, as for the timer tool)
    #[arg(long, value_name = "JSON", value_parser = condition)]
    pub until: Option<serde_json::Value>,
    /// For how long at most
    #[arg(long = "for", value_name = "TIME", default_value = "5m", value_parser = span::parse)]
    pub time: Millis,
    #[command(flatten)]
    pub agent: Agent,
    #[command(flatten)]
    pub json: Json,
}

const MESSAGES_HELP: &str = "\
Examples:
  abide messages --deliveries               and what came of bringing them to their agents
  abide messages resend message_k3v9x2bc    bring one again, by every waker of its agent

As a hook of Claude Code, which wakes an idle session with its messages (`settings.json`):
  {\"hooks\": {\"Stop\": [{\"hooks\": [{\"type\": \"command\", \"asyncRewake\": true,
    \"timeout\": 86400, \"command\": \"abide messages --hook claude-code\"}]}]}}
It waits while the agent has timers or sessions that run, and ends with exit code 2 and the
messages on standard error as soon as there are some. That counts as seen.";

/// Show the messages that agents were sent; looking takes none away
#[derive(Debug, Args)]
#[command(after_help = MESSAGES_HELP, args_conflicts_with_subcommands = true)]
pub struct Messages {
    #[command(subcommand)]
    pub act: Option<MessagesAct>,
    /// Only those that their agent has not seen
    #[arg(long)]
    pub unseen: bool,
    /// Show what came of bringing each to its agent
    #[arg(long)]
    pub deliveries: bool,
    /// Stay and show those that come
    #[arg(long, short)]
    pub follow: bool,
    /// At most so many of the past
    #[arg(long, default_value_t = 20, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub limit: u16,
    /// Wait for messages as a hook of this client
    #[arg(long, value_name = "CLIENT", conflicts_with_all = ["unseen", "deliveries", "follow", "json"])]
    pub hook: Option<Hook>,
    #[command(flatten)]
    pub agent: Agent,
    #[command(flatten)]
    pub json: Json,
}

#[derive(Debug, Subcommand)]
pub enum MessagesAct {
    Resend(Resend),
}

/// Bring a message to its agent again, seen or not
///
/// Only a person can: wakers have a budget so that no agent wakes itself for ever.
#[derive(Debug, Args)]
pub struct Resend {
    /// Which message
    pub message: String,
    #[command(flatten)]
    pub json: Json,
}

/// Clients that run hooks.
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
