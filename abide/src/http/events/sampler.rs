//! Output sampler: reads the output of running sessions twice a second while a subscriber wants it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use abide_api::{Id, SessionPulse};
use abide_core::SessionId;

use super::hub::Channel;
use crate::http::session_activity::{self, UsageMeter, UsageSample};
use abide_engine::clock::pause;
use abide_engine::{Handle, SessionView};
use abide_session::log::Log;

/// Pause between two rounds.
const INTERVAL: Duration = Duration::from_millis(500);
/// Period, in rounds, of the CPU and memory measurement. The first two rounds of each period measure.
const MEASURE_EVERY: u32 = 4;

/// State of a session at its last output event.
#[derive(Default)]
struct LastSample {
    bytes: Option<u64>,
    tail: Vec<String>,
    sample: Option<UsageSample>,
}

/// Samples all running sessions until no subscriber wants output.
pub async fn sample(handle: Handle, channel: Arc<Channel>) {
    let mut sampled = HashMap::<SessionId, LastSample>::new();
    let mut meter = UsageMeter::default();
    let mut round = 0;
    while channel.wants_output() {
        let running: Vec<_> = handle
            .published()
            .sessions()
            .into_iter()
            .filter(|view| view.is_running())
            .collect();
        let mut samples = HashMap::new();
        if round % MEASURE_EVERY <= 1 {
            let found;
            (meter, found) = meter.measure(&running).await;
            samples.extend(found);
        }
        round += 1;
        sampled.retain(|id, _| running.iter().any(|view| view.id == *id));
        channel
            .state()
            .backlog
            .retain_outputs(|id| sampled.contains_key(&id));
        let mut any = false;
        for view in &running {
            let last = sampled.entry(view.id).or_default();
            any |= update_output(&handle, &channel, view, samples.get(&view.id), last).await;
        }
        if any {
            channel.wake();
        }
        pause(INTERVAL).await;
    }
}

/// Stores a new output event if the session has changed, and returns `true` in that case.
async fn update_output(
    handle: &Handle,
    channel: &Channel,
    view: &SessionView,
    sample: Option<&UsageSample>,
    last: &mut LastSample,
) -> bool {
    let log = Log::open(&view.folder);
    // The next round retries a log that cannot be read now.
    let Ok(bytes) = log.end() else {
        return false;
    };
    let grown = last.bytes != Some(bytes);
    let sample = sample.copied().or(last.sample);
    if !grown && sample == last.sample {
        return false;
    }
    if grown {
        last.tail = session_activity::tail(handle, view).await;
    }
    (last.bytes, last.sample) = (Some(bytes), sample);
    let last_output = log.last_at().ok().flatten();
    let pulse = SessionPulse {
        session_id: Id(view.id),
        bytes_total: bytes,
        last_activity: last_output.unwrap_or(view.state.created.0),
        live_activity: session_activity::activity(last.tail.clone(), sample),
    };
    let mut channel_state = channel.state();
    let event = channel.event(channel_state.backlog.last(), "output", &pulse);
    channel_state
        .backlog
        .put_output(view.id, view.state.agent.clone(), event);
    true
}
