//! Generations of changes: what the engine decided counts only when its records are durable.
//!
//! The daemon commits one generation at a time and goes on stepping meanwhile, so there are at most two that are not
//! durable: the sealed one, whose commit is in flight, and the one that gathers. Timers and messages are reverted when
//! a commit fails. Sessions are not, because their keepers record them, and neither are questions: one that could not
//! be recorded is asked anyway.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Engine, Step};
use crate::effect::Effect;
use crate::id::{Agent, CallId, Conversation, SessionId, TimerId};
use crate::limit;
use crate::record::Record;
use crate::request::{Caller, Refusal};
use crate::time::Now;
use crate::timer::{self, By};
use crate::wait::Outcome;

/// A call about timers or messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The call changes something. It is refused if that cannot be recorded.
    Change(CallId),
    /// The call only reads. It is answered again if what it read is reverted.
    Read(CallId, Caller, timer::Request),
}

/// An event that arrives only once. The engine handles it again if its first effects could not be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Delivered(CallId),
    Gone(CallId),
    Decided(TimerId, By, Arc<str>),
    Alone(Agent, Option<Conversation>, SessionId),
}

impl Engine {
    /// Ends the generation that gathers: its commit begins. The generation before must be settled.
    pub fn seal(&mut self) {
        self.timers.seal();
        self.standing.seal();
        self.outbox.seal();
        self.asked.seal();
        self.heard.seal();
    }

    /// Confirms that the sealed generation is durable, so it can no longer be undone.
    pub fn settle(&mut self) {
        self.timers.settle();
        self.standing.settle();
        self.outbox.settle();
        self.asked.settle();
        self.heard.settle();
    }

    /// Reverts the timers and messages of both generations, because the commit of the sealed one failed. `effects`
    /// are those that waited for the commits: the effects of the reverted changes are removed, calls that waited wait
    /// again, calls that read are answered again, and calls that changed something are refused with
    /// [`Refusal::NotRecorded`].
    pub fn undo(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let mut unanswered: BTreeSet<CallId> = self.standing.undo().into_iter().collect();
        unanswered.extend(self.outbox.undo());
        self.timers.undo(now);
        self.again.append(&mut self.heard.take());
        self.retry_at = self.timers.steady(now) + limit::COMMIT_RETRY;
        let (mut refused, mut reads) = (BTreeSet::new(), Vec::new());
        for asked in self.asked.take() {
            match asked {
                Asked::Change(call) => drop(refused.insert(call)),
                Asked::Read(call, caller, request) => {
                    unanswered.insert(call);
                    reads.push((call, caller, request));
                }
            }
        }
        effects.retain(|effect| match effect {
            Effect::Record(Record::Timer(_) | Record::Message(_))
            | Effect::Probe { until: Some(_), .. }
            | Effect::Rest { .. }
            | Effect::Unprobe { .. }
            | Effect::PublishTimer { .. }
            | Effect::Posted { .. } => false,
            Effect::Reply { call, .. } => !unanswered.contains(call) && !refused.contains(call),
            _ => true,
        });
        let step = &mut Step { now, effects };
        for call in refused {
            let outcome = Outcome::Refused(Refusal::NotRecorded);
            step.push(Effect::Reply { call, outcome });
        }
        for (call, caller, request) in reads {
            if let Err(refusal) = self.timer_called(step, call, caller, request) {
                let outcome = Outcome::Refused(refusal);
                step.push(Effect::Reply { call, outcome });
            }
        }
        self.asked.take();
    }

    /// Handles the events again that arrived while the database could not be written.
    pub(super) fn hear_again(&mut self, step: &mut Step<'_>) {
        if self.timers.steady(step.now) <= self.retry_at {
            return;
        }
        if let Some(anchor) = self.timers.anchor_again() {
            let anchored = timer::Record::Anchored(anchor);
            step.push(Effect::Record(Record::Timer(anchored)));
        }
        for heard in core::mem::take(&mut self.again) {
            match heard {
                Heard::Delivered(call) => self.delivered(step, call),
                Heard::Gone(call) => self.reader_gone(step, call),
                Heard::Decided(timer, by, seen) => self.condition_decided(step, timer, by, seen),
                Heard::Alone(agent, conversation, session) => {
                    self.left_alone(step, agent, conversation, session);
                    step.push(Effect::Publish { session });
                }
            }
        }
    }
}
