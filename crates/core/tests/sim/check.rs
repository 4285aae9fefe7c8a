//! The invariants.

use std::collections::{BTreeMap, BTreeSet};

use abide_core::session::Phase;
use abide_core::{
    Answer, CallId, Closing, Effect, End, Engine, Event, Millis, Outcome, Question, QuestionId,
    Record, SessionId, Update, limit,
};

use super::keeper::{SLACK, Truth};
use super::{Kind, Life, Sim};

/// Maximum delay of a tick in this simulation.
const LATE: Millis = Millis(80);

impl Sim {
    /// Checks the effects of one step before any of them is performed.
    pub(super) fn check_turn(
        &mut self,
        event: &Event,
        before: Option<&Engine>,
        was_asked: &BTreeMap<QuestionId, Question>,
        effects: &[Effect],
    ) {
        let in_order = effects.is_sorted_by_key(Effect::rank);
        assert!(
            in_order,
            "record, act, ask, publish, tell, reply: {effects:?}"
        );
        let replied: Vec<_> = (effects.iter())
            .filter_map(|effect| match effect {
                Effect::Reply { call, .. } => Some(*call),
                _ => None,
            })
            .collect();
        let once: BTreeSet<_> = replied.iter().collect();
        assert_eq!(once.len(), replied.len(), "answered twice: {effects:?}");
        let refused = |effect: &Effect| {
            matches!(
                effect,
                Effect::Reply {
                    outcome: Outcome::Refused(_),
                    ..
                }
            )
        };
        if effects.iter().any(refused) {
            assert_eq!(effects.len(), 1, "refused, and yet: {effects:?}");
            assert!(
                before == Some(&self.engine),
                "a refused call changed something"
            );
        }
        let closes = |effect: &Effect| matches!(effect, Effect::Record(Record::Closed { .. }));
        if let Event::Tick
        | Event::CallerGone { .. }
        | Event::PersonUnreachable { .. }
        | Event::Watchers { .. } = event
        {
            let closed = effects.iter().find(|effect| closes(effect));
            assert_eq!(closed, None, "a question is the session's, not a call's");
        }
        self.note_decisions(event, effects);
        self.check_answer(event, was_asked, effects);
    }

    /// Records that a tree must be killed.
    fn note_decisions(&mut self, event: &Event, effects: &[Effect]) {
        match event {
            Event::Called {
                call,
                reserved: Some(reserved),
                request,
                ..
            } => match request {
                abide_core::Request::Kill { session, .. } => {
                    let answered = effects.iter().any(|e| matches!(e, Effect::Reply { .. }));
                    if !answered {
                        self.lives.entry(*session).or_default().decided = true;
                    }
                    self.name_session(*call, *session);
                }
                abide_core::Request::Run(run) => {
                    let life = Life {
                        idle: run.idle,
                        ..Life::default()
                    };
                    if effects.iter().any(|e| matches!(e, Effect::Start { .. })) {
                        self.lives.insert(*reserved, life);
                    }
                }
                abide_core::Request::Join { session, .. }
                | abide_core::Request::Extend { session, .. } => {
                    self.name_session(*call, *session);
                }
                abide_core::Request::Answer { .. } => {}
                abide_core::Request::JoinStart { .. } => {
                    unreachable!("held commands have transcripts")
                }
                abide_core::Request::Timer(_)
                | abide_core::Request::Probe { .. }
                | abide_core::Request::Try(_)
                | abide_core::Request::ReadMessages { .. } => {
                    unreachable!("timers have a simulation of their own")
                }
            },
            Event::Interrupted { call } => {
                let Some(call) = self.calls.get_mut(call) else {
                    assert!(effects.is_empty(), "nobody was interrupted: {effects:?}");
                    return;
                };
                call.interrupted = true;
                let id = call.session.expect("a waiting call has a session");
                let phase = self.engine.session(id).map(|session| &session.phase);
                if let Some(Phase::Starting | Phase::Running { .. }) = phase {
                    let life = self.lives.entry(id).or_default();
                    (life.decided, life.interrupted) = (true, true);
                }
            }
            Event::Started { session } => {
                let now = self.now.mono;
                let life = self.lives.entry(*session).or_default();
                life.due_since = life.due_since.max(now);
            }
            _ => {}
        }
    }

