//! The simulated daemon: it performs the effects of the engine until it crashes.

use abide_core::session::Phase;
use abide_core::{Effect, Engine, Event, Millis, Record, SessionId};

use super::check::{CloneQuestions, open_questions};
use super::keeper::{Deadline, Keeper, Truth};
use super::{Life, Sim};

impl Sim {
    /// Handles one event and everything that follows from it.
    pub(super) fn step(&mut self, event: Event) {
        self.tell(|| format!("{event:?}"));
        let before = matches!(event, Event::Called { .. }).then(|| self.engine.clone());
        let was_asked = self.engine.clone_questions();
        let mut effects = Vec::new();
        self.engine.step(self.now, event.clone(), &mut effects);
        self.check_turn(&event, before.as_ref(), &was_asked, &effects);
        if self.perform(&event, effects) {
            self.check_house(&event);
        }
    }

    /// Returns whether the daemon survived.
    fn perform(&mut self, event: &Event, effects: Vec<Effect>) -> bool {
        let records = effects
            .iter()
            .filter(|e| matches!(e, Effect::Record(_)))
            .count();
        if records > 0 && self.faults && self.random.chance(2) {
            self.tally.count("commit failed");
            self.crash("a commit failed");
            return false;
        }
        for (at, effect) in effects.into_iter().enumerate() {
            if at >= records && self.faults && self.random.below(300) == 0 {
                self.crash("died between two effects");
                return false;
            }
            self.tell(|| format!("    {effect:?}"));
            self.perform_one(event, effect);
        }
        true
    }

    fn perform_one(&mut self, event: &Event, effect: Effect) {
        let now = self.now.mono;
        match effect {
            Effect::Record(record) => self.record(record),
            Effect::Start {
                session, deadline, ..
            } => self.start(session, deadline),
            Effect::StartHeld { .. } => unreachable!("held commands have transcripts"),
            Effect::AnswerConnection { .. } => unreachable!("held connections have transcripts"),
            Effect::Kill { session, end } => {
                self.tally.count("kill");
                self.check_kill(session, end);
                if let Some(keeper) = self.keepers.get_mut(&session) {
                    keeper.kill(end, now, &mut self.random);
                }
            }
            Effect::ForceKill { session, end } => {
                if let Some(keeper) = self.keepers.get_mut(&session) {
                    keeper.force(end, now, &mut self.random, &mut self.tally);
                }
            }
            Effect::SetDeadline { session, deadline } => {
                if let Some(keeper) = self.keepers.get_mut(&session) {
                    let early = matches!(keeper.truth, Truth::Starting { .. });
                    assert!(!early, "{session}: a new limit before the start");
                    keeper.deadline = Some(Deadline::At(now + deadline));
                }
            }
            Effect::StoreLimits {
                session,
                idle,
                inactivity,
                unasked_until,
            } => {
                if let Some(keeper) = self.keepers.get_mut(&session) {
                    keeper.given.idle = idle;
                    keeper.given.inactivity = inactivity;
                    keeper.given.unasked_until = unasked_until;
                }
            }
            Effect::QueryOutput { session } => {
                self.tally.count("look");
                if let Some(keeper) = self.keepers.get_mut(&session) {
                    keeper.look(now, &mut self.random);
                }
            }
            Effect::WatchOutput { session, beyond } => {
                self.tally.count("watch");
                if let Some(keeper) = self.keepers.get_mut(&session) {
                    keeper.watch(beyond, now, &mut self.random);
                }
            }
            Effect::Ask { question } => {
                let recorded = open_questions(&self.records).contains_key(&question);
                assert!(recorded, "{question} was shown before it was recorded");
                assert!(self.shown.insert(question), "{question} was shown twice");
            }
            Effect::Close { question, .. } => {
                let new = matches!(event, Event::Recovered);
                assert!(
                    self.shown.remove(&question) || new,
                    "{question} was not shown"
                );
            }
            Effect::Publish { .. }
            | Effect::PublishSeen { .. }
            | Effect::Posted { .. }
            | Effect::MarkEndingDelivered { .. } => {}
            Effect::Probe { .. }
            | Effect::PauseProbe { .. }
            | Effect::StopProbe { .. }
            | Effect::Remove { .. }
            | Effect::PublishTimer { .. } => unreachable!("there are no timers here"),
            Effect::Tell { call, update } => self.check_told(call, update),
            Effect::Reply { call, outcome, .. } => self.check_reply(event, call, &outcome),
        }
    }

