//! Recovery of sessions, questions, timers and messages after a start, and removal of sessions whose folders were deleted.

use alloc::vec::Vec;

use super::session_state::{EndingReport, IdleTimer, SessionState};
use super::{Alarm, Engine, Step};
use crate::effect::Effect;
use crate::id::{QuestionId, SessionId};
use crate::limit;
use crate::question::{Closing, Question};
use crate::record::{Record, StoredRows, StoredState};
use crate::session::{Phase, Session};
use crate::time::{Millis, Mono, Steady, Wall};
use crate::timer;

impl Engine {
    /// Loads the timers and messages that the previous daemon stored.
    pub(super) fn state_loaded(
        &mut self,
        step: &mut Step<'_>,
        stored: StoredState,
        rows: StoredRows,
    ) {
        let probed: Vec<_> = (rows.timers.iter())
            .filter(|timer| timer.conditional)
            .filter(|timer| matches!(timer.state.countdown, timer::Countdown::Running { .. }))
            .map(|timer| timer.number)
            .collect();
        let anchor = self.timers.open(
            step.now,
            stored.id_permutation,
            stored.anchor,
            stored.boot_id,
            stored.timer_numbers,
            rows.timers,
        );
        self.timers.remember(rows.ended);
        self.went_back = rows.went_back;
        let anchored = timer::Record::Anchored(anchor);
        step.push(Effect::Record(Record::Timer(anchored)));
        for number in probed {
            let (timer, until) = (self.timers.id_of(number), None);
            step.push(Effect::Probe { timer, until });
        }
        let now = self.timers.steady(step.now);
        self.outbox.open(
            stored.id_permutation,
            stored.message_numbers,
            rows.messages,
            steady_of_wall(now, step.now.wall),
        );
        let agents = self.outbox.agents_with_conversations();
        self.conversations.open(now, agents);
    }

    /// Adds a session that recovery has found. Idle time counts from now: an answer that let the session continue may
    /// have come just before the crash, and it is not recorded.
    pub(super) fn session_found(
        &mut self,
        step: &Step<'_>,
        id: SessionId,
        state: Session,
        deadline: Option<Mono>,
        ending_told: bool,
    ) {
        let mut entry = SessionState::new(state);
        entry.deadline = deadline;
        entry.found = true;
        entry.idle_counts_from = step.now.mono;
        entry.last_use = step.now.mono;
        Engine::ending_found(&mut entry, ending_told);
        if let Phase::Running { ending, .. } = entry.session.phase {
            entry.kill_reason = ending;
        }
        if !self.sessions.contains_key(&id) {
            self.keep(id, entry);
            self.rearm_idle_timer(step, id);
            self.rearm_overdue_timer(id);
        }
    }

    /// Adds a session to the tables.
    pub(super) fn keep(&mut self, id: SessionId, entry: SessionState) {
        for key in &entry.session.keys {
            let name = (entry.session.agent.clone(), key.name());
            self.session_by_key.entry(name).or_insert(id);
        }
        self.running += usize::from(entry.leader_runs());
        self.sessions.insert(id, entry);
    }

    pub(super) fn reopened(&mut self, question: QuestionId, state: Question) {
        self.questions.reopen(question, state);
    }

    /// Asks the questions again that still apply, under their old ids, and withdraws the others.
    pub(super) fn recovered(&mut self, step: &mut Step<'_>) {
        self.take_up_until = step.now.mono + limit::TAKE_UP;
        self.tries_recovered(step);
        let open: Vec<_> = (self.questions.iter())
            .map(|(question, state)| (question, state.clone()))
            .collect();
        for (question, state) in open {
            self.take_up(step, question, &state);
        }
        self.endings_recovered(step);
        for id in self.sessions.keys() {
            step.push(Effect::Publish { session: *id });
        }
    }

    /// Takes up a question that was stored and is not known here, unless it was closed meanwhile.
    pub(super) fn question_loaded(
        &mut self,
        step: &mut Step<'_>,
        question: QuestionId,
        state: Question,
    ) {
        let is_known = self.questions.get(question).is_some();
        if is_known || self.questions.closed(question).is_some() {
            return;
        }
        self.questions.reopen(question, state.clone());
        self.take_up(step, question, &state);
    }

    /// Asks a question again if it still applies, and withdraws it otherwise.
    fn take_up(&mut self, step: &mut Step<'_>, question: QuestionId, state: &Question) {
        let id = state.session();
        if let Some(held) = state.held() {
            return self.held_recovered(step, question, id, held);
        }
        match self.sessions.get(&id) {
            Some(entry) if still_idle(entry, state, step) => {
                let beyond = entry.session.bytes;
                let hand_over_at = None;
                self.set_idle_timer(
                    id,
                    IdleTimer::Asked {
                        question,
                        hand_over_at,
                    },
                );
                step.push(Effect::WatchOutput {
                    session: id,
                    beyond,
                });
                step.push(Effect::Ask { question });
            }
            Some(_) | None => self.close(step, question, Closing::Withdrawn),
        }
    }

    /// Removes sessions whose folders are gone. A session that has not ended stays, whatever the caller says.
    pub(super) fn forgotten(&mut self, step: &mut Step<'_>, sessions: &[SessionId]) {
        for id in sessions {
            let over = |entry: &SessionState| entry.session.phase.is_final();
            if !self.sessions.get(id).is_some_and(over) {
                continue;
            }
            let Some(entry) = self.sessions.remove(id) else {
                continue;
            };
            step.push(Effect::Publish { session: *id });
            if entry.ending_report == EndingReport::Owed {
                let owed = Alarm::EndingOwed(*id);
                self.alarms.retain(|(_, alarm)| *alarm != owed);
            }
            for key in entry.session.keys {
                let name = (entry.session.agent.clone(), key.name());
                if self.session_by_key.get(&name) == Some(id) {
                    self.session_by_key.remove(&name);
                }
            }
        }
    }
}

/// Returns whether a question from before the crash still applies: the session runs, no end was requested, and it has
/// been quiet for at least as long as the question says.
fn still_idle(entry: &SessionState, asked: &Question, step: &Step<'_>) -> bool {
    match entry.session.phase {
        Phase::Running {
            quiet_since,
            ending: None,
        } => {
            let is_idle = |idle: Millis| step.now.mono.since(quiet_since) >= idle;
            entry.question().is_none() && asked.idle().is_some_and(is_idle)
        }
        Phase::Running { .. }
        | Phase::Starting
        | Phase::Leftover { .. }
        | Phase::Ended { .. }
        | Phase::Failed { .. } => false,
    }
}

/// Converts wall times of the past, given the present in both.
pub(super) fn steady_of_wall(steady: Steady, wall: Wall) -> impl Fn(Wall) -> Steady {
    move |then| Steady(steady.0.saturating_sub(wall.0.saturating_sub(then.0)))
}
