//! Actions on a session: kill, rename, extend, signal, resize, input, delete.

use abide_api::arguments::{BadInput, LimitArgs, SizeArgs};
use abide_api::{Killed, Rename, Session, ToolOutput, WrittenBytes};
use abide_core::session::Phase;
use abide_core::{Event, SessionId};
use axum::body::Body;
use axum::extract::{Path, State as Shared};
use axum::http::HeaderMap;
use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::broadcast::error::RecvError;

use super::body::{JsonBody, JsonResponse, Query};
use super::headers::KEY_HEADER;
use super::problem::Problem;
use super::requester::{self, Requester};
use super::sessions::session_for;
use super::state::State;
use crate::keys;
use crate::tools::{self, SessionControl};
use abide_engine::SessionView;
use abide_session::frame::{InputKey, ToKeeper};

type SessionResponse = Result<JsonResponse<Session>, Problem>;

/// Kills the process tree of the session and responds when the tree is gone; conflict if a process survives. A command
/// that waits for the answer of a person is withdrawn.
pub async fn kill(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
) -> Result<JsonResponse<Killed>, Problem> {
    if let Ok(session) = id.parse()
        && let Some(withdrawn) =
            tools::withdraw(&state.handle, requester.caller(), session, requester.end()).await?
        && let ToolOutput::NotStarted(withdrawn) = withdrawn.output
    {
        return Ok(JsonResponse(Killed::Withdrawn(*withdrawn)));
    }
    let view = requester.session(&state, &id)?;
    let killed = control(&state, &requester, &view);
    let killed = killed.kill(requester.end()).await?;
    match killed.is_alive() {
        false => {
            let session = session_for(&state, &requester, &killed);
            Ok(JsonResponse(Killed::Session(Box::new(session))))
        }
        true => Err(Problem::conflict(tools::survives_kill(killed.id))),
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
    Ok(JsonResponse(session_for(&state, &requester, &view)))
}

/// Gives a session another name, or none.
pub async fn rename(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
    body: JsonBody,
) -> SessionResponse {
    let Rename { name } = body.into()?;
    let name = requester::session_name(name.as_deref())?;
    let session = requester.session(&state, &id)?.id;
    let renamed = state.handle.rename_session(session, name).await;
    renamed.map_err(|fault| Problem::fault(format!("cannot store the name: {fault}")))?;
    let view = requester.session(&state, &id)?;
    Ok(JsonResponse(session_for(&state, &requester, &view)))
}

/// Changes the limits, counted from now.
pub async fn extend(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> SessionResponse {
    let view = requester.session(&state, &id)?;
    check_not_inside(&requester, &view).await?;
    let limits = tools::read_extend(LimitArgs::read(body, "this request")?)?;
    control(&state, &requester, &view).extend(&limits).await?;
    let view = requester.session(&state, &id)?;
    Ok(JsonResponse(session_for(&state, &requester, &view)))
}

/// Refuses a request from inside the session: a command must not change its own limits.
pub async fn check_not_inside(requester: &Requester, view: &SessionView) -> Result<(), Problem> {
    match requester.is_inside(view).await {
        false => Ok(()),
        true => Err(Problem::forbidden(tools::OWN_LIMITS)),
    }
}

fn control<'a>(
    state: &'a State,
    requester: &Requester,
    view: &'a SessionView,
) -> SessionControl<'a> {
    SessionControl {
        handle: &state.handle,
        caller: requester.caller(),
        view,
    }
}

/// Sends a signal to the foreground process group.
pub async fn signal(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> SessionResponse {
    let view = requester.session(&state, &id)?;
    let number = tools::read_signal(body.get("signal"))?;
    let key = request_key(body.get("key").and_then(Value::as_str), &headers)?;
    let control = control(&state, &requester, &view);
    control.signal(number, key.as_deref()).await?;
    Ok(JsonResponse(session_for(&state, &requester, &view)))
}

/// Resizes the session's terminal.
pub async fn resize(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> SessionResponse {
    let view = requester.session(&state, &id)?;
    let SizeArgs { cols, rows } = SizeArgs::read(body, "this request")?;
    // The casts lose nothing: the argument types have the bounds of a screen.
    let (cols, rows) = (
        cols.map(|cols| cols.0 as u16),
        rows.map(|rows| rows.0 as u16),
    );
    if cols.or(rows).is_none() {
        let sentence = "`cols` or `rows` is required: there is no size to give.";
        return Err(BadInput::new(sentence.into()).into());
    }
    let control = control(&state, &requester, &view);
    control.resize(cols, rows).await?;
    Ok(JsonResponse(session_for(&state, &requester, &view)))
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

/// Idempotency key of a request: `key`, else that of its header.
fn request_key(key: Option<&str>, headers: &HeaderMap) -> Result<Option<Vec<u8>>, Problem> {
    let key = key.or(requester::text(headers, KEY_HEADER)?);
    if key.is_some_and(|key| key.len() > KEY_LIMIT) {
        return Err(Problem::bad_input(format!(
            "`key` must have at most {KEY_LIMIT} bytes"
        )));
    }
    Ok(key.map(|key| key.as_bytes().to_vec()))
}

/// Streams the request body to the command's input, no faster than the command reads it.
pub async fn input(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
    Query(InputQuery { eof, key }): Query<InputQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<JsonResponse<WrittenBytes>, Problem> {
    let key = request_key(key.as_deref(), &headers)?;
    let view = requester.session(&state, &id)?;
    let _activity = state.handle.keep_active(requester.caller(), view.id).await;
    let mut written = 0;
    let once = |from: usize| {
        let (key, from) = (key.clone()?, from as u64);
        Some(InputKey { key, from })
    };
    // A command that does not run yet is started in another session if the daemon dies now. Input that was taken for this
    // one would be lost.
    wait_while(&state, view.id, |view| view.state.phase == Phase::Starting).await;
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
        () = wait_while(state, id, SessionView::is_running) => Err(session_ended(id)),
    }
}

/// Waits as long as the session exists and this holds of it.
async fn wait_while(state: &State, id: SessionId, holds: impl Fn(&SessionView) -> bool) {
    let published = state.handle.published();
    let mut changes = published.follow();
    while published.session(id).is_some_and(|view| holds(&view)) {
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
