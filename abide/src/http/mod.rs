//! HTTP on the unix socket: the door of the command line, and of whoever speaks JSON. The same
//! router is served over TCP, behind a lock; it only wants a [`Peer`] with every request.

mod act;
mod api;
mod ask;
mod body;
mod docs;
mod events;
mod follow;
pub mod frame;
mod glance;
mod listing;
mod lock;
mod login;
mod logins;
mod mcp;
mod messages;
mod metrics;
mod page;
mod paint;
mod problem;
mod process_usage;
mod questions;
mod raw;
mod routes;
mod runs;
mod search;
mod sessions;
mod status;
mod tcp;
mod terminal;
mod timers;
mod tools;
mod who;
pub mod wire;

pub use ask::{ask_status, ask_to_stop, ask_version};
pub use page::is_built as page_is_built;
pub use tcp::serve_tcp;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use abide_core::Wall;
use axum::body::{Body, Bytes};
use axum::extract::DefaultBodyLimit;
use axum::extract::connect_info::Connected;
use axum::middleware::map_response;
use axum::routing::get;
use axum::serve::{IncomingStream, Listener};
use axum::{BoxError, Router};
use futures_util::{Stream, StreamExt};
use tokio::net::{UnixListener, UnixStream};

use crate::http::logins::{LoginId, Logins};
use abide_engine::Handle;
use abide_engine::clock::pause;
use abide_engine::config::Paths;
use abide_engine::peer::Peer;

/// The longest body that is taken at once.
const BODY_LIMIT: usize = 8 << 20;
/// How long to wait when no connection can be taken because something has run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a daemon knows of itself.
#[derive(Clone, Debug)]
pub struct Daemon {
    /// When it came to life.
    pub started_at: Wall,
    /// Where its things are.
    pub paths: Paths,
    /// Where it can be called over TCP.
    pub tcp: Tcp,
}

/// What became of the door over TCP.
#[derive(Clone, Debug)]
pub enum Tcp {
    /// It is not wanted.
    Off,
    /// It is here.
    At(SocketAddr),
    /// It could not be opened, because of this.
    Failed(String),
}

/// What the routes share.
#[derive(Clone)]
pub struct State {
    handle: Handle,
    daemon: Arc<Daemon>,
    logins: Arc<Logins>,
    hub: Arc<events::Hub>,
}

impl State {
    /// For the daemon behind `handle`.
    pub fn new(handle: Handle, daemon: Daemon) -> Self {
        let logins = Logins::open(daemon.paths.logins(), daemon.started_at);
        State {
            hub: events::Hub::new(handle.clone()),
            handle,
            daemon: Arc::new(daemon),
            logins: Arc::new(logins),
        }
    }
}

/// Waits until the login ends that a request showed; for ever where it showed none.
async fn login_ends(state: &State, who: &who::Who) {
    until_ended(state.logins.clone(), who.login()).await;
}

/// For ever, where nobody has logged in.
async fn until_ended(logins: Arc<Logins>, login: Option<LoginId>) {
    match login {
        Some(login) => logins.until_ended(login).await,
        None => std::future::pending().await,
    }
}

/// A body that comes as it happens. It ends with the login of whoever asked for it.
fn body_while_let_in<B, F>(
    state: &State,
    login: Option<LoginId>,
    pieces: impl Stream<Item = Result<B, F>> + Send + 'static,
) -> Body
where
    B: Into<Bytes> + 'static,
    F: Into<BoxError> + 'static,
{
    let put_out = until_ended(state.logins.clone(), login);
    Body::from_stream(pieces.take_until(put_out))
}

/// All routes.
pub fn router(state: State) -> Router {
    let (routes, document) = routes::all().finish();
    let page = document.clone();
    routes
        .route(routes::DOCUMENT, get(async move || routes::json(&document)))
        .route(routes::DOCS, get(async move || docs::page(&page)))
        .fallback(page::page)
        .method_not_allowed_fallback(problem::no_such_method)
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(map_response(problem::always))
        .with_state(state)
}

/// Serves the owner of this process, and nobody else, for as long as the daemon lives.
pub async fn serve(listener: UnixListener, state: State) {
    let router = router(state);
    let service = router.into_make_service_with_connect_info::<ConnectedPeer>();
    if let Err(fault) = axum::serve(OwnersOnly(listener), service).await {
        tracing::error!("the socket of the command line failed: {fault}");
    }
}

/// Takes connections of our own user only.
struct OwnersOnly(UnixListener);

impl Listener for OwnersOnly {
    type Io = UnixStream;
    type Addr = Peer;

    async fn accept(&mut self) -> (UnixStream, Peer) {
        let owner = rustix::process::geteuid().as_raw();
        loop {
            let stream = match self.0.accept().await {
                Ok((stream, _)) => stream,
                Err(fault) => {
                    tracing::warn!("cannot accept a connection: {fault}");
                    pause(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            if let Ok(peer) = stream.peer_cred()
                && peer.uid() == owner
            {
                let peer = Peer::of_socket(&stream);
                return (stream, peer);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Peer> {
        Ok(Peer::Process(None))
    }
}

/// The process at the other end of a connection, as a request's handlers find it.
#[derive(Clone)]
pub(crate) struct ConnectedPeer(pub Peer);

impl Connected<IncomingStream<'_, OwnersOnly>> for ConnectedPeer {
    fn connect_info(stream: IncomingStream<'_, OwnersOnly>) -> Self {
        ConnectedPeer(stream.remote_addr().clone())
    }
}
