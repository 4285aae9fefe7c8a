//! Unix sockets of the daemon, which serve processes of its own user only.

use std::path::Path;
use std::time::Duration;

use abide_engine::clock::pause;
use abide_engine::socket;
use anyhow::Context as _;
use rustix::net::sockopt::socket_peercred;
use tokio::net::{UnixListener, UnixStream};

/// Pause after a connection that could not be accepted, such as without a free descriptor.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens at a path, in place of an earlier daemon.
pub fn listen(path: &Path) -> anyhow::Result<UnixListener> {
    let listener =
        socket::listen(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    listener.set_nonblocking(true)?;
    Ok(UnixListener::from_std(listener)?)
}

/// Accepts the next connection of a process with the user id of this daemon.
pub async fn accept_own(listener: &UnixListener) -> UnixStream {
    let own = rustix::process::geteuid();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match socket_peercred(&stream) {
                Ok(peer) if peer.uid == own => return stream,
                Ok(_) | Err(_) => {}
            },
            Err(fault) => {
                tracing::warn!("cannot accept a connection: {fault}");
                pause(ACCEPT_PAUSE).await;
            }
        }
    }
}
