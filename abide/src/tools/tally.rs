//! How often each tool was called, and how long it took. Counting allocates nothing and waits for
//! nobody.

use std::sync::atomic::{AtomicU64, Ordering};

use super::describe;
use abide_engine::clock;

/// Seconds up to which a call is counted in each bucket; the last has no bound.
pub const BOUNDS: [f64; 12] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0,
];

/// The counts of one tool.
struct Counts {
    /// One more than there are bounds, not added up.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

/// All tools, in the order in which they are listed.
static ALL: [Counts; describe::COUNT] = [const {
    Counts {
        buckets: [const { AtomicU64::new(0) }; BOUNDS.len() + 1],
        micros: AtomicU64::new(0),
    }
}; describe::COUNT];

/// A call that is being timed.
pub(super) struct Timed {
    tool: usize,
    begun: u64,
}

impl Timed {
    /// A call of this tool begins now. `None`: there is no such tool.
    pub(super) fn begin(name: &str) -> Option<Self> {
        let tool = describe::all().iter().position(|tool| tool.name == name)?;
        let begun = clock::micros();
        Some(Timed { tool, begun })
    }

    /// Its result is there.
    pub(super) fn end(self) {
        let took = clock::micros().saturating_sub(self.begun);
        let counts = &ALL[self.tool];
        let seconds = took as f64 / 1e6;
        let bucket = BOUNDS.partition_point(|bound| *bound < seconds);
        counts.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        counts.micros.fetch_add(took, Ordering::Relaxed);
    }
}

/// What was counted of one tool.
pub struct Tallied {
    /// Its name.
    pub tool: &'static str,
    /// Calls that took no longer than each bound, and all of them at the end.
    pub up_to: [u64; BOUNDS.len() + 1],
    /// Seconds they took, added up.
    pub seconds: f64,
}

/// What was counted so far.
pub fn tallied() -> impl Iterator<Item = Tallied> {
    describe::all().iter().zip(&ALL).map(|(tool, counts)| {
        let mut sum = 0;
        let up_to = std::array::from_fn(|bucket| {
            sum += counts.buckets[bucket].load(Ordering::Relaxed);
            sum
        });
        Tallied {
            tool: tool.name,
            up_to,
            seconds: counts.micros.load(Ordering::Relaxed) as f64 / 1e6,
        }
    })
}
