//! Sessions, as lists and one by one. The fields are called what they are called in tool results.

use std::path::Path as FilePath;
use std::time::UNIX_EPOCH;

use abide_core::SessionId;
use abide_core::session::Phase;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State as Shared};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::State;
use super::body::query;
use super::problem::Problem;
use super::who::Who;
use crate::daemon::SessionView;
use crate::door::tools::{leftovers, session_facts};
use crate::keeper::log::LOG_FOLDER;

/// Sessions in one answer where the request names no limit.
const PAGE: usize = 100;
/// The most it may name.
const PAGE_LIMIT: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listing {
    #[serde(default)]
    include_ended: bool,
    limit: Option<usize>,
    after: Option<String>,
}

/// The newest first. `next` is the `after` of the following page.
pub async fn list(
    Shared(state): Shared<State>,
    who: Who,
    listing: Result<Query<Listing>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let listing = query(listing)?;
    let limit = listing.limit.unwrap_or(PAGE);
    if !(1..=PAGE_LIMIT).contains(&limit) {
        return Err(Problem::bad_input(format!(
            "`limit` must be 1 to {PAGE_LIMIT}; got {limit}"
        )));
    }
    let mut views = state.handle.board().sessions();
    views.retain(|view| {
        view.visible_to(who.agent.as_ref()) && (listing.include_ended || is_alive(view))
    });
    views.sort_by_key(|view| std::cmp::Reverse(place(view)));
    if let Some(after) = &listing.after {
        let last = who.session(&state, after)?;
        views.retain(|view| place(view) < place(&last));
    }
    let more = views.len() > limit;
    views.truncate(limit);
    let next = views
        .last()
        .filter(|_| more)
        .map(|view| view.id.to_string());
    let sessions: Vec<Value> = views
        .iter()
        .map(|view| Value::Object(facts(view)))
        .collect();
    Ok(Json(json!({"sessions": sessions, "next": next})))
}

/// Order of creation; the id decides between those of the same moment.
fn place(view: &SessionView) -> (abide_core::Wall, SessionId) {
    (view.state.created, view.id)
}

/// Whether anything of it still runs.
fn is_alive(view: &SessionView) -> bool {
    !matches!(view.state.phase, Phase::Ended { .. } | Phase::Failed { .. })
}

pub async fn one(
    Shared(state): Shared<State>,
    who: Who,
    Path(id): Path<String>,
) -> Result<Json<Map<String, Value>>, Problem> {
    Ok(Json(facts(&*who.session(&state, &id)?)))
}

/// Everything that is said of a session.
pub fn facts(view: &SessionView) -> Map<String, Value> {
    let mut facts = session_facts(view, false);
    let _ = leftovers(view, &mut facts);
    let state = &view.state;
    facts.insert("command".into(), json!(state.command.as_ref()));
    facts.insert("agent".into(), json!(state.agent.0.as_ref()));
    facts.insert("created_at".into(), json!(state.created.0));
    facts.insert("cwd".into(), json!(view.cwd.to_string_lossy()));
    facts.insert("pty".into(), json!(view.pty));
    facts.insert(
        "idle".into(),
        json!(state.idle.map(|idle| idle.0 as f64 / 1_000.0)),
    );
    facts.insert("last_activity".into(), json!(last_activity(view)));
    if let Phase::Failed { fault } = &state.phase {
        facts.insert("error".into(), json!(fault.as_ref()));
    }
    facts
}

/// When it last showed life, in Unix milliseconds. What has ended is remembered; only for what runs
/// the disk is asked.
fn last_activity(view: &SessionView) -> u64 {
    let created = view.state.created.0;
    match (&view.state.phase, view.ending()) {
        (Phase::Ended { .. }, Some(ending)) => created.saturating_add(ending.duration.0),
        (Phase::Failed { .. }, _) => created,
        _ => last_written(&view.folder).unwrap_or(0).max(created),
    }
}

/// When output was last written, in Unix milliseconds.
fn last_written(folder: &FilePath) -> Option<u64> {
    let files = std::fs::read_dir(folder.join(LOG_FOLDER)).ok()?;
    let times = files
        .flatten()
        .filter_map(|file| file.metadata().ok()?.modified().ok());
    let newest = times.max()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(newest.as_millis()).ok()
}
