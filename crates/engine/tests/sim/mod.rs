//! Simulation of the daemon: the real event loop, effects, commits and statements of the store, with simulated clocks,
//! disk, keepers, probes and callers, on paused time. One number decides everything that happens.
//!
//! `ABIDE_SEEDS=100000 cargo test -p abide-engine --lib sim` runs more,
//! `ABIDE_SEED=17 cargo test -p abide-engine --lib sim -- --nocapture` runs one and prints its events.

mod callers;
mod check;
mod clock;
mod disk;
#[path = "../../../core/tests/sim/keeper.rs"]
#[expect(dead_code, reason = "the simulation of the core checks more of it")]
mod keeper;
mod keepers;
mod probes;
#[path = "../../../core/tests/sim/random.rs"]
mod random;
mod slow_disk;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_core::message::About;
use abide_core::session::StartedBy;
use abide_core::timer;
use abide_core::{Engine, Outcome, Request, limit};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use check::Book;
use clock::SimClock;
use disk::{Disk, DiskStore};
use keepers::{Connections, SimKeepers};
use probes::SimProbes;
use random::Random;

use crate::clock::pause;
use crate::config::Config;
use crate::event_loop::{self, LoopParts};
use crate::handle::{Handle, HandleParts, WatcherGuard};
use crate::runtime::{mark_reported_endings, recovery_events};
use crate::store::{Store, StoreFault};

/// Number of simulations in a test run.
const SEEDS: u64 = 5_000;

/// Counts of what happened, so that a simulation in which nothing happens is noticed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    fn add(&mut self, other: &Tally) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }
}

impl Tally {
    /// Everything that the invariants are about has happened.
    fn saw_everything(&self) {
        for what in [
            "answered",
            "approved before a crash",
            "asked",
            "caller left",
            "clock set",
            "commit failed",
            "completed",
            "crash",
            "deadline",
            "declined",
            "died after a commit",
            "died before a commit",
            "ended",
            "expired",
            "forced",
            "handed over",
            "held",
            "held command started",
            "message",
            "message repeated",
            "not recorded",
            "refused",
            "slow commit",
            "standby over",
            "start",
            "suspend",
        ] {
            assert!(self.0.contains_key(what), "never happened: {what}");
        }
    }
}

/// Random source that all parts of one simulation share.
#[derive(Clone)]
pub struct Dice(Arc<Mutex<Random>>);

impl Dice {
    fn new(seed: u64) -> Self {
        Dice(Arc::new(Mutex::new(Random::new(seed))))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Random) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    fn bits(&self) -> u64 {
        self.with(Random::bits)
    }

    fn below(&self, limit: u64) -> u64 {
        self.with(|random| random.below(limit))
    }

    fn chance(&self, percent: u64) -> bool {
        self.with(|random| random.chance(percent))
    }

    fn pick<T: Clone>(&self, from: &[T]) -> Option<T> {
        self.with(|random| random.pick(from))
    }
}

/// Everything that outlives the daemon.
pub struct World {
    dice: Dice,
    clock: Arc<SimClock>,
    disk: Arc<Disk>,
    keepers: Arc<SimKeepers>,
    book: Arc<Book>,
    numbers: AtomicU64,
}

impl World {
    fn new(seed: u64, loud: bool) -> Arc<Self> {
        let dice = Dice::new(seed);
        let book = Arc::new(Book::new(loud));
        let clock = SimClock::new(dice.clone());
        Arc::new(World {
            disk: Disk::new(dice.clone(), clock.clone(), book.clone()),
            keepers: SimKeepers::new(dice.clone(), clock.clone(), book.clone()),
            dice,
            clock,
            book,
            numbers: AtomicU64::new(0),
        })
    }