    fn name_session(&mut self, call: CallId, session: SessionId) {
        if let Some(call) = self.calls.get_mut(&call) {
            call.session = Some(session);
        }
    }

    /// An answer has one effect, and only on a question that was open.
    fn check_answer(
        &self,
        event: &Event,
        was_asked: &BTreeMap<QuestionId, Question>,
        effects: &[Effect],
    ) {
        let closes = |effect: &&Effect| {
            let Effect::Record(Record::Closed { closing, .. }) = effect else {
                return false;
            };
            matches!(closing, Closing::Answered(_))
        };
        let closed = effects.iter().filter(closes).count();
        let kills = |effect: &&Effect| {
            matches!(
                effect,
                Effect::Kill {
                    end: End::IdleDeclined,
                    ..
                }
            )
        };
        let killed = effects.iter().filter(kills).count();
        let Event::Called {
            request:
                abide_core::Request::Answer {
                    question, answer, ..
                },
            ..
        } = event
        else {
            assert_eq!((closed, killed), (0, 0), "nobody has answered: {effects:?}");
            return;
        };
        let done = |effect: &Effect| {
            matches!(
                effect,
                Effect::Reply {
                    outcome: Outcome::Done,
                    ..
                }
            )
        };
        let taken = usize::from(effects.iter().any(done));
        let open = usize::from(was_asked.contains_key(question));
        assert!(taken <= open, "{question} was not open");
        assert_eq!(closed, taken, "one answer, one closing: {effects:?}");
        let no = usize::from(*answer == Answer::No);
        assert_eq!(killed, taken * no, "no kills once, yes never: {effects:?}");
    }

    /// A question was asked: not too early, not without reason, not twice.
    pub(super) fn check_asked(&mut self, question: QuestionId, state: &Question) {
        let id = state.session();
        let new = self.asked.insert(question, id).is_none();
        assert!(
            new && !self.closed.contains_key(&question),
            "{question} was put twice"
        );
        let mut askers = self.calls.values().filter(|call| call.asks);
        if !askers.any(|call| call.session == Some(id)) {
            self.tally.count("ask while no call waits");
        }
        assert_eq!(state.asked, self.now.wall);
        let idle = state.idle().expect("a question about idleness");
        let life = &self.lives[&id];
        let patient = self.now.mono.since(life.patient_since) >= idle;
        if life.idle == Some(idle) && patient {
            self.check_idle(id, idle);
        } else {
            self.tally.count("ask before the client's limit");
            assert!(self.is_before_a_cut(id), "{id}: not its idle limit");
            self.check_nearly_idle(id, idle);
        }
    }

    /// Returns whether a call that can be answered with the question is about to reach its limit.
    fn is_before_a_cut(&self, id: SessionId) -> bool {
        let now = self.now.mono;
        self.calls.values().any(|call| {
            let cut = call.until.filter(|_| call.returning);
            call.session == Some(id)
                && cut.is_some_and(|until| now + limit::ASK_BEFORE_CUT >= until)
        })
    }

    /// The session has been idle for half its limit, and for the reported time.
    fn check_nearly_idle(&self, id: SessionId, said: Millis) {
        let now = self.now.mono;
        let life = &self.lives[&id];
        let half = Millis(life.idle.expect("an idle limit").0 / 2);
        self.check_quiet(id, half);
        self.check_quiet(id, said);
        let until = self.keepers[&id].given.unasked_until;
        assert!(now >= until, "{id}: not to be asked about until {until:?}");
        let patient = now.since(life.patient_since) >= half;
        assert!(patient, "{id}: a person has just decided to go on");
    }

