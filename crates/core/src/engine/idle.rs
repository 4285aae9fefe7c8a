//! Idle timer of a session: when it runs, what happens when it expires, and how a question is opened and
//! closed. The timer belongs to the session: it runs whether or not a call waits.

use super::session_state::{IdleTimer, SessionState};
use super::{Alarm, Engine, Step};
use crate::effect::{Effect, Update};
use crate::id::{Key, QuestionId, SessionId};
use crate::question::{ClosedQuestion, Closing, Question, Subject};
use crate::record::Record;
use crate::time::Mono;
use crate::wait::{Outcome, WhyRunning};

impl Engine {
    /// Sets the idle timer and the inactivity timer from the state of the session. Called after every
    /// change of its waits, its limits or its last activity.
    pub(super) fn rearm_idle_timer(&mut self, step: &Step<'_>, id: SessionId) {
        let Some(entry) = self.sessions.get(&id) else {
            return;
        };
        let next = match (entry.idle_timer, entry.idle_at()) {
            (IdleTimer::Asked { question, .. }, _) => IdleTimer::Asked {
                question,
                hand_over_at: self.hand_over_at(entry).map(|at| at.max(step.now.mono)),
            },
            (_, None) => IdleTimer::Off,
            (IdleTimer::Looking, Some(_)) => IdleTimer::Looking,
            (IdleTimer::Off | IdleTimer::Armed { .. }, Some(at)) => IdleTimer::Armed {
                at: at.max(step.now.mono),
            },
        };
        self.set_idle_timer(id, next);
        self.rearm_inactivity_timer(step, id);
    }

    /// Time at which the calls are released that wait for a question although no person can be reached: one idle
    /// limit after the last of them began to wait.
    fn hand_over_at(&self, entry: &SessionState) -> Option<Mono> {
        let stranded = entry.askers > 0 && !self.reaches_a_person(entry);
        let at = entry.asker_since + entry.session.idle.unwrap_or_default();
        stranded.then(|| at.max(self.page_expected_until))
    }

    /// Sets the idle timer and its alarm.
    pub(super) fn set_idle_timer(&mut self, id: SessionId, next: IdleTimer) {
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        if let Some(at) = entry.idle_timer.alarm() {
            self.alarms.remove(&(at, Alarm::Idle(id)));
        }
        if let Some(at) = next.alarm() {
            self.alarms.insert((at, Alarm::Idle(id)));
        }
        entry.idle_timer = next;
    }

    /// Handles the alarm of the idle timer.
    pub(super) fn idle_due(&mut self, step: &mut Step<'_>, id: SessionId) {
        match self.sessions.get(&id).map(|entry| entry.idle_timer) {
            Some(IdleTimer::Asked { .. }) => {
                self.release_stranded(step, id);
                self.rearm_idle_timer(step, id);
            }
            // The keeper may know of later activity.
            Some(IdleTimer::Off | IdleTimer::Armed { .. } | IdleTimer::Looking) => {
                self.set_idle_timer(id, IdleTimer::Looking);
                step.push(Effect::QueryOutput { session: id });
            }
            None => {}
        }
    }

    /// Handles the answer of the keeper about the last activity.
    pub(super) fn idle_query_answered(&mut self, step: &mut Step<'_>, id: SessionId) {
        self.set_idle_timer(id, IdleTimer::Off);
        let Some(entry) = self.sessions.get(&id) else {
            return;
        };
        let idle = entry.idle_at().is_some_and(|at| at <= step.now.mono);
        let can_wait = entry.askers == 0 || self.reaches_a_person(entry);
        if !idle {
            self.rearm_idle_timer(step, id);
        } else if can_wait || self.page_is_expected(step) {
            self.ask(step, id);
        } else {
            self.hand_over(step, id);
        }
    }

    fn reaches_a_person(&self, entry: &SessionState) -> bool {
        self.watchers > 0 || entry.here > 0
    }

