//! Generations of changes: what the engine decided counts only when its records are durable.
//!
//! The daemon commits one generation at a time and goes on stepping meanwhile, so there are at most two that are not
//! durable: one whose commit is in flight, and the one that gathers. Timers and messages are reverted when
//! a commit fails. Sessions are not, because their keepers record them, and neither are questions: one that could not
//! be recorded is asked anyway, and its closing is recorded again. A question about a command is recorded again too, and
//! withdrawn if no call waits for it before that.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{Engine, Step};
use crate::effect::Effect;
use crate::id::{Agent, CallId, QuestionId, TimerId};
use crate::limit;
use crate::message::MessageContent;
use crate::record::Record;
use crate::request::{Caller, Refusal};
use crate::time::Now;
use crate::timer::{self, CompletedBy, Observation};
use crate::undo_log::RevertScope;
use crate::wait::Outcome;

/// A call about timers or messages whose answer depends on changes that are not durable yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UncommittedCall {
    /// The call changes something. It is refused if that cannot be recorded.
    Change(CallId),
    /// The call only reads. It is answered again if what it read is reverted.
    Read(CallId, Caller, timer::Request),
}

/// An event that arrives only once. The engine handles it again if its first effects could not be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UncommittedEvent {
    Delivered(CallId),
    ReaderGone(CallId),
    ConditionDecided(TimerId, CompletedBy, Observation),
    /// A message that no call delivers.
    Posted(Agent, MessageContent),
    /// A question about a command, the closing of any question, or what became of its command.
    Recorded(Record),
    Released(Agent),
}

impl UncommittedEvent {
    /// True if it stores this question.
    pub fn asks(&self, of: QuestionId) -> bool {
        matches!(self, UncommittedEvent::Recorded(Record::Asked { question, .. }) if *question == of)
    }

    /// True if its record is in the shard of this machine.
    fn is_of_home(&self) -> bool {
        matches!(
            self,
            UncommittedEvent::Posted(..) | UncommittedEvent::Recorded(_)
        )
    }
}

impl Engine {
    /// Ends the generation that gathers: its commit begins. The generation before must be durable.
    pub fn begin_commit(&mut self) {
        self.timers.begin_commit();
        self.standby_calls.begin_commit();
        self.outbox.begin_commit();
        self.uncommitted_calls.begin_commit();
        self.uncommitted_events.begin_commit();
    }

    /// Confirms that the generation in flight is durable, so it can no longer be undone.
    pub fn commit_succeeded(&mut self) {
        self.timers.commit_succeeded();
        self.standby_calls.commit_succeeded();
        self.outbox.commit_succeeded();
        self.uncommitted_calls.commit_succeeded();
        self.uncommitted_events.commit_succeeded();
    }

    /// Reverts the timers and messages of both generations, because the commit in flight failed. `effects`
    /// are those that waited for the commits: the effects of the reverted changes are removed, calls that waited wait
    /// again, calls that read are answered again, and calls that changed something are refused with
    /// [`Refusal::NotRecorded`].
    pub fn commit_failed(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.revert(now, effects, RevertScope::Both);
    }

    /// Reverts the timers and messages of the generation that gathers, because it is not known yet whether the commit
    /// in flight is durable. `effects` are those of that generation. Calls that read are refused too: what they read
    /// may be reverted.
    pub fn gathering_failed(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.revert(now, effects, RevertScope::Gathering);
    }

