//! Messages: posted, read, delivered. And what happens where the record could not be written.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{House, Turn};
use crate::effect::Effect;
use crate::id::{Agent, CallId, SessionId, TimerId};
use crate::limit;
use crate::message::{self, About, Reader};
use crate::record::{Kept, Record};
use crate::request::Refusal;
use crate::time::{Boot, Millis, Now, Steady};
use crate::timer;
use crate::wait::Outcome;
use crate::wake;

/// Something that happens only once and so is heard again where it could not be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Delivered(CallId),
    Gone(CallId),
    Held(TimerId, Arc<str>),
    Alone(Agent, SessionId),
}

impl House {
    /// What the last daemon left behind in the database.
    pub(super) fn kept(&mut self, turn: &mut Turn<'_>, kept: Kept) {
        let probed: Vec<_> = (kept.timers.iter())
            .filter(|timer| timer.conditional)
            .filter(|timer| matches!(timer.state.course, timer::Course::Running { .. }))
            .map(|timer| timer.number)
            .collect();
        let anchor = self.timers.open(
            turn.now,
            kept.shuffle,
            kept.anchor,
            kept.boot_id,
            kept.next_timer,
            kept.timers,
        );
        self.timers.remember(kept.ended);
        let anchored = timer::Record::Anchored(anchor);
        turn.push(Effect::Record(Record::Timer(anchored)));
        for number in probed {
            let (timer, until) = (self.timers.id_of(number), None);
            turn.push(Effect::Probe { timer, until });
        }
        self.outbox
            .open(kept.shuffle, kept.next_message, kept.messages);
    }

    /// Takes note of a calendar that was set.
    pub(super) fn note_clock(&mut self, turn: &mut Turn<'_>) {
        if let Some(anchor) = self.timers.note(turn.now) {
            let anchored = timer::Record::Anchored(anchor);
            turn.push(Effect::Record(Record::Timer(anchored)));
        }
    }

    /// There is a message. Where a call is being answered with the same news, that call tells it.
    pub(super) fn post(
        &mut self,
        turn: &mut Turn<'_>,
        agent: &Agent,
        about: About,
        teller: Option<&CallId>,
    ) {
        let message = self.outbox.post(agent, about);
        turn.push(Effect::Record(Record::Message(message::Record::Posted {
            number: message.number,
            id: message.id,
            agent: agent.clone(),
            about,
            told: teller.is_some(),
            at: turn.now.wall,
        })));
        match teller {
            Some(call) => self.outbox.tell(agent, &[message.number], *call),
            None => self.posted.push((agent.clone(), message)),
        }
    }

    /// Tells of what was posted: to calls that wait for messages, as much to each as it takes at
    /// once, and of the rest to whoever brings messages.
    pub(super) fn announce(&mut self, turn: &mut Turn<'_>) {
        for (agent, told) in core::mem::take(&mut self.posted) {
            let waits = |house: &Self| house.outbox.is_unread(&agent, told.number);
            while waits(self) && self.answer_reader(turn, &agent) {}
            if waits(self) {
                let message = told.id;
                turn.push(Effect::Posted { agent, message });
            }
        }
    }

    /// A waker has told these: whoever reads them later may know them already, and is told so.
    pub(super) fn woken(&mut self, turn: &mut Turn<'_>, agent: &Agent, messages: &[u64]) {
        let numbers = self.outbox.may_be_known(agent, messages);
        if !numbers.is_empty() {
            let at = turn.now.wall;
            let told = message::Record::Told { numbers, at };
            turn.push(Effect::Record(Record::Message(told)));
        }
    }

    /// A session has ended and nobody waited for it. A waker's own is nobody's news.
    pub(super) fn left_alone(&mut self, turn: &mut Turn<'_>, agent: Agent, session: SessionId) {
        if agent.0.as_ref() == wake::OWNER {
            return;
        }
        self.post(turn, &agent, About::Session(session), None);
        self.heard.push(Heard::Alone(agent, session));
    }

    /// Whether a message about a session could not be recorded yet.
    pub(super) fn is_to_be_told(&self, id: SessionId) -> bool {
        let about = |heard: &Heard| matches!(heard, Heard::Alone(_, session) if *session == id);
        self.again.iter().any(about)
    }

    /// Hands unread messages to a call that waits for some, where there is one.
    fn answer_reader(&mut self, turn: &mut Turn<'_>, agent: &Agent) -> bool {
        let Some((call, most)) = self.outbox.reader_of(agent) else {
            return false;
        };
        self.outbox.leave(call);
        self.hand_out(turn, agent, call, most);
        true
    }

    fn hand_out(&mut self, turn: &mut Turn<'_>, agent: &Agent, call: CallId, most: usize) {
        let messages = self.outbox.take(agent, call, most);
        if !messages.is_empty() {
            let numbers = messages.iter().map(|message| message.number).collect();
            let at = turn.now.wall;
            let told = message::Record::Told { numbers, at };
            turn.push(Effect::Record(Record::Message(told)));
        }
        let more = self.outbox.unread(agent);
        let outcome = Outcome::Messages(messages, more);
        turn.push(Effect::Reply { call, outcome });
    }

