//! Timers for people and programs: no message is taken along the way.

use std::collections::HashMap;
use std::time::Duration;

use abide_core::request::Caller;
use abide_core::time::Wall;
use abide_core::{Millis, Outcome, Request, TimerId, timer};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State as Shared};
use axum::http::HeaderMap;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::body::{JsonBody, query};
use super::problem::Problem;
use super::tools::{context, environment_for};
use super::who::Who;
use super::{State, listing, wire};
use crate::tools::{self, Args, NotCalled};
use abide_engine::Handle;
use abide_engine::clock::{Clock, SystemClock, pause};
use abide_engine::config;
use abide_engine::probe::{Impossible, Owner};
use abide_engine::store::{EndedFilter, StoreFault, TimerOrder, TimerQuery, TimerRow};

type Answer = Result<Json<Map<String, Value>>, Problem>;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Whether those that have ended are wanted too.
    #[serde(default, deserialize_with = "listing::flag")]
    include_ended: bool,
    /// States, with commas between them.
    status: Option<String>,
    /// Only those with this in their reason, their mission or their id.
    q: Option<String>,
    #[serde(default)]
    sort: Sort,
    /// At most so many, 1 to 1000.
    #[serde(default, deserialize_with = "listing::count")]
    #[schemars(with = "Option<usize>")]
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Sort {
    #[default]
    Created,
    Remaining,
    Status,
}

/// Timers, a page at a time. `next` is the `after` of the following page.
pub async fn list(
    Shared(state): Shared<State>,
    who: Who,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let wanted = query(wanted)?;
    let rows = TimerQuery {
        agent: who.agent.as_ref().map(|agent| agent.0.to_string()),
        statuses: statuses(wanted.status.as_deref())?,
        ended: match wanted.include_ended {
            true => EndedFilter::Include,
            false => EndedFilter::Exclude,
        },
        text: wanted.q,
        order: match wanted.sort {
            Sort::Created => TimerOrder::Created,
            Sort::Remaining => TimerOrder::Remaining,
            Sort::Status => TimerOrder::Status,
        },
        after: cursor(wanted.after.as_deref())?,
        limit: listing::limit(wanted.limit)?,
    };
    page(&state, &who, rows).await
}

const STATUSES: [&str; 5] = [
    "running",
    "running_background",
    "paused",
    "completed",
    "stopped",
];

fn statuses(given: Option<&str>) -> Result<Vec<String>, Problem> {
    let words = given.into_iter().flat_map(|given| given.split(','));
    words
        .map(|word| match STATUSES.contains(&word) {
            true => Ok(word.to_owned()),
            false => Err(Problem::bad_input(format!(
                "`status` must be one or more of {}; got {}",
                STATUSES.join(","),
                tools::shown(word)
            ))),
        })
        .collect()
}

fn cursor(after: Option<&str>) -> Result<Option<TimerId>, Problem> {
    let parsed = after.map(|after| after.parse().map_err(|_| listing::no_place(after)));
    parsed.transpose()
}

async fn page(state: &State, who: &Who, wanted: TimerQuery) -> Result<Json<Value>, Problem> {
    let handle = state.handle.clone();
    let page = aside(move || handle.store_reader().timers(&wanted)).await?;
    let page = page.ok_or_else(|| {
        Problem::bad_input("`after` names a timer that no longer exists; start from the first page")
    })?;
    let next = page.rows.last().filter(|_| page.more);
    let next = next.map(|row| row.id.to_string());
    let timers = seen(&state.handle, who.caller(), &page.rows).await;
    Ok(Json(
        json!({"timers": timers, "next": next, "total": page.total}),
    ))
}

