//! Reconnects for streams from the daemon. The daemon may restart at any time, and a client then
//! resumes with the next one; this file decides when to give up.

use std::time::Duration;

use abide_core::Millis;
use abide_core::time::Mono;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::client::{Client, ClientError};
use abide_engine::clock::{Clock, SystemClock, pause};

/// Consecutive streams that may break without any data; the client gives up at one more.
const ATTEMPTS: u32 = 5;
/// Lifetime after which a stream counts as successful, even without any data.
const STABLE_AFTER: Millis = Millis::from_secs(10);
/// Unit of the back-off: it is multiplied by the number of failures, and used from the second failure on.
const BACKOFF: Duration = Duration::from_millis(50);

/// Back-off state of one stream: consecutive failures, and the start of the current attempt.
pub struct Reconnect {
    failures: u32,
    attempt_start: Mono,
}

impl Reconnect {
    /// Starts without failures.
    pub fn new() -> Self {
        Reconnect {
            failures: 0,
            attempt_start: SystemClock.mono(),
        }
    }

    /// Records that a stream broke; `received` says if it had delivered data. Waits for the back-off, then
    /// returns `true` if the caller should reconnect. There is no wait after the first failure in a row.
    pub async fn should_retry(&mut self, received: bool) -> bool {
        let lifetime = SystemClock.mono().since(self.attempt_start);
        self.failures = match received || lifetime >= STABLE_AFTER {
            true => 0,
            false => self.failures + 1,
        };
        if self.failures > 1 {
            pause(BACKOFF * self.failures).await;
        }
        self.attempt_start = SystemClock.mono();
        self.failures <= ATTEMPTS
    }
}

/// Sends a request that waits through restarts of the daemon. `body` gets the seconds that are left of `time`, for
/// each request.
pub async fn post_waiting<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    time: Option<Millis>,
    body: impl Fn(Option<f64>) -> Value,
) -> Result<T, ClientError> {
    let began = SystemClock.now().boot.0;
    let mut reconnect = Reconnect::new();
    loop {
        let passed = SystemClock.now().boot.0 - began;
        // At least 1 ms, so that a condition is checked once more.
        let left = |time: Millis| Millis(time.0.saturating_sub(passed).max(1)).as_secs_f64();
        match client.post(path, &body(time.map(left))).await {
            Err(ClientError::Broken(_)) if reconnect.should_retry(false).await => {}
            answer => return answer,
        }
    }
}
