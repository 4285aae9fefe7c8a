//! Timers and messages in thousands of simulations: random calls, crashes, reboots, sleep, wall clock changes, failed
//! commits, lost answers. A failure prints its seed; `SEED=42 cargo test -p abide-core --test timers_sim` runs only
//! that one.

mod test_database;

use std::collections::{BTreeMap, BTreeSet};

use abide_core::limit;
use abide_core::message::{About, ReturnedMessage};
use abide_core::request::Caller;
use abide_core::time::Boot;
use abide_core::timer::{self, Act, CompletedBy, Create, Kind, Observation, Status, Timer, Why};
use abide_core::{
    Agent, CallId, Conversation, Effect, Engine, Event, MessageId, Millis, Mono, Now, Outcome,
    Refusal, Request, TimerId, Wall,
};
use test_database::TestDatabase;

#[test]
fn no_simulation_loses_or_repeats_a_completion() {
    if let Ok(seed) = std::env::var("SEED") {
        return World::new(seed.parse().expect("a number")).live();
    }
    let worlds = std::env::var("WORLDS").map_or(400, |n| n.parse().expect("a number"));
    for seed in 0..worlds {
        if std::panic::catch_unwind(|| World::new(seed).live()).is_err() {
            panic!("seed {seed}");
        }
    }
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    fn time(&mut self) -> Millis {
        let scale = [50, 5_000, 600_000, 40_000_000][self.roll(4) as usize];
        Millis(1 + self.roll(scale))
    }
}

/// Invariants of a timer, measured with a clock that cannot be set.
struct Truth {
    agent: Agent,
    total: u64,
    /// Elapsed time at `since`, and whether it has been running since then.
    elapsed: u64,
    since: u64,
    running: bool,
    pause_over: Option<u64>,
    over: bool,
}

impl Truth {
    fn elapsed_at(&self, now: u64) -> u64 {
        let mut elapsed = self.elapsed;
        if self.running {
            elapsed += now - self.since;
        } else if let Some(over) = self.pause_over
            && now > over
        {
            elapsed += now - over;
        }
        elapsed.min(self.total)
    }

    fn fix(&mut self, now: u64) {
        self.elapsed = self.elapsed_at(now);
        self.since = now;
        if self.pause_over.is_some_and(|over| over < now) {
            self.running = true;
            self.pause_over = None;
        }
    }
}

struct World {
    dice: Dice,
    engine: Engine,
    database: TestDatabase,
    /// True time, whatever the clocks show.
    time: u64,
    booted: u64,
    calendar_off: i64,
    boot_id: u128,
    truths: BTreeMap<TimerId, Truth>,
    next_call: u64,
    open: BTreeMap<CallId, Request>,
    /// Answered calls whose delivery is not confirmed yet.
    answered: BTreeMap<CallId, Vec<MessageId>>,
    heard: BTreeMap<MessageId, u32>,
    seen: BTreeSet<MessageId>,
    agents: Vec<Agent>,
    /// Conversation of each call.
    called_in: BTreeMap<CallId, Option<Conversation>>,
    /// Connections of each agent's conversations, and the end of the last one.
    present: BTreeMap<(Agent, Conversation), (u32, u64)>,
    /// Start time of the daemon.
    started: u64,
}

/// Conversations of agents; a waker can resume the first.
const CONVERSATIONS: [&str; 3] = ["resumable", "plain", "other"];

