//! Check of the processes that call over TCP with the token. A command in a sandbox must not call, because it could start
//! others without one; a command without a sandbox acts as the agent of its session, as over the socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use abide_core::{Agent, SandboxedBy};
use abide_engine::SessionView;
use abide_engine::peer::{Peer, SessionMembership};
use abide_session::folder;
use axum::extract::{ConnectInfo, Request, State as Shared};
use axum::http::Extensions;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::access_check::Credential;
use super::problem::Problem;
use super::requester::session_of;
use super::{ConnectedPeer, State};

/// Agent of the session in which the caller of a request runs.
#[derive(Clone)]
struct SessionAgent(Agent);

/// True once the process at the other end of a connection is known to be outside every session. To find it takes a while.
#[derive(Clone, Default)]
pub struct CheckedCaller(Arc<AtomicBool>);

/// Agent of the session in which the caller of a request over TCP runs, if it runs in one.
pub fn agent_of_session(extensions: &Extensions) -> Option<Agent> {
    extensions.get().map(|SessionAgent(agent)| agent.clone())
}

/// Middleware behind the access check.
pub async fn check_caller(
    Shared(state): Shared<State>,
    mut request: Request,
    next: Next,
) -> Response {
    match caller(&state, request.extensions()).await {
        Ok(None) => next.run(request).await,
        Ok(Some(agent)) => {
            request.extensions_mut().insert(SessionAgent(agent));
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

/// Agent of the session in which the caller runs; `None`: it is outside every session, or nothing is known about it.
async fn caller(state: &State, extensions: &Extensions) -> Result<Option<Agent>, Problem> {
    // A login makes a person, who is checked to be outside every session.
    if extensions.get() != Some(&Credential::Token) {
        return Ok(None);
    }
    let checked = extensions.get::<CheckedCaller>();
    if checked.is_some_and(|checked| checked.0.load(Ordering::Relaxed)) {
        return Ok(None);
    }
    let mut alive = state.handle.published().sessions();
    alive.retain(|view| view.is_alive());
    if alive.is_empty() {
        return Ok(None);
    }
    let peer = extensions.get::<ConnectInfo<ConnectedPeer>>();
    let peer = peer.map_or(Peer::Process(None), |peer| peer.0.0.clone());
    let found = tokio::task::spawn_blocking(move || peer.memberships()).await;
    let found = found.unwrap_or_else(|_| vec![SessionMembership::Unknown]);
    if let (true, Some(checked)) = (found.is_empty(), checked) {
        checked.0.store(true, Ordering::Relaxed);
    }
    let sessions: Vec<_> = found
        .into_iter()
        .map(|membership| session_of(state, membership))
        .collect();
    let may_be_sandboxed = |view: &Option<Arc<SessionView>>| match view {
        Some(view) => is_sandboxed(view),
        // It may be any of those that run.
        None => alive.iter().any(|view| is_sandboxed(view)),
    };
    if sessions.iter().any(may_be_sandboxed) {
        return Err(Problem::forbidden(
            "a command in a sandbox cannot call abide; use the tools of its agent",
        ));
    }
    let agent = sessions.into_iter().flatten().next();
    Ok(agent.map(|view| view.state.agent.clone()))
}

/// True if the command of a session has a sandbox, or nothing is known about that.
fn is_sandboxed(view: &SessionView) -> bool {
    let meta = folder::read_meta(&view.folder).ok().flatten();
    meta.is_none_or(|meta| meta.sandboxed.by != SandboxedBy::Off)
}
