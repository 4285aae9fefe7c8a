//! Random actions of callers, people, commands and machines.

use abide_core::request::Caller;
use abide_core::session::Phase;
use abide_core::{
    Agent, Answer, Asking, CallId, End, Event, Exit, Key, Millis, QuestionId, Request, Run,
    SessionId,
};

use super::keeper::Truth;
use super::{Call, Kind, Sim};

impl Sim {
    pub(super) fn act(&mut self) {
        match self.random.below(100) {
            0..12 => self.run(),
            12..20 => self.join(),
            20..23 => self.kill(),
            23..26 => self.extend(),
            26..36 => self.answer(),
            36..40 => self.caller_goes(),
            40..43 => self.interrupt(),
            43..45 => self.person_unreachable(),
            45..49 => self.watch_or_leave(),
            49..58 => self.command_writes(),
            58..64 => self.command_ends(),
            64..66 => self.leftovers_end(),
            66..67 => self.keeper_vanishes(),
            67..69 => self.retention(),
            69..71 => self.sleep(),
            71..72 => self.calendar_steps(),
            72..74 => self.crash("killed"),
            74..80 => self.pass_up_to(100),
            80..92 => self.pass_up_to(2_500),
            _ => self.pass_up_to(8_000),
        }
    }

    fn pass_up_to(&mut self, millis: u64) {
        let time = Millis(self.random.below(millis));
        self.pass(time);
    }

    fn call(&mut self, kind: Kind, asking: Asking, standby: Option<Millis>, request: Request) {
        let agent = match self.random.below(12) {
            0 => Some(Agent("bob".into())),
            1..3 => None,
            _ => Some(Agent("ann".into())),
        };
        let id = CallId(self.next_call);
        self.next_call += 1;
        let call = Call {
            agent: agent.clone(),
            kind,
            session: None,
            asks: asking.asks(),
            here: asking.reaches_a_person(),
            returning: asking == Asking::ByReturning,
            until: standby.map(|standby| self.now.mono + standby),
            issued: self.now.mono,
            asked: None,
            interrupted: false,
        };
        self.calls.insert(id, call);
        let reserved = Some(SessionId::from_bits(self.random.bits()));
        self.step(Event::Called {
            call: id,
            caller: Caller {
                agent,
                conversation: None,
            },
            reserved,
            request,
        });
    }

    fn asking(&mut self) -> Asking {
        match self.random.below(10) {
            0..2 => Asking::Never,
            2..5 => Asking::Elsewhere,
            5..8 => Asking::Here,
            _ => Asking::ByReturning,
        }
    }

    fn standby(&mut self) -> Option<Millis> {
        match self.random.below(6) {
            0 => Some(Millis(self.random.below(3_000))),
            1..4 => Some(Millis::from_secs(1 + self.random.below(12))),
            _ => None,
        }
    }

    fn inactivity(&mut self) -> Millis {
        Millis::from_secs(3 + self.random.below(20))
    }

    fn idle(&mut self) -> Millis {
        Millis::from_secs(2 + self.random.below(5))
    }

    fn run(&mut self) {
        let (asking, standby, detach) = (self.asking(), self.standby(), self.random.chance(15));
        let keys = ["k", "l", "m", "n"];
        let run = Run {
            command: self
                .random
                .pick(&["make", "make", "make", "test"])
                .expect("one")
                .into(),
            deadline: (self.random.chance(30)).then(|| Millis(self.random.below(15_000))),
            idle: self.random.chance(90).then(|| self.idle()),
            inactivity: self.random.chance(40).then(|| self.inactivity()),
            asking,
            standby,
            detach,
            key: (self.random.chance(40))
                .then(|| Key(self.random.pick(&keys).expect("one").into())),
            approval: None,
        };
        let kind = if detach { Kind::Detached } else { Kind::Run };
        self.call(kind, asking, standby, Request::Run(run));
    }

    /// Usually an existing one.
    fn session(&mut self) -> SessionId {
        let live: Vec<_> = (self.keepers.iter())
            .filter(|(_, keeper)| !keeper.is_gone())
            .map(|(id, _)| *id)
            .collect();
        let all: Vec<_> = self.keepers.keys().copied().collect();
        let from = if self.random.chance(80) && !live.is_empty() {
            &live
        } else {
            &all
        };
        let unknown = SessionId::from_bits(self.random.bits());
        self.random.pick(from).unwrap_or(unknown)
    }

    fn join(&mut self) {
        let (session, asking, standby) = (self.session(), self.asking(), self.standby());
        let request = Request::Join {
            session,
            asking,
            standby,
        };
        self.call(Kind::Join, asking, standby, request);
    }

    fn kill(&mut self) {
        let session = self.session();
        let end = self
            .random
            .pick(&[End::Agent, End::User, End::Inactivity])
            .expect("one");
        self.call(
            Kind::Kill,
            Asking::Never,
            None,
            Request::Kill { session, end },
        );
    }

