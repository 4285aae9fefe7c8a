//! Connections of a sandbox that wait for a person: the question, its answer and its withdrawal.
//!
//! The network gate of a session owns these questions: it withdraws one when nothing waits for it any more, or after its
//! deadline, and asks the next daemon again. So a question that an earlier daemon has left is withdrawn.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::people::Given;
use super::{Engine, Step};
use crate::effect::{Effect, Update};
use crate::held_connection::{ConnectionAnswer, HeldConnection};
use crate::id::{QuestionId, SessionId};
use crate::question::{Answer, Closing, Question, Subject};
use crate::record::Record;

impl Engine {
    /// Opens a question about connections that wait. Without a person who can be reached now, the gate waits less long.
    pub(super) fn connection_held(
        &mut self,
        step: &mut Step<'_>,
        session: SessionId,
        connection: Arc<HeldConnection>,
    ) {
        let here = self.sessions.get(&session).map_or(0, |entry| entry.here);
        let is_known = self.connection_question(session, connection.number);
        if is_known.is_some() || !self.sessions.contains_key(&session) {
            return;
        }
        let shown = self.first_connection_question(session);
        // A client that asks by returning its call does not wait while its person reads the first question.
        let reaches_a_person = self.watchers > 0 || here > 0 || shown.is_some();
        if !reaches_a_person {
            step.push(Effect::AnswerConnection {
                session,
                number: connection.number,
                answer: ConnectionAnswer::Nobody,
            });
        }
        let state = Question {
            subject: Subject::Connection {
                session,
                connection,
            },
            asked: step.now.wall,
        };
        let question = self.questions.open(state.clone());
        step.push(Effect::Record(Record::Asked { question, state }));
        step.push(Effect::Ask { question });
        self.tell_next_connection(step, session, shown);
    }

    /// Withdraws the question with this number of a session's gate, or all if the gate has ended.
    pub(super) fn connection_released(
        &mut self,
        step: &mut Step<'_>,
        session: SessionId,
        number: Option<u64>,
    ) {
        let shown = self.first_connection_question(session);
        let mut questions = self.connection_questions(session);
        questions.retain(|(_, of_gate)| number.is_none_or(|number| number == *of_gate));
        for (question, _) in questions {
            self.close(step, question, Closing::Withdrawn);
        }
        self.tell_next_connection(step, session, shown);
    }

    /// Carries out the answer of a person.
    pub(super) fn connection_answered(
        &mut self,
        step: &mut Step<'_>,
        question: QuestionId,
        session: SessionId,
        number: u64,
        given: Given,
    ) {
        let shown = self.first_connection_question(session);
        self.close_under(step, question, Closing::Answered(given.answer), given.key);
        let answer = match given.answer {
            Answer::Yes => ConnectionAnswer::Yes,
            Answer::No | Answer::Refused => ConnectionAnswer::No(given.because),
        };
        step.push(Effect::AnswerConnection {
            session,
            number,
            answer,
        });
        self.tell_next_connection(step, session, shown);
    }

    /// Publishes a session whose published ports have changed.
    pub(super) fn ports_changed(&self, step: &mut Step<'_>, session: SessionId) {
        if self.sessions.contains_key(&session) {
            step.push(Effect::Publish { session });
        }
    }

    /// Question about connections of a session that is open the longest.
    pub(super) fn first_connection_question(&self, session: SessionId) -> Option<QuestionId> {
        let questions = self.connection_questions(session);
        let first = questions.iter().min_by_key(|(_, number)| *number);
        first.map(|(question, _)| *question)
    }

    fn connection_question(&self, session: SessionId, number: u64) -> Option<QuestionId> {
        let questions = self.connection_questions(session);
        let found = questions.iter().find(|(_, of_gate)| *of_gate == number);
        found.map(|(question, _)| *question)
    }

    fn connection_questions(&self, session: SessionId) -> Vec<(QuestionId, u64)> {
        let questions = self.questions.iter().filter_map(|(id, state)| {
            let connection = state.connection().filter(|_| state.session() == session)?;
            Some((id, connection.number))
        });
        questions.collect()
    }

    /// Tells the calls that wait for a session about its first open question, unless they show it already: a client shows
    /// one question at a time.
    fn tell_next_connection(
        &self,
        step: &mut Step<'_>,
        session: SessionId,
        shown: Option<QuestionId>,
    ) {
        let next = self.first_connection_question(session);
        let Some(question) = next.filter(|_| next != shown) else {
            return;
        };
        for call in self.askers_of(session) {
            let update = Update::Asked(question);
            step.push(Effect::Tell { call, update });
        }
    }
}
