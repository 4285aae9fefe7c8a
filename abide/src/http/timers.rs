//! Timers for people and programs. These routes mark no message as read.

use std::collections::HashMap;
use std::time::Duration;

use abide_api::arguments::WaitArgs;
use abide_api::{
    Id, ReadTimerResult, TimerDetails, TimerIds, TimerMade, TimerPage, TimerResult, TimerStats,
    TimerStatus, TimerTool, ToolOutput, Waited,
};
use abide_core::request::Caller;
use abide_core::time::Wall;
use abide_core::{Millis, Outcome, Request, TimerId, limit, timer};
use axum::extract::{Path, State as Shared};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::body::{JsonBody, JsonResponse, Query};
use super::problem::Problem;
use super::requester::{self, Requester};
use super::state::State;
use super::{elsewhere, pagination};
use crate::tools::{self, BadInput};
use abide_engine::Handle;
use abide_engine::clock::{Clock, SystemClock, pause};
use abide_engine::probe::{Impossible, Owner, StoredCondition};
use abide_engine::store::{EndedFilter, StoreFault, TimerOrder, TimerQuery, TimerRow};

type TimerResponse = Result<JsonResponse<TimerDetails>, Problem>;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimerListQuery {
    /// If true, timers that have ended are included.
    #[serde(default, deserialize_with = "pagination::flag")]
    include_ended: bool,
    /// States, separated by commas.
    status: Option<String>,
    /// Only timers with this text in their reason, mission or id.
    q: Option<String>,
    #[serde(default)]
    sort: Sort,
    /// Maximum number of timers, 1 to 1000.
    #[serde(default, deserialize_with = "pagination::count")]
    #[schemars(with = "Option<usize>")]
    limit: Option<usize>,
    /// Cursor: `next` of the previous page.
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

/// Lists timers by page. `next` is the `after` of the following page.
pub async fn list(
    Shared(state): Shared<State>,
    requester: Requester,
    Query(query): Query<TimerListQuery>,
) -> Result<JsonResponse<TimerPage>, Problem> {
    let rows = TimerQuery {
        agent: requester.agent.as_ref().map(|agent| agent.0.to_string()),
        statuses: statuses(query.status.as_deref())?,
        ended: match query.include_ended {
            true => EndedFilter::Include,
            false => EndedFilter::Exclude,
        },
        text: query.q,
        order: match query.sort {
            Sort::Created => TimerOrder::Created,
            Sort::Remaining => TimerOrder::Remaining,
            Sort::Status => TimerOrder::Status,
        },
        after: cursor(query.after.as_deref())?,
        limit: pagination::limit(query.limit)?,
    };
    page(&state, &requester, rows).await
}

fn statuses(given: Option<&str>) -> Result<Vec<String>, Problem> {
    let known: Vec<&str> = TimerStatus::ALL
        .iter()
        .map(|status| status.as_str())
        .collect();
    let words = given.into_iter().flat_map(|given| given.split(','));
    words
        .map(|word| match TimerStatus::of(word) {
            Some(_) => Ok(word.to_owned()),
            None => Err(Problem::bad_input(format!(
                "`status` must be one or more of {}; got {}",
                known.join(","),
                tools::shown(word)
            ))),
        })
        .collect()
}

fn cursor(after: Option<&str>) -> Result<Option<TimerId>, Problem> {
    let parsed = after.map(|after| after.parse().map_err(|_| pagination::invalid_cursor(after)));
    parsed.transpose()
}

async fn page(
    state: &State,
    requester: &Requester,
    filter: TimerQuery,
) -> Result<JsonResponse<TimerPage>, Problem> {
    let page = match state.handle.store_reader().timers(filter.clone()).await {
        Err(fault @ StoreFault::Unreadable(_)) => {
            let trouble = state.handle.storage_fault();
            let trouble = trouble.unwrap_or_else(|| fault.to_string());
            let caller = requester.caller();
            let page = known_page(&state.handle, caller, &filter, trouble).await;
            return Ok(JsonResponse(page));
        }
        read => read?,
    };
    let page = page.ok_or_else(|| {
        Problem::bad_input("`after` names a timer that no longer exists; start from the first page")
    })?;
    let next = page.rows.last().filter(|_| page.more);
    let next = next.map(|row| row.id.to_string());
    let timers = timer_details(&state.handle, requester.caller(), &page.rows).await;
    Ok(JsonResponse(TimerPage {
        timers,
        next,
        total: page.total,
        as_of: None,
        trouble: None,
    }))
}

/// Active timers that the daemon knows while the database is away: its own as they are, others as they were read last.
async fn known_page(
    handle: &Handle,
    caller: Caller,
    filter: &TimerQuery,
    trouble: String,
) -> TimerPage {
    let (rows, read) = handle.store_reader().known_timers(filter.agent.as_deref());
    let request = Request::Timer(timer::Request::List {
        asks: false,
        after: None,
        most: limit::TIMERS_LISTED,
    });
    let own = match handle.call(caller, request, None).await.done().await {
        Some(Outcome::Timers(own)) => own,
        _ => Vec::new(),
    };
    let mut timers: Vec<TimerDetails> = (own.iter())
        .map(|timer| {
            let row = rows.iter().find(|row| row.id == timer.id);
            TimerDetails {
                timer: tools::timer_fields(timer, row),
                standing_by: false,
                until: None,
                text: None,
                timeout: None,
            }
        })
        .collect();
    let is_own = |row: &&TimerRow| own.iter().any(|timer| timer.id == row.id);
    let others = rows.iter().filter(|row| !is_own(row));
    timers.extend(others.map(|row| details(handle, row, None)));
    timers.retain(|timer| is_chosen(&timer.timer, filter));
    timers.truncate(filter.limit);
    TimerPage {
        total: timers.len() as u64,
        timers,
        next: None,
        as_of: read.map(|read| read.0),
        trouble: Some(trouble),
    }
}

fn is_chosen(timer: &abide_api::Timer, filter: &TimerQuery) -> bool {
    let status = timer.status.as_str();
    let has_status = match filter.statuses.is_empty() {
        true => filter.ended != EndedFilter::Only,
        false => filter.statuses.iter().any(|wanted| wanted == status),
    };
    let text = filter.text.as_deref().map(pagination::SearchText::new);
    let id = timer.timer_id.0.to_string();
    let purpose = timer.reason.as_deref().or(timer.mission.as_deref());
    let all = [&*id, purpose.unwrap_or_default()];
    has_status && text.is_none_or(|text| all.iter().any(|field| text.is_contained_in(field)))
}

/// Details of timers in their current state.
pub async fn timer_details(
    handle: &Handle,
    caller: Caller,
    rows: &[TimerRow],
) -> Vec<TimerDetails> {
    let live = rows.iter().filter(|row| row.ended.is_none());
    let live: Vec<TimerId> = live.map(|row| row.id).collect();
    let mut observed = HashMap::new();
    if !live.is_empty() {
        observed = self::observed(handle, caller, live).await;
    }
    rows.iter()
        .map(|row| details(handle, row, observed.get(&row.id)))
        .collect()
}

/// Present state of those timers that have not ended.
async fn observed(
    handle: &Handle,
    caller: Caller,
    timers: Vec<TimerId>,
) -> HashMap<TimerId, timer::ObservedTimer> {
    let request = Request::Timer(timer::Request::See { timers });
    let pending = handle.call(caller, request, None).await;
    match pending.done().await {
        Some(Outcome::TimersObserved(all)) => {
            all.into_iter().map(|seen| (seen.timer.id, seen)).collect()
        }
        _ => HashMap::new(),
    }
}

/// Timer as people and programs see it.
fn details(handle: &Handle, row: &TimerRow, seen: Option<&timer::ObservedTimer>) -> TimerDetails {
    let mut timer = match seen {
        Some(seen) => tools::timer_fields(&seen.timer, Some(row)),
        None => tools::timer_row_fields_now(handle, row),
    };
    let until = until(row.condition.as_deref());
    if until.is_some() {
        timer.last_look = handle
            .prober()
            .last_seen(row.id)
            .filter(|observed| !observed.is_empty());
    }
    TimerDetails {
        timer,
        standing_by: seen.is_some_and(|seen| seen.standing_by),
        until,
        text: None,
        timeout: None,
    }
}

/// Condition as it was given, from the stored one.
fn until(stored: Option<&str>) -> Option<Value> {
    let stored = serde_json::from_str::<StoredCondition>(stored?).ok()?;
    Some(tools::written_condition(&stored.condition))
}

pub async fn get(
    Shared(state): Shared<State>,
    requester: Requester,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> TimerResponse {
    let arguments = Map::from_iter([("timer_id".to_owned(), json!(id))]);
    call(&state, &requester, &headers, TimerTool::Read, arguments).await
}

/// Creates a timer and stands by on it; with `timers`, creates several and stands by on none.
pub async fn create(
    Shared(state): Shared<State>,
    requester: Requester,
    headers: HeaderMap,
    JsonBody(mut body): JsonBody,
) -> Result<Response, Problem> {
    if let Some(joined) = elsewhere::joined_timer(&state, &requester, &body).await? {
        return Ok(joined);
    }
    let made = match body.remove("timers") {
        None => {
            let JsonResponse(timer) =
                call(&state, &requester, &headers, TimerTool::Timer, body).await?;
            TimerMade::One(Box::new(timer))
        }
        Some(all) => TimerMade::Many(create_many(&state, &requester, &headers, all).await?),
    };
    Ok(JsonResponse(made).into_response())
}

async fn create_many(
    state: &State,
    requester: &Requester,
    headers: &HeaderMap,
    all: Value,
) -> Result<TimerIds, Problem> {
    let Value::Array(all) = all else {
        return Err(Problem::bad_input("`timers` must be a list of timers"));
    };
    let context = requester::context(requester, headers)?;
    let many = tools::many_timers(all, &context, &state.handle).await?;
    let request = Request::Timer(many);
    let pending = state.handle.call(requester.caller(), request, None).await;
    match pending.done().await {
        None => Err(Problem::stopping()),
        Some(Outcome::TimersMade(ids)) => Ok(TimerIds {
            timer_ids: ids.into_iter().map(Id).collect(),
        }),
        Some(Outcome::Refused(refusal)) => Err(Problem::from(&refusal)),
        Some(_) => Err(Problem::fault("no timer was created")),
    }
}

/// Stops, cancels, pauses or resumes a timer, or stands by on it again.
pub async fn act(
    Shared(state): Shared<State>,
    requester: Requester,
    headers: HeaderMap,
    Path((id, act)): Path<(String, String)>,
    JsonBody(mut body): JsonBody,
) -> TimerResponse {
    let tool = match act.as_str() {
        "stop" => TimerTool::Stop,
        "cancel" => TimerTool::Cancel,
        "pause" => TimerTool::Pause,
        "resume" => TimerTool::Resume,
        "continue" => TimerTool::Timer,
        _ => {
            return Err(Problem::not_found(format!(
                "unknown timer action '{}'; the actions are stop, cancel, pause, resume and continue",
                tools::shown(&act)
            )));
        }
    };
    body.insert("timer_id".into(), json!(id));
    call(&state, &requester, &headers, tool, body).await
}

async fn call(
    state: &State,
    requester: &Requester,
    headers: &HeaderMap,
    tool: TimerTool,
    arguments: Map<String, Value>,
) -> TimerResponse {
    let context = requester::context(requester, headers)?;
    let call =
        tools::begin_quietly(&state.handle, tool, arguments, context, requester.caller()).await;
    let mut call = call?;
    let result = call.to_result().await.ok_or_else(Problem::stopping)?;
    call.into_receipt().delivered();
    if let Some(code) = result.error {
        return Err(Problem::new(code, result.text));
    }
    let timer = match result.output {
        ToolOutput::Timer(timer) => *timer,
        ToolOutput::ReadTimer(ReadTimerResult::One(timer)) => *timer,
        _ => return Err(Problem::fault("no timer was read")),
    };
    Ok(JsonResponse(
        with_details(state, requester, result.text, timer).await,
    ))
}

/// Result of a tool, with further details of the timer: its condition, and if a call stands by on it.
async fn with_details(
    state: &State,
    requester: &Requester,
    text: String,
    result: TimerResult,
) -> TimerDetails {
    let id = result.timer.timer_id.0;
    let mut observed = HashMap::new();
    if result.timer.ended_at.is_none() && !result.is_new {
        observed = self::observed(&state.handle, requester.caller(), vec![id]).await;
    }
    TimerDetails {
        timer: result.timer,
        standing_by: observed.get(&id).is_some_and(|seen| seen.standing_by),
        until: until(result.condition.as_deref()),
        text: Some(text),
        timeout: result.timeout,
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimerHistoryQuery {
    /// Only timers with this text in their reason, mission or id.
    q: Option<String>,
    /// Maximum number of timers, 1 to 1000.
    #[serde(default, deserialize_with = "pagination::count")]
    #[schemars(with = "Option<usize>")]
    limit: Option<usize>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Lists ended timers, newest first.
pub async fn history(
    Shared(state): Shared<State>,
    requester: Requester,
    Query(query): Query<TimerHistoryQuery>,
) -> Result<JsonResponse<TimerPage>, Problem> {
    let filter = TimerQuery {
        agent: requester.agent.as_ref().map(|agent| agent.0.to_string()),
        ended: EndedFilter::Only,
        text: query.q,
        order: TimerOrder::Ended,
        after: cursor(query.after.as_deref())?,
        limit: pagination::limit(query.limit)?,
        ..TimerQuery::default()
    };
    page(&state, &requester, filter).await
}

/// Number of days in the statistics.
pub const DAYS: u64 = 30;
/// Assumed interval of a polling loop, from which the number of saved calls is computed.
const POLL_INTERVAL: Millis = Millis::from_secs(30);

/// Statistics of all timers.
pub async fn stats(
    Shared(state): Shared<State>,
    requester: Requester,
) -> Result<JsonResponse<TimerStats>, Problem> {
    let since = SystemClock.now().wall.0.saturating_sub(DAYS * 86_400_000);
    let agent = requester.agent.as_ref().map(|agent| agent.0.as_ref());
    let store = state.handle.store_reader();
    let stats = store.timer_stats(agent, Wall(since), POLL_INTERVAL).await?;
    Ok(JsonResponse(stats))
}

/// Waits until a condition holds, while the client stays connected. Nothing is stored.
pub async fn wait(
    Shared(state): Shared<State>,
    requester: Requester,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<JsonResponse<Waited>, Problem> {
    let context = requester::context(&requester, &headers)?;
    let WaitArgs { until, r#for: time } = WaitArgs::read(body, "this request")?;
    let until = until.ok_or_else(|| BadInput::about("until", "is required; got nothing."))?;
    let time = time.ok_or_else(|| BadInput::about("for", "is required; got nothing."))?;
    let condition = tools::read_condition(until.0, &context, &state.handle).await?;
    // For an agent, its own sessions are the candidates that may open a port. A person may wait for a
    // port that another program opens, so there are no candidates.
    let since = requester.agent.as_ref().map(|_| SystemClock.now().wall);
    let root = tools::limiting_root(&context);
    let owner = Owner::wait(context.agent, context.conversation, root, since);
    let (probe, observed) = state.handle.prober().wait_for(condition, owner);
    let decided = tokio::select! {
        decided = probe => Some(decided),
        () = pause(Duration::from_millis(time.0.0)) => None,
    };
    let satisfied = matches!(decided, Some(Ok(_)));
    let impossible = matches!(decided, Some(Err(_)));
    let seen = match decided {
        Some(Ok(seen) | Err(Impossible { reason: seen, .. })) => seen,
        None => observed.last(),
    };
    Ok(JsonResponse(Waited {
        held: satisfied,
        seen,
        impossible: impossible.then_some(true),
    }))
}
