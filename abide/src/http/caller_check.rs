//! Check of the processes that call over TCP with the token. A command in a sandbox must not call, because it could start
//! commands without a sandbox.

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
use super::state::{ConnectedPeer, State};

/// Time for which a request may wait to be read after the session of its caller has ended.
const ENDED_SESSION_GRACE: Millis = Millis::from_secs(60);

/// Result that is kept for a connection: true once the process at its other end is known to be in no sandbox. The search is
/// slow.
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
        ended.is_none_or(|ended| now.0.saturating_sub(ended.0) < ENDED_SESSION_GRACE.0)
            && may_be_sandboxed(view)
    };
    if !sessions.iter().any(may_call) {
        return false;
    }
    let peer = extensions.get::<ConnectInfo<ConnectedPeer>>();
    let peer = peer.map_or(Peer::Process(None), |peer| peer.0.0.clone());
    let found = tokio::task::spawn_blocking(move || peer.memberships()).await;
    let found = found.unwrap_or_else(|_| vec![SessionMembership::Unknown]);
    // With Landlock alone, a command can look like one of another session.
    let is_landlock = |view: &Arc<SessionView>| {
        let sandboxed = view.sandboxed.as_ref();
        view.is_alive() && sandboxed.is_some_and(|by| by.by == SandboxedBy::Landlock)
    };
    let hides_session = sessions.iter().any(is_landlock);
    let is_in_sandbox = found.into_iter().any(|membership| {
        // An unknown session may be any of those that run.
        let view = session_of(state, membership);
        hides_session || view.is_none_or(|view| may_be_sandboxed(&view))
    });
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
