//! The one place of the gate that waits for time to pass.

use std::future::Future;
use std::time::Duration;

/// Time of this moment, for ages.
pub fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// Waits that long.
#[expect(clippy::disallowed_methods, reason = "the clock module of the gate")]
pub async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// The result of the future, or `None` if it takes longer than that.
#[expect(clippy::disallowed_methods, reason = "the clock module of the gate")]
pub async fn within<F: Future>(duration: Duration, future: F) -> Option<F::Output> {
    tokio::time::timeout(duration, future).await.ok()
}
