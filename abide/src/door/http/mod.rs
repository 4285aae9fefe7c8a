//! HTTP on the unix socket: the door of the command line, and of whoever speaks JSON. The same
//! router is served over TCP, behind a lock; it only wants a [`Peer`] with every request.

mod act;
mod ask;
mod body;
mod events;
mod follow;
pub mod frame;
mod glance;
mod listing;
mod lock;
mod login;
mod mcp;
mod messages;
mod page;
mod paint;
mod problem;
mod questions;
mod raw;
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
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::extract::connect_info::Connected;
use axum::routing::{get, post};
use axum::serve::{IncomingStream, Listener};
use tokio::net::{UnixListener, UnixStream};

use crate::config::Places;
use crate::daemon::Handle;
use crate::world::clock::pause;
use crate::world::logins::Logins;
use crate::world::peer::Peer;

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
    pub places: Places,
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
        let logins = Logins::open(daemon.places.logins(), daemon.started_at);
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
    match who.login() {
        Some(login) => state.logins.until_ended(login).await,
        None => std::future::pending().await,
    }
}

/// All routes.
pub fn router(state: State) -> Router {
    Router::new()
        .route("/v1/health", get(status::health))
        .route("/v1/status", get(status::status))
        .route("/v1/stop", post(status::stop))
        .route("/v1/logins", post(login::offer))
        .route(login::PATH, post(login::login))
        .route("/v1/logout", post(login::logout))
        .route("/v1/events", get(events::events))
        .route("/v1/tools", get(tools::list))
        .route("/v1/tools/{name}", post(tools::call))
        .route("/v1/search", get(search::search))
        .route("/v1/sessions", get(sessions::list).post(sessions::start))
        .route("/v1/sessions/{id}", get(sessions::one))
        .route("/v1/sessions/{id}/log", get(follow::log))
        .route("/v1/sessions/{id}/log/raw", get(raw::raw))
        .route("/v1/sessions/{id}/terminal", get(terminal::terminal))
        .route("/v1/sessions/{id}/paint", get(paint::paint))
        .route("/v1/sessions/{id}/kill", post(act::kill))
        .route("/v1/sessions/{id}/signal", post(act::signal))
        .route("/v1/sessions/{id}/extend", post(act::extend))
        .route("/v1/sessions/{id}/input", post(act::input))
        .route("/v1/sessions/{id}/resize", post(act::resize))
        .route("/v1/questions", get(questions::list))
        .route("/v1/questions/{id}/answer", post(questions::answer))
        .route("/v1/timers", get(timers::list).post(timers::make))
        .route("/v1/timers/history", get(timers::history))
        .route("/v1/timers/stats", get(timers::stats))
        .route("/v1/timers/{id}", get(timers::one))
        .route("/v1/timers/{id}/{act}", post(timers::act))
        .route("/v1/wait", post(timers::wait))
        .route("/v1/messages", get(messages::list))
        .route("/v1/messages/{id}/wake", post(messages::wake))
        .route("/v1/runs", post(runs::run))
        .fallback(page::page)
        .method_not_allowed_fallback(problem::no_such_method)
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(state)
}

/// Serves the owner of this process, and nobody else, for as long as the daemon lives.
pub async fn serve(listener: UnixListener, state: State) {
    let router = router(state);
    let service = router.into_make_service_with_connect_info::<Peer>();
    if let Err(fault) = axum::serve(OwnersOnly(listener), service).await {
        tracing::error!("the command line's door has closed: {fault}");
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
                    tracing::warn!("cannot take a connection: {fault}");
                    pause(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            if let Ok(peer) = stream.peer_cred()
                && peer.uid() == owner
            {
                return (stream, Peer::Process { pid: peer.pid() });
            }
        }
    }

    fn local_addr(&self) -> io::Result<Peer> {
        Ok(Peer::Process { pid: None })
    }
}

impl Connected<IncomingStream<'_, OwnersOnly>> for Peer {
    fn connect_info(stream: IncomingStream<'_, OwnersOnly>) -> Self {
        *stream.remote_addr()
    }
}
