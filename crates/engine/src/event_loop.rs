//! The event loop: turns calls and the events of keepers into core events, lets the core decide and has the effects
//! performed. A turn is a batch: one reading of the clocks, everything that is ready up to a limit. No turn waits for the
//! database, unless too much has gathered (`commits.rs`).

use std::collections::HashMap;
use std::sync::Arc;

use abide_core::{CallId, Effect, Engine, Event, Mono, Now, Outcome, Request, Run, SessionId};
use tokio::sync::{mpsc, oneshot};

use crate::clock::{AlarmCause, Clock};
use crate::commits::{Commits, FinishedCommit};
use crate::effects::Performer;
use crate::fleet::Due;
use crate::handle::{Call, Handle, Input, LaunchOptions, ReplyChannel};
use crate::keepers::SessionDetails;
use crate::seams::{KeeperControl, ProbeControl, Store};
use crate::store::StoreFault;

/// Maximum of entries that a turn takes from each queue.
const BATCH: usize = 256;

/// Call that has not been answered yet.
pub(super) struct OpenCall {
    pub reply: ReplyChannel,
    /// True if its answer is about a session and does not wait for a commit.
    pub about_session: bool,
    pub launch: Option<LaunchOptions>,
}

/// Parts that the loop acts through.
pub(super) struct LoopParts {
    pub clock: Arc<dyn Clock>,
    pub store: Arc<dyn Store>,
    pub keepers: Box<dyn KeeperControl>,
    pub probes: Arc<dyn ProbeControl>,
    /// Facts about the sessions of earlier daemons.
    pub recovered: HashMap<SessionId, SessionDetails>,
    /// Notified when everything that was recovered is published.
    pub ready: oneshot::Sender<()>,
}

/// Runs until [`Input::Stop`], until all handles are dropped, or until the database fails in a way that leaves its
/// content unknown: then the next daemon reads what is there.
pub(super) async fn run(
    engine: Engine,
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
        probes,
        recovered: details,
        ready,
    } = parts;
    let mut alarm = clock
        .alarm()
        .map_err(|e| StoreFault::Refused(format!("a timer: {e}")))?;
    let mut turns = Turns {
        engine,
        calls: HashMap::new(),
        commits: Commits::new(store),
        performer: Performer::new(handle, keepers, probes, details),
        effects: Vec::new(),
        callers_gone: Vec::new(),
    };
    let mut input_batch = Vec::with_capacity(BATCH);
    let mut event_batch = Vec::with_capacity(BATCH);
    turns.recover(recovered, clock.now()).await;
    turns.wait_for_commits(&*clock).await?;
    let _ = ready.send(());
    let mut stop = false;
    while !stop {
        if turns.commits.is_full() {
            let finished = turns.commits.finished().await?;
            turns.handle_finished_commit(finished, clock.now()).await;
        }
        let (mono_tick, boot_tick) = (turns.next_mono_tick(), turns.engine.next_boot_tick());
        let mut clock_set = false;
        tokio::select! {
            biased;
            finished = turns.commits.finished() => turns.handle_finished_commit(finished?, clock.now()).await,
            got = events.recv_many(&mut event_batch, BATCH) => stop = got == 0,
            got = inbox.recv_many(&mut input_batch, BATCH) => stop = got == 0,
            rang = alarm.wait(mono_tick, boot_tick) => clock_set = rang == AlarmCause::ClockSet,
        }
        // Busy keepers must not keep calls waiting, nor calls the events of keepers: a turn takes from both queues.
        take_ready(&mut events, &mut event_batch);
        take_ready(&mut inbox, &mut input_batch);
        let now = clock.now();
        for event in event_batch.drain(..) {
            turns.step(now, event);
        }
        for input in input_batch.drain(..) {
            stop |= turns.take(now, input);
        }
        let is_boot_due = boot_tick.is_some_and(|at| at <= now.boot);
        if clock_set || is_boot_due || mono_tick.is_some_and(|at| at <= now.mono) {
            turns.step(now, Event::Tick);
            turns.tell_doubt(now);
        }
        turns.end_turn(now).await;
        turns.tell_fleet();
    }
    turns.wait_for_commits(&*clock).await
}

struct Turns {
    engine: Engine,
    calls: HashMap<CallId, OpenCall>,
    commits: Commits,
    performer: Performer,
    effects: Vec<Effect>,
    /// Calls whose callers left in this turn.
    callers_gone: Vec<CallId>,
}

impl Turns {
    /// First turn: everything that was recovered.
    async fn recover(&mut self, recovered: Vec<Event>, now: Now) {
        for event in recovered {
            self.step(now, event);
        }
        self.end_turn(now).await;
    }

    /// Takes one input. `true`: it asks the loop to stop.
    fn take(&mut self, now: Now, input: Input) -> bool {
        match input {
            Input::Event(event) => self.step(now, event),
            Input::Call(call) => self.call(now, *call),
            Input::WatchersChanged => {
                let count = self.performer.watchers();
                self.step(now, Event::Watchers { count });
            }
            Input::Stop => return true,
        }
        false
    }

    fn step(&mut self, now: Now, event: Event) {
        match &event {
            Event::CallerGone { call } => self.callers_gone.push(*call),
            Event::OutputGrew {
                session,
                quiet_since,
                ..
            } => {
                self.performer
                    .sample_cpu(&self.engine, *session, *quiet_since);
            }
            _ => {}
        }
        self.engine.step(now, event, &mut self.effects);
    }

