//! Output sampler: reads the output of running sessions twice a second while a subscriber wants it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use abide_api::{Id, SessionPulse};
use abide_core::SessionId;

use super::hub::Channel;
use crate::http::session_activity::{self, Look, Meter};
use abide_engine::clock::pause;
use abide_engine::{Handle, SessionView};
use abide_session::log::Log;

/// Pause between two rounds.
const ROUND: Duration = Duration::from_millis(500);
/// Period, in rounds, of the CPU and memory measurement. The first two rounds of each period measure.
const LOOK_EVERY: u32 = 4;

/// State of a session at its last output event.
#[derive(Default)]
struct Told {
    bytes: Option<u64>,
    tail: Vec<String>,
    look: Option<Look>,
}

/// Samples all running sessions until no subscriber wants output.
pub async fn sample(handle: Handle, channel: Arc<Channel>) {
    let mut told = HashMap::<SessionId, Told>::new();
    let mut meter = Meter::default();
    let mut round = 0;
    while channel.wants_output() {
        let running: Vec<_> = handle
            .published()
            .sessions()
            .into_iter()
            .filter(|view| view.is_running())
            .collect();
        let mut looks = HashMap::new();
        if round % LOOK_EVERY <= 1 {
            let found;
            (meter, found) = meter.look(&running).await;
            looks.extend(found);
        }
        round += 1;
        told.retain(|id, _| running.iter().any(|view| view.id == *id));
        channel
            .held()
            .ring
            .keep_outputs(|id| told.contains_key(&id));
        let mut any = false;
        for view in &running {
            let last = told.entry(view.id).or_default();
            any |= look_at(&handle, &channel, view, looks.get(&view.id), last).await;
        }
        if any {
            channel.wake();
        }
        pause(ROUND).await;
    }
}

/// Stores a new output event if the session has changed, and returns `true` in that case.
async fn look_at(
    handle: &Handle,
    channel: &Channel,
    view: &SessionView,
    look: Option<&Look>,
    last: &mut Told,
) -> bool {
    let log = Log::open(&view.folder);
    // The next round retries a log that cannot be read now.
    let Ok(bytes) = log.end() else {
        return false;
    };
    let grown = last.bytes != Some(bytes);
    let look = look.copied().or(last.look);
    if !grown && look == last.look {
        return false;
    }
    if grown {
        last.tail = session_activity::tail(handle, view).await;
    }
    (last.bytes, last.look) = (Some(bytes), look);
    let wrote = log.last_at().ok().flatten();
    let pulse = SessionPulse {
        session_id: Id(view.id),
        bytes_total: bytes,
        last_activity: wrote.unwrap_or(view.state.created.0),
        glance: session_activity::glance(last.tail.clone(), look),
    };
    let mut held = channel.held();
    let event = channel.event(held.ring.last(), "output", &pulse);
    held.ring
        .put_output(view.id, view.state.agent.clone(), event);
    true
}
