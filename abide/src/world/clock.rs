//! The only place that asks the system what time it is.

use abide_core::time::{Boot, Mono, Now, Wall};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Reads time and waits for it. The simulated twin in the tests is moved by hand.
pub trait Clock: Send + Sync {
    /// One reading of all clocks.
    fn now(&self) -> Now;
}

/// The system's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Now {
        Now {
            wall: Wall(millis(ClockId::Realtime)),
            boot: Boot(millis(ClockId::Boottime)),
            mono: Mono(millis(ClockId::Monotonic)),
        }
    }
}

fn millis(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000 + u64::try_from(t.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Waits until the monotonic clock shows `until`. The runtime's own timer runs on the same clock.
pub async fn sleep_until(clock: &dyn Clock, until: Option<Mono>) {
    let Some(until) = until else {
        return std::future::pending().await;
    };
    let left = until.since(clock.now().mono);
    // One more, because readings are cut to whole milliseconds and an alarm must never be early.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that waits for time"
    )]
    tokio::time::sleep(Duration::from_millis(left.0 + 1)).await;
}

/// Waits for a span of time; for back-off and for settling, never to let something happen.
pub async fn pause(span: Duration) {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that waits for time"
    )]
    tokio::time::sleep(span).await;
}
