//! Links that `abide relay` brings, which sshd has started here for another machine. They are served as those of the
//! database are.

use std::time::Duration;

use abide_engine::clock::pause;
use abide_engine::config::Paths;
use abide_engine::machine_link::{CalledLink, ssh};
use abide_engine::socket;
use tokio::net::UnixListener;
use tokio::sync::mpsc;

use crate::serve::is_owner;

/// Pause after a connection that could not be accepted, such as without a free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens for `abide relay`. A fault is only logged: other machines call through the database.
pub fn start(paths: &Paths, links: mpsc::Sender<CalledLink>) {
    let path = paths.link_socket();
    let listener = socket::listen(&path).and_then(|listener| {
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener)
    });
    match listener {
        Ok(listener) => drop(tokio::spawn(serve(listener, links))),
        Err(fault) => tracing::error!("cannot listen at {}: {fault}", path.display()),
    }
}

async fn serve(listener: UnixListener, links: mpsc::Sender<CalledLink>) {
    let slots = ssh::relayed_slots();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            pause(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(slot) = slots.clone().try_acquire_owned() else {
            tracing::warn!("too many links over ssh; one more was refused");
            continue;
        };
        if !is_owner(&stream) {
            continue;
        }
        let links = links.clone();
        tokio::spawn(async move {
            if let Some(link) = ssh::answer(stream, slot).await {
                let _ = links.send(link).await;
            }
        });
    }
}
