//! Back-off between checks: at once, then soon, then ever later, up to a limit. A server that answers is checked gently.
//! A closed port of this machine is checked often: no process sees it, and the port may open at any moment.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::clock::pause;

/// First pause between two checks.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// Longest pause while a port of this machine is closed.
const CLOSED_LIMIT: Duration = Duration::from_millis(25);
/// Time after which even closed ports are checked less often.
const LATE_AFTER: Duration = Duration::from_secs(600);
/// Longest pause while a port of this machine is closed after that time.
const CLOSED_LATE_LIMIT: Duration = Duration::from_millis(250);
/// Longest pause for a server of this machine.
const LOCAL_LIMIT: Duration = Duration::from_secs(1);
/// Longest pause for other machines.
const REMOTE_LIMIT: Duration = Duration::from_secs(30);
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
    /// Fixed time between two checks, if the caller set it.
    every: Option<Duration>,
    next: Duration,
    waited: Duration,
}

impl ActiveProbes {
    /// Adds a probe of this machine, or of another one.
    pub fn begin(&self, local: bool, every_ms: Option<u64>) -> Backoff<'_> {
        self.probes.fetch_add(1, Ordering::Relaxed);
        Backoff {
            active: self,
            local,
            every: every_ms.map(Duration::from_millis),
            next: FIRST_PAUSE,
            waited: Duration::ZERO,
        }
    }
}

impl Backoff<'_> {
    /// Waits until the next check. `answered`: something accepted the connection in the last one.
    pub async fn pause(&mut self, answered: bool) {
        let span = self.next(answered);
        pause(span).await;
        self.waited += span;
    }

    /// Time until the next check.
    fn next(&mut self, answered: bool) -> Duration {
        if let Some(every) = self.every {
            return every;
        }
        let limit = match (self.local, answered) {
            (false, _) => REMOTE_LIMIT,
            (true, true) => LOCAL_LIMIT,
            (true, false) if self.waited > LATE_AFTER => CLOSED_LATE_LIMIT,
            (true, false) => CLOSED_LIMIT,
        };
        let probes = u32::try_from(self.active.probes.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        let least = PAUSE_PER_PROBE.saturating_mul(probes).min(LOCAL_LIMIT);
        let span = self.next.min(limit).max(least);
        self.next = (self.next * 3 / 2).min(limit);
        span
    }
}

impl Drop for Backoff<'_> {
    fn drop(&mut self) {
        self.active.probes.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks(within: Duration, local: bool, every_ms: Option<u64>, answered: bool) -> usize {
        let active = ActiveProbes::default();
        let mut backoff = active.begin(local, every_ms);
        let mut waited = Duration::ZERO;
        let mut checks = 1;
        loop {
            waited += backoff.next(answered);
            if waited > within {
                return checks;
            }
            checks += 1;
        }
    }

    #[test]
    fn server_that_answers_is_checked_once_a_second_or_every_thirty_seconds() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        assert!((60..=75).contains(&checks(minutes(1), true, None, true)));
        assert!((20..=40).contains(&checks(minutes(10), false, None, true)));
    }

    #[test]
    fn closed_local_port_is_checked_every_25_milliseconds() {
        assert!((2_300..=2_500).contains(&checks(Duration::from_secs(60), true, None, false)));
    }

    #[test]
    fn given_interval_is_used() {
        assert_eq!(checks(Duration::from_secs(60), true, Some(20_000), true), 4);
    }
}