    fn next(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn tell(&self, line: impl FnOnce() -> String) {
        self.book.tell(self.clock.truth(), line);
    }
}

/// One life of the daemon.
struct Daemon {
    handle: Handle,
    probes: Arc<SimProbes>,
    event_loop: JoinHandle<Result<(), StoreFault>>,
    reports: JoinHandle<()>,
    /// Notified when everything that was recovered is published.
    ready: oneshot::Receiver<()>,
}

impl Daemon {
    /// Starts the event loop.
    fn start(world: &World, store: Arc<dyn Store>) -> Self {
        let (events, event_queue) = mpsc::channel(256);
        let (inbox, inputs) = mpsc::channel(256);
        let (state, mut open, store_reader) = world.disk.load();
        if !open.approved.is_empty() {
            world.book.tally.count("approved before a crash");
        }
        let (dice, disk) = (world.dice.clone(), world.disk.clone());
        let conditions = std::mem::take(&mut open.conditions).into_iter();
        let conditions = conditions.filter_map(|(timer, until)| Some((timer, until?)));
        let conditions = conditions.collect();
        let probes = SimProbes::new(dice, disk, events.clone(), conditions);
        let parts = HandleParts::of_test(events.clone(), store_reader, store.clone());
        let handle = Handle::new(inbox, parts, Config::default());
        let mut found = world.keepers.recover();
        mark_reported_endings(&mut found, &open, &Connections(world.keepers.clone()));
        let recovered = recovery_events(found, [].into_iter(), state, open, |_, _| None);
        let reports = tokio::spawn(world.keepers.clone().report(events));
        let (ready, recovered_published) = oneshot::channel();
        let parts = LoopParts {
            clock: Arc::new(world.clock.clone()),
            store,
            keepers: Box::new(Connections(world.keepers.clone())),
            probes: probes.clone(),
            recovered: Default::default(),
            ready,
        };
        let engine = Engine::new(world.dice.bits());
        let running = event_loop::run(
            engine,
            recovered,
            inputs,
            event_queue,
            handle.clone(),
            parts,
        );
        let event_loop = tokio::spawn(running);
        Daemon {
            handle,
            probes,
            event_loop,
            reports,
            ready: recovered_published,
        }
    }

    async fn kill(self, world: &World) {
        self.event_loop.abort();
        self.reports.abort();
        if let Err(fault) = self.event_loop.await
            && fault.is_panic()
        {
            resume_unwind(fault.into_panic());
        }
        world.disk.cut_off();
        world.keepers.cut_off();
    }
}

/// A running simulation.
struct Play {
    world: Arc<World>,
    daemon: Option<Daemon>,
    callers: JoinSet<()>,
    watcher: Option<WatcherGuard>,
}

impl Play {
    async fn run(mut self) -> Tally {
        self.start().await;
        for _ in 0..10 + self.world.dice.below(40) {
            self.act().await;
        }
        self.come_to_rest().await;
        self.world.book.tally.take()
    }

    fn handle(&self) -> Handle {
        self.daemon.as_ref().expect("a daemon").handle.clone()
    }

    async fn start(&mut self) {
        self.world.tell(|| "a daemon starts".into());
        let live = "SELECT id FROM timer WHERE ended_ms IS NULL";
        let before: BTreeSet<String> = self.world.disk.texts(live, []).into_iter().collect();
        let world = self.world.clone();
        let store = Arc::new(DiskStore(world.disk.clone()));
        let mut daemon = Daemon::start(&world, store);
        // The daemon may crash before it is ready.
        tokio::select! {
            biased;
            _ = &mut daemon.ready => {}
            () = world.disk.crash.notified() => world.disk.crash.notify_one(),
        }
        self.daemon = Some(daemon);
        self.check_recovered(&before).await;
    }

