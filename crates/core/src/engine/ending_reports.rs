//! Report of a session's ending to its owner: by the answer of a call, or by a message if no answer reports it.

use super::session_state::SessionState;
use super::{Alarm, Engine, Step};
use crate::effect::Effect;
use crate::id::SessionId;
use crate::session::Phase;

impl Engine {
    /// Marks a session whose ending was not delivered. A call that waited for it before the restart has
    /// [`crate::limit::TAKE_UP`] to come back; then the agent gets a message.
    pub(super) fn schedule_ending_message(&mut self, step: &Step<'_>, id: SessionId) {
        let over = |entry: &&mut SessionState| entry.session.phase.ending().is_some();
        let told = |entry: &&mut SessionState| !entry.session.started_by.is_try();
        if let Some(entry) = self.sessions.get_mut(&id).filter(over).filter(told) {
            entry.ending_undelivered = true;
            entry.answers_to_owner = 0;
            let until = self.take_up_until.max(step.now.mono);
            self.alarms.insert((until, Alarm::EndingUndelivered(id)));
        }
    }

    /// Handles an answer that should have told the owner of a session of its ending and did not reach its caller. If
    /// no other answer did, the agent gets a message instead.
    pub(super) fn answer_lost(&mut self, step: &mut Step<'_>, id: SessionId) {
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        entry.answers_to_owner = entry.answers_to_owner.saturating_sub(1);
        let failed = matches!(entry.session.phase, Phase::Failed { .. });
        let told = entry.answers_to_owner > 0 || entry.session.unattended;
        if failed || told || entry.ending_undelivered {
            return;
        }
        entry.session.unattended = true;
        self.schedule_ending_message(step, id);
        step.push(Effect::Publish { session: id });
    }

    /// Posts a message about an ending for which no call came back.
    pub(super) fn ending_message_due(&mut self, step: &mut Step<'_>, id: SessionId) {
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        if core::mem::take(&mut entry.ending_undelivered) {
            entry.session.unattended = true;
            let agent = entry.session.agent.clone();
            let conversation = entry.session.conversation.clone();
            self.post_session_ended(step, agent, conversation, id);
            step.push(Effect::Publish { session: id });
        }
    }

    /// Counts an answer that reports the ending of a session to its owner.
    pub(super) fn ending_delivered(&mut self, step: &mut Step<'_>, session: SessionId) {
        let Some(entry) = self.sessions.get_mut(&session) else {
            return;
        };
        entry.answers_to_owner += 1;
        if core::mem::take(&mut entry.ending_undelivered) {
            let published = Effect::Publish { session };
            if !step.effects.contains(&published) {
                step.push(published);
            }
        }
    }

    /// Marks the ending of a session as undelivered if its owner still waits: the rest of the tree is being killed,
    /// and the answer comes when it is gone.
    pub(super) fn mark_awaited_ending(&mut self, id: SessionId) {
        let awaited = self.has_owner_waiting(id);
        if let Some(entry) = self.sessions.get_mut(&id) {
            entry.ending_undelivered |= awaited && !entry.session.started_by.is_try();
        }
    }

    /// Handles that a wait has ended without the ending of its session: if no owner waits any more, the agent gets a
    /// message.
    pub(super) fn owner_stopped_waiting(&mut self, step: &mut Step<'_>, id: SessionId) {
        if self.has_owner_waiting(id) {
            return;
        }
        let undelivered = |entry: &&mut SessionState| entry.ending_undelivered;
        if let Some(entry) = self.sessions.get_mut(&id).filter(undelivered) {
            entry.session.unattended = true;
            self.schedule_ending_message(step, id);
            step.push(Effect::Publish { session: id });
        }
    }

    pub(super) fn has_owner_waiting(&self, id: SessionId) -> bool {
        let waits = self.sessions.get(&id).map(|entry| &entry.waits);
        let mut waits = waits
            .into_iter()
            .flatten()
            .filter_map(|call| self.waits.get(call));
        waits.any(|wait| wait.for_owner)
    }

    /// Returns whether the session has ended and its ending was neither delivered nor recorded as a message.
    pub fn is_ending_undelivered(&self, id: SessionId) -> bool {
        self.sessions
            .get(&id)
            .is_some_and(|entry| entry.ending_undelivered)
            || self.has_uncommitted_message(id)
    }
}
