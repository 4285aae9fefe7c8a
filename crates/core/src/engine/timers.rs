//! Timers: the requests about them, and their completion by time or by condition.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::generations::{UncommittedCall, UncommittedEvent};
use super::{Engine, Step};
use crate::effect::Effect;
use crate::id::{Agent, CallId, Conversation, Key, TimerId};
use crate::limit;
use crate::message::{About, MessageContent, Recipient};
use crate::record::Record;
use crate::request::{Caller, Refusal};
use crate::session::StartedBy;
use crate::time::{Millis, Now, Steady, Wall};
use crate::timer::{
    self, Act, Change, CompletedBy, Create, Found, Kind, Observation, ObservedTimer, Request, Slot,
    Standby, Status, Timer, Until, Why,
};
use crate::wait::Outcome;

/// Time for which the failure of a session that was told by a result says something about a wait that begins.
const RECENT_FAILURE: Millis = Millis(5_000);
/// The same for a failure that the agent has not been told of: longer than a model takes for its next call.
const RECENT_UNTOLD_FAILURE: Millis = Millis(60_000);

impl Engine {
    pub(super) fn timer_called(
        &mut self,
        step: &mut Step<'_>,
        call: CallId,
        caller: Caller,
        request: Request,
    ) -> Result<(), Refusal> {
        self.uncommitted_calls
            .push(match request.changes_something() {
                true => UncommittedCall::Change(call),
                false => UncommittedCall::Read(call, caller.clone(), request.clone()),
            });
        let Caller {
            agent: caller,
            conversation,
        } = caller;
        let maker = |caller: Option<Agent>| caller.unwrap_or_else(|| self.default_agent.clone());
        match request {
            Request::Create(new) => {
                let maker = (maker(caller), conversation);
                self.create(step, call, maker, new)
            }
            Request::CreateMany(all) => {
                let maker = (maker(caller), conversation);
                self.create_many(step, call, maker, all)
            }
            Request::Continue {
                timer,
                remaining,
                standby,
                client_limit,
                key,
            } => match self.timers.find(&caller, timer)? {
                Found::Ended(timer) => {
                    answer(step, call, timer, Why::Ended);
                    Ok(())
                }
                Found::Live(slot) => {
                    let timer =
                        self.continue_with(step, call, slot, remaining, standby, client_limit)?;
                    record_key(step, timer.number, key.filter(|_| remaining.is_some()));
                    Ok(())
                }
            },
            Request::Act {
                timer,
                act,
                stop_reason,
                key,
            } => {
                let acted = self.act(step, call, &caller, timer, act, stop_reason)?;
                record_key(step, acted.number, key);
                Ok(())
            }
            Request::Read { asks, timer } => self.read_timer(step, call, &caller, timer, asks),
            Request::List { asks, after, most } => {
                let timers = self.list_timers(step.now, &caller, asks, after, most);
                step.reply(call, Outcome::Timers(timers));
                Ok(())
            }
            Request::See { timers } => {
                let seen = (timers.iter().take(limit::TIMERS_LISTED))
                    .filter_map(|id| self.observe(step.now, &caller, *id))
                    .collect();
                step.reply(call, Outcome::TimersObserved(seen));
                Ok(())
            }
            Request::Keyed { key } => {
                let found = match self.timers.keyed(&maker(caller), &key) {
                    Some(Found::Live(slot)) => self.timers.view(step.now, slot),
                    Some(Found::Ended(timer)) => Some(timer),
                    None => None,
                };
                step.reply(call, Outcome::Timers(found.into_iter().collect()));
                Ok(())
            }
            Request::Count => {
                let count = self.timers.slots(&caller, None).count();
                step.reply(call, Outcome::TimersCounted(count));
                Ok(())
            }
        }
    }

    /// Answers with a timer. `asks`: its agent wants to know, which is recorded as a check.
    fn read_timer(
        &mut self,
        step: &mut Step<'_>,
        call: CallId,
        caller: &Option<Agent>,
        id: TimerId,
        asks: bool,
    ) -> Result<(), Refusal> {
        let timer = match self.timers.find(caller, id)? {
            Found::Ended(timer) => timer,
            Found::Live(slot) => {
                if asks {
                    self.timers.touch(step.now, slot);
                }
                self.view(step.now, slot, id)?
            }
        };
        answer(step, call, timer, Why::Looked);
        Ok(())
    }

