//! Search in the logs of all sessions.

use std::collections::BTreeMap;

use abide_core::SessionId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Id;

/// A page of lines that match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Matches")]
pub struct MatchPage {
    /// Lines, those of the newest session first; those of other machines follow, machine by machine.
    pub matches: Vec<Match>,
    /// True if there may be more.
    pub truncated: bool,
    /// `after` of the next page, if there may be more.
    pub next: Option<String>,
    /// Sessions whose logs could not be read, and the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unreadable: BTreeMap<String, String>,
    /// Machines of the fleet that could not be searched, and the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unreachable: BTreeMap<String, String>,
}

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Match {
    /// Session whose log has the line.
    pub session_id: Id<SessionId>,
    /// Command of the session.
    pub command: String,
    /// Number of the line, from 1.
    pub line: u64,
    /// The line as plain text.
    pub text: String,
    /// Machine of the fleet that has the session, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}