    fn revert(&mut self, now: Now, effects: &mut Vec<Effect>, which: RevertScope) {
        let back = self.standby_calls.commit_failed(which);
        let mut unanswered: BTreeSet<CallId> = back.into_iter().collect();
        unanswered.extend(self.outbox.commit_failed(which));
        self.timers.commit_failed(now, which);
        self.events_to_retry
            .append(&mut self.uncommitted_events.take(which));
        self.retry_at = self.timers.steady(now) + limit::COMMIT_RETRY;
        let (mut refused, mut reads) = (BTreeSet::new(), Vec::new());
        for call in self.uncommitted_calls.take(which) {
            match call {
                UncommittedCall::Change(call) => drop(refused.insert(call)),
                UncommittedCall::Read(call, ..) if which == RevertScope::Gathering => {
                    refused.insert(call);
                }
                UncommittedCall::Read(call, caller, request) => {
                    unanswered.insert(call);
                    reads.push((call, caller, request));
                }
            }
        }
        effects.retain(|effect| match effect {
            Effect::Record(Record::Timer(_) | Record::Message(_))
            | Effect::Probe { until: Some(_), .. }
            | Effect::PauseProbe { .. }
            | Effect::StopProbe { .. }
            | Effect::PublishTimer { .. }
            | Effect::PublishSeen { .. }
            | Effect::Posted { .. }
            | Effect::MarkEndingDelivered { .. } => false,
            Effect::Reply { call, .. } => !unanswered.contains(call) && !refused.contains(call),
            _ => true,
        });
        let step = &mut Step { now, effects };
        for call in refused {
            step.reply(call, Outcome::Refused(Refusal::NotRecorded));
        }
        for (call, caller, request) in reads {
            if let Err(refusal) = self.timer_called(step, call, caller, request) {
                step.reply(call, Outcome::Refused(refusal));
            }
        }
        self.uncommitted_calls.take(which);
        self.refuse_orphans(step);
        self.refuse_unstored(step);
    }

    /// Refuses calls that stand by again on timers which another machine has by now.
    fn refuse_orphans(&mut self, step: &mut Step<'_>) {
        if !self.adopted.has_unloaded() {
            return;
        }
        let timers = &self.timers;
        let is_gone = |number: u64| timers.find(&None, timers.id_of(number)).is_err();
        for call in self.standby_calls.on(is_gone) {
            self.standby_calls.leave(call);
            step.reply(call, Outcome::Refused(Refusal::NotRecorded));
        }
    }

    /// Records what cannot be undone: again if its commit fails, and later while another machine has the shard of this
    /// one, where it would make all other records fail. What became of a question is recorded after the question.
    pub(super) fn record_with_retry(&mut self, step: &mut Step<'_>, record: Record) {
        let is_unstored = record.question().is_some_and(|of| self.is_unstored(of));
        if self.adopted.is_home_unloaded() || is_unstored {
            return self.retry_later(step, UncommittedEvent::Recorded(record));
        }
        step.push(Effect::Record(record.clone()));
        self.uncommitted_events
            .push(UncommittedEvent::Recorded(record));
    }

    /// True if a question could not be stored yet.
    pub(super) fn is_unstored(&self, question: QuestionId) -> bool {
        self.events_to_retry
            .iter()
            .any(|event| event.asks(question))
    }

    /// Keeps an event that cannot be handled yet.
    pub(super) fn retry_later(&mut self, step: &Step<'_>, event: UncommittedEvent) {
        self.retry_at = self.timers.steady(step.now) + limit::COMMIT_RETRY;
        self.events_to_retry.push(event);
    }

    /// Handles the events again that arrived while the database could not be written.
    pub(super) fn retry_events(&mut self, step: &mut Step<'_>) {
        if self.timers.steady(step.now) <= self.retry_at {
            return;
        }
        if let Some(anchor) = self.timers.anchor_again() {
            let anchored = timer::Record::Anchored(anchor);
            step.push(Effect::Record(Record::Timer(anchored)));
        }
        for event in core::mem::take(&mut self.events_to_retry) {
            if self.adopted.is_home_unloaded() && event.is_of_home() {
                self.retry_later(step, event);
                continue;
            }
            match event {
                UncommittedEvent::Delivered(call) => self.delivered(step, call),
                UncommittedEvent::ReaderGone(call) => self.reader_gone(step, call),
                UncommittedEvent::ConditionDecided(timer, by, seen) => {
                    self.condition_decided(step, timer, by, seen)
                }
                UncommittedEvent::Posted(agent, content) => {
                    self.post_with_retry(step, agent, content);
                }
                UncommittedEvent::Recorded(record) => self.record_with_retry(step, record),
                UncommittedEvent::Released(agent) => self.release(step, agent),
            }
        }
    }
}
