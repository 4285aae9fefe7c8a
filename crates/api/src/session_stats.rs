//! Statistics of sessions: outcomes by day and by agent.

use schemars::JsonSchema;
use serde::Serialize;

/// Number of ended sessions by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SessionOutcomes {
    /// Sessions with exit code 0.
    pub succeeded: u64,
    /// Sessions with another exit code, killed by a foreign signal or by the OOM killer, or failed to start.
    pub failed: u64,
    /// Sessions ended by a limit, a person or their agent.
    pub stopped: u64,
    /// Sessions whose ending is unknown.
    pub lost: u64,
}

/// Statistics of all sessions that are kept.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SessionStats {
    /// Sessions that run.
    pub running: u64,
    /// Outcomes of the ended ones.
    pub outcomes: SessionOutcomes,
    /// Seconds that the ended ones ran, added up.
    pub run_total: f64,
    /// Bytes of output of the ended ones.
    pub bytes_total: u64,
    /// The last 30 days on which sessions ended, oldest first.
    pub days: Vec<SessionDay>,
    /// Agents, the one with most sessions first.
    pub agents: Vec<AgentSessions>,
}

/// Sessions that ended on one day (UTC).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SessionDay {
    /// Date, such as `2026-11-15`.
    pub day: String,
    /// Outcomes of that day.
    pub outcomes: SessionOutcomes,
}

/// Sessions of one agent.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AgentSessions {
    /// Name of the agent.
    pub agent: String,
    /// Running sessions of the agent.
    pub running: u64,
    /// Outcomes of the ended ones.
    pub outcomes: SessionOutcomes,
    /// Seconds that the ended ones ran, added up.
    pub run_total: f64,
}
