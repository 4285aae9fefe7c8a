//! State that the handlers share, and the peer of a request. Knows no handler.

use std::net::SocketAddr;
use std::sync::Arc;

use abide_core::Wall;
use axum::BoxError;
use axum::body::{Body, Bytes};
use futures_util::{Stream, StreamExt};

use super::events::hub::Hub;
use super::line_index::LineIndexes;
use super::login_store::{LoginId, LoginStore};
use abide_engine::Handle;
use abide_engine::config::Paths;
use abide_engine::peer::Peer;

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
    pub(super) handle: Handle,
    pub(super) daemon: Arc<Daemon>,
    pub(super) logins: Arc<LoginStore>,
    pub(super) hub: Arc<Hub>,
    pub(super) line_indexes: Arc<LineIndexes>,
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
            hub: Arc::default(),
            handle,
            daemon: Arc::new(daemon),
            logins: Arc::new(logins),
            line_indexes: Arc::default(),
        }
    }
}

/// Peer of the connection, as handlers find it in a request.
#[derive(Clone)]
pub(crate) struct ConnectedPeer(pub Peer);

/// Waits until a login ends; never returns without a login.
pub(super) async fn until_login_ends(logins: Arc<LoginStore>, login: Option<LoginId>) {
    match login {
        Some(login) => logins.until_ended(login).await,
        None => std::future::pending().await,
    }
}

/// Streaming response body that ends when the login of the caller ends.
pub(super) fn body_until_logout<B, F>(
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
