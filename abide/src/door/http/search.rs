//! One pattern over the logs of all sessions, the newest first.

use std::sync::Arc;

use abide_core::Millis;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State as Shared};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::query;
use super::problem::Problem;
use super::who::Who;
use super::{State, listing};
use crate::daemon::{Handle, SessionView};
use crate::door::digest::rows;
use crate::door::mask::Mask;
use crate::world::clock::{Clock, SystemClock};
use crate::world::log::Log;
use crate::world::search::{self, Pattern};

/// How long it may take in all; what is left by then is not searched, and that is said.
const PATIENCE: Millis = Millis::from_secs(5);
/// Characters of a line that are shown.
const CHARS: usize = 400;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// A regular expression.
    pattern: String,
    /// At most so many lines, 1 to 1000.
    #[serde(default, deserialize_with = "listing::count")]
    #[schemars(with = "Option<usize>")]
    limit: Option<usize>,
}

pub async fn search(
    Shared(state): Shared<State>,
    who: Who,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let wanted = query(wanted)?;
    let most = listing::limit(wanted.limit)?;
    let pattern = Pattern::new(&wanted.pattern)
        .map_err(|bad| Problem::bad_input(format!("`pattern` cannot be used: {bad}")))?;
    let mut views = state.handle.board().sessions();
    views.retain(|view| view.visible_to(who.agent.as_ref()));
    views.sort_by_key(|view| std::cmp::Reverse((view.state.created, view.id)));
    let handle = state.handle.clone();
    let found = tokio::task::spawn_blocking(move || through(&handle, &views, &pattern, most));
    let (matches, truncated) = found
        .await
        .map_err(|fault| Problem::fault(fault.to_string()))?;
    Ok(Json(json!({"matches": matches, "truncated": truncated})))
}

/// The matching lines, and whether there may be more.
fn through(
    handle: &Handle,
    views: &[Arc<SessionView>],
    pattern: &Pattern,
    most: usize,
) -> (Vec<Value>, bool) {
    let end = SystemClock.now().mono + PATIENCE;
    let late = || SystemClock.now().mono >= end;
    let mut matches = Vec::new();
    for view in views {
        if matches.len() >= most || late() {
            return (matches, true);
        }
        let wanted = search::Search {
            pattern: pattern.clone(),
            context: 0,
            most: most - matches.len(),
        };
        // A log that is removed meanwhile holds nothing any more.
        let Ok(found) = search::search(&Log::open(&view.folder), &wanted, late) else {
            continue;
        };
        let given = handle.given(view.id);
        let pairs = given
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let mask = Mask::new(pairs);
        let brought = found.lines.len() as u64;
        matches.extend(found.lines.iter().map(|line| {
            let text = rows(&line.text, CHARS).join(" ");
            json!({
                "session_id": view.id.to_string(),
                "command": view.state.command.as_ref(),
                "line": line.number,
                "text": mask.apply(text),
            })
        }));
        if found.stopped || found.matches > brought {
            return (matches, true);
        }
    }
    (matches, false)
}
