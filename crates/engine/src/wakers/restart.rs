//! Restart of the wakers when their configuration changes.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::run_configured;
use crate::clock::Clock;
use crate::config::WakerConfig;
use crate::web::Web;
use crate::{Handle, ResendRequest};

/// Runs the wakers for as long as the daemon runs. When their configuration changes they begin again, as after a
/// restart of the daemon: the result of each attempt is stored.
pub async fn run(
    handle: Handle,
    clock: Arc<dyn Clock>,
    web: Arc<Web>,
    mut resend_requests: mpsc::Receiver<ResendRequest>,
) {
    let mut changes = handle.live_config().follow();
    loop {
        let wakers: Arc<[WakerConfig]> = handle.config().wakers.clone().into();
        let run = run_configured(
            handle.clone(),
            clock.clone(),
            web.clone(),
            wakers.clone(),
            &mut resend_requests,
        );
        tokio::select! {
            () = run => return,
            () = changed(&handle, &mut changes, &wakers) => {}
        }
        for agent in handle.clients().agents() {
            handle.send_event(handle.resumable(&agent)).await;
        }
    }
}

/// Waits until other wakers are configured.
async fn changed(handle: &Handle, changes: &mut watch::Receiver<()>, wakers: &[WakerConfig]) {
    while handle.config().wakers == wakers {
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
