//! Check of the processes that call over TCP with the token. A command in a sandbox must not call, because it could start
//! others without one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use abide_core::{Millis, SandboxedBy};
use abide_engine::SessionView;
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::peer::{Peer, SessionMembership};
use axum::extract::{ConnectInfo, Request, State as Shared};
use axum::http::Extensions;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::access_check::Credential;
use super::problem::Problem;
use super::requester::session_of;
use super::{ConnectedPeer, State};

/// Time for which a request may wait to be read after the session of its caller has ended.
const READ_LATE: Millis = Millis::from_secs(60);

/// True once the process at the other end of a connection is known to be in no sandbox. To find it takes a while.
#[derive(Clone, Default)]
pub struct CheckedCaller(Arc<AtomicBool>);

/// Middleware behind the access check.
pub async fn check_caller(Shared(state): Shared<State>, request: Request, next: Next) -> Response {
    match is_in_sandbox(&state, request.extensions()).await {
        false => next.run(request).await,
        true => Problem::forbidden(
            "a command in a sandbox cannot call abide; use the tools of its agent",
        )
        .into_response(),
    }
}

/// Returns whether the caller of a request may be in a sandbox.
async fn is_in_sandbox(state: &State, extensions: &Extensions) -> bool {
    // A login makes a person, who is checked to be outside every session.
    if extensions.get() != Some(&Credential::Token) {
        return false;
    }
    let checked = extensions.get::<CheckedCaller>();
    if checked.is_some_and(|checked| checked.0.load(Ordering::Relaxed)) {
        return false;
    }
    let (sessions, now) = (state.handle.published().sessions(), SystemClock.now().wall);
    let may_call = |view: &Arc<SessionView>| {
        let ended = view.ended_at().filter(|_| !view.is_alive());
        ended.is_none_or(|ended| now.0.saturating_sub(ended.0) < READ_LATE.0)
            && may_be_sandboxed(view)
    };
    if !sessions.iter().any(may_call) {
        return false;
    }
    let peer = extensions.get::<ConnectInfo<ConnectedPeer>>();
    let peer = peer.map_or(Peer::Process(None), |peer| peer.0.0.clone());
    let found = tokio::task::spawn_blocking(move || peer.memberships()).await;
    let found = found.unwrap_or_else(|_| vec![SessionMembership::Unknown]);
    let is_in_sandbox = found
        .into_iter()
        // An unknown session may be any of those that run.
        .any(|membership| session_of(state, membership).is_none_or(|view| may_be_sandboxed(&view)));
    if let (false, Some(checked)) = (is_in_sandbox, checked) {
        checked.0.store(true, Ordering::Relaxed);
    }
    is_in_sandbox
}

/// True if the command of a session has a sandbox, or may get one because it was not started yet.
fn may_be_sandboxed(view: &SessionView) -> bool {
    let sandboxed = view.sandboxed.as_ref();
    sandboxed.is_none_or(|sandboxed| sandboxed.by != SandboxedBy::Off)
}