    fn list_timers(
        &mut self,
        now: Now,
        caller: &Option<Agent>,
        asks: bool,
        after: Option<TimerId>,
        most: usize,
    ) -> Vec<Timer> {
        let slots: Vec<_> = (self.timers.slots(caller, after))
            .take(most.min(limit::TIMERS_LISTED))
            .collect();
        if asks {
            for slot in &slots {
                self.timers.touch(now, *slot);
            }
        }
        (slots.iter())
            .filter_map(|slot| self.timers.view(now, *slot))
            .collect()
    }

    fn create(
        &mut self,
        step: &mut Step<'_>,
        call: CallId,
        maker: Maker,
        new: Create,
    ) -> Result<(), Refusal> {
        if let Some(key) = &new.key
            && let Some(first) = self.timers.keyed(&maker.0, key)
        {
            return self.join(step, call, first, &new);
        }
        if !returns_at_once(&new) {
            self.has_room_to_wait()?;
        }
        let (standby, client_limit, returns_at_once) =
            (new.standby, new.client_limit, returns_at_once(&new));
        let slot = self.make(step, &maker, new)?;
        let id = self.timers.id(slot);
        let timer = self.view(step.now, slot, id)?;
        if returns_at_once {
            answer(step, call, timer, Why::Made);
        } else {
            self.stand_by(step.now, call, &timer, standby, client_limit);
        }
        Ok(())
    }

    /// Handles a repeated call with the same key: the call stands by on the timer that the first call created.
    fn join(
        &mut self,
        step: &mut Step<'_>,
        call: CallId,
        first: Found,
        new: &Create,
    ) -> Result<(), Refusal> {
        let timer = match first {
            Found::Ended(timer) => {
                answer(step, call, timer, Why::Ended);
                return Ok(());
            }
            Found::Live(slot) => self.view(step.now, slot, self.timers.id(slot))?,
        };
        if timer.kind != new.kind {
            let key = new.key.clone().ok_or(Refusal::NotRecorded)?;
            return Err(timer::Refusal::KeyReused(key).into());
        }
        if returns_at_once(new) || !matches!(timer.status, Status::Running(_)) {
            answer(step, call, timer, Why::Joined);
            return Ok(());
        }
        self.has_room_to_wait()?;
        self.stand_by(step.now, call, &timer, new.standby, new.client_limit);
        Ok(())
    }

    fn create_many(
        &mut self,
        step: &mut Step<'_>,
        call: CallId,
        maker: Maker,
        all: Vec<Create>,
    ) -> Result<(), Refusal> {
        if all.len() > limit::TIMERS_AT_ONCE || self.timers.len() + all.len() > limit::TIMERS {
            let (given, limit) = (all.len(), limit::TIMERS_AT_ONCE);
            return Err(Refusal::TooMany(alloc::format!(
                "timers in one call: {given} (limit {limit}, and {} in all)",
                limit::TIMERS
            )));
        }
        let mut made = Vec::with_capacity(all.len());
        for new in all {
            if let Some(key) = &new.key
                && let Some(first) = self.timers.keyed(&maker.0, key)
            {
                made.push(match first {
                    Found::Live(slot) => self.timers.id(slot),
                    Found::Ended(timer) => timer.id,
                });
                continue;
            }
            let slot = self.make(step, &maker, new)?;
            made.push(self.timers.id(slot));
        }
        step.reply(call, Outcome::TimersMade(made));
        Ok(())
    }

    fn make(&mut self, step: &mut Step<'_>, maker: &Maker, new: Create) -> Result<u64, Refusal> {
        let (agent, conversation) = maker;
        let slot = self
            .timers
            .create(step.now, agent, conversation.as_ref(), &new)?;
        let id = self.timers.id(slot);
        let timer = self.view(step.now, slot, id)?;
        step.push(Effect::Record(Record::Timer(timer::Record::Created(
            timer::Created {
                number: timer.number,
                id,
                agent: agent.clone(),
                conversation: conversation.clone(),
                kind: new.kind,
                purpose: new.purpose,
                until: new.until.clone(),
                key: new.key,
                total: new.total,
                due: self.timers.steady(step.now) + new.total,
                standby: new.standby.map(|time| time.min(new.total)),
                at: step.now.wall,
            },
        ))));
        if let Some(condition) = new.until {
            let until = Some(Until {
                condition,
                agent: agent.clone(),
                conversation: conversation.clone(),
                since: self.untold_since(step.now, maker),
            });
            step.push(Effect::Probe { timer: id, until });
        }
        step.push(Effect::PublishTimer { timer: id });
        Ok(slot)
    }

