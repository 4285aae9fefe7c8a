//! Summary of running sessions: the last lines of output as plain text, with CPU and memory usage.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use abide_api::Glance;
use abide_core::{Mono, SessionId};
use abide_output::digest::rendered_rows;
use abide_output::mask::Mask;

use abide_engine::clock::{SystemClock, pause};
use abide_engine::{Handle, SessionView};
use abide_session::facts::{Facts, facts};
use abide_session::folder;
use abide_session::log::tail;

/// Number of lines in a tail.
const LINES: usize = 6;
/// Longest line in a tail, in characters.
const CHARS: usize = 400;
/// Interval between the two measurements that give a CPU share.
const APART: Duration = Duration::from_millis(50);

/// Measurement of the processes of a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// CPU time per elapsed time since the previous measurement (1.0 is one processor); `None` for the
    /// first measurement.
    pub cpu: Option<f64>,
    pub memory: u64,
    pub waiting_for_input: bool,
}

/// Combines a tail and a measurement.
pub fn glance(tail: Vec<String>, look: Option<Look>) -> Glance {
    Glance {
        tail,
        cpu: look.and_then(|look| look.cpu),
        memory: look.map(|look| look.memory),
        waiting_for_input: look.is_some_and(|look| look.waiting_for_input),
    }
}

/// Summaries of these running sessions.
pub async fn at_all(handle: &Handle, views: Vec<Arc<SessionView>>) -> HashMap<SessionId, Glance> {
    if views.is_empty() {
        return HashMap::new();
    }
    let mut glances = HashMap::new();
    for view in &views {
        let tail = tail(handle, view).await;
        glances.insert(view.id, glance(tail, None));
    }
    let mut meter = Meter::default();
    meter = meter.look(&views).await.0;
    pause(APART).await;
    for (id, look) in meter.look(&views).await.1 {
        if let Some(seen) = glances.get_mut(&id) {
            *seen = glance(std::mem::take(&mut seen.tail), Some(look));
        }
    }
    glances
}

/// Previous measurement of each session, from which the CPU share is computed.
#[derive(Default)]
pub struct Meter {
    before: HashMap<SessionId, (Facts, Mono)>,
}

impl Meter {
    /// Measures these sessions on a blocking thread, and forgets all others.
    pub async fn look(self, views: &[Arc<SessionView>]) -> (Self, Vec<(SessionId, Look)>) {
        let views = views.to_vec();
        let looked = tokio::task::spawn_blocking(move || self.looked(&views)).await;
        looked.unwrap_or_default()
    }

    fn looked(self, views: &[Arc<SessionView>]) -> (Self, Vec<(SessionId, Look)>) {
        let mut meter = Meter::default();
        let mut looks = Vec::new();
        for view in views {
            let Ok(Some(meta)) = folder::read_meta(&view.folder) else {
                continue;
            };
            let (now, at) = (facts(&meta), SystemClock.mono());
            let before = self.before.get(&view.id);
            let cpu = before.map(|(before, then)| {
                let used = now.cpu_ms.saturating_sub(before.cpu_ms) as f64;
                let share = used / at.since(*then).0.max(1) as f64;
                (share * 100.0).round() / 100.0
            });
            meter.before.insert(view.id, (now, at));
            looks.push((
                view.id,
                Look {
                    cpu,
                    memory: now.memory,
                    waiting_for_input: now.waiting_for_input(),
                },
            ));
        }
        (meter, looks)
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
    lines.iter().map(|line| mask.apply(shown(line))).collect()
}

fn shown(line: &str) -> String {
    let plain = |c: &char| !c.is_control();
    line.chars().filter(plain).take(CHARS).collect()
}