    fn call(&mut self, now: Now, call: Call) {
        // A keeper is reserved before the call is decided, so that a start does not wait for one.
        let reserved = match call.request {
            // A command that a person must approve is started later, if at all.
            Request::Run(Run {
                approval: Some(_), ..
            }) => Some(self.performer.keepers().unused_id()),
            Request::Run(_) | Request::Try(_) => Some(self.performer.keepers().reserve()),
            Request::Join { .. }
            | Request::JoinStart { .. }
            | Request::Probe { .. }
            | Request::Kill { .. }
            | Request::Extend { .. }
            | Request::Answer { .. }
            | Request::Timer(_)
            | Request::ReadMessages { .. } => None,
        };
        let open = OpenCall {
            reply: call.reply,
            about_session: call.request.is_about_session(),
            launch: call.launch,
        };
        self.calls.insert(call.id, open);
        let event = Event::Called {
            call: call.id,
            caller: call.caller,
            reserved,
            request: call.request,
        };
        self.step(now, event);
        if let Some(id) = reserved.filter(|id| self.engine.session(*id).is_none()) {
            self.performer.keepers().release(id);
        }
    }

    /// Monotonic time of the next tick.
    fn next_mono_tick(&self) -> Option<Mono> {
        let alarms = [
            self.engine.next_mono_tick(),
            self.commits.doubt_is_told_at(),
        ];
        alarms.into_iter().flatten().min()
    }

    /// Answers the calls that have waited too long for a commit whose outcome is not known. For the core their callers
    /// are gone: what their answers were to tell is told later.
    fn tell_doubt(&mut self, now: Now) {
        if self
            .commits
            .doubt_is_told_at()
            .is_none_or(|at| now.mono < at)
        {
            return;
        }
        let (waiting, refusal) = self.commits.tell_doubt();
        for call in waiting {
            if let Some(open) = self.calls.remove(&call) {
                // The caller may be gone by now.
                let _ = open.reply.outcome.send(Outcome::Refused(refusal.clone()));
                self.step(now, Event::CallerGone { call });
            }
        }
    }

    /// Tells the fleet what is due next, so that the other machines notice in time if this one is lost.
    fn tell_fleet(&self) {
        if let Some(fleet) = self.performer.handle().fleet() {
            fleet.set_due(Due {
                soonest: self.engine.next_deadline(),
                waiting: self.engine.agents_waiting(),
            });
        }
    }

    /// Gathers what is to be committed and begins a commit if none is in flight, so that the disk works while the effects of
    /// the turn that need no commit are performed. Then refuses what cannot be committed, and performs what waited for the
    /// commit if it had nothing to write.
    async fn end_turn(&mut self, now: Now) {
        for effect in &mut self.effects {
            self.performer.prepare(effect);
        }
        self.commits.gather(&mut self.effects, &self.calls);
        let committed = self.commits.begin(&mut self.engine, now.mono);
        let effects = std::mem::take(&mut self.effects);
        self.performer
            .perform(&self.engine, &mut self.calls, effects, now)
            .await;
        if let Some(mut refused) = self.commits.take_effects_to_undo() {
            self.engine.gathering_failed(now, &mut refused);
            let fault = StoreFault::no_answer();
            self.commits.explain_refusals(&mut refused, &fault);
            self.performer
                .perform(&self.engine, &mut self.calls, refused, now)
                .await;
        }
        if let Some(effects) = committed {
            self.performer
                .perform(&self.engine, &mut self.calls, effects, now)
                .await;
        }
        // A call may begin and be cancelled in one turn. Its command is started anyway, so its launch data is kept
        // until then.
        for call in self.callers_gone.drain(..) {
            self.calls.remove(&call);
        }
    }

    /// Performs what waited for a commit, or undoes it, and begins the next commit.
    async fn handle_finished_commit(&mut self, finished: FinishedCommit, now: Now) {
        match finished {
            FinishedCommit::Succeeded(effects) => {
                self.engine.commit_succeeded();
                self.performer
                    .perform(&self.engine, &mut self.calls, effects, now)
                    .await;
            }
            FinishedCommit::Failed(fault, mut effects) => {
                self.performer.report_failed_commit(&fault);
                self.engine.commit_failed(now, &mut effects);
                self.commits.explain_refusals(&mut effects, &fault);
                self.performer
                    .perform(&self.engine, &mut self.calls, effects, now)
                    .await;
            }
            FinishedCommit::Unknown(fault) => self.performer.report_failed_commit(&fault),
        }
        if let Some(effects) = self.commits.begin(&mut self.engine, now.mono) {
            self.performer
                .perform(&self.engine, &mut self.calls, effects, now)
                .await;
        }
    }

    /// Commits everything that was decided. A commit whose outcome is not known is left to the next daemon, which reads
    /// what is there.
    async fn wait_for_commits(&mut self, clock: &dyn Clock) -> Result<(), StoreFault> {
        while self.commits.is_in_flight() && !self.commits.is_settling() {
            let finished = self.commits.finished().await?;
            self.handle_finished_commit(finished, clock.now()).await;
        }
        Ok(())
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
