//! Sessions, as lists and one by one. The fields are called what they are called in tool results.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use abide_core::session::Phase;
use abide_core::{Millis, SessionId};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State as Shared};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::body::{JsonBody, query};
use super::problem::Problem;
use super::tools::context;
use super::who::{self, Who};
use super::{State, glance, listing};
use crate::tools::{self, count_again, leftovers, session_facts};
use abide_engine::SessionView;
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::config;
use abide_session::log::LOG_FOLDER;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Whether those that have ended are wanted too.
    #[serde(default, deserialize_with = "listing::flag")]
    include_ended: bool,
    /// Whether the last lines of what runs are wanted, and what the kernel knows of it.
    #[serde(default, deserialize_with = "listing::flag")]
    tails: bool,
    /// Only those with this in their command, their id or their agent's name.
    q: Option<String>,
    /// At most so many, 1 to 1000.
    #[serde(default, deserialize_with = "listing::count")]
    #[schemars(with = "Option<usize>")]
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// The newest first. `next` is the `after` of the following page.
pub async fn list(
    Shared(state): Shared<State>,
    who: Who,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let wanted = query(wanted)?;
    let limit = listing::limit(wanted.limit)?;
    let mut views = state.handle.published().sessions();
    let text = wanted.q.as_deref().map(listing::Text::new);
    views.retain(|view| {
        let seen = view.visible_to(who.agent.as_ref());
        seen && (wanted.include_ended || is_alive(view))
            && text.as_ref().is_none_or(|text| is_about(view, text))
    });
    let total = views.len();
    views.sort_by_key(|view| std::cmp::Reverse(place(view)));
    if let Some(after) = &wanted.after {
        let last = who.session(&state, after);
        let last = last.map_err(|_| listing::no_place(after))?;
        views.retain(|view| place(view) < place(&last));
    }
    let more = views.len() > limit;
    views.truncate(limit);
    let next = views
        .last()
        .filter(|_| more)
        .map(|view| view.id.to_string());
    let sessions = match wanted.tails {
        false => views.iter().map(|view| facts(view)).collect(),
        true => with_glances(&state, &views).await,
    };
    Ok(Json(
        json!({"sessions": sessions, "next": next, "total": total}),
    ))
}

fn is_about(view: &SessionView, text: &listing::Text) -> bool {
    let state = &view.state;
    text.is_in(&state.command) || text.is_in(&view.id.to_string()) || text.is_in(&state.agent.0)
}

/// Sessions with a glance at each that runs.
async fn with_glances(state: &State, views: &[Arc<SessionView>]) -> Vec<Map<String, Value>> {
    let running: Vec<_> = views
        .iter()
        .filter(|view| view.is_running())
        .cloned()
        .collect();
    let mut glances = glance::at_all(&state.handle, running).await;
    let mut all = Vec::with_capacity(views.len());
    for view in views {
        let mut facts = facts(view);
        if let Some(glance) = glances.remove(&view.id) {
            glance.add_to(&mut facts);
        }
        all.push(facts);
    }
    all
}

/// Order of creation; the id decides between those of the same moment.
pub fn place(view: &SessionView) -> (abide_core::Wall, SessionId) {
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
    let view = who.session(&state, &id)?;
    let mut facts = facts(&view);
    count_again(&view, &mut facts);
    Ok(Json(facts))
}

/// Starts a session with a terminal. A person may start one for an agent.
pub async fn start(
    Shared(state): Shared<State>,
    who: Who,
    headers: HeaderMap,
    JsonBody(mut body): JsonBody,
) -> Result<Response, Problem> {
    let named = match body.remove("agent") {
        None | Some(Value::Null) => None,
        Some(Value::String(name)) => Some(who::agent(name.as_bytes())?),
        Some(other) => {
            let detail = format!("`agent` must be a name; got {other}");
            return Err(Problem::bad_input(detail));
        }
    };
    if let (Some(named), Some(me)) = (&named, &who.agent)
        && named != me
    {
        return Err(Problem::forbidden(
            "an agent can only start its own sessions",
        ));
    }
    let agent = named.or(who.agent.clone());
    let context = context(
        config::environment().into(),
        agent,
        who.may_be_a_person(),
        &headers,
    )?;
    body.insert("action".into(), json!("start"));
    let call = tools::begin(&state.handle, "terminal_session", body, context).await;
    let call = call.map_err(|not_called| Problem::bad_input(not_called.to_string()))?;
    let result = call.result_only().await.ok_or_else(Problem::stopping)?;
    if result.is_error {
        return Err(Problem::conflict(result.text));
    }
    let id = result.facts["session_id"].as_str().unwrap_or_default();
    let started = Json(facts(&*who.session(&state, id)?));
    let place = [(header::LOCATION, format!("/v1/sessions/{id}"))];
    Ok((StatusCode::CREATED, place, started).into_response())
}

/// Everything that is said of a session.
pub fn facts(view: &SessionView) -> Map<String, Value> {
    let mut facts = session_facts(view, false);
    let _ = leftovers(view, &mut facts);
    let state = &view.state;
    facts.insert("command".into(), json!(state.command.as_ref()));
    facts.insert("agent".into(), json!(state.agent.0.as_ref()));
    facts.insert("created_at".into(), json!(state.created.0));
    if let Some(ended) = view.ended_at() {
        facts.insert("ended_at".into(), json!(ended.0));
    }
    facts.insert("cwd".into(), json!(view.cwd.to_string_lossy()));
    facts.insert("pty".into(), json!(view.pty));
    let seconds = |limit: Option<Millis>| limit.map(|limit| limit.0 as f64 / 1_000.0);
    facts.insert("timeout".into(), json!(seconds(view.deadline)));
    facts.insert("idle".into(), json!(seconds(state.idle)));
    facts.insert(
        "inactivity_timeout".into(),
        json!(seconds(state.inactivity)),
    );
    let last = last_activity(view);
    facts.insert("last_activity".into(), json!(last));
    let idle_for = view
        .is_running()
        .then(|| SystemClock.now().wall.0.saturating_sub(last) as f64 / 1_000.0);
    facts.insert("idle_for".into(), json!(idle_for));
    if let Phase::Failed { fault, .. } = &state.phase {
        facts.insert("error".into(), json!(fault.as_ref()));
    }
    facts
}

/// When it last showed life, in Unix milliseconds. What has ended is remembered; only for what runs
/// the disk is asked.
fn last_activity(view: &SessionView) -> u64 {
    match (is_alive(view), view.ended_at()) {
        (false, Some(ended)) => ended.0,
        _ => last_written(&view.folder)
            .unwrap_or(0)
            .max(view.state.created.0),
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
