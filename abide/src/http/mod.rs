//! HTTP API on the Unix socket, for the CLI and other clients. The same router is served over TCP
//! behind an access check; every request needs a [`Peer`].

mod access_check;
mod blocking_client;
mod body;
mod caller_check;
mod docs;
mod elsewhere;
mod events;
pub mod frame;
pub mod headers;
mod ids;
mod line_index;
mod line_text;
mod log_download;
mod log_lines;
mod log_mask;
mod log_stream;
mod login;
mod login_store;
mod machines;
mod mcp;
mod messages;
mod metrics;
mod openapi;
mod page;
mod pagination;
mod policy;
mod problem;
pub mod query_text;
mod questions;
mod requester;
mod routes;
pub mod run_request;
mod runs;
mod search;
mod session_actions;
mod session_activity;
mod session_stats;
mod sessions;
mod status;
mod tcp;
mod terminal;
mod timers;
mod tools;

pub use blocking_client::{daemon_machines, daemon_process, daemon_status, known_ids, stop_daemon};
pub use ids::IdKind;
pub use page::is_built as page_is_built;
pub(crate) use problem::Problem;
pub use tcp::serve_tcp;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use abide_core::Wall;
use axum::body::{Body, Bytes};
use axum::extract::DefaultBodyLimit;
use axum::extract::connect_info::Connected;
use axum::middleware::{from_fn_with_state, map_response};
use axum::routing::get;
use axum::serve::{IncomingStream, Listener};
use axum::{BoxError, Router};
use futures_util::{Stream, StreamExt};
use tokio::net::{UnixListener, UnixStream};

use crate::http::login_store::{LoginId, LoginStore};
use crate::serve::accept_own;
use abide_engine::Handle;
use abide_engine::config::Paths;
use abide_engine::peer::Peer;

/// Largest request body that is buffered, in bytes.
const BODY_LIMIT: usize = 8 << 20;

/// Facts about this daemon.
#[derive(Clone, Debug)]
pub struct Daemon {
    /// Start time.
    pub started_at: Wall,
    /// Paths of its files and sockets.
    pub paths: Paths,
    /// TCP listener.
    pub tcp: Tcp,
}

/// State of the TCP listener.
#[derive(Clone, Debug)]
pub enum Tcp {
    /// Disabled by the configuration.
    Off,
    /// Listening on this address.
    At(SocketAddr),
    /// Listening failed for this reason.
    Failed(String),
}

/// State that all handlers share.
#[derive(Clone)]
pub struct State {
    handle: Handle,
    daemon: Arc<Daemon>,
    logins: Arc<LoginStore>,
    hub: Arc<events::Hub>,
    line_indexes: Arc<line_index::LineIndexes>,
}

impl State {
    /// Handle of the daemon.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// State for the daemon behind `handle`.
    pub fn new(handle: Handle, daemon: Daemon) -> Self {
        let logins = LoginStore::open(daemon.paths.logins(), daemon.started_at);
        State {
            hub: events::Hub::new(handle.clone()),
            handle,
            daemon: Arc::new(daemon),
            logins: Arc::new(logins),
            line_indexes: Arc::default(),
        }
    }
}

/// Waits until the login of a request ends; never returns if the request has no login.
async fn login_ends(state: &State, requester: &requester::Requester) {
    until_login_ends(state.logins.clone(), requester.login()).await;
}

/// Waits until a login ends; never returns without a login.
async fn until_login_ends(logins: Arc<LoginStore>, login: Option<LoginId>) {
    match login {
        Some(login) => logins.until_ended(login).await,
        None => std::future::pending().await,
    }
}

/// Streaming response body that ends when the login of the caller ends.
fn body_until_logout<B, F>(
    state: &State,
    login: Option<LoginId>,
    pieces: impl Stream<Item = Result<B, F>> + Send + 'static,
) -> Body
where
    B: Into<Bytes> + 'static,
    F: Into<BoxError> + 'static,
{
    let logged_out = until_login_ends(state.logins.clone(), login);
    Body::from_stream(pieces.take_until(logged_out))
}

/// All routes, with the OpenAPI document and the web page.
pub fn router(state: State) -> Router {
    let (routes, document) = routes::routes().finish();
    let page = document.clone();
    routes
        .route(
            routes::DOCUMENT,
            get(async move || routes::openapi_json(&document)),
        )
        .route(routes::DOCS, get(async move || docs::page(&page)))
        .fallback(page::page)
        .method_not_allowed_fallback(problem::no_such_method)
        .layer(from_fn_with_state(state.clone(), elsewhere::forward))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(map_response(problem::convert_errors))
        .with_state(state)
}

/// Serves processes of the daemon's own user on the Unix socket until the daemon stops.
pub async fn serve(listener: UnixListener, state: State) {
    let router = router(state);
    let service = router.into_make_service_with_connect_info::<ConnectedPeer>();
    if let Err(fault) = axum::serve(OwnerListener(listener), service).await {
        tracing::error!("the socket of the command line failed: {fault}");
    }
}

/// Listener that accepts connections of the daemon's own user only.
struct OwnerListener(UnixListener);

impl Listener for OwnerListener {
    type Io = UnixStream;
    type Addr = Peer;

    async fn accept(&mut self) -> (UnixStream, Peer) {
        let stream = accept_own(&self.0).await;
        let peer = Peer::of_socket(&stream);
        (stream, peer)
    }

    fn local_addr(&self) -> io::Result<Peer> {
        Ok(Peer::Process(None))
    }
}

/// Peer of the connection, as handlers find it in a request.
#[derive(Clone)]
pub(crate) struct ConnectedPeer(pub Peer);

impl Connected<IncomingStream<'_, OwnerListener>> for ConnectedPeer {
    fn connect_info(stream: IncomingStream<'_, OwnerListener>) -> Self {
        ConnectedPeer(stream.remote_addr().clone())
    }
}
