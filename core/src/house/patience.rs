//! The idle clock: when it runs, what happens when it runs out, and how a question is put and
//! closed.

use super::kept::{Kept, Patience};
use super::{Alarm, House, Turn};
use crate::effect::{Effect, Update};
use crate::id::{QuestionId, SessionId};
use crate::question::{Closing, Question};
use crate::record::Record;
use crate::session::{End, Phase};
use crate::wait::{Outcome, WhyRunning};

impl House {
    /// Brings the clocks of a session into line with everything else. Called after whatever may
    /// have changed who waits, how long they may be patient, or the last sign of life.
    pub(super) fn wind(&mut self, turn: &Turn<'_>, id: SessionId) {
        let Some(kept) = self.sessions.get_mut(&id) else {
            return;
        };
        let next = match (kept.patience, kept.idle_at()) {
            (Patience::Asked(question), _) => Patience::Asked(question),
            (_, None) => Patience::Off,
            (Patience::Looking, Some(_)) => Patience::Looking,
            (Patience::Off | Patience::Armed { .. }, Some(at)) => Patience::Armed {
                at: at.max(turn.now.mono),
            },
        };
        if let Patience::Armed { at } = kept.patience {
            self.alarms.remove(&(at, Alarm::Idle(id)));
        }
        if let Patience::Armed { at } = next {
            self.alarms.insert((at, Alarm::Idle(id)));
        }
        kept.patience = next;
        self.keep_vigil(turn, id);
    }

    /// The idle clock has run out as far as the house knows; the keeper knows better.
    pub(super) fn look(&mut self, turn: &mut Turn<'_>, id: SessionId) {
        if let Some(kept) = self.sessions.get_mut(&id) {
            kept.patience = Patience::Looking;
            turn.push(Effect::Look { session: id });
        }
    }

    /// The keeper has answered.
    pub(super) fn looked(&mut self, turn: &mut Turn<'_>, id: SessionId) {
        let Some(kept) = self.sessions.get_mut(&id) else {
            return;
        };
        kept.patience = Patience::Off;
        let idle = kept.idle_at().is_some_and(|at| at <= turn.now.mono);
        if !idle {
            self.wind(turn, id);
        } else if self.reaches_a_person(id) {
            self.ask(turn, id);
        } else {
            self.hand_over(turn, id);
        }
    }

    fn reaches_a_person(&self, id: SessionId) -> bool {
        self.watchers > 0 || self.sessions.get(&id).is_some_and(|kept| kept.here > 0)
    }

    fn ask(&mut self, turn: &mut Turn<'_>, id: SessionId) {
        let Some(kept) = self.sessions.get_mut(&id) else {
            return;
        };
        let state = Question {
            session: id,
            idle: kept.session.idle.unwrap_or_default(),
            asked: turn.now.wall,
        };
        let question = self.questions.open(state.clone());
        kept.patience = Patience::Asked(question);
        turn.push(Effect::Record(Record::Asked { question, state }));
        turn.push(Effect::Watch {
            session: id,
            beyond: kept.session.bytes,
        });
        turn.push(Effect::Ask { question });
        self.tell_askers(turn, id, Update::Asked(question));
    }

    /// Takes the open question about a session back, if there is one.
    pub(super) fn withdraw(&mut self, turn: &mut Turn<'_>, id: SessionId) {
        if let Some(question) = self.open_question_of(id) {
            self.close(turn, question, Closing::Withdrawn);
        }
    }

    /// Closes an open question. The caller winds the clock when it has done the rest.
    pub(super) fn close(&mut self, turn: &mut Turn<'_>, question: QuestionId, closing: Closing) {
        let Some(id) = self.questions.get(question).map(|state| state.session) else {
            return;
        };
        let kept = self.sessions.get_mut(&id);
        let agent = kept.map(|kept| {
            if kept.question() == Some(question) {
                kept.patience = Patience::Off;
            }
            kept.session.agent.clone()
        });
        self.questions.close(question, closing, agent);
        turn.push(Effect::Record(Record::Closed {
            question,
            closing,
            at: turn.now.wall,
        }));
        turn.push(Effect::Close { question, closing });
        self.tell_askers(turn, id, Update::Closed(question));
    }

    fn tell_askers(&self, turn: &mut Turn<'_>, id: SessionId, update: Update) {
        for call in self.askers_of(id) {
            turn.push(Effect::Tell { call, update });
        }
    }

    /// From now on quiet is counted afresh: somebody has decided to go on.
    pub(super) fn be_patient_again(&mut self, turn: &Turn<'_>, id: SessionId) {
        if let Some(kept) = self.sessions.get_mut(&id) {
            kept.patience_from = turn.now.mono;
        }
        self.wind(turn, id);
    }

    /// The agent decides instead of a person. Should it wait again, it has decided to go on, so
    /// its next wait is not answered with the same silence at once.
    pub(super) fn leave_it_to_the_agent(&mut self, turn: &mut Turn<'_>, id: SessionId) {
        if self.open_question_of(id).is_some() {
            self.withdraw(turn, id);
            self.be_patient_again(turn, id);
        }
    }

    /// Nobody can be asked: every wait that would have asked is answered; the session goes on.
    fn hand_over(&mut self, turn: &mut Turn<'_>, id: SessionId) {
        self.withdraw(turn, id);
        for call in self.askers_of(id) {
            let outcome = Outcome::Running(id, WhyRunning::NobodyToAsk);
            self.reply(turn, call, outcome);
        }
        self.be_patient_again(turn, id);
    }

    /// Answers those who wait for a question that nobody can answer any more. Where nobody waits,
    /// an open question stays: its call may come back.
    pub(super) fn release_stranded(&mut self, turn: &mut Turn<'_>, id: SessionId) {
        let waited_for = |kept: &Kept| kept.askers > 0 && kept.question().is_some();
        if self.sessions.get(&id).is_some_and(waited_for) && !self.reaches_a_person(id) {
            self.hand_over(turn, id);
        }
    }

    /// Decides that the tree must go. The first decision stands, and is sent once.
    pub(super) fn condemn(&mut self, turn: &mut Turn<'_>, id: SessionId, end: End) {
        self.withdraw(turn, id);
        let Some(kept) = self.sessions.get_mut(&id) else {
            return;
        };
        if kept.doom.is_none() {
            let kill = Effect::Kill { session: id, end };
            match &mut kept.session.phase {
                Phase::Starting => {}
                Phase::Running { ending, .. } => {
                    *ending = Some(end);
                    turn.push(kill);
                }
                Phase::Leftover { .. } => turn.push(kill),
                Phase::Ended { .. } | Phase::Failed { .. } => return,
            }
            kept.doom = Some(end);
            kept.killed = Some(turn.now.mono);
            turn.push(Effect::Publish { session: id });
        } else if kept.undying {
            // Its keeper says again how things stand, and whoever kills it now hears that.
            turn.push(Effect::Kill { session: id, end });
        }
        self.mind_its_end(id);
        self.wind(turn, id);
    }
}
