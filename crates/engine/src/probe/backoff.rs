//! Back-off between checks: at once, then soon, then ever later, up to a limit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::clock::pause;

/// First pause between two checks.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// Longest pause on this machine, where a check costs next to nothing.
const LOCAL_LIMIT: Duration = Duration::from_millis(25);
/// Time after which even local checks become rarer.
const LATE_AFTER: Duration = Duration::from_secs(600);
/// Longest pause on this machine after that time.
const LOCAL_LATE_LIMIT: Duration = Duration::from_millis(250);
/// Longest pause for other machines.
const REMOTE_LIMIT: Duration = Duration::from_secs(1);
/// Pause added for each active probe, so that a thousand cost no more than a few.
const PAUSE_PER_PROBE: Duration = Duration::from_millis(1);

/// Count of active probes.
#[derive(Default)]
pub(super) struct ActiveProbes {
    probes: AtomicUsize,
}

/// Pauses of one probe.
pub(super) struct Backoff<'a> {
    active: &'a ActiveProbes,
    local: bool,
    next: Duration,
    waited: Duration,
}

impl ActiveProbes {
    /// Adds a probe of this machine, or of another one.
    pub fn begin(&self, local: bool) -> Backoff<'_> {
        self.probes.fetch_add(1, Ordering::Relaxed);
        Backoff {
            active: self,
            local,
            next: FIRST_PAUSE,
            waited: Duration::ZERO,
        }
    }
}

impl Backoff<'_> {
    /// Waits until the next check.
    pub async fn pause(&mut self) {
        let limit = match self.local {
            false => REMOTE_LIMIT,
            true if self.waited > LATE_AFTER => LOCAL_LATE_LIMIT,
            true => LOCAL_LIMIT,
        };
        let probes = u32::try_from(self.active.probes.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        let span = self
            .next
            .max(PAUSE_PER_PROBE.saturating_mul(probes))
            .min(REMOTE_LIMIT);
        pause(span).await;
        self.waited += span;
        self.next = (self.next * 3 / 2).min(limit);
    }
}

impl Drop for Backoff<'_> {
    fn drop(&mut self) {
        self.active.probes.fetch_sub(1, Ordering::Relaxed);
    }
}