    /// The timers of a new daemon are those in the database.
    async fn check_recovered(&mut self, before: &BTreeSet<String>) {
        let request = timer::Request::List {
            asks: false,
            after: None,
            most: 1_000,
        };
        let caller = abide_core::request::Caller::PERSON;
        let handle = self.handle();
        let call = handle.call(caller, Request::Timer(request), None);
        let world = self.world.clone();
        let listed = tokio::select! {
            biased;
            listed = async { call.await.done().await } => listed,
            () = world.disk.crash.notified() => None,
        };
        match listed {
            Some(Outcome::Timers(timers)) => {
                let listed: BTreeSet<String> = timers.iter().map(|t| t.id.to_string()).collect();
                let live = "SELECT id FROM timer WHERE ended_ms IS NULL";
                for id in self.world.disk.texts(live, []) {
                    assert!(listed.contains(&id), "{id} is live and was forgotten");
                }
                let unknown = listed.difference(before).next();
                assert_eq!(unknown, None, "recovered, and not recorded");
            }
            Some(other) => panic!("{other:?}"),
            None => self.world.disk.crash.notify_one(),
        }
    }

    /// Lets time pass; a daemon that crashes meanwhile is restarted.
    async fn pass(&mut self, millis: u64) {
        let world = self.world.clone();
        let daemon = self.daemon.as_mut().expect("a daemon");
        tokio::select! {
            biased;
            () = world.disk.crash.notified() => self.restart("a commit").await,
            ended = &mut daemon.event_loop => match ended {
                Err(fault) if fault.is_panic() => resume_unwind(fault.into_panic()),
                ended => panic!("the loop has ended: {ended:?}"),
            },
            () = pause(Duration::from_millis(millis)) => {}
        }
        while let Some(ended) = self.callers.try_join_next() {
            if let Err(fault) = ended {
                resume_unwind(fault.into_panic());
            }
        }
    }

    async fn restart(&mut self, by: &'static str) {
        self.world.tell(|| format!("the daemon dies: {by}"));
        self.world.book.tally.count("crash");
        self.watcher = None;
        self.daemon
            .take()
            .expect("a daemon")
            .kill(&self.world)
            .await;
        if self.world.dice.chance(50) {
            pause(Duration::from_millis(self.world.dice.below(20_000))).await;
        }
        Box::pin(self.start()).await;
    }

    async fn act(&mut self) {
        let world = self.world.clone();
        let dice = &world.dice;
        match dice.below(100) {
            0..50 => {
                for _ in 0..=dice.below(3) {
                    let handle = self.handle();
                    let plan = world.plan(&handle);
                    self.callers.spawn(world.clone().follow(handle, plan));
                }
            }
            50..62 => world.keepers.happens(),
            62..67 => {
                let probes = self.daemon.as_ref().expect("a daemon").probes.clone();
                probes.decide().await;
            }
            67..70 => {
                let watches = self.watcher.is_none();
                self.watcher = watches.then(|| self.handle().add_watcher());
            }
            70..72 => {
                world.book.tally.count("suspend");
                world.clock.sleep_of_the_machine(dice.below(40_000));
            }
            72..74 => {
                world.book.tally.count("clock set");
                let by = dice.below(7_200_000).cast_signed() - 3_600_000;
                world.clock.set_wall(by);
            }
            74..76 => self.restart("killed").await,
            76..90 => self.pass(dice.below(300)).await,
            _ => self.pass(dice.below(9_000)).await,
        }
        self.pass(0).await;
    }

    /// No more faults, and everything ends: no call may be left waiting, and no message undelivered.
    async fn come_to_rest(&mut self) {
        self.world.disk.faults.store(false, Ordering::Relaxed);
        self.watcher = None;
        self.pass(20_000).await;
        self.world.keepers.end_all();
        // Timers run for a minute at most, and pauses take half a minute.
        for _ in 0..20 {
            self.pass(60_000).await;
        }
        // No person answers the questions about held commands any more. The wall clock may have been set back.
        self.pass(limit::HELD_TIME.0 + 3 * 3_600_000).await;
        self.pass(0).await;
        // A question whose closing could not be recorded is closed by the next daemon.
        self.restart("the end").await;
        self.pass(20_000).await;
        assert!(
            self.callers.is_empty(),
            "{} never answered",
            self.callers.len()
        );
        self.read_everything().await;
        self.world.book.check_end(&self.world.disk);
        self.check_approved();
        let over = |keeper: &keeper::Keeper| keeper.ending().is_some();
        let handle = self.handle();
        for id in self.world.keepers.ids(over) {
            let view = handle.published().session(id);
            let by_person = view.is_some_and(|view| view.state.started_by == StartedBy::Person);
            let told = self.world.book.has_told(About::Session(id));
            assert!(told || by_person, "nobody was told that {id} has ended");
        }
    }

