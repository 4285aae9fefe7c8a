//! Counters and durations of tool calls. Counting neither allocates nor blocks.

use std::sync::atomic::{AtomicU64, Ordering};

use abide_api::ToolName;
use abide_engine::clock;

/// Upper bounds of the histogram's buckets in seconds; the last bucket has no bound.
pub const BOUNDS: [f64; 12] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0,
];

/// Counters of one tool.
struct Counts {
    /// Calls per bucket (not cumulative); one bucket more than there are bounds.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

/// Counters of all tools, in the order in which the tools are listed.
static ALL: [Counts; ToolName::ALL.len()] = [const {
    Counts {
        buckets: [const { AtomicU64::new(0) }; BOUNDS.len() + 1],
        micros: AtomicU64::new(0),
    }
}; ToolName::ALL.len()];

/// Every tool with its counters.
fn all() -> impl Iterator<Item = (ToolName, &'static Counts)> {
    ToolName::ALL.into_iter().zip(&ALL)
}

/// Call whose duration is being measured.
pub(super) struct CallStopwatch {
    tool: ToolName,
    begun: u64,
}

impl CallStopwatch {
    /// Starts the measurement of a call.
    pub(super) fn begin(tool: ToolName) -> Self {
        let begun = clock::micros();
        CallStopwatch { tool, begun }
    }

    /// Ends the measurement when the result is ready.
    pub(super) fn end(self) {
        let took = clock::micros().saturating_sub(self.begun);
        let Some((_, counts)) = all().find(|(tool, _)| *tool == self.tool) else {
            return;
        };
        let seconds = took as f64 / 1e6;
        let bucket = BOUNDS.partition_point(|bound| *bound < seconds);
        counts.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        counts.micros.fetch_add(took, Ordering::Relaxed);
    }
}

/// Statistics of one tool.
pub struct ToolStats {
    /// Name of the tool.
    pub tool: &'static str,
    /// Cumulative histogram: calls up to each bound, and all calls at the end.
    pub up_to: [u64; BOUNDS.len() + 1],
    /// Total duration of the calls, in seconds.
    pub seconds: f64,
}

/// Statistics of all tools.
pub fn tool_stats() -> impl Iterator<Item = ToolStats> {
    all().map(|(tool, counts)| {
        let mut sum = 0;
        let up_to = std::array::from_fn(|bucket| {
            sum += counts.buckets[bucket].load(Ordering::Relaxed);
            sum
        });
        ToolStats {
            tool: tool.as_str(),
            up_to,
            seconds: counts.micros.load(Ordering::Relaxed) as f64 / 1e6,
        }
    })
}
