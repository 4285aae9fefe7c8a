//! Links that `abide relay` brings, which sshd has started here for another machine. They are served as those of the
//! database are.

use abide_engine::config::Paths;
use abide_engine::machine_link::{CalledLink, ssh};
use tokio::net::UnixListener;
use tokio::sync::mpsc;

use crate::listener::{accept_own, listen};

/// Listens for `abide relay`. A fault is only logged: other machines call through the database.
pub fn start(paths: &Paths, links: mpsc::Sender<CalledLink>) {
    match listen(&paths.link_socket()) {
        Ok(listener) => drop(tokio::spawn(serve(listener, links))),
        Err(fault) => tracing::error!("{fault:#}"),
    }
}

async fn serve(listener: UnixListener, links: mpsc::Sender<CalledLink>) {
    let slots = ssh::relayed_slots();
    loop {
        let stream = accept_own(&listener).await;
        let Ok(slot) = slots.clone().try_acquire_owned() else {
            tracing::warn!("too many links over ssh; one more was refused");
            continue;
        };
        let links = links.clone();
        tokio::spawn(async move {
            if let Some(link) = ssh::answer(stream, slot).await {
                let _ = links.send(link).await;
            }
        });
    }
}
