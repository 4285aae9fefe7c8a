//! The event loop: turns calls and the events of keepers into core events, lets the core decide and has the effects
//! performed. A turn is a batch: one reading of the clocks, everything that is ready up to a limit, one commit.

use std::collections::HashMap;
use std::sync::Arc;

use abide_core::{CallId, Effect, Engine, Event, Request, SessionId};
use futures_util::future::OptionFuture;
use tokio::sync::{mpsc, oneshot};

use crate::clock::{Clock, MonotonicTimer, TimerFd};
use crate::effects::Performer;
use crate::handle::{Handle, Input, Launch, ReplyChannel};
use crate::keepers::Keepers;
use crate::store::{Store, StoreFault};

/// Maximum of entries that a turn takes from each queue.
const BATCH: usize = 256;

/// Call that has not been answered yet.
pub(super) struct OpenCall {
    pub reply: ReplyChannel,
    pub launch: Option<Launch>,
}

/// Parts that the loop acts through.
pub(super) struct LoopParts {
    pub clock: Arc<dyn Clock>,
    pub store: Arc<dyn Store>,
    pub keepers: Arc<Keepers>,
    /// Notified when everything that was recovered is published.
    pub ready: oneshot::Sender<()>,
}

/// Runs until [`Input::Stop`], until all handles are dropped, or until the database fails in a way that leaves its
/// content unknown: then the next daemon reads what is there.
pub(super) async fn run(
    mut engine: Engine,
    recovered: Vec<Event>,
    mut inbox: mpsc::Receiver<Input>,
    mut events: mpsc::Receiver<Event>,
    handle: Handle,
    parts: LoopParts,
) -> Result<(), StoreFault> {
    let LoopParts {
        clock,
        store,
        keepers,
        ready,
    } = parts;
    let mut calls = HashMap::<CallId, OpenCall>::new();
    let mut performer = Performer::new(handle, store, keepers.clone());
    let mut boot_timer =
        TimerFd::at_boot_time().map_err(|e| StoreFault::Refused(format!("a timer: {e}")))?;
    let mut clock_watch = TimerFd::on_clock_set().ok();
    let mut mono_timer = MonotonicTimer::new();
    let mut input_batch = Vec::with_capacity(BATCH);
    let mut event_batch = Vec::with_capacity(BATCH);
    let mut effects = Vec::new();
    let now = clock.now();
    for event in recovered {
        engine.step(now, event, &mut effects);
    }
    let sessions: Vec<SessionId> = engine.sessions().map(|(id, _)| id).collect();
    effects.extend(
        sessions
            .into_iter()
            .map(|session| Effect::Publish { session }),
    );
    performer
        .perform(&mut engine, &mut calls, std::mem::take(&mut effects), now)
        .await?;
    let _ = ready.send(());
    loop {
        let (alarm, due) = (engine.alarm(), engine.due());
        let mut clock_set = false;
        tokio::select! {
            biased;
            got = events.recv_many(&mut event_batch, BATCH) => if got == 0 { return Ok(()) },
            got = inbox.recv_many(&mut input_batch, BATCH) => if got == 0 { return Ok(()) },
            () = mono_timer.until(&*clock, alarm) => {}
            () = boot_timer.until(due) => {}
            Some(()) = OptionFuture::from(clock_watch.as_mut().map(TimerFd::clock_set)) => clock_set = true,
        }
        // Busy keepers must not keep calls waiting, nor calls the events of keepers: a turn takes from both queues.
        take_ready(&mut events, &mut event_batch);
        take_ready(&mut inbox, &mut input_batch);
        let now = clock.now();
        for event in event_batch.drain(..) {
            engine.step(now, event, &mut effects);
        }
        let mut stop = false;
        let mut callers_gone = Vec::new();
        for input in input_batch.drain(..) {
            match input {
                Input::Event(event) => {
                    if let Event::CallerGone { call } = event {
                        callers_gone.push(call);
                    }
                    if let Event::Forgotten { sessions } = &event {
                        effects.extend(sessions.iter().map(|&session| Effect::Publish { session }));
                    }
                    engine.step(now, event, &mut effects);
                }
                Input::Stop => stop = true,
                Input::Call(call) => {
                    let reserved = match call.request {
                        Request::Run(_) | Request::Try(_) => Some(reserve(&engine, &keepers)),
                        Request::Join { .. }
                        | Request::Kill { .. }
                        | Request::Extend { .. }
                        | Request::Answer { .. }
                        | Request::Timer(_)
                        | Request::ReadMessages { .. } => None,
                    };
                    calls.insert(
                        call.id,
                        OpenCall {
                            reply: call.reply,
                            launch: call.launch,
                        },
                    );
                    let event = Event::Called {
                        call: call.id,
                        caller: call.caller,
                        reserved,
                        request: call.request,
                    };
                    engine.step(now, event, &mut effects);
                    if let Some(id) = reserved.filter(|id| engine.session(*id).is_none()) {
                        keepers.release(id);
                    }
                }
            }
        }
        let due = due.is_some_and(|due| due <= now.boot);
        if due || clock_set || alarm.is_some_and(|alarm| alarm <= now.mono) {
            engine.step(now, Event::Tick, &mut effects);
        }
        performer
            .perform(&mut engine, &mut calls, std::mem::take(&mut effects), now)
            .await?;
        // A call may begin and be cancelled in one turn. Its command is started anyway, so its launch data is kept
        // until then.
        for call in callers_gone {
            calls.remove(&call);
        }
        if stop {
            return Ok(());
        }
    }
}

/// Reserves an idle keeper before the call is decided, so that a start does not wait for one.
fn reserve(engine: &Engine, keepers: &Arc<Keepers>) -> SessionId {
    loop {
        let id = keepers.reserve();
        if engine.session(id).is_none() {
            return id;
        }
    }
}

/// Adds the entries of a queue that are ready, up to the limit of a turn.
fn take_ready<T>(queue: &mut mpsc::Receiver<T>, batch: &mut Vec<T>) {
    while batch.len() < BATCH
        && let Ok(entry) = queue.try_recv()
    {
        batch.push(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_ready_adds_ready_entries_in_order_and_stops_at_the_limit() {
        let (sender, mut queue) = mpsc::channel(2 * BATCH);
        for number in 0..BATCH + 1 {
            sender.try_send(number).expect("room in the queue");
        }
        let mut batch = vec![usize::MAX];
        take_ready(&mut queue, &mut batch);
        assert_eq!(batch.len(), BATCH);
        assert_eq!(batch[1..4], [0, 1, 2]);
        batch.clear();
        take_ready(&mut queue, &mut batch);
        assert_eq!(batch, [BATCH - 1, BATCH]);
    }
}