    fn record(&mut self, record: Record) {
        match &record {
            Record::Asked { question, state } => {
                self.tally.count("ask");
                self.check_asked(*question, state);
            }
            Record::Closed {
                question, closing, ..
            } => self.check_closed(*question, *closing),
            Record::Message(_) => self.tally.count("message"),
            Record::Timer(_) | Record::Held { .. } => {
                unreachable!("there are no timers and no held commands here")
            }
        }
        self.records.push(record);
    }

    fn start(&mut self, id: SessionId, deadline: Option<Millis>) {
        self.tally.count("start");
        let given = self
            .engine
            .session(id)
            .expect("a session that starts")
            .clone();
        assert!(!self.keepers.contains_key(&id), "{id} was started twice");
        for key in &given.keys {
            let name = (given.agent.clone(), key.clone());
            let first = self.keys.insert(name, id);
            assert!(first.is_none(), "{id} is the second start under its key");
        }
        let keeper = Keeper::new(id, given, deadline, self.now.mono, &mut self.random);
        self.keepers.insert(id, keeper);
    }

    pub(super) fn forget(&mut self, id: SessionId) {
        self.tally.count("forgotten");
        self.keepers.remove(&id);
        self.keys.retain(|_, session| *session != id);
        self.endings.remove(&id);
        self.lives.remove(&id);
    }

    /// The daemon crashes, time passes without it, and a new one recovers.
    pub(super) fn crash(&mut self, why: &'static str) {
        self.tally.count("crash");
        self.tell(|| format!("CRASH: {why}"));
        self.calls.clear();
        self.shown.clear();
        self.lives.clear();
        self.watchers = 0;
        for keeper in self.keepers.values_mut() {
            keeper.cut_off();
        }
        self.world_goes_on_alone();
        self.engine = Engine::new(self.random.bits());
        let mut told = Vec::new();
        for (id, keeper) in &self.keepers {
            told.push(Event::SessionFound {
                session: *id,
                state: Box::new(keeper.found()),
                deadline: keeper.deadline_at(),
                ending_told: true,
            });
        }
        for (question, state) in open_questions(&self.records) {
            told.push(Event::Reopened { question, state });
        }
        if self.random.chance(50) {
            told.reverse();
        }
        for event in told {
            let mut effects = Vec::new();
            self.engine.step(self.now, event, &mut effects);
            assert!(effects.is_empty(), "nothing is done before all is known");
        }
        self.lives_begin();
        let now = self.now.mono;
        for keeper in self.keepers.values_mut() {
            keeper.connect(now, &mut self.random);
        }
        self.step(Event::Recovered);
        if !self.shown.is_empty() {
            self.tally.count("recovered question");
        }
    }

    fn world_goes_on_alone(&mut self) {
        for _ in 0..self.random.below(4) {
            let time = Millis(self.random.below(2_000));
            self.clocks_on(time);
            let now = self.now.mono;
            for keeper in self.keepers.values_mut() {
                if self.random.chance(20) {
                    keeper.write(now, 1, &mut self.random);
                }
                keeper.go_on(now, &mut self.random, &mut self.tally);
                keeper.cut_off();
            }
        }
    }

    fn lives_begin(&mut self) {
        for (id, session) in self.engine.sessions() {
            let dying = matches!(
                session.phase,
                Phase::Running {
                    ending: Some(_),
                    ..
                }
            );
            let life = Life {
                idle: session.idle,
                found_dying: dying,
                patient_since: self.now.mono,
                due_since: self.now.mono,
                ..Life::default()
            };
            self.lives.insert(id, life);
        }
    }
}