/// Timers as they stand now, told with their texts.
pub async fn seen(handle: &Handle, caller: Caller, rows: &[TimerRow]) -> Vec<Map<String, Value>> {
    let live = rows.iter().filter(|row| row.ended.is_none());
    let live: Vec<TimerId> = live.map(|row| row.id).collect();
    let mut standing = HashMap::new();
    if !live.is_empty() {
        let request = Request::Timer(timer::Request::See { timers: live });
        let pending = handle.call(caller, request, None).await;
        if let Some(Outcome::TimersSeen(all)) = pending.done().await {
            standing.extend(all.into_iter().map(|seen| (seen.timer.id, seen)));
        }
    }
    rows.iter()
        .map(|row| facts(handle, row, standing.get(&row.id)))
        .collect()
}

/// Everything that is said of a timer.
fn facts(handle: &Handle, row: &TimerRow, seen: Option<&timer::Seen>) -> Map<String, Value> {
    let mut facts = match seen {
        Some(seen) => tools::timer_facts(&seen.timer, Some(row)),
        None => tools::timer_row_facts(row),
    };
    let standing_by = seen.is_some_and(|seen| seen.standing_by);
    facts.insert("standing_by".into(), json!(standing_by));
    let until = row.condition.as_deref();
    let until = until.and_then(|text| serde_json::from_str(text).ok());
    let until = until.as_ref().map(tools::written_condition);
    if until.is_some()
        && let Some(saw) = handle
            .prober()
            .last_seen(row.id)
            .filter(|saw| !saw.is_empty())
    {
        facts.insert("last_look".into(), json!(saw));
    }
    facts.insert("until".into(), json!(until));
    facts
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
    let env = config::environment();
    let context = context(
        env.into(),
        who.agent.clone(),
        who.may_be_a_person(),
        headers,
    )?;
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
        Some(_) => Err(Problem::fault("no timer was created")),
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
        _ => return Err(Problem::not_found(format!("unknown timer action '{act}'"))),
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
    let alone = tool == "timer" && makes_one_for_nobody(headers, &arguments);
    let env = environment_for(tool, &arguments);
    let context = context(env, who.agent.clone(), who.may_be_a_person(), headers)?;
    let call = tools::begin_quietly(&state.handle, tool, arguments, context, who.caller()).await;
    let mut call = call.map_err(|not_called| match not_called {
        NotCalled::UnknownTool(..) => Problem::not_found(not_called.to_string()),
        NotCalled::BadInput(bad) => Problem::bad_input(bad.0),
    })?;
    let result = call.to_result().await.ok_or_else(Problem::stopping)?;
    call.into_receipt().delivered();
    match result.is_error {
        true if result.text.contains("not found") => Err(Problem::not_found(result.text)),
        true if result.text.starts_with("storage_full") => Err(Problem::storage_full(result.text)),
        true => Err(Problem::conflict(result.text)),
        false if alone => Ok(Json(surrounded(result.facts, Map::new()))),
        false => Ok(Json(with_surroundings(state, who, result.facts).await)),
    }
}

/// Whether this makes a timer of which all is known when it is made: a mission without a condition, on which
/// nobody can stand by yet. Under a key there may be one already.
fn makes_one_for_nobody(headers: &HeaderMap, arguments: &Map<String, Value>) -> bool {
    let plain = ["mission", "total_duration", "timeout_duration"];
    arguments.contains_key("mission")
        && arguments.keys().all(|name| plain.contains(&name.as_str()))
        && !headers.contains_key(wire::KEY_HEADER)
}

/// What is said of every timer here, besides what its tool says: its condition, and whether a call
/// stands by on it.
async fn with_surroundings(
    state: &State,
    who: &Who,
    told: Map<String, Value>,
) -> Map<String, Value> {
    let id = told.get("timer_id").and_then(Value::as_str);
    let id = id.and_then(|id| id.parse::<TimerId>().ok());
    let row = id.and_then(|id| state.handle.store_reader().timer(id).ok().flatten());
    let facts = match row {
        Some(row) => seen(&state.handle, who.caller(), &[row]).await.pop(),
        None => None,
    };
    surrounded(told, facts.unwrap_or_default())
}

