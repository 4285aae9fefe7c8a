//! Report of a session's ending to its owner: by the answer of a call, or by a message if no answer reports it. The state
//! of the report is [`EndingReport`]; nothing else decides who is told.

use alloc::vec::Vec;

use super::session_state::{EndingReport, SessionState};
use super::{Alarm, Engine, Step};
use crate::effect::{Effect, OwnerReport};
use crate::id::SessionId;
use crate::session::StartedBy;

impl SessionState {
    /// True if the session has ended and an agent is told of that. A condition needs no report, and a person who started a
    /// command at the command line sees its end there.
    fn has_ending_to_report(&self) -> bool {
        let is_of_agent = match self.session.started_by {
            StartedBy::Call | StartedBy::Terminal => true,
            StartedBy::Person | StartedBy::Timer(_) | StartedBy::Wait => false,
        };
        is_of_agent && self.session.phase.ending().is_some()
    }
}

impl Engine {
    /// Has an ending reported by a message. A call that waited for it before the restart has
    /// [`crate::limit::TAKE_UP`] to come back and to be told instead.
    pub(super) fn schedule_ending_message(&mut self, step: &Step<'_>, id: SessionId) {
        if let Some(entry) = self.sessions.get_mut(&id) {
            entry.ending_report = EndingReport::Owed;
            let until = self.take_up_until.max(step.now.mono);
            self.alarms.insert((until, Alarm::EndingOwed(id)));
        }
    }

    /// Handles that no call came back for an ending.
    pub(super) fn ending_message_due(&mut self, step: &mut Step<'_>, id: SessionId) {
        let owed = |entry: &&mut SessionState| entry.ending_report == EndingReport::Owed;
        if let Some(entry) = self.sessions.get_mut(&id).filter(owed) {
            entry.session.unattended = true;
            self.post_ending(step, id);
            step.push(Effect::Publish { session: id });
        }
    }

    /// Reports an ending by a message.
    fn post_ending(&mut self, step: &mut Step<'_>, id: SessionId) {
        if let Some(entry) = self.sessions.get_mut(&id) {
            entry.ending_report = EndingReport::Posted;
            let agent = entry.session.agent.clone();
            let conversation = entry.session.conversation.clone();
            self.post_session_ended(step, agent, conversation, id);
        }
    }

    /// Notes that an answer reports the ending of a session to its owner. `None`: there is nothing to report, or a message
    /// reports it.
    pub(super) fn ending_told(&mut self, id: SessionId) -> Option<OwnerReport> {
        let entry = self.sessions.get_mut(&id)?;
        if !entry.has_ending_to_report() {
            return None;
        }
        match &mut entry.ending_report {
            EndingReport::Told { answers } => {
                *answers += 1;
                Some(OwnerReport::Repeated)
            }
            report @ (EndingReport::NotYet | EndingReport::Owed) => {
                *report = EndingReport::Told { answers: 1 };
                Some(OwnerReport::First)
            }
            EndingReport::Posted => None,
        }
    }

    /// Handles an answer that should have told the owner of a session of its ending and did not reach its caller. If
    /// no other answer did, the agent gets a message instead.
    pub(super) fn answer_lost(&mut self, step: &mut Step<'_>, id: SessionId) {
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        match &mut entry.ending_report {
            EndingReport::Told { answers } if *answers > 1 => {
                *answers -= 1;
                // The lost one may have been the first, which the directory would say.
                step.push(Effect::MarkEndingDelivered { session: id });
            }
            EndingReport::Told { .. } => {
                entry.session.unattended = true;
                self.schedule_ending_message(step, id);
                step.push(Effect::Publish { session: id });
            }
            EndingReport::NotYet | EndingReport::Owed | EndingReport::Posted => {}
        }
    }

    /// Reports the ending of a session that has just ended, unless an answer has reported it. `is_awaited`: its owner
    /// waited for it. The rest of its tree may still be killed; then the answer comes when it is gone.
    pub(super) fn report_ending(&mut self, step: &mut Step<'_>, id: SessionId, is_awaited: bool) {
        let owner_waits = self.has_owner_waiting(id);
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        if !entry.has_ending_to_report() {
            return;
        }
        if owner_waits {
            entry.ending_report = EndingReport::Owed;
        } else if is_awaited {
            // An answer has reported it.
        } else if entry.found && step.now.mono < self.take_up_until {
            self.schedule_ending_message(step, id);
        } else {
            self.post_ending(step, id);
        }
    }

    /// Handles that a wait has ended without the ending of its session: if no owner waits any more, the agent gets a
    /// message.
    pub(super) fn owner_stopped_waiting(&mut self, step: &mut Step<'_>, id: SessionId) {
        if self.has_owner_waiting(id) {
            return;
        }
        let owed = |entry: &&mut SessionState| entry.ending_report == EndingReport::Owed;
        if let Some(entry) = self.sessions.get_mut(&id).filter(owed) {
            entry.session.unattended = true;
            self.schedule_ending_message(step, id);
            step.push(Effect::Publish { session: id });
        }
    }

    /// Adds the report of an ending that recovery has found. `told`: the earlier daemon has reported it.
    pub(super) fn ending_found(entry: &mut SessionState, told: bool) {
        entry.ending_report = match told {
            _ if !entry.has_ending_to_report() => EndingReport::NotYet,
            true => EndingReport::Told { answers: 1 },
            false => EndingReport::Owed,
        };
    }

    /// Handles the end of the recovery: calls come back for the endings that were not reported, or messages report them.
    pub(super) fn endings_recovered(&mut self, step: &Step<'_>) {
        let owed =
            |(_, entry): &(&SessionId, &SessionState)| entry.ending_report == EndingReport::Owed;
        let owed: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(owed)
            .map(|(id, _)| *id)
            .collect();
        for id in owed {
            self.schedule_ending_message(step, id);
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
}
