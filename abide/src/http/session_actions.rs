//! Actions on a session: kill, rename, extend, signal, resize, input, delete.

use abide_api::arguments::LimitArgs;
use abide_api::{Rename, Session, WrittenBytes};
use abide_core::{Event, Outcome, Request, SessionId};
use axum::body::Body;
use axum::extract::{Path, State as Shared};
use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::broadcast::error::RecvError;

use super::State;
use super::body::{JsonBody, JsonResponse, Query};
use super::problem::Problem;
use super::requester::Requester;
use super::run_request::PtySize;
use super::sessions::{session_from, session_name};
use crate::keys;
use crate::signals;
use crate::tools;
use abide_engine::SessionView;
use abide_engine::screen::Size;
use abide_session::daemon_record::RequestName;
use abide_session::frame::{InputKey, ToKeeper};

type SessionResponse = Result<JsonResponse<Session>, Problem>;

/// Kills the process tree of the session and responds when the tree is gone; conflict if a process survives.
pub async fn kill(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
) -> SessionResponse {
    let session = requester.session(&state, &id)?.id;
    let request = Request::Kill {
        session,
        end: requester.end(),
    };
    call_engine(&state, &requester, request).await?;
    let view = requester.session(&state, &id)?;
    match view.is_alive() {
        false => Ok(JsonResponse(session_from(&view))),
        true => Err(Problem::conflict(tools::survives_kill(session))),
    }
}

/// Deletes an ended session with its log. Responds with the session as it was.
pub async fn delete(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
) -> SessionResponse {
    requester.refuse_agent("delete a session")?;
    let view = requester.session(&state, &id)?;
    if view.is_alive() {
        return Err(Problem::conflict(format!(
            "Session '{id}' is still running; kill it first"
        )));
    }
    let session = view.id;
    let handle = state.handle.clone();
    let removed = tokio::task::spawn_blocking(move || handle.keepers().remove(session));
    if let Err(fault) = removed.await?
        && fault.kind() != std::io::ErrorKind::NotFound
    {
        return Err(Problem::fault(format!("cannot delete the log: {fault}")));
    }
    let sessions = vec![session];
    state.handle.send_event(Event::Forgotten { sessions }).await;
    Ok(JsonResponse(session_from(&view)))
}

/// Gives a session another name, or none.
pub async fn rename(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
    body: JsonBody,
) -> SessionResponse {
    let Rename { name } = body.into()?;
    let name = session_name(name.as_deref())?;
    let session = requester.session(&state, &id)?.id;
    let renamed = state.handle.rename_session(session, name).await;
    renamed.map_err(|fault| Problem::fault(format!("cannot store the name: {fault}")))?;
    Ok(JsonResponse(session_from(
        &*requester.session(&state, &id)?,
    )))
}

