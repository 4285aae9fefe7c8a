//! How often to look again: at once, then soon, then ever later, up to a limit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::clock::pause;

/// The first pause between two looks.
const FIRST: Duration = Duration::from_millis(5);
/// On this machine a look costs next to nothing, and an answer is wanted at once.
const NEAR: Duration = Duration::from_millis(25);
/// So long after the first look even those are made less often.
const PATIENT_AFTER: Duration = Duration::from_secs(600);
const NEAR_PATIENT: Duration = Duration::from_millis(250);
/// Elsewhere somebody else pays for each look.
const FAR: Duration = Duration::from_secs(1);
/// What each further probe adds to the pause of all, so that a thousand cost no more than a few.
const SHARE: Duration = Duration::from_millis(1);

/// Knows how many look.
#[derive(Default)]
pub(super) struct Pace {
    looking: AtomicUsize,
}

/// The pauses of one probe.
pub(super) struct Steps<'a> {
    pace: &'a Pace,
    near: bool,
    next: Duration,
    waited: Duration,
}

impl Pace {
    /// For something on this machine, or not.
    pub fn begin(&self, near: bool) -> Steps<'_> {
        self.looking.fetch_add(1, Ordering::Relaxed);
        Steps {
            pace: self,
            near,
            next: FIRST,
            waited: Duration::ZERO,
        }
    }
}

impl Steps<'_> {
    /// Waits until it is time to look again.
    pub async fn pause(&mut self) {
        let most = match self.near {
            false => FAR,
            true if self.waited > PATIENT_AFTER => NEAR_PATIENT,
            true => NEAR,
        };
        let looking = u32::try_from(self.pace.looking.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        let span = self.next.max(SHARE.saturating_mul(looking)).min(FAR);
        pause(span).await;
        self.waited += span;
        self.next = (self.next * 3 / 2).min(most);
    }
}

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        self.pace.looking.fetch_sub(1, Ordering::Relaxed);
    }
}