fn surrounded(mut told: Map<String, Value>, mut facts: Map<String, Value>) -> Map<String, Value> {
    for (name, otherwise) in [("standing_by", json!(false)), ("until", Value::Null)] {
        told.insert(name.into(), facts.remove(name).unwrap_or(otherwise));
    }
    told
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Past {
    /// Only those with this in their reason, their mission or their id.
    q: Option<String>,
    /// At most so many, 1 to 1000.
    #[serde(default, deserialize_with = "listing::count")]
    #[schemars(with = "Option<usize>")]
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Timers that have ended, the newest first.
pub async fn history(
    Shared(state): Shared<State>,
    who: Who,
    past: Result<Query<Past>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let past = query(past)?;
    let wanted = TimerQuery {
        agent: who.agent.as_ref().map(|agent| agent.0.to_string()),
        ended: EndedFilter::Only,
        text: past.q,
        order: TimerOrder::Ended,
        after: cursor(past.after.as_deref())?,
        limit: listing::limit(past.limit)?,
        statuses: Vec::new(),
    };
    page(&state, &who, wanted).await
}

/// Days that are told of.
const DAYS: u64 = 30;
/// How often a loop would look that has nothing to wait with.
const LOOKS_EVERY: Millis = Millis::from_secs(30);

/// Statistics of all timers.
pub async fn stats(Shared(state): Shared<State>, who: Who) -> Result<Json<Value>, Problem> {
    let since = SystemClock.now().wall.0.saturating_sub(DAYS * 86_400_000);
    let (stats, days, saved) = aside(move || {
        let agent = who.agent.as_ref().map(|agent| agent.0.as_ref());
        let reader = state.handle.store_reader();
        Ok((
            reader.stats(agent)?,
            reader.timer_days(agent, Wall(since))?,
            reader.calls_saved(agent, LOOKS_EVERY)?,
        ))
    })
    .await?;
    let days: Vec<Value> = days
        .into_iter()
        .map(|day| {
            json!({
                "day": day.day,
                "completed": day.completed,
                "stopped": day.stopped,
                "waited": day.waited.0 as f64 / 1_000.0,
            })
        })
        .collect();
    Ok(Json(json!({
        "made": stats.made,
        "running": stats.running,
        "completed_by_time": stats.by_time,
        "completed_by_condition": stats.by_condition,
        "completed_by_impossible": stats.by_impossible,
        "stopped": stats.stopped,
        "elapsed_total": stats.elapsed.0 as f64 / 1_000.0,
        "latest": stats.latest.0 as f64 / 1_000.0,
        "days": days,
        "calls_saved": saved,
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
    let env = config::environment();
    let context = context(
        env.into(),
        who.agent.clone(),
        who.may_be_a_person(),
        &headers,
    )?;
    let mut args = Args::new(body);
    let until = args.any("until");
    let time = args.seconds("for")?;
    args.finish("until, for")?;
    let until = until.ok_or_else(|| Problem::bad_input("`until` is required; got nothing."))?;
    let time = time.ok_or_else(|| Problem::bad_input("`for` is required; got nothing."))?;
    let condition = tools::condition(until, &context, &state.handle)?;
    // A person may wait for what others start; of an agent the sessions are known that could.
    let since = who.agent.as_ref().map(|_| SystemClock.now().wall);
    let owner = Owner::wait(context.agent.clone(), since);
    let look = state.handle.prober().wait_for(condition, owner);
    let saw = look.last_seen();
    let decided = tokio::select! {
        decided = look => Some(decided),
        () = pause(Duration::from_millis(time.0)) => None,
    };
    let held = matches!(decided, Some(Ok(_)));
    let impossible = matches!(decided, Some(Err(_)));
    let seen = match decided {
        Some(Ok(seen) | Err(Impossible(seen))) => seen,
        None => saw.last(),
    };
    let mut waited = Map::from_iter([
        ("held".to_owned(), json!(held)),
        ("seen".to_owned(), json!(seen)),
    ]);
    if impossible {
        waited.insert("impossible".into(), json!(true));
    }
    Ok(Json(waited))
}