    /// Time just before the first recent failure of a session that the maker of a timer has not been told of, or that it was
    /// told of just now and after which it has started nothing else; else now. A server can fail between the call that
    /// started it and the call that waits for its port, or before the first of them is answered.
    fn untold_since(&self, now: Now, maker: &Maker) -> Wall {
        let recipient = Recipient {
            agent: maker.0.clone(),
            conversation: maker.1.clone(),
        };
        let untold = self.outbox.unread_sessions(&recipient, self.rule(now));
        let failed = untold.filter_map(|id| self.sessions.get(&id)?.session.failed_at());
        let failed = failed.filter(|at| now.wall.0.saturating_sub(at.0) <= RECENT_UNTOLD_FAILURE.0);
        let untold = failed.map(|at| Wall(at.0.saturating_sub(1)));
        let own = self.sessions.values().filter(|entry| {
            let session = &entry.session;
            let is_own = (&session.agent, &session.conversation) == (&maker.0, &maker.1);
            is_own && !session.started_by.is_try()
        });
        let newest = own.max_by_key(|entry| entry.session.created);
        let told = newest.filter(|entry| {
            let session = &entry.session;
            let heard = session.end_heard.unwrap_or_default();
            let is_recent = now.wall.0.saturating_sub(heard.0) <= RECENT_FAILURE.0;
            let is_server = session.started_by == StartedBy::Terminal;
            is_server && is_recent && session.failed_at().is_some()
        });
        let last_told = told.map(|entry| entry.session.created);
        let first = untold.chain(last_told).min();
        first.map_or(now.wall, |first| first.min(now.wall))
    }

    fn continue_with(
        &mut self,
        step: &mut Step<'_>,
        call: CallId,
        slot: Slot,
        remaining: Option<Millis>,
        standby: Option<Millis>,
        client_limit: Option<Millis>,
    ) -> Result<Timer, Refusal> {
        self.has_room_to_wait()?;
        self.timers.continue_with(step.now, slot, remaining)?;
        let timer = self.view(step.now, slot, self.timers.id(slot))?;
        // The record states a standby of at most the remaining time, which is also the default.
        let fitted = standby.unwrap_or(timer.remaining).min(timer.remaining);
        self.changed(step, slot, Some(fitted), Change::Continued, None);
        self.stand_by(step.now, call, &timer, standby, client_limit);
        Ok(timer)
    }

    /// Lets a call stand by. A standby longer than the timer gets an alarm too: another call may prolong the timer,
    /// and a full disk may delay its completion.
    fn stand_by(
        &mut self,
        now: Now,
        call: CallId,
        timer: &Timer,
        standby: Option<Millis>,
        client_limit: Option<Millis>,
    ) {
        let for_this_long = standby.into_iter().chain(client_limit).min();
        let until = for_this_long.map(|time| self.timers.steady(now) + time);
        let number = timer.number;
        self.standby_calls.enter(call, Standby { number, until });
    }

    fn act(
        &mut self,
        step: &mut Step<'_>,
        call: CallId,
        caller: &Option<Agent>,
        id: TimerId,
        act: Act,
        reason: Option<Arc<str>>,
    ) -> Result<Timer, Refusal> {
        let slot = match self.timers.find(caller, id)? {
            Found::Live(slot) => slot,
            Found::Ended(timer) => {
                return Err(timer::not_allowed(&timer, act.as_str()).into());
            }
        };
        let timer = self.timers.act(step.now, slot, act)?;
        let change = match act {
            Act::Stop => None,
            Act::Cancel => Some(Change::Cancelled),
            Act::Pause(_) => Some(Change::Paused),
            Act::Resume => Some(Change::Resumed),
        };
        if let Some(change) = change {
            self.changed(step, slot, None, change, reason);
            self.interrupt_standby(step, &timer, act);
            if timer.conditional {
                let (paused, timer, until) = (timer.clone(), id, None);
                match act {
                    Act::Pause(_) => {
                        step.push(Effect::PauseProbe { timer });
                        self.end_tries(step, &paused);
                    }
                    Act::Resume if self.timers.is_adopted(slot) => {}
                    Act::Resume => step.push(Effect::Probe { timer, until }),
                    Act::Cancel | Act::Stop => {}
                }
            }
        } else {
            self.record_end(step, &timer, reason, None);
            self.interrupt_standby(step, &timer, Act::Stop);
        }
        answer(step, call, timer.clone(), Why::Done(act));
        Ok(timer)
    }

