//! Invariants of answers: a call gets exactly one, and it is correct.

use abide_core::{CallId, End, Event, Millis, Outcome, QuestionId, SessionId, WhyRunning};

use super::keeper::Truth;
use super::{Call, Kind, Sim};

impl Sim {
    pub(super) fn check_reply(&mut self, event: &Event, id: CallId, outcome: &Outcome) {
        let Some(call) = self.calls.remove(&id) else {
            panic!("{id:?} was answered {outcome:?}, and does not wait");
        };
        let what = match outcome {
            Outcome::Started(id) => {
                let starting = matches!(self.keepers[id].truth, Truth::Starting { .. });
                assert!(!starting && call.kind == Kind::Detached, "{call:?}");
                self.check_own(&call, *id);
                "started"
            }
            Outcome::Ended(id) | Outcome::Declined(id, _) | Outcome::Cancelled(id) => {
                self.check_own(&call, *id);
                self.check_over(&call, *id, outcome)
            }
            Outcome::Running(id, WhyRunning::Standby) => {
                assert_eq!(*event, Event::Tick);
                self.check_own(&call, *id);
                self.check_standby(&call)
            }
            Outcome::Running(id, WhyRunning::NobodyToAsk) => {
                self.check_own(&call, *id);
                self.check_nobody(&call, *id, event)
            }
            Outcome::Running(_, WhyRunning::SurvivesKill) => {
                unreachable!("everything here dies when it is killed")
            }
            Outcome::Failed(id) => {
                self.check_own(&call, *id);
                assert_eq!(self.keepers[id].truth, Truth::Failed, "{call:?}");
                "failed"
            }
            Outcome::NotStarted(..) => unreachable!("held commands have transcripts"),
            Outcome::Done => match call.kind {
                Kind::Extend(idle) => self.extended(&call, idle),
                Kind::Answer(question) => self.check_answerer(&call, question),
                Kind::Run | Kind::Detached | Kind::Join | Kind::Kill => panic!("{call:?}"),
            },
            Outcome::Timer(..)
            | Outcome::Timers(_)
            | Outcome::TimersMade(_)
            | Outcome::TimersObserved(_)
            | Outcome::TimersCounted(_)
            | Outcome::Messages(..) => panic!("{call:?}"),
            Outcome::Refused(_) => "refused",
        };
        self.tally.count(what);
    }

    /// The answer is about the session that the call named, which belongs to its caller.
    fn check_own(&self, call: &Call, id: SessionId) {
        assert_eq!(call.session, Some(id), "answered about another session");
        let owner = &self.keepers[&id].given.agent;
        let own = call.agent.as_ref().is_none_or(|me| me == owner);
        assert!(own, "answered about another's session: {call:?}");
    }

    /// The session has ended, a killed one is gone, and the reported ending is the most precise one.
    fn check_over(&self, call: &Call, id: SessionId, outcome: &Outcome) -> &'static str {
        let keeper = &self.keepers[&id];
        let end = keeper.ending().expect("an ending").end;
        let at_once = match call.kind {
            Kind::Detached => true,
            Kind::Run | Kind::Join => !end.is_kill() && !call.interrupted,
            Kind::Kill | Kind::Extend(_) | Kind::Answer(_) => false,
        };
        let gone = keeper.is_gone();
        assert!(gone || at_once, "{id} still lives: {call:?}");
        let stated = match outcome {
            Outcome::Declined(_, idle) => *idle,
            _ => Millis(0),
        };
        let (best, what) = match end {
            End::IdleDeclined if call.asks && gone => (Outcome::Declined(id, stated), "declined"),
            End::User if call.interrupted => (Outcome::Cancelled(id), "cancelled"),
            _ => (Outcome::Ended(id), "ended"),
        };
        assert_eq!(*outcome, best, "there is a better word: {call:?} {end:?}");
        what
    }

    /// Its limit is reached.
    fn check_standby(&self, call: &Call) -> &'static str {
        let now = self.now.mono;
        let over = call.until.is_some_and(|until| until <= now);
        assert!(over, "its patience is not over: {call:?}");
        "standby"
    }

    /// No person could be asked, and there was a question, which stays open.
    fn check_nobody(&self, call: &Call, id: SessionId, event: &Event) -> &'static str {
        assert!(call.asks && !call.here, "it could have asked: {call:?}");
        assert!(!self.reaches_a_person(id), "somebody could have been asked");
        // In any other step a question was open, and the session was idle when it was asked.
        if let Event::OutputGrew { .. } = event {
            let idle = self.lives[&id].idle.expect("an idle limit");
            self.check_idle(id, idle);
        }
        let open = self.engine.open_question_of(id);
        assert!(open.is_some(), "{id}: handed over without a question");
        "nobody"
    }

    fn extended(&mut self, call: &Call, idle: Option<Millis>) -> &'static str {
        let session = call.session.expect("a session");
        self.check_own(call, session);
        if idle.is_some() {
            let life = self.lives.entry(session).or_default();
            life.idle = self.keepers[&session].given.idle;
            life.patient_since = self.now.mono;
            life.due_since = self.now.mono;
        }
        "done"
    }

    fn check_answerer(&self, call: &Call, question: QuestionId) -> &'static str {
        let owner = &self.keepers[&self.asked[&question]].given.agent;
        let own = call.agent.as_ref().is_none_or(|me| me == owner);
        assert!(own, "another's question was answered: {call:?}");
        "done"
    }
}
