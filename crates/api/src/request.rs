//! Bodies of HTTP requests.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// A timer to be made, or with `timer_id` to be stood by on again; with `timers` many to be made.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct NewTimer {
    /// Seconds that the timer runs in all.
    pub total_duration: Option<f64>,
    /// Seconds that this call stands by at most.
    pub timeout_duration: Option<f64>,
    /// Thing that is waited for.
    pub reason: Option<String>,
    /// Task for the time after completion, instead of a reason.
    pub mission: Option<String>,
    /// A timer that exists.
    pub timer_id: Option<String>,
    /// Condition that ends the timer early, as for the tool `timer`.
    pub until: Option<BTreeMap<String, Value>>,
    /// A request repeated with the same key makes no second timer.
    pub idempotency_key: Option<String>,
    /// Many timers, on none of which this call stands by.
    pub timers: Option<Vec<NewTimer>>,
}

/// A person's answer to a question.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "Answer")]
pub struct QuestionAnswer {
    /// `yes` or `no`. About a command: `once` (or `yes`), `this agent`, `always here`, `always` or `no`, as far as the
    /// question offers them.
    pub answer: String,
    /// With `no` about a command: words for the agent.
    pub because: Option<String>,
    /// With `yes`: seconds for which not to ask about this session again.
    pub quiet_for: Option<f64>,
}

/// A session to be started, with a terminal unless `pty` is false.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct NewSession {
    /// The command line, as for `bash -c`.
    pub command: String,
    /// Working directory. Default: the home directory.
    pub cwd: Option<String>,
    /// Name of the session: one word. The newest session with a name is meant by it.
    pub name: Option<String>,
    /// Agent that owns the session; only a person names another.
    pub agent: Option<String>,
    /// Variables to set, in addition to the inherited ones.
    pub env: Option<BTreeMap<String, String>>,
    /// Sandbox of the command, `read-only` or `workspace-write`. A person's command has none without it, and its
    /// workspace is `cwd`; an agent's has that of the configuration.
    pub sandbox: Option<String>,
    /// True if the command has a terminal.
    pub pty: Option<bool>,
    /// Columns of the terminal.
    pub cols: Option<u16>,
    /// Rows of the terminal.
    pub rows: Option<u16>,
    /// Seconds without output, input or a reader after which the session is closed; 0: never.
    pub inactivity_timeout: Option<f64>,
    /// A request repeated with the same key starts nothing.
    pub idempotency_key: Option<String>,
}

/// Another name of a session.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// Name, one word; `null` or empty: none.
    pub name: Option<String>,
}

/// A signal.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "Signal")]
pub struct SignalRequest {
    /// A name such as `INT`, or a number from 1 to 64.
    pub signal: Value,
    /// A request repeated with the same key sends no second signal.
    pub key: Option<String>,
}

/// An action on a timer.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "TimerAct")]
pub struct TimerAction {
    /// Reason, shown to the call that stands by.
    pub reason: Option<String>,
    /// With `pause`: seconds until the timer goes on by itself.
    pub pause_duration: Option<f64>,
    /// With `continue`: seconds that this call stands by at most.
    pub timeout_duration: Option<f64>,
    /// With `continue`: seconds that shall remain.
    pub total_duration: Option<f64>,
}
