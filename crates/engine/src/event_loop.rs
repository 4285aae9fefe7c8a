//! The loop. It makes events of what comes in, lets the core decide, and has the effects performed.
//! A turn is a batch: one reading of the clock, everything that is ready, one commit.

use std::collections::HashMap;
use std::sync::Arc;

use abide_core::{CallId, Effect, Engine, Event, Request, SessionId};
use futures_util::future::OptionFuture;
use tokio::sync::{mpsc, oneshot};

use crate::clock::{Alarm, Bell, Clock};
use crate::effects::Performer;
use crate::handle::{Handle, Input, Launch, Slot};
use crate::keepers::Keepers;
use crate::store::{Store, StoreFault};

/// Inputs taken in one turn.
const TURN: usize = 256;

/// A call that the loop has not answered yet.
pub(super) struct OpenCall {
    pub slot: Slot,
    pub launch: Option<Launch>,
}

/// What the loop acts through. Each has a simulated twin in the tests.
pub(super) struct Seams {
    pub clock: Arc<dyn Clock>,
    pub store: Arc<dyn Store>,
    pub keepers: Arc<Keepers>,
    /// Told when everything that was kept can be seen.
    pub ready: oneshot::Sender<()>,
}

/// Runs until [`Input::Stop`], until nobody can call any more, or until the database is broken: then
/// nothing more is promised, and the next daemon reads what there is.
pub(super) async fn drive(
    mut engine: Engine,
    recovered: Vec<Event>,
    mut inbox: mpsc::Receiver<Input>,
    mut happened: mpsc::Receiver<Event>,
    handle: Handle,
    seams: Seams,
) -> Result<(), StoreFault> {
    let Seams {
        clock,
        store,
        keepers,
        ready,
    } = seams;
    let mut calls = HashMap::<CallId, OpenCall>::new();
    let mut performer = Performer::new(handle, store, keepers.clone());
    let mut timers_due =
        Alarm::at_boot_time().map_err(|e| StoreFault::Refused(format!("a timer: {e}")))?;
    let mut calendar = Alarm::on_calendar_set().ok();
    let mut bell = Bell::new();
    let mut turn = Vec::with_capacity(TURN);
    let mut news = Vec::with_capacity(TURN);
    let mut effects = Vec::new();
    let now = clock.now();
    for event in recovered {
        engine.step(now, event, &mut effects);
    }
    let found: Vec<SessionId> = engine.sessions().map(|(id, _)| id).collect();
    effects.extend(found.into_iter().map(|session| Effect::Publish { session }));
    performer
        .perform(&mut engine, &mut calls, std::mem::take(&mut effects), now)
        .await?;
    let _ = ready.send(());
    loop {
        let (alarm, due) = (engine.alarm(), engine.due());
        let mut clock_set = false;
        tokio::select! {
            biased;
            got = happened.recv_many(&mut news, TURN) => if got == 0 { return Ok(()) },
            got = inbox.recv_many(&mut turn, TURN) => if got == 0 { return Ok(()) },
            () = bell.until(&*clock, alarm) => {}
            () = timers_due.until(due) => {}
            Some(()) = OptionFuture::from(calendar.as_mut().map(Alarm::calendar)) => clock_set = true,
        }
        let now = clock.now();
        for event in news.drain(..) {
            engine.step(now, event, &mut effects);
        }
        let mut stop = false;
        let mut callers_gone = Vec::new();
        for input in turn.drain(..) {
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
                    let spare = match call.request {
                        Request::Run(_) | Request::Try(_) => reserve(&engine, &keepers),
                        Request::Join { .. }
                        | Request::Kill { .. }
                        | Request::Extend { .. }
                        | Request::Answer { .. }
                        | Request::Timer(_)
                        | Request::ReadMessages { .. } => SessionId::from_bits(0),
                    };
                    calls.insert(
                        call.id,
                        OpenCall {
                            slot: call.slot,
                            launch: call.launch,
                        },
                    );
                    let event = Event::Called {
                        call: call.id,
                        caller: call.caller,
                        spare,
                        request: call.request,
                    };
                    engine.step(now, event, &mut effects);
                    if engine.session(spare).is_none() {
                        keepers.release(spare);
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
        // A call may begin and be given up in one turn. Its command is started all the same, so what it brought
        // is kept until then.
        for call in callers_gone {
            calls.remove(&call);
        }
        if stop {
            return Ok(());
        }
    }
}

/// A keeper that is warm already, so that nothing has to be made once the call is decided.
fn reserve(engine: &Engine, keepers: &Arc<Keepers>) -> SessionId {
    loop {
        let id = keepers.reserve();
        if engine.session(id).is_none() {
            return id;
        }
    }
}
