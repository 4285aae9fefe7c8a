//! People: their answers to questions, and calls whose client can no longer reach a person.

use alloc::vec::Vec;

use super::{Engine, Step};
use crate::effect::Effect;
use crate::id::{Agent, CallId, QuestionId, SessionId};
use crate::question::{Answer, Closing};
use crate::request::Refusal;
use crate::session::End;
use crate::time::Millis;
use crate::wait::{Asking, Outcome};

impl Engine {
    /// Handles the answer of a person. Only the first answer counts; a later one is refused with the first.
    pub(super) fn answered(
        &mut self,
        step: &mut Step<'_>,
        call: CallId,
        caller: &Option<Agent>,
        question: QuestionId,
        answer: Answer,
        quiet_for: Option<Millis>,
    ) -> Result<(), Refusal> {
        let session = self.answerable(caller, question)?;
        let idle = self.question(question).map(|state| state.idle);
        self.close(step, question, Closing::Answered(answer));
        match answer {
            Answer::Yes => {
                if let (Some(time), Some(entry)) = (quiet_for, self.sessions.get_mut(&session)) {
                    entry.session.unasked_until = step.now.mono + time;
                    self.store_limits(step, session);
                }
                self.restart_idle_timer(step, session);
            }
            Answer::No => {
                if let Some(entry) = self.sessions.get_mut(&session) {
                    entry.declined_idle = idle;
                }
                self.request_kill(step, session, End::IdleDeclined);
            }
        }
        let outcome = Outcome::Done;
        step.push(Effect::Reply { call, outcome });
        Ok(())
    }

    /// Session of an open question that this caller may answer.
    fn answerable(
        &self,
        caller: &Option<Agent>,
        question: QuestionId,
    ) -> Result<SessionId, Refusal> {
        let own = |owner: Option<&Agent>| caller.is_none() || caller.as_ref() == owner;
        if let Some(state) = self.questions.get(question) {
            if own(self.session(state.session).map(|session| &session.agent)) {
                return Ok(state.session);
            }
        } else if let Some((closing, owner)) = self.questions.closed(question)
            && own(owner.as_ref())
        {
            return Err(Refusal::QuestionClosed(question, *closing));
        }
        Err(Refusal::QuestionNotFound(question))
    }

    /// Handles that the client of a call cannot reach a person.
    pub(super) fn person_unreachable(&mut self, step: &mut Step<'_>, call: CallId) {
        let Some(wait) = self.waits.get_mut(&call) else {
            return;
        };
        if !wait.asking.reaches_a_person() {
            return;
        }
        let id = wait.session;
        if let Some(entry) = self.sessions.get_mut(&id) {
            entry.leave(wait);
            wait.asking = Asking::Elsewhere;
            entry.enter(wait);
        }
        self.release_stranded(step, id);
        self.rearm_idle_timer(step, id);
    }

    pub(super) fn watchers_are(&mut self, step: &mut Step<'_>, count: u32) {
        self.watchers = count;
        if count == 0 {
            let asked: Vec<SessionId> = self
                .questions
                .iter()
                .map(|(_, state)| state.session)
                .collect();
            for id in asked {
                self.release_stranded(step, id);
            }
        }
    }
}
