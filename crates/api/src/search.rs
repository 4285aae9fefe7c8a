//! Search in the logs of all sessions.

use std::collections::BTreeMap;

use abide_core::SessionId;
use schemars::JsonSchema;
use serde::Serialize;

use crate::Id;

/// A page of lines that match.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Matches")]
pub struct MatchPage {
    /// Lines, those of the newest session first.
    pub matches: Vec<Match>,
    /// True if there may be more.
    pub truncated: bool,
    /// `after` of the next page, if there may be more.
    pub next: Option<String>,
    /// Sessions whose logs could not be read, and the reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unreadable: BTreeMap<String, String>,
}

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Match {
    /// Session whose log has the line.
    pub session_id: Id<SessionId>,
    /// Command of the session.
    pub command: String,
    /// Number of the line, from 1.
    pub line: u64,
    /// The line as plain text.
    pub text: String,
}