    /// Each command that a person approved was started.
    fn check_approved(&self) {
        let approved = "SELECT session FROM question WHERE command IS NOT NULL AND closing = 'yes'";
        for id in self.world.disk.texts(approved, []) {
            let started = self
                .world
                .keepers
                .look_at(id.parse().expect("an id"), |_| ());
            assert!(started.is_some(), "{id} was approved and never started");
        }
        let unrecorded =
            "SELECT count(*) FROM question WHERE closing = 'yes' AND launch IS NOT NULL";
        let unrecorded = self.world.disk.count(unrecorded, []);
        assert_eq!(unrecorded, 0, "a start was never recorded");
        let expired = "SELECT id FROM question WHERE closing = 'expired'";
        for _ in self.world.disk.texts(expired, []) {
            self.world.book.tally.count("expired");
        }
    }

    async fn read_everything(&mut self) {
        // Runs of a person belong to the default agent.
        let default = abide_core::Agent::default();
        for agent in callers::AGENTS.into_iter().chain([&*default.0]) {
            loop {
                let (standby, most, known) = (abide_core::Millis(0), 50, Vec::new());
                let request = Request::ReadMessages {
                    standby,
                    most,
                    known,
                };
                let handle = self.handle();
                let mut pending = handle.call(callers::caller(agent), request, None).await;
                let Some(crate::CallStep::Done(Outcome::Messages(messages, _))) =
                    pending.next().await
                else {
                    panic!("no answer");
                };
                if messages.is_empty() {
                    break;
                }
                self.world.book.told_messages(&self.world.disk, &messages);
                pending.delivered();
                self.pass(1).await;
            }
        }
    }
}

/// Runs the simulation of a seed. Panics if an invariant is violated.
fn play(seed: u64, loud: bool) -> Tally {
    simulated(async {
        let play = Play {
            world: World::new(seed, loud),
            daemon: None,
            callers: JoinSet::new(),
            watcher: None,
        };
        play.run().await
    })
}

/// Runs a future on one thread and paused time.
fn simulated<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("a runtime").block_on(future)
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

#[test]
fn invariants_hold_in_every_simulation() {
    if let Some(seed) = number("ABIDE_SEED") {
        play(seed, true);
        return;
    }
    let seeds = number("ABIDE_SEEDS").unwrap_or(SEEDS);
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let share = |worker: u64| {
        let mut total = Tally::default();
        for seed in (worker..seeds).step_by(workers as usize) {
            match catch_unwind(AssertUnwindSafe(|| play(seed, false))) {
                Ok(tally) => total.add(&tally),
                Err(_) => return Err(seed),
            }
        }
        Ok(total)
    };
    let mut total = Tally::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers)
            .map(|worker| scope.spawn(move || share(worker)))
            .collect();
        for worker in workers {
            let done = worker.join().expect("a worker");
            total.add(&done.unwrap_or_else(|seed| panic!("ABIDE_SEED={seed} repeats it")));
        }
    });
    println!("{seeds} seeds: {total:?}");
    if seeds >= 1_000 {
        total.saw_everything();
    }
}

#[test]
fn same_seed_gives_the_same_simulation() {
    for seed in 0..10 {
        assert_eq!(play(seed, false), play(seed, false), "seed {seed}");
    }
}
