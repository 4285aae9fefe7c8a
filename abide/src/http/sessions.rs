//! Sessions, as lists and one by one. The fields have the same names as in tool results.

use std::sync::Arc;

use abide_api::{ScreenPaint, Session, SessionPage, TerminalSessionResult, ToolOutput};
use abide_core::session::Phase;
use abide_core::{Millis, SessionId, Wall};
use axum::extract::{Path, State as Shared};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::body::{JsonBody, JsonResponse, Query};
use super::problem::Problem;
use super::requester::{self, Requester};
use super::state::State;
use super::{pagination, session_activity};
use crate::fleet;
use crate::tools::{self, leftovers, recount_output, session_status, session_summary};
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::{Handle, SessionView};
use abide_output::mask::Mask;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionQuery {
    /// If true, sessions that have ended are included.
    #[serde(default, deserialize_with = "pagination::flag")]
    include_ended: bool,
    /// If true, the last lines of output and the resource usage of running sessions are included.
    #[serde(default, deserialize_with = "pagination::flag")]
    tails: bool,
    /// Only sessions with this text in their command, id, name or agent.
    q: Option<String>,
    /// Maximum number of sessions, 1 to 1000.
    #[serde(default, deserialize_with = "pagination::count")]
    #[schemars(with = "Option<usize>")]
    limit: Option<usize>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Lists sessions, newest first. `next` is the `after` of the following page.
pub async fn list(
    Shared(state): Shared<State>,
    requester: Requester,
    Query(query): Query<SessionQuery>,
) -> Result<JsonResponse<SessionPage>, Problem> {
    let limit = pagination::limit(query.limit)?;
    let mut views = state.handle.published().sessions();
    let text = query.q.as_deref().map(pagination::SearchText::new);
    views.retain(|view| {
        let seen = view.visible_to(requester.agent.as_ref());
        seen && (query.include_ended || view.is_alive())
            && text.as_ref().is_none_or(|text| matches_text(view, text))
    });
    let agent = requester.agent.as_ref();
    let mut elsewhere = fleet::sessions(&state.handle, agent, query.include_ended).await;
    elsewhere.retain(|session| {
        text.as_ref()
            .is_none_or(|text| elsewhere_matches_text(session, text))
    });
    let here = views.into_iter().map(Listed::Here);
    let elsewhere = elsewhere.into_iter().map(Box::new).map(Listed::Elsewhere);
    let mut listed: Vec<Listed> = here.chain(elsewhere).collect();
    let total = listed.len();
    listed.sort_by_key(|session| std::cmp::Reverse(session.key()));
    if let Some(after) = &query.after {
        let last = listed_after(&state, &requester, after).await?;
        listed.retain(|session| session.key() < last);
    }
    let more = listed.len() > limit;
    listed.truncate(limit);
    let next = listed
        .last()
        .filter(|_| more)
        .map(|session| session.key().1.to_string());
    Ok(JsonResponse(SessionPage {
        sessions: shown(&state, &requester, listed, query.tails).await,
        next,
        total,
    }))
}

/// Session of a list.
enum Listed {
    Here(Arc<SessionView>),
    /// Session of another machine.
    Elsewhere(Box<Session>),
}

impl Listed {
    fn key(&self) -> (Wall, SessionId) {
        match self {
            Listed::Here(view) => sort_key(view),
            Listed::Elsewhere(session) => key_elsewhere(session),
        }
    }
}

fn key_elsewhere(session: &Session) -> (Wall, SessionId) {
    (Wall(session.created_at), session.summary.session_id.0)
}

/// Sort key of the session at which the previous page ended.
async fn listed_after(
    state: &State,
    requester: &Requester,
    after: &str,
) -> Result<(Wall, SessionId), Problem> {
    if let Ok(view) = requester.session(state, after) {
        return Ok(sort_key(&view));
    }
    let invalid = || pagination::invalid_cursor(after);
    let id = after.parse().map_err(|_| invalid())?;
    let known = fleet::known_session(&state.handle, requester.agent.as_ref(), id).await;
    known.as_ref().map(key_elsewhere).ok_or_else(invalid)
}

/// Fields of the sessions of a page.
async fn shown(
    state: &State,
    requester: &Requester,
    listed: Vec<Listed>,
    tails: bool,
) -> Vec<Session> {
    let views = listed.iter().filter_map(|session| match session {
        Listed::Here(view) => Some(view.clone()),
        Listed::Elsewhere(_) => None,
    });
    let views: Vec<_> = views.collect();
    let here: Vec<Session> = match tails {
        false => (views.iter())
            .map(|view| session_for(state, requester, view))
            .collect(),
        true => with_activity(state, requester, &views).await,
    };
    let mut here = here.into_iter();
    let sessions = listed.into_iter().filter_map(|session| match session {
        Listed::Here(_) => here.next(),
        Listed::Elsewhere(session) => Some(*session),
    });
    sessions.collect()
}

fn elsewhere_matches_text(session: &Session, text: &pagination::SearchText) -> bool {
    let machine = session.machine.as_deref().unwrap_or_default();
    let name = session.name.as_deref().unwrap_or_default();
    let id = session.summary.session_id.0.to_string();
    let all = [&session.command, &session.agent, machine, name, &id];
    all.iter().any(|field| text.is_contained_in(field))
}

fn matches_text(view: &SessionView, text: &pagination::SearchText) -> bool {
    let state = &view.state;
    text.is_contained_in(&state.command)
        || text.is_contained_in(&view.id.to_string())
        || text.is_contained_in(&state.agent.0)
        || (view.name.as_ref()).is_some_and(|name| text.is_contained_in(name.as_str()))
}

/// Sessions, with a summary of output and usage for each that runs.
async fn with_activity(
    state: &State,
    requester: &Requester,
    views: &[Arc<SessionView>],
) -> Vec<Session> {
    let running: Vec<_> = views
        .iter()
        .filter(|view| view.is_running())
        .cloned()
        .collect();
    let mut activities = session_activity::activities(&state.handle, running).await;
    let add_activity = |view: &Arc<SessionView>| Session {
        live_activity: activities.remove(&view.id),
        ..session_for(state, requester, view)
    };
    views.iter().map(add_activity).collect()
}

/// Sort key: creation time, then the id.
pub fn sort_key(view: &SessionView) -> (Wall, SessionId) {
    (view.state.created, view.id)
}

pub async fn get(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
) -> Result<JsonResponse<Session>, Problem> {
    let view = requester.session(&state, &id)?;
    let mut session = session_for(&state, &requester, &view);
    recount_output(&view, &mut session.summary);
    Ok(JsonResponse(session))
}

/// Snapshot of a session's screen: bytes that draw it on an empty terminal, and the log offset at which it was taken.
pub async fn paint(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
) -> Result<JsonResponse<ScreenPaint>, Problem> {
    let view = requester.session(&state, &id)?;
    if !view.pty {
        return Err(Problem::conflict(format!("Session '{id}' has no terminal")));
    }
    let (folded, offset) = state.handle.screens().paint(view.id).await?;
    Ok(JsonResponse(ScreenPaint {
        paint: String::from_utf8_lossy(folded.paint()).into_owned(),
        cols: folded.size().cols,
        rows: folded.size().rows,
        offset,
    }))
}

/// Starts a session with a terminal. A person may start one on behalf of an agent.
pub async fn start(
    Shared(state): Shared<State>,
    requester: Requester,
    headers: HeaderMap,
    JsonBody(mut body): JsonBody,
) -> Result<Response, Problem> {
    let named = match body.remove("agent") {
        None | Some(Value::Null) => None,
        Some(Value::String(name)) => {
            let named = requester::agent(name.as_bytes())?;
            Some(state.handle.agent_called(&named.0))
        }
        Some(other) => {
            let detail = format!("`agent` must be a name; got {other}");
            return Err(Problem::bad_input(detail));
        }
    };
    let name = match body.remove("name") {
        None | Some(Value::Null) => None,
        Some(Value::String(name)) => requester::session_name(Some(&name))?,
        Some(other) => {
            let detail = format!("`name` must be text; got {other}");
            return Err(Problem::bad_input(detail));
        }
    };
    if let (Some(named), Some(me)) = (&named, &requester.agent)
        && named != me
    {
        return Err(Problem::forbidden(
            "an agent can only start its own sessions",
        ));
    }
    let mut context = requester::context(&requester, &headers)?;
    context.agent = named.unwrap_or(context.agent);
    // The workspace of a sandbox that a person asks for is the folder of the command, as with `abide run`.
    if context.is_person
        && let Some(Value::String(cwd)) = body.get("cwd")
        && cwd.starts_with('/')
    {
        context.root = cwd.into();
    }
    context.session_name = name.or(context.session_name);
    let call = tools::begin_session(&state.handle, body, context).await;
    let call = call.map_err(|bad| Problem::bad_input(bad.to_string()))?;
    let result = call.result_only().await.ok_or_else(Problem::stopping)?;
    if let Some(code) = result.error {
        return Err(Problem::new(code, result.text));
    }
    let id = match result.output {
        ToolOutput::TerminalSession(TerminalSessionResult::Session(state)) => {
            state.session.session_id.0
        }
        _ => return Err(Problem::fault("no session was started")),
    };
    let view = requester.session(&state, &id.to_string())?;
    let started = JsonResponse(session_for(&state, &requester, &view));
    let location = [(header::LOCATION, format!("/v1/sessions/{id}"))];
    Ok((StatusCode::CREATED, location, started).into_response())
}

/// Session as a requester sees it. An agent is the way in of a model, so its secrets are masked.
pub fn session_for(state: &State, requester: &Requester, view: &SessionView) -> Session {
    let session = session_from(view);
    match requester.agent {
        None => session,
        Some(_) => masked(&state.handle, session),
    }
}

/// Session with its secrets masked.
pub fn masked(handle: &Handle, mut session: Session) -> Session {
    let mask = Mask::of(handle.secrets(session.summary.session_id.0));
    session.command = mask.apply(session.command);
    session.error = session.error.map(|error| mask.apply(error));
    for process in &mut session.summary.still_running {
        process.command = mask.apply(std::mem::take(&mut process.command));
    }
    session
}

/// Session as people see it.
pub fn session_from(view: &SessionView) -> Session {
    let mut summary = session_summary(view, false);
    let _ = leftovers(view, &mut summary);
    let state = &view.state;
    let last_activity = view.last_activity().0;
    Session {
        summary,
        status: session_status(view, false),
        command: state.command.to_string(),
        name: view.name.as_ref().map(ToString::to_string),
        agent: state.agent.0.to_string(),
        created_at: state.created.0,
        ended_at: view.ended_at().map(|ended| ended.0),
        cwd: view.cwd.to_string_lossy().into_owned(),
        pty: view.pty,
        timeout: view.deadline.map(Millis::as_secs_f64),
        idle: state.idle.map(Millis::as_secs_f64),
        inactivity_timeout: state.inactivity.map(Millis::as_secs_f64),
        last_activity,
        idle_for: view.is_running().then(|| {
            let idle = SystemClock.now().wall.0.saturating_sub(last_activity);
            Millis(idle).as_secs_f64()
        }),
        error: match &state.phase {
            Phase::Failed { fault, .. } => Some(fault.to_string()),
            _ => None,
        },
        machine: None,
        as_of: None,
        live_activity: None,
    }
}
