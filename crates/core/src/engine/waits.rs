//! Waits on sessions: their begin, answer and end. Nothing here changes a session.

use alloc::format;
use alloc::vec::Vec;

use super::{Alarm, Engine, Step};
use crate::effect::{Effect, Update};
use crate::held::WhyHeld;
use crate::id::{CallId, SessionId};
use crate::limit;
use crate::request::Refusal;
use crate::wait::{Goal, Outcome, Wait, WhyRunning};

impl Engine {
    /// Answers a call if the state of the session allows it, and otherwise lets it wait.
    pub(super) fn wait_for(&mut self, step: &mut Step<'_>, mut wait: Wait) -> Result<(), Refusal> {
        let Some(entry) = self.sessions.get(&wait.session) else {
            return Err(Refusal::SessionNotFound(wait.session));
        };
        // The call gets the answer that the interrupted one had.
        if entry.session.interrupted && wait.goal == Goal::Ended {
            wait.goal = Goal::Interrupted;
        }
        let accepted = Effect::Tell {
            call: wait.call,
            update: Update::Accepted(wait.session),
        };
        if let Some(outcome) = entry.outcome_now(&wait) {
            step.push(accepted);
            self.answer_ended_wait(step, &wait, outcome);
            return Ok(());
        }
        self.has_room_to_wait()?;
        step.push(accepted);
        let (id, call, asks) = (wait.session, wait.call, wait.asking.asks());
        self.begin_wait(wait);
        if asks && let Some(entry) = self.sessions.get_mut(&id) {
            entry.asker_since = step.now.mono;
            if let Some(question) = entry.question() {
                let update = Update::Asked(question);
                step.push(Effect::Tell { call, update });
            }
            if let Some(question) = self.first_connection_question(id) {
                let update = Update::Asked(question);
                step.push(Effect::Tell { call, update });
            }
        }
        self.rearm_idle_timer(step, id);
        Ok(())
    }

    pub(super) fn has_room_to_wait(&self) -> Result<(), Refusal> {
        if self.waits.len() + self.standby_calls.len() + self.outbox.waiting() < limit::WAITS {
            return Ok(());
        }
        let sentence = format!(
            "too many calls are waiting (limit {}); try again later",
            limit::WAITS
        );
        Err(Refusal::TooMany(sentence))
    }

    /// Adds a wait. The caller has checked that the session or the question exists and that the limit of waits is not
    /// reached.
    pub(super) fn begin_wait(&mut self, wait: Wait) {
        if wait.answer.is_none()
            && let Some(entry) = self.sessions.get_mut(&wait.session)
        {
            entry.enter(&wait);
        }
        if let Some(until) = wait.standby_end() {
            self.alarms.insert((until, Alarm::Standby(wait.call)));
        }
        self.waits.insert(wait.call, wait);
    }

    pub(super) fn end_wait(&mut self, step: &Step<'_>, call: CallId) -> Option<Wait> {
        let wait = self.waits.remove(&call)?;
        if wait.answer.is_none()
            && let Some(entry) = self.sessions.get_mut(&wait.session)
        {
            entry.leave(&wait);
            entry.last_use = step.now.mono;
        }
        if let Some(until) = wait.standby_end() {
            self.alarms.remove(&(until, Alarm::Standby(call)));
        }
        Some(wait)
    }

    pub(super) fn end_wait_with(&mut self, step: &mut Step<'_>, call: CallId, outcome: Outcome) {
        let Some(wait) = self.end_wait(step, call) else {
            return;
        };
        self.answer_ended_wait(step, &wait, outcome);
    }

    /// Answers a wait that has ended or was not begun.
    pub(super) fn answer_ended_wait(&mut self, step: &mut Step<'_>, wait: &Wait, outcome: Outcome) {
        let mut tells_owner = None;
        if !outcome.reports_ending() {
            self.owner_stopped_waiting(step, wait.session);
        } else if wait.for_owner {
            tells_owner = self.ending_told(wait.session);
        }
        step.push(Effect::Reply {
            call: wait.call,
            outcome,
            tells_owner,
        });
    }

    /// Answers every wait on a session that can be answered now.
    pub(super) fn answer_waits(&mut self, step: &mut Step<'_>, id: SessionId) {
        let Some(entry) = self.sessions.get(&id) else {
            return;
        };
        let answers: Vec<_> = (entry.waits.iter())
            .filter_map(|call| Some((*call, entry.outcome_now(self.waits.get(call)?)?)))
            .collect();
        for (call, outcome) in answers {
            self.end_wait_with(step, call, outcome);
        }
    }

    /// Waits on a session that ask a person when it is idle.
    pub(super) fn askers_of(&self, id: SessionId) -> Vec<CallId> {
        let Some(entry) = self.sessions.get(&id) else {
            return Vec::new();
        };
        let asks = |call: &CallId| self.waits.get(call).is_some_and(|w| w.asking.asks());
        entry.waits.iter().copied().filter(asks).collect()
    }

    /// Answers a call whose standby is over. An open question stays open.
    pub(super) fn standby_over(&mut self, step: &mut Step<'_>, call: CallId) {
        let Some(wait) = self.waits.get(&call) else {
            return;
        };
        if let Some(question) = wait.question() {
            self.reply_unanswered(step, call, question, WhyHeld::Standby);
            return self.release_if_stranded(step, question);
        }
        let id = wait.session;
        self.end_wait_with(step, call, Outcome::Running(id, WhyRunning::Standby));
        self.release_stranded(step, id);
        self.rearm_idle_timer(step, id);
    }
}