    fn extend(&mut self) {
        let session = self.session();
        let idle = self.random.chance(60).then(|| self.idle());
        let deadline = (self.random.chance(50)).then(|| Millis(self.random.below(20_000)));
        let request = Request::Extend {
            session,
            deadline,
            idle,
            inactivity: None,
        };
        self.call(Kind::Extend(idle), Asking::Never, None, request);
    }

    fn answer(&mut self) {
        let open: Vec<_> = self.engine.questions().map(|(id, _)| id).collect();
        if open.is_empty() && self.random.chance(80) {
            return self.pass_up_to(4_000);
        }
        let all: Vec<_> = self.asked.keys().copied().collect();
        let from = if self.random.chance(85) { &open } else { &all };
        let unknown = QuestionId::from_bits(self.random.bits());
        let question = self.random.pick(from).unwrap_or(unknown);
        let answer = self
            .random
            .pick(&[Answer::Yes, Answer::Yes, Answer::No])
            .expect("one");
        let quiet = answer == Answer::Yes && self.random.chance(30);
        let request = Request::Answer {
            question,
            answer,
            quiet_for: quiet.then(|| Millis(self.random.below(60_000))),
            because: None,
            key: None,
        };
        self.call(Kind::Answer(question), Asking::Never, None, request);
    }

    /// Usually one that waits.
    fn some_call(&mut self) -> CallId {
        let waiting: Vec<_> = self.calls.keys().copied().collect();
        let any = CallId(self.random.below(self.next_call));
        let waiting = self.random.pick(&waiting);
        if self.random.chance(95) {
            waiting.unwrap_or(any)
        } else {
            any
        }
    }

    fn caller_goes(&mut self) {
        let call = self.some_call();
        self.calls.remove(&call);
        self.step(Event::CallerGone { call });
    }

    fn interrupt(&mut self) {
        let call = self.some_call();
        self.step(Event::Interrupted { call });
    }

    fn person_unreachable(&mut self) {
        let call = self.some_call();
        if let Some(call) = self.calls.get_mut(&call) {
            call.here = false;
            call.returning = false;
        }
        self.step(Event::PersonUnreachable { call });
    }

    fn watch_or_leave(&mut self) {
        let count = self.random.below(3) as u32;
        if count == 0 && self.watchers > 0 {
            self.page_left = self.now.mono;
        }
        self.watchers = count;
        self.step(Event::Watchers { count });
    }

    fn running(&mut self) -> Option<SessionId> {
        let running: Vec<_> = (self.keepers.iter())
            .filter(|(_, keeper)| keeper.truth == Truth::Running)
            .map(|(id, _)| *id)
            .collect();
        self.random.pick(&running)
    }

    fn command_writes(&mut self) {
        let now = self.now.mono;
        if let Some(id) = self.running() {
            let bytes = 1 + self.random.below(100);
            self.tell(|| format!("{id} writes {bytes}"));
            let keeper = self.keepers.get_mut(&id).expect("it runs");
            keeper.write(now, bytes, &mut self.random);
        }
    }

    fn command_ends(&mut self) {
        let now = self.now.mono;
        if let Some(id) = self.running() {
            let (code, leftover) = (self.random.below(3) as i32, self.random.chance(40));
            self.tell(|| format!("{id} ends with {code}, leftover: {leftover}"));
            let keeper = self.keepers.get_mut(&id).expect("it runs");
            let exit = Some(Exit::Code(code));
            keeper.exit(now, exit, End::Exited, leftover, &mut self.random);
        }
    }

    fn leftovers_end(&mut self) {
        let now = self.now.mono;
        let id = self.session();
        if let Some(keeper) = self.keepers.get_mut(&id) {
            keeper.empty(now, &mut self.random);
        }
    }

    fn keeper_vanishes(&mut self) {
        let now = self.now.mono;
        if let Some(id) = self.running() {
            self.tell(|| format!("{id} loses its keeper"));
            let keeper = self.keepers.get_mut(&id).expect("it runs");
            keeper.exit(now, None, End::Lost, false, &mut self.random);
        }
    }

    /// Removes sessions that the daemon knows to have ended; others are not removed, whatever the request says.
    fn retention(&mut self) {
        let id = self.session();
        let phase = self.engine.session(id).map(|session| &session.phase);
        if let Some(Phase::Ended { .. } | Phase::Failed { .. }) = phase {
            self.forget(id);
        }
        let sessions = vec![id];
        self.step(Event::Forgotten { sessions });
    }

    fn sleep(&mut self) {
        let time = self.random.below(8 * 3_600_000);
        self.now.wall.0 += time;
        self.now.boot.0 += time;
        self.tally.count("suspend");
        self.tell(|| format!("asleep for {time}ms"));
        self.step(Event::Tick);
    }

    fn calendar_steps(&mut self) {
        let by = self.random.below(7_200_000) as i64 - 3_600_000;
        self.now.wall.0 = self.now.wall.0.saturating_add_signed(by);
        self.step(Event::Tick);
    }
}