    /// Opens a question. It is recorded even if no person can be reached now: the page, `abide answer` and later
    /// calls show it for as long as it is open.
    fn ask(&mut self, step: &mut Step<'_>, id: SessionId) {
        let Some(entry) = self.sessions.get(&id) else {
            return;
        };
        let beyond = entry.session.bytes;
        let state = Question {
            subject: Subject::Idle {
                session: id,
                idle: entry.idle_time(step.now.mono),
            },
            asked: step.now.wall,
        };
        let question = self.questions.open(state.clone());
        self.set_idle_timer(
            id,
            IdleTimer::Asked {
                question,
                hand_over_at: None,
            },
        );
        step.push(Effect::Record(Record::Asked { question, state }));
        step.push(Effect::WatchOutput {
            session: id,
            beyond,
        });
        step.push(Effect::Ask { question });
        self.tell_askers(step, id, Update::Asked(question));
    }

    /// Withdraws the open question about a session, if there is one.
    pub(super) fn withdraw(&mut self, step: &mut Step<'_>, id: SessionId) {
        if let Some(question) = self.open_question_of(id) {
            self.close(step, question, Closing::Withdrawn);
        }
    }

    /// Closes an open question. The caller must rearm the idle timer afterwards.
    pub(super) fn close(&mut self, step: &mut Step<'_>, question: QuestionId, closing: Closing) {
        self.close_under(step, question, closing, None);
    }

    /// Closes a question with an answer that has this idempotency key.
    pub(super) fn close_under(
        &mut self,
        step: &mut Step<'_>,
        question: QuestionId,
        closing: Closing,
        key: Option<Key>,
    ) {
        let Some(state) = self.questions.get(question) else {
            return;
        };
        let id = state.session();
        let agent = match &state.subject {
            Subject::Idle { session, .. } | Subject::Connection { session, .. } => {
                self.session(*session).map(|s| s.agent.clone())
            }
            Subject::Command { held, .. } => Some(held.agent.clone()),
        };
        if self.open_question_of(id) == Some(question) {
            self.set_idle_timer(id, IdleTimer::Off);
        }
        let closed = ClosedQuestion {
            closing,
            owner: agent,
            key: key.clone(),
        };
        self.questions.close(question, closed);
        let closed = Record::Closed {
            question,
            closing,
            key,
            at: step.now.wall,
        };
        self.record_with_retry(step, closed);
        step.push(Effect::Close { question, closing });
        self.tell_askers(step, id, Update::Closed(question, closing));
        self.tell_held(step, question, Update::Closed(question, closing));
    }

    fn tell_askers(&self, step: &mut Step<'_>, id: SessionId, update: Update) {
        for call in self.askers_of(id) {
            step.push(Effect::Tell { call, update });
        }
    }

    /// Restarts the idle timer: a person or the agent extended the session.
    pub(super) fn restart_idle_timer(&mut self, step: &Step<'_>, id: SessionId) {
        if let Some(entry) = self.sessions.get_mut(&id) {
            entry.idle_counts_from = step.now.mono;
        }
        self.rearm_idle_timer(step, id);
    }

    /// Answers all calls that would have asked, because no person can be reached. The session continues, and its
    /// question stays open for a person who connects later.
    fn hand_over(&mut self, step: &mut Step<'_>, id: SessionId) {
        for call in self.askers_of(id) {
            let outcome = Outcome::Running(id, WhyRunning::NobodyToAsk);
            self.end_wait_with(step, call, outcome);
        }
        if self.open_question_of(id).is_none() {
            self.ask(step, id);
        }
        self.rearm_idle_timer(step, id);
    }

    /// Answers the calls that wait for a question if no person can be reached any more. The question stays open.
    pub(super) fn release_stranded(&mut self, step: &mut Step<'_>, id: SessionId) {
        let stranded = |entry: &SessionState| {
            entry.askers > 0 && entry.question().is_some() && !self.reaches_a_person(entry)
        };
        if self.sessions.get(&id).is_some_and(stranded) && !self.page_is_expected(step) {
            self.hand_over(step, id);
        }
    }
}
