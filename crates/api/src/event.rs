//! Events of the page that have no type elsewhere.

use abide_core::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Id, LiveActivity};

/// First event of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Hello {
    /// Version of the daemon.
    pub version: &'static str,
    /// Process id of the daemon.
    pub pid: u32,
    /// Start of the daemon, in Unix milliseconds.
    pub started_at: u64,
    /// Clock of the daemon, in Unix milliseconds.
    pub now: u64,
}

/// Activity of a running session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionPulse {
    /// Id of the session.
    pub session_id: Id<SessionId>,
    /// Bytes written so far.
    pub bytes_total: u64,
    /// Last sign of life, in Unix milliseconds.
    pub last_activity: u64,
    #[serde(flatten)]
    pub live_activity: LiveActivity,
}
