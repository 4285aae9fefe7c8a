//! HTTP API on the Unix socket, for the command line and other programs of the same user.

use std::io;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::net::{UnixListener, UnixStream};

use super::routes::router;
use super::state::{ConnectedPeer, State};
use crate::listener::accept_own;
use abide_engine::peer::Peer;

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

impl Connected<IncomingStream<'_, OwnerListener>> for ConnectedPeer {
    fn connect_info(stream: IncomingStream<'_, OwnerListener>) -> Self {
        ConnectedPeer(stream.remote_addr().clone())
    }
}