    /// No output for this long, except for output in flight.
    fn check_quiet(&self, id: SessionId, time: Millis) {
        let now = self.now.mono;
        let early = |at: &abide_core::Mono| now.since(*at) < time && now.since(*at) > SLACK;
        let mut wrote = self.keepers[&id].wrote.iter().rev().take(50);
        assert_eq!(wrote.find(|at| early(at)), None, "{id} was not idle");
    }

    /// The session was idle for its limit, except for output in flight.
    pub(super) fn check_idle(&self, id: SessionId, idle: Millis) {
        let now = self.now.mono;
        let life = &self.lives[&id];
        self.check_quiet(id, idle);
        let until = self.keepers[&id].given.unasked_until;
        assert!(
            now >= until,
            "{id}: nobody wants to be asked until {until:?}"
        );
        let patient = now.since(life.patient_since) >= idle;
        assert!(
            patient,
            "{id}: somebody has decided to go on since {:?}",
            life.patient_since
        );
    }

    pub(super) fn reaches_a_person(&self, id: SessionId) -> bool {
        let here = |call: &super::Call| call.here && call.session == Some(id);
        self.watchers > 0 || self.calls.values().any(here)
    }

    pub(super) fn check_closed(&mut self, question: QuestionId, closing: Closing) {
        self.tally.count(match closing {
            Closing::Answered(Answer::Yes) => "yes",
            Closing::Answered(Answer::No) => "no",
            Closing::Withdrawn => "withdrawn",
            Closing::Answered(Answer::Refused) | Closing::Expired => {
                unreachable!("held commands have transcripts")
            }
        });
        let open = self.asked.contains_key(&question);
        let first = self.closed.insert(question, closing).is_none();
        assert!(open && first, "{question} was closed twice, or never put");
        let id = self.asked[&question];
        let now = self.now.mono;
        if let Some(life) = self.lives.get_mut(&id) {
            life.due_since = now;
            match closing {
                Closing::Answered(Answer::Yes) => life.patient_since = now,
                Closing::Answered(Answer::No | Answer::Refused) => life.decided = true,
                Closing::Withdrawn | Closing::Expired => {}
            }
        }
    }

    pub(super) fn check_kill(&mut self, id: SessionId, end: End) {
        if end == End::Inactivity && !self.lives.entry(id).or_default().decided {
            self.check_inactive(id);
            self.lives.entry(id).or_default().decided = true;
        }
        let starting = |keeper: &super::Keeper| matches!(keeper.truth, Truth::Starting { .. });
        assert!(
            !self.keepers.get(&id).is_some_and(starting),
            "{id}: nothing to kill yet"
        );
        let life = self.lives.entry(id).or_default();
        life.kills += 1;
        assert!(life.decided, "{id} was killed, and nobody has decided so");
        assert!(
            life.kills == 1 && !life.found_dying,
            "{id} was killed twice"
        );
    }

    /// No person is present, and there was no output for the limit, except for output in flight.
    fn check_inactive(&self, id: SessionId) {
        let now = self.now.mono;
        let keeper = &self.keepers[&id];
        let limit = keeper.given.inactivity.expect("a limit of inactivity");
        let there = self.calls.values().find(|call| call.session == Some(id));
        assert!(
            there.is_none(),
            "{id} was closed while somebody was there: {there:?}"
        );
        let early = |at: &abide_core::Mono| now.since(*at) < limit && now.since(*at) > SLACK;
        let wrote = keeper.wrote.iter().rev().take(50).find(|at| early(at));
        assert_eq!(wrote, None, "{id} was closed, and was not inactive");
    }