    pub(super) fn read_messages(
        &mut self,
        turn: &mut Turn<'_>,
        call: CallId,
        caller: Option<Agent>,
        standby: Millis,
        most: usize,
    ) -> Result<(), Refusal> {
        self.asked.push(call);
        let agent = caller.unwrap_or_default();
        let most = most.min(limit::MESSAGES_AT_ONCE);
        if self.outbox.unread(&agent) > 0 || standby.0 == 0 {
            self.hand_out(turn, &agent, call, most);
            return Ok(());
        }
        self.has_room_to_wait()?;
        let until = self.timers.steady(turn.now) + standby;
        self.outbox.enter(call, Reader { agent, most, until });
        Ok(())
    }

    /// The words of a call's answer have left the house.
    pub(super) fn delivered(&mut self, turn: &mut Turn<'_>, call: CallId) {
        self.heard.push(Heard::Delivered(call));
        let numbers = self.outbox.delivered(call);
        if !numbers.is_empty() {
            let at = turn.now.wall;
            let seen = message::Record::Seen { numbers, at };
            turn.push(Effect::Record(Record::Message(seen)));
        }
    }

    /// A call is gone: it reads, stands by and tells no longer.
    pub(super) fn reader_gone(&mut self, turn: &mut Turn<'_>, call: CallId) {
        self.heard.push(Heard::Gone(call));
        self.standby_abandoned(turn, call);
        self.outbox.leave(call);
        let Some((agent, unread)) = self.outbox.undelivered(call) else {
            return;
        };
        if !self.answer_reader(turn, &agent) {
            let numbers = unread.iter().map(|message| message.number).collect();
            let at = turn.now.wall;
            let told = message::Record::Told { numbers, at };
            turn.push(Effect::Record(Record::Message(told)));
            for message in unread {
                let (agent, message) = (agent.clone(), message.id);
                turn.push(Effect::Posted { agent, message });
            }
        }
    }

    pub(super) fn readers_due(&mut self, turn: &mut Turn<'_>) {
        let now = self.timers.steady(turn.now);
        while let Some(call) = self.outbox.pop_over(now) {
            let outcome = Outcome::Messages(Vec::new(), 0);
            turn.push(Effect::Reply { call, outcome });
        }
    }

    /// When boot time shows this, the next [`Event::Tick`](crate::Event::Tick) is wanted, whatever
    /// [`alarm`](House::alarm) says. Sleep of the machine counts.
    pub fn due(&self) -> Option<Boot> {
        let alarms = [
            self.timers.alarm(),
            self.standing.alarm(),
            self.outbox.alarm(),
        ];
        let waits = !self.again.is_empty() || self.timers.anchor_is_unsafe();
        let again = waits.then_some(self.retry_at);
        let first = alarms.into_iter().flatten().chain(again).min()?;
        Some(self.timers.boot(Steady(first.0 + 1)))
    }

    /// Whether any agent could read a message now.
    pub fn any_unread(&self) -> bool {
        self.outbox.any_unread()
    }

    /// How many messages an agent could read now.
    pub fn unread(&self, agent: &Agent) -> usize {
        self.outbox.unread(agent)
    }

    /// What was recorded since the last time is safe.
    pub fn settle(&mut self) {
        self.timers.settle();
        self.standing.settle();
        self.outbox.settle();
        self.asked.clear();
        self.heard.clear();
    }

    /// What was heard while nothing could be recorded.
    pub(super) fn hear_again(&mut self, turn: &mut Turn<'_>) {
        if self.timers.steady(turn.now) <= self.retry_at {
            return;
        }
        if let Some(anchor) = self.timers.anchor_again() {
            let anchored = timer::Record::Anchored(anchor);
            turn.push(Effect::Record(Record::Timer(anchored)));
        }
        for heard in core::mem::take(&mut self.again) {
            match heard {
                Heard::Delivered(call) => self.delivered(turn, call),
                Heard::Gone(call) => self.reader_gone(turn, call),
                Heard::Held(timer, seen) => self.held(turn, timer, seen),
                Heard::Alone(agent, session) => {
                    self.left_alone(turn, agent, session);
                    turn.push(Effect::Publish { session });
                }
            }
        }
    }

    /// What was to be recorded since the last [`settle`](House::settle) could not be, so none of it
    /// has happened: timers and messages stand as they did, those who waited wait on, and those who
    /// asked are refused. Takes the effects of that time back.
    pub fn undo(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let mut waiting: BTreeSet<CallId> = self.standing.undo().into_iter().collect();
        waiting.extend(self.outbox.undo());
        self.timers.undo(now);
        self.again.append(&mut self.heard);
        self.retry_at = self.timers.steady(now) + limit::COMMIT_RETRY;
        let asked = core::mem::take(&mut self.asked);
        effects.retain(|effect| match effect {
            Effect::Record(Record::Timer(_) | Record::Message(_))
            | Effect::Probe { until: Some(_), .. }
            | Effect::Rest { .. }
            | Effect::Unprobe { .. }
            | Effect::PublishTimer { .. }
            | Effect::Posted { .. } => false,
            Effect::Reply { call, .. } => !waiting.contains(call) && !asked.contains(call),
            _ => true,
        });
        let refused: BTreeSet<CallId> = asked.into_iter().collect();
        for call in refused {
            let outcome = Outcome::Refused(Refusal::NotRecorded);
            effects.push(Effect::Reply { call, outcome });
        }
    }
}