/// Changes the deadline and the idle limit, counted from now.
pub async fn extend(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> SessionResponse {
    let view = requester.session(&state, &id)?;
    let session = view.id;
    check_not_inside(&requester, &view).await?;
    let args = LimitArgs::read(body, "this tool")?;
    let deadline = args.timeout.map(|time| time.0);
    let idle = args.idle.map(|time| time.0);
    if deadline.is_none() && idle.is_none() {
        let detail = "`timeout` or `idle` is required";
        return Err(Problem::bad_input(detail));
    }
    let request = Request::Extend {
        session,
        deadline,
        idle,
        inactivity: None,
    };
    call_engine(&state, &requester, request).await?;
    Ok(JsonResponse(session_from(
        &*requester.session(&state, &id)?,
    )))
}

/// Refuses a request from inside the session: a command must not change its own limits.
pub async fn check_not_inside(requester: &Requester, view: &SessionView) -> Result<(), Problem> {
    match requester.is_inside(view).await {
        false => Ok(()),
        true => Err(Problem::forbidden(tools::OWN_LIMITS)),
    }
}

async fn call_engine(
    state: &State,
    requester: &Requester,
    request: Request,
) -> Result<Outcome, Problem> {
    let pending = state.handle.call(requester.caller(), request, None).await;
    match pending.done().await {
        None => Err(Problem::stopping()),
        Some(Outcome::Refused(refusal)) => Err(Problem::from(&refusal)),
        Some(outcome) => Ok(outcome),
    }
}

/// Sends a signal to the foreground process group.
pub async fn signal(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> SessionResponse {
    let view = requester.session(&state, &id)?;
    let number = signals::number(body.get("signal")).ok_or_else(|| {
        let given = body.get("signal").unwrap_or(&Value::Null);
        Problem::bad_input(format!(
            "`signal` must be a name such as \"INT\" or a number from 1 to 64; got {given}"
        ))
    })?;
    let once = body.get("key").and_then(Value::as_str);
    let once = once.map(checked_key).transpose()?;
    let request = RequestName::new("signal", once.as_deref());
    let record = state.handle.daemon_record(view.id);
    if view.is_running() {
        record.begin_request(&request);
        let keepers = state.handle.keepers();
        keepers.send(view.id, &ToKeeper::Signal { number, once });
    } else if !record.has_begun(&request) {
        return Err(session_ended(view.id));
    }
    Ok(JsonResponse(session_from(&view)))
}

/// Resizes the session's terminal.
pub async fn resize(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
    body: JsonBody,
) -> SessionResponse {
    let view = requester.session(&state, &id)?;
    let PtySize { cols, rows } = body.into()?;
    if !view.pty {
        return Err(Problem::conflict(format!("Session '{id}' has no terminal")));
    }
    check_running(&view)?;
    resize_terminal(&state, view.id, Size { cols, rows }).await?;
    Ok(JsonResponse(session_from(&view)))
}

/// Resizes a terminal; a size outside the supported range is clamped.
pub async fn resize_terminal(state: &State, id: SessionId, size: Size) -> std::io::Result<()> {
    let screens = state.handle.screens();
    let size = (Some(size.cols), Some(size.rows));
    let Size { cols, rows } = screens.resize(id, size).await?;
    let keepers = state.handle.keepers();
    keepers.send(id, &ToKeeper::Resize { cols, rows });
    Ok(())
}

/// Longest idempotency key of input, in bytes.
const KEY_LIMIT: usize = 256;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InputQuery {
    /// If true, the command reads end of file after these bytes.
    #[serde(default)]
    eof: bool,
    /// Idempotency key: bytes that are sent again with the same key are not written twice.
    key: Option<String>,
}

fn checked_key(key: &str) -> Result<Vec<u8>, Problem> {
    if key.len() > KEY_LIMIT {
        return Err(Problem::bad_input(format!(
            "`key` must have at most {KEY_LIMIT} bytes"
        )));
    }
    Ok(key.as_bytes().to_vec())
}

/// Streams the request body to the command's input, no faster than the command reads it.
pub async fn input(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
    Query(InputQuery { eof, key }): Query<InputQuery>,
    body: Body,
) -> Result<JsonResponse<WrittenBytes>, Problem> {
    let key = key.as_deref().map(checked_key).transpose()?;
    let view = requester.session(&state, &id)?;
    let _activity = state.handle.keep_active(requester.caller(), view.id).await;
    let mut written = 0;
    let once = |from: usize| {
        let (key, from) = (key.clone()?, from as u64);
        Some(InputKey { key, from })
    };
    let mut parts = body.into_data_stream();
    while let Some(part) = parts.next().await {
        let part = part.map_err(|_| Problem::bad_input("cannot read the body"))?;
        check_running(&*requester.session(&state, &id)?)?;
        write_input(&state, view.id, &part, once(written)).await?;
        written += part.len();
    }
    if eof && view.pty {
        // Typed like the rest, so that a request that is sent again does not type it twice.
        write_input(&state, view.id, keys::END_OF_FILE, once(written)).await?;
    } else if eof {
        state.handle.keepers().send(view.id, &ToKeeper::CloseInput);
    }
    Ok(JsonResponse(WrittenBytes { written }))
}

/// Writes bytes to the command's input, as fast as the command reads them.
pub async fn write_input(
    state: &State,
    id: SessionId,
    bytes: &[u8],
    once: Option<InputKey>,
) -> Result<(), Problem> {
    let keepers = state.handle.keepers();
    tokio::select! {
        written = keepers.input(id, bytes, once) => written.map_err(|_| session_ended(id)),
        // If the session ends, the write would never complete.
        () = until_session_ends(state, id) => Err(session_ended(id)),
    }
}

async fn until_session_ends(state: &State, id: SessionId) {
    let mut changes = state.handle.published().follow();
    while state
        .handle
        .published()
        .session(id)
        .is_some_and(|view| view.is_running())
    {
        if let Err(RecvError::Closed) = changes.recv().await {
            return;
        }
    }
}

fn check_running(view: &SessionView) -> Result<(), Problem> {
    if view.is_running() {
        return Ok(());
    }
    Err(session_ended(view.id))
}

fn session_ended(id: SessionId) -> Problem {
    Problem::from(&abide_core::Refusal::SessionEnded(id))
}