    fn interrupt_standby(&mut self, step: &mut Step<'_>, timer: &Timer, act: Act) {
        if act == Act::Resume {
            return;
        }
        for call in self.standby_calls.release(timer.number) {
            answer(step, call, timer.clone(), Why::Interrupted(act));
        }
    }

    fn changed(
        &mut self,
        step: &mut Step<'_>,
        slot: u64,
        standby: Option<Millis>,
        change: Change,
        reason: Option<Arc<str>>,
    ) {
        let Some(state) = self.timers.state(slot) else {
            return;
        };
        let id = self.timers.id(slot);
        let Some(timer) = self.timers.view(step.now, slot) else {
            return;
        };
        step.push(Effect::Record(Record::Timer(timer::Record::Changed(
            timer::Changed {
                number: timer.number,
                state,
                standby,
                change,
                reason,
                checked: timer.checked,
                at: step.now.wall,
            },
        ))));
        step.push(Effect::PublishTimer { timer: id });
    }

    fn record_end(
        &mut self,
        step: &mut Step<'_>,
        timer: &Timer,
        stop_reason: Option<Arc<str>>,
        seen: Option<Observation>,
    ) {
        step.push(Effect::Record(Record::Timer(timer::Record::Ended(
            timer::Ended {
                number: timer.number,
                id: timer.id,
                status: timer.status,
                total: timer.total,
                remaining: timer.remaining,
                stop_reason,
                seen,
                checked: timer.checked,
                at: step.now.wall,
            },
        ))));
        if timer.conditional {
            step.push(Effect::StopProbe { timer: timer.id });
            self.end_tries(step, timer);
        }
        step.push(Effect::PublishTimer { timer: timer.id });
    }

    /// Handles that the condition of a timer holds or can no longer hold.
    pub(super) fn condition_decided(
        &mut self,
        step: &mut Step<'_>,
        id: TimerId,
        by: CompletedBy,
        seen: Observation,
    ) {
        if !self.outbox.has_numbers() {
            let event = UncommittedEvent::ConditionDecided(id, by, seen);
            self.retry_later(step, event);
            return;
        }
        self.uncommitted_events
            .push(UncommittedEvent::ConditionDecided(id, by, seen.clone()));
        if let Some(timer) = self.timers.decide(step.now, id, by) {
            self.completed(step, timer, Some(seen));
        }
    }

    /// Moves the anchor of the timers if the system clock was set.
    pub(super) fn note_clock(&mut self, step: &mut Step<'_>) {
        if let Some(anchor) = self.timers.note(step.now) {
            let anchored = timer::Record::Anchored(anchor);
            step.push(Effect::Record(Record::Timer(anchored)));
        }
    }

    /// Completes the timers that are due, at most [`limit::DUE_AT_ONCE`] per step, so that calls are handled in
    /// between.
    pub(super) fn timers_due(&mut self, step: &mut Step<'_>) {
        for _ in 0..limit::DUE_AT_ONCE {
            if !self.outbox.has_numbers() {
                self.timers.hold(step.now);
            }
            match self.timers.pop_due(step.now) {
                None => break,
                Some(timer::Due::Completed(timer)) => {
                    let seen = self.adopted.note(&timer).map(Observation::new);
                    self.completed(step, timer, seen);
                }
                Some(timer::Due::Resumed(slot)) => {
                    self.changed(step, slot, None, Change::ResumedByItself, None);
                    let timer = self.timers.view(step.now, slot);
                    let probed = timer.filter(|timer| timer.conditional);
                    if let Some(timer) = probed.filter(|_| !self.timers.is_adopted(slot)) {
                        let (timer, until) = (timer.id, None);
                        step.push(Effect::Probe { timer, until });
                    }
                }
            }
        }
        let steady = self.timers.steady(step.now);
        while let Some((call, standby)) = self.standby_calls.pop_over(steady) {
            if self.timers.completes_next(step.now, standby.number) {
                // The timer is due but was beyond the limit of this step: the call waits for its completion.
                let until = Some(steady + limit::COMMIT_RETRY);
                self.standby_calls.enter(call, Standby { until, ..standby });
            } else {
                self.standby_ended(step, call, standby);
            }
        }
    }

