//! Timers for people and programs: no message is taken along the way.

use std::time::Duration;

use abide_core::{Outcome, Request};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State as Shared};
use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::State;
use super::body::{JsonBody, query};
use super::problem::Problem;
use super::tools::context;
use super::who::Who;
use crate::door::tools::{self, Args, NotCalled};
use crate::world::clock::pause;
use crate::world::store::{StoreFault, Which};

type Answer = Result<Json<Map<String, Value>>, Problem>;

/// Rows of the past at once.
const MOST: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listing {
    #[serde(default)]
    include_ended: bool,
}

pub async fn list(
    Shared(state): Shared<State>,
    who: Who,
    headers: HeaderMap,
    listing: Result<Query<Listing>, QueryRejection>,
) -> Answer {
    let Listing { include_ended } = query(listing)?;
    let arguments = Map::from_iter([("include_ended".to_owned(), json!(include_ended))]);
    call(&state, &who, &headers, "read_timer", arguments).await
}

pub async fn one(
    Shared(state): Shared<State>,
    who: Who,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Answer {
    let arguments = Map::from_iter([("timer_id".to_owned(), json!(id))]);
    call(&state, &who, &headers, "read_timer", arguments).await
}

/// Makes a timer and stands by on it, or with `timers` many at once and stands by on none.
pub async fn make(
    Shared(state): Shared<State>,
    who: Who,
    headers: HeaderMap,
    JsonBody(mut body): JsonBody,
) -> Answer {
    match body.remove("timers") {
        None => call(&state, &who, &headers, "timer", body).await,
        Some(all) => make_many(&state, &who, &headers, all).await,
    }
}

async fn make_many(state: &State, who: &Who, headers: &HeaderMap, all: Value) -> Answer {
    let Value::Array(all) = all else {
        return Err(Problem::bad_input("`timers` must be a list of timers"));
    };
    let context = context(who.agent.clone(), who.may_be_a_person(), headers)?;
    let many = tools::many_timers(all, &context, &state.handle)?;
    let request = Request::Timer(many);
    let pending = state.handle.call(who.caller(), request, None).await;
    match pending.done().await {
        None => Err(Problem::stopping()),
        Some(Outcome::TimersMade(ids)) => {
            let ids: Vec<Value> = ids.iter().map(|id| json!(id.to_string())).collect();
            Ok(Json(Map::from_iter([(
                "timer_ids".to_owned(),
                Value::Array(ids),
            )])))
        }
        Some(Outcome::Refused(refusal)) => Err(Problem::from(&refusal)),
        Some(_) => Err(Problem::fault("the timers were not made")),
    }
}

/// Stops, cancels, pauses or resumes.
pub async fn act(
    Shared(state): Shared<State>,
    who: Who,
    headers: HeaderMap,
    Path((id, act)): Path<(String, String)>,
    JsonBody(mut body): JsonBody,
) -> Answer {
    let tool = match act.as_str() {
        "stop" => "stop_timer",
        "cancel" => "cancel_timer",
        "pause" => "pause_timer",
        "resume" => "resume_timer",
        "continue" => "timer",
        _ => return Err(Problem::not_found(format!("timers know no act '{act}'"))),
    };
    body.insert("timer_id".into(), json!(id));
    call(&state, &who, &headers, tool, body).await
}

async fn call(
    state: &State,
    who: &Who,
    headers: &HeaderMap,
    tool: &str,
    arguments: Map<String, Value>,
) -> Answer {
    let context = context(who.agent.clone(), who.may_be_a_person(), headers)?;
    let call = tools::begin_quietly(&state.handle, tool, arguments, context, who.caller()).await;
    let mut call = call.map_err(|not_called| match not_called {
        NotCalled::UnknownTool(..) => Problem::not_found(not_called.to_string()),
        NotCalled::BadInput(bad) => Problem::bad_input(bad.0),
    })?;
    let result = call.to_result().await.ok_or_else(Problem::stopping)?;
    call.into_receipt().delivered();
    match result.is_error {
        true if result.text.contains("not found") => Err(Problem::not_found(result.text)),
        true => Err(Problem::conflict(result.text)),
        false => Ok(Json(result.facts)),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Past {
    limit: Option<usize>,
}

/// Timers that have ended, the newest first.
pub async fn history(
    Shared(state): Shared<State>,
    who: Who,
    past: Result<Query<Past>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let most = query(past)?.limit.unwrap_or(100).min(MOST);
    let rows = aside(move || {
        let agent = who.agent.as_ref().map(|agent| agent.0.as_ref());
        state.handle.past().ended(Which { agent, most })
    });
    let rows: Vec<Value> = rows
        .await?
        .iter()
        .map(|row| Value::Object(tools::timer_row_facts(row)))
        .collect();
    Ok(Json(json!({"timers": rows})))
}

/// What all timers come to.
pub async fn stats(Shared(state): Shared<State>, who: Who) -> Result<Json<Value>, Problem> {
    let stats = aside(move || {
        let agent = who.agent.as_ref().map(|agent| agent.0.as_ref());
        state.handle.past().stats(agent)
    })
    .await?;
    Ok(Json(json!({
        "made": stats.made,
        "running": stats.running,
        "completed_by_time": stats.by_time,
        "completed_by_condition": stats.by_condition,
        "stopped": stats.stopped,
        "elapsed_total": stats.elapsed.0 as f64 / 1_000.0,
        "latest": stats.latest.0 as f64 / 1_000.0,
    })))
}

/// What reads many rows does so on a thread of its own.
async fn aside<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, StoreFault> + Send + 'static,
) -> Result<T, Problem> {
    let read = tokio::task::spawn_blocking(read).await;
    let read = read.map_err(|e| Problem::fault(e.to_string()))?;
    read.map_err(|e| Problem::fault(e.to_string()))
}

/// Waits until something holds, for as long as the caller stays. Nothing of it is kept.
pub async fn wait(
    Shared(state): Shared<State>,
    who: Who,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Answer {
    let context = context(who.agent.clone(), who.may_be_a_person(), &headers)?;
    let mut args = Args::new(body);
    let until = args.any("until");
    let time = args.seconds("for")?;
    args.finish("until, for")?;
    let until = until.ok_or_else(|| Problem::bad_input("`until` is required; got nothing."))?;
    let time = time.ok_or_else(|| Problem::bad_input("`for` is required; got nothing."))?;
    let condition = tools::condition(until, &context, &state.handle)?;
    let look = state.handle.prober().look(condition);
    let saw = look.saw();
    let held = tokio::select! {
        seen = look => Some(seen),
        () = pause(Duration::from_millis(time.0)) => None,
    };
    let seen = held.clone().unwrap_or_else(|| saw.last());
    Ok(Json(Map::from_iter([
        ("held".to_owned(), json!(held.is_some())),
        ("seen".to_owned(), json!(seen)),
    ])))
}
