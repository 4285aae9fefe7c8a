//! Messages: posting, reading and delivery.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::generations::{UncommittedCall, UncommittedEvent};
use super::{Alarm, Engine, Step};
use crate::effect::Effect;
use crate::id::{Agent, CallId, Conversation, SessionId};
use crate::limit;
use crate::message::{self, About, MessageContent, ReadRule, Recipient, WaitingReader};
use crate::record::Record;
use crate::request::{Caller, Refusal};
use crate::time::{Millis, Now};
use crate::timer;
use crate::wait::{Goal, Outcome, Wait};
use crate::wake;

impl Engine {
    pub(super) fn disconnected(
        &mut self,
        step: &Step<'_>,
        agent: Agent,
        conversation: Conversation,
    ) {
        let now = self.timers.steady(step.now);
        self.conversations.disconnected(now, agent, conversation);
    }

    /// The rule that decides which messages a reader may read at `now`.
    pub(super) fn rule(&self, now: Now) -> ReadRule<'_> {
        ReadRule {
            now: self.timers.steady(now),
            conversations: &self.conversations,
        }
    }

    /// Posts a message. If `reporting_call` is given, the answer of that call reports the subject and delivers the message.
    pub(super) fn post(
        &mut self,
        step: &mut Step<'_>,
        agent: &Agent,
        content: MessageContent,
        reporting_call: Option<&CallId>,
    ) -> Option<u64> {
        let now = self.timers.steady(step.now);
        let (id, number) = self.outbox.post(now, agent, &content)?;
        self.adopted
            .note_message(number, content.about, |timer| self.timers.number_of(timer));
        step.push(Effect::Record(Record::Message(message::Record::Posted {
            number,
            id,
            agent: agent.clone(),
            content,
            reported_by_call: reporting_call.is_some(),
            at: step.now.wall,
        })));
        match reporting_call {
            Some(call) => self.outbox.tell(agent, &[number], *call),
            None => self.posted.push((agent.clone(), number)),
        }
        Some(number)
    }

    /// Lets other machines take the unread messages of an agent whose conversations have ended here.
    pub(super) fn release(&mut self, step: &mut Step<'_>, agent: Agent) {
        let now = self.timers.steady(step.now);
        if let Some(at) = self.outbox.next_release(&agent, self.rule(step.now)) {
            self.conversations.look_at(at, &agent);
        }
        if !self.shares_messages() {
            return;
        }
        self.conversations.look_after_start(now, &agent);
        let rule = ReadRule {
            now,
            conversations: &self.conversations,
        };
        let numbers = self.outbox.release(&agent, rule);
        if numbers.is_empty() {
            return;
        }
        step.push(Effect::Record(Record::Message(message::Record::Released {
            numbers,
        })));
        self.uncommitted_events
            .push(UncommittedEvent::Released(agent));
    }

    /// Hands the messages of this step to calls that wait for messages, and reports the remaining ones with
    /// [`Effect::Posted`], so that wakers and other subscribers can deliver them.
    pub(super) fn deliver_posted(&mut self, step: &mut Step<'_>) {
        let mut unread = BTreeSet::new();
        for (agent, number) in core::mem::take(&mut self.posted) {
            if !self.tell_readers(step, &agent, number) {
                let message = self.outbox.id(number);
                unread.insert(agent.clone());
                step.push(Effect::Posted { agent, message });
            }
        }
        // Once for all messages of an agent, because it looks at all of its unread messages.
        for agent in unread {
            self.release(step, agent);
        }
    }

    /// Returns whether the answer of a call may soon tell the ending of a session: a condition waits for the session, and
    /// a call of the agent stands by on a timer with a condition.
    pub(super) fn is_awaited_by_timer(&self, now: Now, session: SessionId, agent: &Agent) -> bool {
        let Some(entry) = self.sessions.get(&session) else {
            return false;
        };
        let is_probe = |wait: &Wait| wait.goal == Goal::Probed;
        let mut waits = entry.waits.iter().filter_map(|call| self.waits.get(call));
        let caller = Some(agent.clone());
        let is_conditional = |number| {
            let found = self.timers.find(&caller, self.timers.id_of(number));
            let Ok(timer::Found::Live(slot)) = found else {
                return false;
            };
            let timer = self.timers.view(now, slot);
            timer.is_some_and(|timer| timer.conditional)
        };
        waits.any(is_probe) && self.standby_calls.timers().any(is_conditional)
    }

    /// Delays the messages of this step from this one on by [`limit::MESSAGE_DELAY`]: what an answer has told by then is
    /// not told again.
    pub(super) fn delay_posted(&mut self, step: &Step<'_>, from: usize) {
        let until = step.now.mono + limit::MESSAGE_DELAY;
        for (agent, number) in self.posted.split_off(from) {
            self.delayed_messages.insert(number, agent);
            self.alarms.insert((until, Alarm::MessageDelay(number)));
        }
    }

    pub(super) fn message_delay_over(&mut self, number: u64) {
        let agent = self.delayed_messages.remove(&number);
        self.posted.extend(agent.map(|agent| (agent, number)));
    }

    /// Answers waiting calls until one of them has taken the message. Returns `false` if no waiting call may read it.
    fn tell_readers(&mut self, step: &mut Step<'_>, agent: &Agent, number: u64) -> bool {
        while self.outbox.is_unread(agent, number) {
            let reader = self.outbox.reader_for(agent, number, self.rule(step.now));
            let Some(call) = reader else {
                return false;
            };
            self.answer_reader(step, call);
        }
        true
    }

    /// Answers waiting calls with messages of conversations that have ended.
    pub(super) fn deliver_released(&mut self, step: &mut Step<'_>) {
        let now = self.timers.steady(step.now);
        while let Some(agent) = self.conversations.pop_released(now) {
            while let Some(call) = self.outbox.reader_with_unread(&agent, self.rule(step.now)) {
                self.answer_reader(step, call);
            }
            self.release(step, agent);
        }
    }

    /// Records that these messages may have been delivered: the agent may know them when it reads them later.
    pub(super) fn woken(&mut self, step: &mut Step<'_>, agent: &Agent, messages: &[u64]) {
        let numbers = self.outbox.may_be_known(agent, messages);
        record_delivery(step, numbers, false);
    }

    /// Posts a message about a session that ended while no call waited for it. There is none about a session of a waker,
    /// whose result is recorded with the delivery.
    pub(super) fn post_session_ended(
        &mut self,
        step: &mut Step<'_>,
        agent: Agent,
        conversation: Option<Conversation>,
        session: SessionId,
    ) {
        if agent.0.as_ref() == wake::OWNER {
            return;
        }
        let content = MessageContent {
            about: About::Session(session),
            conversation,
            wakes: false,
        };
        self.post_with_retry(step, agent, content);
    }

    /// Posts a message that no call delivers: later if there is no number for it or another machine has the shard of
    /// this one, and again if its commit fails.
    pub(super) fn post_with_retry(
        &mut self,
        step: &mut Step<'_>,
        agent: Agent,
        content: MessageContent,
    ) {
        let event = UncommittedEvent::Posted(agent.clone(), content.clone());
        if !self.outbox.has_numbers() || self.adopted.is_home_unloaded() {
            self.retry_later(step, event);
            return;
        }
        if let About::Session(session) = content.about {
            step.push(Effect::MarkEndingDelivered { session });
        }
        let _ = self.post(step, &agent, content, None);
        self.uncommitted_events.push(event);
    }

    /// Answers a waiting call with the unread messages.
    fn answer_reader(&mut self, step: &mut Step<'_>, call: CallId) {
        if let Some(reader) = self.outbox.leave(call) {
            self.answer_left_reader(step, call, reader);
        }
    }

    fn answer_left_reader(&mut self, step: &mut Step<'_>, call: CallId, reader: WaitingReader) {
        if self.reply_with_messages(step, &reader.recipient, call, reader.most, &[]) {
            self.outbox.answered(call, reader);
        }
    }

    /// Answers a call with the unread messages. Returns whether there were any.
    fn reply_with_messages(
        &mut self,
        step: &mut Step<'_>,
        recipient: &Recipient,
        call: CallId,
        most: usize,
        known: &[About],
    ) -> bool {
        let rule = ReadRule {
            now: self.timers.steady(step.now),
            conversations: &self.conversations,
        };
        let messages = self.outbox.take(recipient, call, most, known, rule);
        let any = !messages.is_empty();
        let numbers = messages.iter().map(|message| message.number).collect();
        record_delivery(step, numbers, true);
        let more = self.outbox.unread(recipient, rule);
        step.reply(call, Outcome::Messages(messages, more));
        any
    }

    pub(super) fn read_messages(
        &mut self,
        step: &mut Step<'_>,
        call: CallId,
        caller: Caller,
        standby: Millis,
        most: usize,
        known: &[About],
    ) -> Result<(), Refusal> {
        let recipient = Recipient {
            agent: caller.agent.unwrap_or_else(|| self.default_agent.clone()),
            conversation: caller.conversation,
        };
        let most = most.min(limit::MESSAGES_AT_ONCE);
        let rule = ReadRule {
            now: self.timers.steady(step.now),
            conversations: &self.conversations,
        };
        self.outbox.note_known(&recipient, known, rule);
        if standby.0 == 0 || self.outbox.unread(&recipient, self.rule(step.now)) > 0 {
            if self.reply_with_messages(step, &recipient, call, most, known) {
                self.uncommitted_calls.push(UncommittedCall::Change(call));
            }
            return Ok(());
        }
        self.has_room_to_wait()?;
        let until = self.timers.steady(step.now) + standby;
        self.outbox.enter(
            call,
            WaitingReader {
                recipient,
                most,
                until,
            },
        );
        Ok(())
    }

    /// Marks the messages of a call as seen, because its answer has been sent.
    pub(super) fn delivered(&mut self, step: &mut Step<'_>, call: CallId) {
        self.uncommitted_events
            .push(UncommittedEvent::Delivered(call));
        let numbers = self.outbox.delivered(call);
        if !numbers.is_empty() {
            let at = step.now.wall;
            let seen = message::Record::Seen {
                numbers: numbers.clone(),
                at,
            };
            step.push(Effect::Record(Record::Message(seen)));
            step.push(Effect::PublishSeen { numbers });
        }
    }

    /// Removes a call whose client is gone: it no longer waits, and the messages that its answer carried are unread
    /// again.
    pub(super) fn reader_gone(&mut self, step: &mut Step<'_>, call: CallId) {
        self.uncommitted_events
            .push(UncommittedEvent::ReaderGone(call));
        self.standby_abandoned(step, call);
        self.outbox.leave(call);
        let Some((agent, unread)) = self.outbox.undelivered(call) else {
            return;
        };
        let mut left = Vec::new();
        for number in unread {
            if !self.tell_readers(step, &agent, number) {
                left.push(number);
            }
        }
        for number in &left {
            let (agent, message) = (agent.clone(), self.outbox.id(*number));
            step.push(Effect::Posted { agent, message });
        }
        if !left.is_empty() {
            self.release(step, agent);
        }
        record_delivery(step, left, false);
    }

    pub(super) fn readers_due(&mut self, step: &mut Step<'_>) {
        let now = self.timers.steady(step.now);
        while let Some((call, reader)) = self.outbox.pop_over(now) {
            // A conversation may have ended since the last check, so messages may be readable by now.
            self.answer_left_reader(step, call, reader);
        }
    }

    /// Returns whether any agent could read a message now.
    pub fn any_unread(&self) -> bool {
        self.outbox.any_unread()
    }

    /// Number of messages that an agent could read now, in one conversation or in none.
    pub fn unread(&self, now: Now, agent: &Agent, conversation: Option<&Conversation>) -> usize {
        let recipient = Recipient {
            agent: agent.clone(),
            conversation: conversation.cloned(),
        };
        self.outbox.unread(&recipient, self.rule(now))
    }
}

/// Records that the delivery of these messages has begun. `in_flight`: an answer carries them.
fn record_delivery(step: &mut Step<'_>, numbers: Vec<u64>, in_flight: bool) {
    if !numbers.is_empty() {
        let at = step.now.wall;
        let begun = message::Record::DeliveryStarted {
            numbers,
            in_flight,
            at,
        };
        step.push(Effect::Record(Record::Message(begun)));
    }
}