    pub(super) fn check_told(&mut self, id: CallId, update: Update) {
        let Some(call) = self.calls.get_mut(&id) else {
            panic!("{id:?} was told {update:?}, and does not wait");
        };
        match update {
            Update::Accepted(session) => {
                // A call that waits for an interrupted command is told so, as the interrupted one was.
                let life = self.lives.get(&session);
                call.interrupted |= matches!(call.kind, Kind::Run | Kind::Join)
                    && life.is_some_and(|life| life.interrupted);
                if let Kind::Run | Kind::Detached = call.kind {
                    assert_eq!(call.session, None, "accepted twice");
                    call.session = Some(session);
                    let starting = |k: &super::Keeper| matches!(k.truth, Truth::Starting { .. });
                    if !self.keepers.get(&session).is_some_and(starting) {
                        self.tally.count("joined by key");
                    }
                }
            }
            Update::Asked(question) => {
                assert!(
                    call.asks && call.asked.is_none(),
                    "{id:?} was told of two questions"
                );
                assert_eq!(call.session, self.asked.get(&question).copied());
                call.asked = Some(question);
            }
            Update::Closed(question, _) => {
                assert_eq!(
                    call.asked,
                    Some(question),
                    "closed, and it was not told of it"
                );
                call.asked = None;
            }
        }
    }

    /// Invariants after every step.
    pub(super) fn check_house(&mut self, event: &Event) {
        let now = self.now.mono;
        let open: BTreeMap<_, _> = self.engine.clone_questions();
        assert_eq!(
            open_questions(&self.records),
            open,
            "the records give other questions"
        );
        let shown: BTreeSet<_> = open.keys().copied().collect();
        assert_eq!(self.shown, shown, "other questions are shown");
        for (id, state) in &open {
            let session = self
                .engine
                .session(state.session())
                .map(|session| &session.phase);
            let runs = matches!(session, Some(Phase::Running { ending: None, .. }));
            assert!(runs, "{id} is open, and its session does not run");
            assert_eq!(self.engine.open_question_of(state.session()), Some(*id));
        }
        let counts = self.engine.counts();
        let waiting = self.calls.len();
        assert_eq!(
            counts.waits, waiting,
            "waits and unanswered calls: {:?}",
            self.calls
        );
        assert!(counts.alarms <= counts.waits + 3 * counts.sessions);
        assert!(counts.waits <= limit::WAITS && counts.closed <= limit::CLOSED_QUESTIONS);
        if *event == Event::Tick {
            assert!(
                self.engine.next_mono_tick().is_none_or(|at| at > now),
                "an alarm was left behind"
            );
        }
        self.check_sessions();
        self.check_calls();
    }

    fn check_sessions(&mut self) {
        let mut running = 0;
        for (id, session) in self.engine.sessions() {
            let life = &self.lives[&id];
            let keeper = &self.keepers[&id];
            match &session.phase {
                Phase::Starting => running += 1,
                Phase::Running { ending, .. } => {
                    running += 1;
                    let dying = life.kills == 1 || life.found_dying;
                    assert_eq!(ending.is_some(), dying, "{id}: decided, but not sent");
                    assert!(dying || !life.decided, "{id}: the decision was lost");
                }
                Phase::Leftover { ending } | Phase::Ended { ending } => {
                    assert_eq!(Some(ending), keeper.ending(), "{id}: not how it ended");
                    let first = self.endings.entry(id).or_insert(ending.clone());
                    assert_eq!(first, ending, "{id} ended twice");
                }
                Phase::Failed { .. } => assert_eq!(keeper.truth, Truth::Failed),
            }
            if let Phase::Ended { .. } = session.phase {
                assert!(keeper.is_gone(), "{id} is not gone");
            }
            if let Phase::Leftover { .. } = session.phase {
                assert!(
                    life.kills == 1 || life.found_dying || !life.decided,
                    "{id}: not killed"
                );
            } else if !matches!(session.phase, Phase::Ended { .. }) {
                assert!(!self.endings.contains_key(&id), "{id} came back to life");
            }
        }
        assert_eq!(self.engine.counts().running, running);
    }

