//! People: their answers to questions, and calls whose client can no longer reach a person.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Alarm, Engine, Step};
use crate::id::{Agent, CallId, Key, QuestionId, SessionId};
use crate::limit;
use crate::question::{Answer, Closing, Question, Subject};
use crate::request::Refusal;
use crate::session::End;
use crate::time::Millis;
use crate::wait::{Asking, Outcome};

/// Answer of a person, with what belongs to it.
pub(super) struct Given {
    pub answer: Answer,
    /// After a yes: time during which no question about the session is opened.
    pub quiet_for: Option<Millis>,
    /// After a no: words for the agent.
    pub because: Option<Arc<str>>,
    /// Idempotency key.
    pub key: Option<Key>,
}

impl Engine {
    /// Handles the answer of a person. Only the first answer counts; a later one is refused with the first, unless it
    /// is the first that comes again.
    pub(super) fn answered(
        &mut self,
        step: &mut Step<'_>,
        call: CallId,
        caller: &Option<Agent>,
        question: QuestionId,
        given: Given,
    ) -> Result<(), Refusal> {
        if self.is_repeated(caller, question, &given) {
            step.reply(call, Outcome::Done);
            return Ok(());
        }
        let state = self.answerable(caller, question)?.clone();
        let (session, idle) = (state.session(), state.idle());
        if let Some(held) = state.held() {
            self.command_answered(step, question, session, held.clone(), given)?;
            step.reply(call, Outcome::Done);
            return Ok(());
        }
        if let Some(connection) = state.connection() {
            let number = connection.number;
            self.connection_answered(step, question, session, number, given);
            step.reply(call, Outcome::Done);
            return Ok(());
        }
        self.close_under(step, question, Closing::Answered(given.answer), given.key);
        match given.answer {
            Answer::Yes => {
                if let (Some(time), Some(entry)) =
                    (given.quiet_for, self.sessions.get_mut(&session))
                {
                    entry.session.unasked_until = step.now.mono + time;
                    self.store_limits(step, session);
                }
                self.restart_idle_timer(step, session);
            }
            Answer::No | Answer::Refused => {
                if let Some(entry) = self.sessions.get_mut(&session) {
                    entry.declined_idle = idle;
                }
                self.request_kill(step, session, End::IdleDeclined);
            }
        }
        step.reply(call, Outcome::Done);
        Ok(())
    }

    /// True if the answer was taken before under its key.
    fn is_repeated(&self, caller: &Option<Agent>, question: QuestionId, given: &Given) -> bool {
        let closed = self.questions.closed(question);
        closed.is_some_and(|closed| {
            (caller.is_none() || *caller == closed.owner)
                && closed.was_closed_by(given.answer, given.key.as_ref())
        })
    }

    /// Open question that this caller may answer.
    fn answerable(
        &self,
        caller: &Option<Agent>,
        question: QuestionId,
    ) -> Result<&Question, Refusal> {
        let own = |owner: Option<&Agent>| caller.is_none() || caller.as_ref() == owner;
        if let Some(state) = self.questions.get(question) {
            let may_answer = match &state.subject {
                Subject::Idle { session, .. } | Subject::Connection { session, .. } => {
                    own(self.session(*session).map(|s| &s.agent))
                }
                Subject::Command { held, .. } => match held.approval.person_only {
                    true => caller.is_none(),
                    false => own(Some(&held.agent)),
                },
            };
            if may_answer {
                return Ok(state);
            }
        } else if let Some(closed) = self.questions.closed(question)
            && own(closed.owner.as_ref())
        {
            return Err(Refusal::QuestionClosed(question, closed.closing));
        }
        Err(Refusal::QuestionNotFound(question))
    }

    /// Handles that the client of a call cannot reach a person.
    pub(super) fn person_unreachable(&mut self, step: &mut Step<'_>, call: CallId) {
        let Some(wait) = self.waits.get_mut(&call) else {
            return;
        };
        if let Some(answer) = &mut wait.answer {
            answer.asking = Asking::Elsewhere;
            let question = answer.question;
            return self.release_if_stranded(step, question);
        }
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
        let before = core::mem::replace(&mut self.watchers, count);
        if count == 0 && before > 0 {
            self.page_expected_until = step.now.mono + limit::PAGE_RELOAD;
        }
        if count == 0 {
            self.release_all_stranded(step);
        }
    }

    /// Answers the calls that wait for a question which no person can answer now.
    pub(super) fn release_all_stranded(&mut self, step: &mut Step<'_>) {
        let questions = self.questions.iter();
        let asked: Vec<SessionId> = questions.map(|(_, state)| state.session()).collect();
        for id in asked {
            self.release_stranded(step, id);
        }
        self.release_stranded_held(step);
    }

    /// Returns whether a page may come back that is being reloaded. If so, the calls that wait are looked at again
    /// when that time is over.
    pub(super) fn page_is_expected(&mut self, step: &Step<'_>) -> bool {
        let until = self.page_expected_until;
        let expected = step.now.mono < until;
        if expected {
            self.alarms.insert((until, Alarm::PageExpected));
        }
        expected
    }
}
