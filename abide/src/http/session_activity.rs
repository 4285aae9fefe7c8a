//! Summary of running sessions: the last lines of output as plain text, with CPU and memory usage.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use abide_api::LiveActivity;
use abide_core::{Mono, SessionId};
use abide_output::digest::rendered_rows;
use abide_output::mask::Mask;

use abide_engine::clock::{SystemClock, pause};
use abide_engine::{Handle, SessionView};
use abide_session::facts::{Facts, facts};
use abide_session::keeper_record;
use abide_session::log::tail;

/// Number of lines in a tail.
const LINES: usize = 6;
/// Longest line in a tail, in characters.
const CHARS: usize = 400;
/// Interval between the two measurements that give a CPU share.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// Measurement of the processes of a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsageSample {
    /// CPU time per elapsed time since the previous measurement (1.0 is one processor); `None` for the
    /// first measurement.
    pub cpu: Option<f64>,
    pub memory: u64,
    pub waiting_for_input: bool,
}

/// Combines a tail and a measurement.
pub fn activity(tail: Vec<String>, sample: Option<UsageSample>) -> LiveActivity {
    LiveActivity {
        tail,
        cpu: sample.and_then(|sample| sample.cpu),
        memory: sample.map(|sample| sample.memory),
        waiting_for_input: sample.is_some_and(|sample| sample.waiting_for_input),
    }
}

/// Summaries of these running sessions.
pub async fn activities(
    handle: &Handle,
    views: Vec<Arc<SessionView>>,
) -> HashMap<SessionId, LiveActivity> {
    if views.is_empty() {
        return HashMap::new();
    }
    let mut activities = HashMap::new();
    for view in &views {
        let tail = tail(handle, view).await;
        activities.insert(view.id, activity(tail, None));
    }
    let mut meter = UsageMeter::default();
    meter = meter.measure(&views).await.0;
    pause(SAMPLE_INTERVAL).await;
    for (id, sample) in meter.measure(&views).await.1 {
        if let Some(summary) = activities.get_mut(&id) {
            *summary = activity(std::mem::take(&mut summary.tail), Some(sample));
        }
    }
    activities
}

/// Previous measurement of each session, from which the CPU share is computed.
#[derive(Default)]
pub struct UsageMeter {
    previous: HashMap<SessionId, (Facts, Mono)>,
}

impl UsageMeter {
    /// Measures these sessions on a blocking thread, and forgets all others.
    pub async fn measure(
        self,
        views: &[Arc<SessionView>],
    ) -> (Self, Vec<(SessionId, UsageSample)>) {
        let views = views.to_vec();
        let measured = tokio::task::spawn_blocking(move || self.measure_blocking(&views)).await;
        measured.unwrap_or_default()
    }

    fn measure_blocking(self, views: &[Arc<SessionView>]) -> (Self, Vec<(SessionId, UsageSample)>) {
        let mut meter = UsageMeter::default();
        let mut samples = Vec::new();
        for view in views {
            let Ok(Some(meta)) = keeper_record::read_meta(&view.folder) else {
                continue;
            };
            let (now, at) = (facts(&meta), SystemClock.mono());
            let previous = self.previous.get(&view.id);
            let cpu = previous.map(|(previous, then)| {
                let used = now.cpu_ms.saturating_sub(previous.cpu_ms) as f64;
                let share = used / at.since(*then).0.max(1) as f64;
                (share * 100.0).round() / 100.0
            });
            meter.previous.insert(view.id, (now, at));
            samples.push((
                view.id,
                UsageSample {
                    cpu,
                    memory: now.memory,
                    waiting_for_input: now.waiting_for_input(),
                },
            ));
        }
        (meter, samples)
    }
}

/// Last lines of a session as plain text, without control sequences and with the session's secrets masked.
pub async fn tail(handle: &Handle, view: &SessionView) -> Vec<String> {
    let lines = if view.pty {
        let snapshot = handle.screens().snapshot(view.id).await;
        snapshot.map(|screen| screen.lines).unwrap_or_default()
    } else {
        let raw = tail::last_lines(&view.folder, LINES);
        raw.iter()
            .flat_map(|line| rendered_rows(line, CHARS))
            .collect()
    };
    let end = lines.iter().rposition(|line| !line.trim().is_empty());
    let lines = &lines[..end.map_or(0, |last| last + 1)];
    let lines = &lines[lines.len().saturating_sub(LINES)..];
    let mask = Mask::of(handle.secrets(view.id));
    lines
        .iter()
        .map(|line| mask.apply(plain_line(line)))
        .collect()
}

fn plain_line(line: &str) -> String {
    let plain = |c: &char| !c.is_control();
    line.chars().filter(plain).take(CHARS).collect()
}
