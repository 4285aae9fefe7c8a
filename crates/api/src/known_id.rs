//! Ids that a word typed by a person may stand for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Ids that a word may stand for, newest first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct KnownIds {
    /// The newest of them.
    pub ids: Vec<KnownId>,
    /// Number of all of them.
    pub total: usize,
}

/// An id, and what it belongs to.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct KnownId {
    /// The whole id.
    pub id: String,
    /// Name of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Command, reason, mission or question.
    pub about: String,
    /// True for a session that has ended, with all its processes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
}