    /// No call waits for an event that has already happened.
    fn check_calls(&self) {
        for (id, call) in &self.calls {
            let session = call.session.expect("a waiting call has a session");
            let phase = &self.engine.session(session).expect("its session").phase;
            let over = match phase {
                Phase::Starting => false,
                Phase::Running { .. } => call.kind == Kind::Detached && !call.interrupted,
                Phase::Leftover { ending } => {
                    let waits = matches!(call.kind, Kind::Run | Kind::Join) && !call.interrupted;
                    waits && !ending.end.is_kill() && !self.must_go(session)
                }
                Phase::Ended { .. } | Phase::Failed { .. } => true,
            };
            assert!(!over, "{id:?} still waits for what is over: {call:?}");
        }
    }

    fn must_go(&self, id: SessionId) -> bool {
        let life = &self.lives[&id];
        life.decided || life.found_dying
    }

    /// No call waits longer than its limit, and neither idleness nor output is missed.
    pub(super) fn check_patience(&self) {
        let now = self.now.mono;
        for (question, state) in self.engine.questions() {
            let known = self
                .engine
                .session(state.session())
                .map(|session| session.bytes);
            let keeper = &self.keepers[&state.session()];
            let unseen = Some(keeper.bytes) > known && now.since(keeper.quiet_since) > SLACK;
            assert!(
                !unseen,
                "{question} is open, and its session has written since"
            );
        }
        for (id, call) in &self.calls {
            let over = call.until.is_some_and(|until| until + LATE < now);
            assert!(!over, "{id:?} waits beyond its patience: {call:?}");
        }
        for (id, session) in self.engine.sessions() {
            let Phase::Running { ending: None, .. } = session.phase else {
                continue;
            };
            let Some(idle) = self.lives[&id].idle else {
                continue;
            };
            if self.engine.open_question_of(id).is_some() {
                self.check_stranded(id, idle);
            } else {
                self.check_supervised(id, idle);
            }
        }
    }

    /// A call that waits for an answer that no person can give waits for one idle limit, and for the reload of a page.
    fn check_stranded(&self, id: SessionId, idle: Millis) {
        if self.reaches_a_person(id) {
            return;
        }
        let askers = (self.calls.values()).filter(|call| call.asks && call.session == Some(id));
        if let Some(last) = askers.map(|call| call.issued).max() {
            let until = (last + idle).max(self.page_left + limit::PAGE_RELOAD);
            let stranded = self.now.mono > until + LATE;
            assert!(
                !stranded,
                "{id}: a call waits for an answer nobody can give"
            );
        }
    }

    /// A question is asked about a session that is idle for its limit, whether or not a call waits.
    fn check_supervised(&self, id: SessionId, idle: Millis) {
        let keeper = &self.keepers[&id];
        // A keeper that was stopped does not report the last output of its command.
        if keeper.was_stopped() {
            return;
        }
        let since = keeper.quiet_since.max(self.lives[&id].due_since);
        let due = (since + idle).max(keeper.given.unasked_until);
        let bound = Millis(LATE.0 + SLACK.0 + SLACK.0);
        let overdue = self.now.mono.since(due);
        assert!(overdue <= bound, "{id} is idle, and no question is open");
    }
}

/// The open questions, for comparison.
pub(super) trait CloneQuestions {
    fn clone_questions(&self) -> BTreeMap<QuestionId, Question>;
}

impl CloneQuestions for Engine {
    fn clone_questions(&self) -> BTreeMap<QuestionId, Question> {
        self.questions()
            .map(|(id, state)| (id, state.clone()))
            .collect()
    }
}

/// Questions that are open after these records.
pub(super) fn open_questions<'a>(
    records: impl IntoIterator<Item = &'a Record>,
) -> BTreeMap<QuestionId, Question> {
    let mut open = BTreeMap::new();
    for record in records {
        match record {
            Record::Asked { question, state } => {
                open.insert(*question, state.clone());
            }
            Record::Closed { question, .. } => {
                open.remove(question);
            }
            Record::Held { .. } | Record::Timer(_) | Record::Message(_) => {}
        }
    }
    open
}