    /// Ends the wait of a call that a person interrupted. The timer or the messages stay as they are.
    pub(super) fn wait_interrupted(&mut self, step: &mut Step<'_>, call: CallId) {
        if let Some(standby) = self.standby_calls.leave(call) {
            self.standby_ended(step, call, standby);
        } else if self.outbox.leave(call).is_some() {
            step.reply(call, Outcome::Messages(Vec::new(), 0));
        }
    }

    fn observe(&self, now: Now, caller: &Option<Agent>, id: TimerId) -> Option<ObservedTimer> {
        let timer = match self.timers.find(caller, id).ok()? {
            Found::Ended(timer) => timer,
            Found::Live(slot) => self.timers.view(now, slot)?,
        };
        let standing_by = self.standby_calls.has_call_on(timer.number);
        Some(ObservedTimer { timer, standing_by })
    }

    /// Ends the standby of a call whose client is gone.
    pub(super) fn standby_abandoned(&mut self, step: &mut Step<'_>, call: CallId) {
        if let Some(standby) = self.standby_calls.leave(call) {
            let timer = self.timers.id_of(standby.number);
            step.push(Effect::PublishTimer { timer });
        }
    }

    fn standby_ended(&mut self, step: &mut Step<'_>, call: CallId, standby: Standby) {
        let id = self.timers.id_of(standby.number);
        step.push(Effect::PublishTimer { timer: id });
        if let Ok(Found::Live(slot)) = self.timers.find(&None, id)
            && let Ok(timer) = self.view(step.now, slot, id)
        {
            answer(step, call, timer, Why::StandbyOver);
        }
    }

    /// Ends a timer and reports it once: in the answers of the calls that stand by, or else by a message. The message
    /// is recorded in both cases, because an answer may be lost.
    fn completed(&mut self, step: &mut Step<'_>, timer: Timer, seen: Option<Observation>) {
        self.record_end(step, &timer, None, seen);
        let calls = self.standby_calls.release(timer.number);
        let content = MessageContent {
            about: About::Timer(timer.id),
            conversation: timer.conversation.clone(),
            wakes: timer.wakes,
        };
        let message = self.post(step, &timer.agent, content, calls.first());
        // Another machine may have told this in commits that the database has lost.
        let late = match timer.status {
            Status::Completed { late, .. } => late,
            Status::Running(_) | Status::Paused { .. } | Status::Stopped => Millis(0),
        };
        let due = Steady(self.timers.steady(step.now).0.saturating_sub(late.0));
        if due < self.went_back || self.adopted.may_be_told_elsewhere(timer.number) {
            self.woken(step, &timer.agent, message.as_slice());
        }
        for call in calls {
            answer(step, call, timer.clone(), Why::Completed);
        }
    }

    pub(super) fn view(&self, now: Now, slot: u64, id: TimerId) -> Result<Timer, Refusal> {
        let gone = || timer::Refusal::NotFound {
            timer: id,
            known: Vec::new(),
            more: 0,
        };
        self.timers
            .view(now, slot)
            .ok_or_else(|| Refusal::Timer(gone()))
    }
}

/// Owner of a timer: the agent and conversation of the call that made it, or the default agent if a person did.
type Maker = (Agent, Option<Conversation>);

/// Returns whether the call that creates a timer is answered at once instead of standing by.
fn returns_at_once(new: &Create) -> bool {
    new.detach || new.kind == Kind::Mission
}

/// Records the key of a call that has changed a timer, so that a replay of the call does not change it again.
fn record_key(step: &mut Step<'_>, number: u64, key: Option<Key>) {
    if let Some(key) = key {
        let acted = timer::Record::Acted { number, key };
        step.push(Effect::Record(Record::Timer(acted)));
    }
}

fn answer(step: &mut Step<'_>, call: CallId, timer: Timer, why: Why) {
    step.reply(call, Outcome::Timer(alloc::boxed::Box::new(timer), why));
}

impl From<timer::Refusal> for Refusal {
    fn from(refusal: timer::Refusal) -> Self {
        Refusal::Timer(refusal)
    }
}