fn conversation(n: u64) -> Conversation {
    Conversation(CONVERSATIONS[n as usize].into())
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = World {
            dice: Dice(seed),
            engine: Engine::new(seed),
            database: TestDatabase::default(),
            time: 1_700_000_000_000,
            booted: 1_699_999_000_000,
            calendar_off: 0,
            boot_id: 1,
            truths: BTreeMap::new(),
            next_call: 0,
            open: BTreeMap::new(),
            answered: BTreeMap::new(),
            heard: BTreeMap::new(),
            seen: BTreeSet::new(),
            agents: ["ann", "bob"].map(|name| Agent(name.into())).to_vec(),
            called_in: BTreeMap::new(),
            present: BTreeMap::new(),
            started: 0,
        };
        world.start();
        world
    }

    fn now(&self) -> Now {
        Now {
            wall: Wall(self.time.saturating_add_signed(self.calendar_off)),
            boot: Boot(self.time - self.booted),
            mono: Mono(self.time - self.booted),
        }
    }

    fn live(&mut self) {
        for _ in 0..120 {
            match self.dice.roll(22) {
                0..=7 => self.call(),
                8 => self.crash(),
                9 => {
                    let off = self.dice.time();
                    self.time += off.0;
                    self.crash();
                }
                10 => {
                    // A change of the clock is recorded before the machine goes down, on the second attempt if the
                    // first one failed.
                    self.time += 1_100;
                    self.turn(vec![Event::Tick], false);
                    self.time += self.dice.time().0;
                    self.booted = self.time - self.dice.roll(60_000);
                    self.boot_id += 1;
                    self.crash();
                }
                11 => {
                    let by = i64::try_from(self.dice.time().0).expect("small");
                    self.calendar_off += if self.dice.one_in(2) { by } else { -by };
                }
                12..=13 => self.deliver(),
                14 => self.lose(),
                15 => self.hold(),
                16..=17 => self.connect_or_leave(),
                _ => self.pass(),
            }
        }
        self.finish();
    }

    fn start(&mut self) {
        self.engine = Engine::new(1);
        self.started = self.time;
        self.present.clear();
        let kept = Box::new(self.database.kept(self.boot_id));
        let mut events = vec![Event::StateLoaded(kept)];
        events.extend(self.agents.iter().map(|agent| Event::Resumable {
            agent: agent.clone(),
            conversations: vec![conversation(0)],
        }));
        self.turn(events, false);
        self.turn(vec![Event::Tick], false);
        self.check_views();
    }

    fn crash(&mut self) {
        self.open.clear();
        self.answered.clear();
        self.start();
    }

    fn pass(&mut self) {
        let until = self.time + self.dice.time().0;
        while let Some(due) = self.engine.next_boot_tick()
            && due.0 + self.booted <= until
        {
            self.time = self.time.max(due.0 + self.booted);
            let fails = self.dice.one_in(10);
            self.turn(vec![Event::Tick], fails);
        }
        self.time = self.time.max(until);
        self.turn(vec![Event::Tick], false);
        self.check_views();
    }

    fn some_timer(&mut self) -> TimerId {
        let count = self.truths.len() as u64;
        if count == 0 || self.dice.one_in(20) {
            return TimerId::from_bits(self.dice.roll(1 << 40));
        }
        let at = self.dice.roll(count) as usize;
        *self.truths.keys().nth(at).expect("one of them")
    }

    fn call(&mut self) {
        let mut events = Vec::new();
        for _ in 0..=self.dice.roll(3) {
            self.next_call += 1;
            let call = CallId(self.next_call);
            let request = self.request();
            let agent = self.agents[self.dice.roll(2) as usize].clone();
            let at = self.dice.roll(4);
            let conversation = (at < 3).then(|| conversation(at));
            self.open.insert(call, request.clone());
            self.called_in.insert(call, conversation.clone());
            events.push(Event::Called {
                call,
                caller: Caller {
                    agent: Some(agent),
                    conversation,
                },
                reserved: None,
                request,
            });
        }
        let fails = self.dice.one_in(6);
        self.turn(events, fails);
        self.check_views();
    }

    fn request(&mut self) -> Request {
        let maybe = |dice: &mut Dice| (!dice.one_in(3)).then(|| dice.time());
        Request::Timer(match self.dice.roll(10) {
            0..=3 => timer::Request::Create(Create {
                kind: if self.dice.one_in(2) {
                    Kind::Mission
                } else {
                    Kind::Waiting
                },
                purpose: "why".into(),
                until: self.dice.one_in(4).then(|| "port".into()),
                total: self.dice.time(),
                standby: maybe(&mut self.dice),
                client_limit: maybe(&mut self.dice),
                detach: self.dice.one_in(4),
                key: None,
            }),
            4 => timer::Request::Continue {
                timer: self.some_timer(),
                remaining: maybe(&mut self.dice),
                standby: maybe(&mut self.dice),
                client_limit: maybe(&mut self.dice),
                key: None,
            },
            5..=7 => timer::Request::Act {
                timer: self.some_timer(),
                act: match self.dice.roll(5) {
                    0 => Act::Stop,
                    1 => Act::Cancel,
                    2..=3 => Act::Pause(self.dice.time()),
                    _ => Act::Resume,
                },
                stop_reason: None,
                key: None,
            },
            8 => {
                let standby = maybe(&mut self.dice).unwrap_or_default();
                let most = 1 + self.dice.roll(5) as usize;
                let known = self.dice.one_in(4).then(|| self.some_timer());
                let known = known.into_iter().map(About::Timer).collect();
                return Request::ReadMessages {
                    standby,
                    most,
                    known,
                };
            }
            _ => timer::Request::Read {
                asks: true,
                timer: self.some_timer(),
            },
        })
    }

    fn deliver(&mut self) {
        if let Some((call, messages)) = self.answered.pop_first() {
            self.seen.extend(messages);
            let fails = self.dice.one_in(6);
            self.turn(vec![Event::Delivered { call }], fails);
        }
    }

    fn lose(&mut self) {
        let call = match self.answered.pop_last() {
            Some((call, _)) => call,
            None => match self.open.pop_last() {
                Some((call, _)) => call,
                None => return,
            },
        };
        let fails = self.dice.one_in(6);
        self.turn(vec![Event::CallerGone { call }], fails);
    }

    fn connect_or_leave(&mut self) {
        let agent = self.agents[self.dice.roll(2) as usize].clone();
        let conversation = conversation(self.dice.roll(3));
        let key = (agent.clone(), conversation.clone());
        let connections = self.present.get(&key).map_or(0, |(count, _)| *count);
        let leaves = connections > 0 && self.dice.one_in(2);
        let event = if leaves {
            self.present.insert(key, (connections - 1, self.time));
            Event::Disconnected {
                agent,
                conversation,
            }
        } else {
            self.present.insert(key, (connections + 1, self.time));
            Event::Connected {
                agent,
                conversation,
            }
        };
        self.turn(vec![event], false);
    }

    /// A message is delivered to its own conversation, and to another one only after that has ended, marked
    /// accordingly.
    fn check_conversation(&self, call: CallId, message: &ReturnedMessage) {
        let stored = &self.database.messages[&message.number];
        let caller = &self.called_in[&call];
        let Some(of) = &stored.conversation else {
            assert_eq!(message.taken_over, None);
            return;
        };
        if caller.as_ref() == Some(of) {
            assert_eq!(message.taken_over, None);
            return;
        }
        assert_eq!(message.taken_over.as_ref(), Some(of), "{message:?}");
        let present = self.present.get(&(stored.agent.clone(), of.clone()));
        let (connections, left) = present.copied().unwrap_or((0, self.started));
        assert_eq!(
            connections, 0,
            "{message:?} was told to another conversation"
        );
        let away = self.time - left;
        assert!(away > limit::RECONNECT.0, "it may be about to come back");
    }

    fn hold(&mut self) {
        let (timer, seen) = (self.some_timer(), Observation::new("open"));
        if self
            .database
            .timers
            .values()
            .any(|row| row.id == timer && row.kept.conditional)
        {
            let fails = self.dice.one_in(6);
            let decided = match self.dice.one_in(3) {
                true => Event::ConditionImpossible { timer, why: seen },
                false => Event::ConditionHeld { timer, seen },
            };
            self.turn(vec![decided], fails);
        }
    }

    /// One step: all of it is recorded, or nothing of it has happened.
    fn turn(&mut self, events: Vec<Event>, fails: bool) {
        let before = self.engine.clone();
        let mut effects = Vec::new();
        for event in events {
            self.engine.step(self.now(), event, &mut effects);
        }
        let recorded = effects.iter().any(|e| matches!(e, Effect::Record(_)));
        if fails && recorded {
            self.engine.commit_failed(self.now(), &mut effects);
            assert_eq!(before.counts().timers, self.engine.counts().timers);
            assert_eq!(before.counts().messages, self.engine.counts().messages);
        } else {
            for effect in &effects {
                if let Effect::Record(record) = effect {
                    self.database.apply(record);
                }
            }
            self.engine.begin_commit();
            self.engine.commit_succeeded();
        }
        for effect in effects {
            match effect {
                Effect::Record(record) => self.recorded(&record),
                Effect::Reply { call, outcome, .. } => self.replied(call, outcome),
                _ => {}
            }
        }
    }

    fn recorded(&mut self, record: &abide_core::Record) {
        let abide_core::Record::Timer(record) = record else {
            return;
        };
        let id_of = |number: &u64, database: &TestDatabase| database.timers[number].id;
        let now = self.time;
        match record {
            timer::Record::Created(timer::Created {
                id, agent, total, ..
            }) => {
                let truth = Truth {
                    agent: agent.clone(),
                    total: total.0,
                    elapsed: 0,
                    since: now,
                    running: true,
                    pause_over: None,
                    over: false,
                };
                assert!(self.truths.insert(*id, truth).is_none(), "an id twice");
            }
            timer::Record::Changed(timer::Changed { number, state, .. }) => {
                let id = id_of(number, &self.database);
                let truth = self.truths.get_mut(&id).expect("known");
                truth.fix(now);
                truth.total = state.total.0;
                match state.countdown {
                    timer::Countdown::Running { .. } => {
                        truth.running = true;
                        truth.pause_over = None;
                    }
                    timer::Countdown::Paused { until, .. } => {
                        let left = until.since(
                            self.database
                                .anchor
                                .expect("open")
                                .steady(Boot(now - self.booted)),
                        );
                        truth.running = false;
                        truth.pause_over = Some(now + left.0);
                    }
                }
            }
            timer::Record::Ended(timer::Ended { number, status, .. }) => {
                let id = id_of(number, &self.database);
                let truth = self.truths.get_mut(&id).expect("known");
                truth.fix(now);
                assert!(!truth.over, "{id} ended twice");
                truth.over = true;
                if let Status::Completed {
                    by: CompletedBy::Time,
                    ..
                } = status
                {
                    assert_eq!(truth.elapsed, truth.total, "{id} came early");
                }
            }
            timer::Record::Acted { .. } | timer::Record::Anchored(_) => {}
        }
    }

    fn replied(&mut self, call: CallId, outcome: Outcome) {
        let known = self.open.remove(&call);
        let mut told = Vec::new();
        match outcome {
            Outcome::Timer(timer, why) => {
                self.check(&timer);
                if why == Why::Completed {
                    told = (self.database.messages.values())
                        .filter(|message| message.about == About::Timer(timer.id))
                        .map(|message| message.id)
                        .collect();
                    assert_eq!(told.len(), 1, "one message for {}", timer.id);
                }
            }
            Outcome::Messages(messages, _) => {
                for message in messages {
                    self.check_conversation(call, &message);
                    let times = self.heard.entry(message.id).or_default();
                    *times += 1;
                    assert!(!self.seen.contains(&message.id) || message.repeated);
                    told.push(message.id);
                }
            }
            Outcome::Refused(Refusal::NotRecorded | Refusal::Timer(_)) => {}
            other => panic!("unexpected: {other:?}"),
        }
        assert!(known.is_some() || self.next_call > 0);
        self.answered.insert(call, told);
    }

    /// The engine's state of a timer is correct; each reboot may cost up to two seconds, since that much clock drift
    /// is not detected, and a timer is never early.
    fn check(&self, timer: &Timer) {
        assert_eq!(timer.elapsed() + timer.remaining, timer.total);
        let truth = &self.truths[&timer.id];
        if !timer.status.is_final() {
            let elapsed = truth.elapsed_at(self.time);
            let slack = u64::try_from(self.boot_id).expect("small") * 2_000 - 2_000;
            let said = timer.elapsed().0;
            assert!(said <= elapsed, "{said} is more than {elapsed}: {timer:?}");
            assert!(said + slack >= elapsed, "{said}, but {elapsed}: {timer:?}");
        }
    }

    fn check_views(&mut self) {
        for agent in self.agents.clone() {
            self.next_call += 1;
            let mut effects = Vec::new();
            let request = timer::Request::List {
                asks: true,
                after: None,
                most: 1_000,
            };
            let event = Event::Called {
                call: CallId(self.next_call),
                caller: Caller {
                    agent: Some(agent.clone()),
                    conversation: None,
                },
                reserved: None,
                request: Request::Timer(request),
            };
            self.engine.step(self.now(), event, &mut effects);
            for effect in &effects {
                if let Effect::Record(record) = effect {
                    self.database.apply(record);
                }
            }
            self.engine.begin_commit();
            self.engine.commit_succeeded();
            let Some(Effect::Reply {
                outcome: Outcome::Timers(timers),
                ..
            }) = effects.pop()
            else {
                panic!("a list");
            };
            // An expired pause ends at the next tick; until then the list may be behind.
            let live = self.truths.values().filter(|t| !t.over && t.agent == agent);
            assert_eq!(live.count(), timers.len());
        }
    }

    /// At the end every message was delivered and seen once.
    fn finish(&mut self) {
        self.time += 200_000_000_000;
        for _ in 0..50 {
            self.turn(vec![Event::Tick], false);
            self.time += 10_000;
        }
        self.crash();
        // Now every conversation has ended, including the one that a waker could resume.
        self.time += limit::RESUME.0 + limit::RECONNECT.0;
        assert_eq!(self.engine.counts().timers, 0, "something never ended");
        for agent in self.agents.clone() {
            loop {
                self.next_call += 1;
                let call = CallId(self.next_call);
                let (standby, most, known) = (Millis(0), 50, Vec::new());
                let conversation = self.dice.one_in(2).then(|| conversation(2));
                self.called_in.insert(call, conversation.clone());
                let event = Event::Called {
                    call,
                    caller: Caller {
                        agent: Some(agent.clone()),
                        conversation,
                    },
                    reserved: None,
                    request: Request::ReadMessages {
                        standby,
                        most,
                        known,
                    },
                };
                self.turn(vec![event], false);
                let told = self.answered.remove(&call).expect("an answer");
                if told.is_empty() {
                    break;
                }
                self.seen.extend(told);
                self.turn(vec![Event::Delivered { call }], false);
            }
        }
        assert_eq!(self.engine.counts().messages, 0);
        let completed = self
            .database
            .timers
            .values()
            .filter(|row| matches!(row.ended, Some(Status::Completed { .. })));
        assert_eq!(completed.count(), self.database.messages.len(), "one each");
        for message in self.database.messages.values() {
            assert!(
                message.seen && self.seen.contains(&message.id),
                "{message:?}"
            );
        }
    }
}
