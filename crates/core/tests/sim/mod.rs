//! One simulation: keepers that survive, a daemon that crashes, callers, people and clocks.

mod acts;
mod check;
mod daemon;
mod keeper;
mod random;
mod replies;

use std::collections::{BTreeMap, BTreeSet};

use abide_core::time::Boot;
use abide_core::{
    Agent, CallId, Closing, Ending, Engine, Event, Key, Millis, Mono, Now, QuestionId, Record,
    SessionId, Wall,
};

use keeper::Keeper;
use random::Random;

/// Whether the trace of a simulation is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    Not,
    Aloud,
    AtTheEnd,
}

/// Counts of what happened, so that a simulation in which nothing happens is noticed.
#[derive(Clone, Debug, Default)]
pub struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub fn add(&mut self, other: &Tally) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    /// Every kind of event that the invariants are about has happened.
    pub fn saw_everything(&self) {
        for what in [
            "start",
            "kill",
            "look",
            "watch",
            "ask",
            "ask while no call waits",
            "ask before the client's limit",
            "withdrawn",
            "yes",
            "no",
            "started",
            "ended",
            "declined",
            "cancelled",
            "failed",
            "standby",
            "nobody",
            "done",
            "refused",
            "crash",
            "commit failed",
            "recovered question",
            "joined by key",
            "suspend",
            "forgotten",
            "deadline",
        ] {
            assert!(
                self.0.contains_key(what),
                "it never came to `{what}`: {self:?}"
            );
        }
    }
}

/// A call that has not been answered.
#[derive(Clone, Debug)]
struct Call {
    agent: Option<Agent>,
    kind: Kind,
    session: Option<SessionId>,
    asks: bool,
    here: bool,
    /// It can be answered with the question.
    returning: bool,
    until: Option<Mono>,
    issued: Mono,
    asked: Option<QuestionId>,
    interrupted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Run,
    Detached,
    Join,
    Kill,
    Extend(Option<Millis>),
    Answer(QuestionId),
}

/// Facts about a session during one life of the daemon.
#[derive(Clone, Debug, Default)]
struct Life {
    /// The idle limit in force.
    idle: Option<Millis>,
    kills: u32,
    /// The tree must be killed, as decided in this life.
    decided: bool,
    /// A call was interrupted in this life.
    interrupted: bool,
    /// It was being killed when this daemon found it.
    found_dying: bool,
    /// No question may be asked before this time plus the idle limit.
    patient_since: Mono,
    /// From this time on a question must be asked after the idle limit.
    due_since: Mono,
}

struct Sim {
    random: Random,
    telling: Telling,
    story: Vec<String>,
    tally: Tally,
    now: Now,
    engine: Engine,
    /// Current delay of the daemon's ticks.
    late: Millis,
    faults: bool,

    keepers: BTreeMap<SessionId, Keeper>,
    calls: BTreeMap<CallId, Call>,
    next_call: u64,
    watchers: u32,
    /// Time at which the last page was left.
    page_left: Mono,

    records: Vec<Record>,
    shown: BTreeSet<QuestionId>,
    asked: BTreeMap<QuestionId, SessionId>,
    closed: BTreeMap<QuestionId, Closing>,
    keys: BTreeMap<(Agent, Key), SessionId>,
    lives: BTreeMap<SessionId, Life>,
    endings: BTreeMap<SessionId, Ending>,
}

/// Runs the simulation of a seed to its end. Panics if an invariant is violated.
pub fn play(seed: u64, telling: Telling) -> Tally {
    let mut random = Random::new(seed);
    let mut sim = Sim {
        engine: Engine::new(random.bits()),
        random,
        telling,
        story: Vec::new(),
        tally: Tally::default(),
        now: Now {
            wall: Wall(1_700_000_000_000),
            boot: Boot(5_000_000),
            mono: Mono(1_000_000),
        },
        late: Millis(0),
        faults: true,
        keepers: BTreeMap::new(),
        calls: BTreeMap::new(),
        next_call: 1,
        watchers: 0,
        page_left: Mono::default(),
        records: Vec::new(),
        shown: BTreeSet::new(),
        asked: BTreeMap::new(),
        closed: BTreeMap::new(),
        keys: BTreeMap::new(),
        lives: BTreeMap::new(),
        endings: BTreeMap::new(),
    };
    let acts = 60 + sim.random.below(120);
    for _ in 0..acts {
        sim.act();
    }
    sim.come_to_rest();
    std::mem::take(&mut sim.tally)
}

impl Sim {
    fn tell(&mut self, line: impl FnOnce() -> String) {
        if self.telling == Telling::Not {
            return;
        }
        let line = format!("{:>9} {}", self.now.mono.0, line());
        if self.telling == Telling::Aloud {
            println!("{line}");
        }
        self.story.push(line);
    }

    /// Lets time pass: keepers act, their reports arrive, alarms fire.
    fn pass(&mut self, time: Millis) {
        let target = self.now.mono + time;
        self.late = if self.random.chance(20) {
            Millis(self.random.below(80))
        } else {
            Millis(0)
        };
        loop {
            let tick = self
                .engine
                .next_mono_tick()
                .map(|at| (at + self.late).max(self.now.mono));
            let keeper = (self.keepers.iter())
                .filter_map(|(id, keeper)| Some((keeper.next()?, *id)))
                .min();
            let next = tick.into_iter().chain(keeper.map(|(at, _)| at)).min();
            let Some(next) = next.filter(|at| *at <= target) else {
                break;
            };
            self.clocks_on(next.since(self.now.mono));
            match keeper {
                Some((at, id)) if at <= self.now.mono => self.keeper_goes_on(id),
                Some(_) | None => self.step(Event::Tick),
            }
        }
        self.clocks_on(target.since(self.now.mono));
        self.check_patience();
    }

    fn clocks_on(&mut self, time: Millis) {
        self.now.wall.0 += time.0;
        self.now.boot.0 += time.0;
        self.now.mono.0 += time.0;
    }

    fn keeper_goes_on(&mut self, id: SessionId) {
        let now = self.now.mono;
        if let Some(keeper) = self.keepers.get_mut(&id) {
            keeper.go_on(now, &mut self.random, &mut self.tally);
            if let Some(event) = keeper.heard(now) {
                self.step(event);
            }
        }
    }

    /// No more faults, and everything ends: then no call may be left waiting.
    fn come_to_rest(&mut self) {
        self.faults = false;
        self.pass(Millis::from_secs(5));
        let now = self.now.mono;
        for keeper in self.keepers.values_mut() {
            keeper.end_for_good(now, &mut self.random);
        }
        self.pass(Millis::from_secs(60));
        assert!(self.calls.is_empty(), "never answered: {:?}", self.calls);
        let counts = self.engine.counts();
        let left = (
            counts.waits,
            counts.running,
            counts.questions,
            counts.alarms,
        );
        assert_eq!(left, (0, 0, 0, 0), "something is left over: {counts:?}");
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        if self.telling == Telling::AtTheEnd && std::thread::panicking() {
            let from = self.story.len().saturating_sub(60);
            eprintln!("{}", self.story[from..].join("\n"));
        }
    }
}
