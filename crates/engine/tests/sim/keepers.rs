//! Simulated keepers. They outlive the daemon; their reports arrive late, twice, or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_core::session::{Phase, StartedBy};
use abide_core::{
    Agent, Containment, End, Event, Exit, Key, Millis, Mono, Session, SessionId, Wall,
};
use abide_session::daemon_record::ChangedLimits;
use abide_session::frame::{Launch, ToKeeper};
use tokio::sync::{Notify, mpsc};

use super::check::Book;
use super::clock::SimClock;
use super::keeper::{Deadline, Keeper, Truth};
use super::{Dice, Tally};
use crate::clock::pause;
use crate::keepers::{PortState, RecoveredSession, SessionDetails};
use crate::seams::KeeperControl;

pub struct SimKeepers {
    all: Mutex<BTreeMap<SessionId, Keeper>>,
    /// Sessions whose directory says that their ending was reported.
    delivered: Mutex<BTreeSet<SessionId>>,
    clock: Arc<SimClock>,
    dice: Dice,
    book: Arc<Book>,
    changed: Notify,
}

impl SimKeepers {
    pub fn new(dice: Dice, clock: Arc<SimClock>, book: Arc<Book>) -> Arc<Self> {
        Arc::new(SimKeepers {
            all: Mutex::default(),
            delivered: Mutex::default(),
            clock,
            dice,
            book,
            changed: Notify::new(),
        })
    }

    fn mono(&self) -> Mono {
        self.clock.now().mono
    }

    fn with<T>(
        &self,
        id: SessionId,
        act: impl FnOnce(&mut Keeper, Mono, &mut Tally) -> T,
    ) -> Option<T> {
        let now = self.mono();
        let mut all = self.all.lock().unwrap();
        let done = all
            .get_mut(&id)
            .map(|keeper| self.book.tally.with(|tally| act(keeper, now, tally)));
        self.changed.notify_one();
        done
    }

    pub fn ids(&self, which: impl Fn(&Keeper) -> bool) -> Vec<SessionId> {
        let all = self.all.lock().unwrap();
        let ids = all.iter().filter(|(_, keeper)| which(keeper));
        ids.map(|(id, _)| *id).collect()
    }

    pub fn look_at<T>(&self, id: SessionId, look: impl FnOnce(&Keeper) -> T) -> Option<T> {
        self.all.lock().unwrap().get(&id).map(look)
    }

    pub fn is_delivered(&self, id: SessionId) -> bool {
        self.delivered.lock().unwrap().contains(&id)
    }

    /// A running command writes, ends, or loses its keeper.
    pub fn happens(&self) {
        let running = self.ids(|keeper| keeper.truth == Truth::Running);
        let Some(id) = self.dice.pick(&running) else {
            return;
        };
        let dice = &self.dice;
        self.with(id, |keeper, now, _| match dice.below(10) {
            0..5 => dice.with(|random| keeper.write(now, 7, random)),
            5..8 => {
                let leftover = dice.chance(30);
                let exit = Some(Exit::Code(0));
                dice.with(|random| keeper.exit(now, exit, End::Exited, leftover, random));
            }
            8 => dice.with(|random| keeper.exit(now, None, End::Lost, false, random)),
            _ => dice.with(|random| keeper.empty(now, random)),
        });
    }

    pub fn end_all(&self) {
        let now = self.mono();
        for keeper in self.all.lock().unwrap().values_mut() {
            self.dice.with(|random| keeper.end_for_good(now, random));
        }
        self.changed.notify_one();
    }

    /// The daemon has died.
    pub fn cut_off(&self) {
        for keeper in self.all.lock().unwrap().values_mut() {
            keeper.cut_off();
        }
    }

    /// State that a new daemon finds.
    pub fn recover(&self) -> Vec<RecoveredSession> {
        let now = self.mono();
        let mut all = self.all.lock().unwrap();
        let found = all.iter_mut().map(|(id, keeper)| {
            self.dice.with(|random| keeper.connect(now, random));
            RecoveredSession {
                id: *id,
                session: keeper.found(),
                details: SessionDetails::default(),
                ending_delivered: self.is_delivered(*id),
                deadline: keeper.deadline_at(),
            }
        });
        found.collect()
    }

    /// Runs the keepers and sends their reports while a daemon is alive.
    pub async fn report(self: Arc<Self>, events: mpsc::Sender<Event>) {
        loop {
            let now = self.mono();
            let (mut heard, mut next) = (Vec::new(), None);
            for keeper in self.all.lock().unwrap().values_mut() {
                while keeper.next().is_some_and(|at| at <= now) {
                    let tally = &self.book.tally;
                    self.dice
                        .with(|random| tally.with(|tally| keeper.go_on(now, random, tally)));
                    heard.extend(keeper.heard(now));
                }
                next = next.into_iter().chain(keeper.next()).min();
            }
            for event in heard {
                let now = self.clock.truth();
                self.book.tell(now, || format!("reported: {event:?}"));
                let _ = events.send(event).await;
            }
            let time = async {
                match next {
                    Some(at) => pause(Duration::from_millis(at.since(now).0)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = time => {}
            }
        }
    }
}

/// Keepers as one life of the daemon sees them.
pub struct Connections(pub Arc<SimKeepers>);

impl KeeperControl for Connections {
    fn reserve(&self) -> SessionId {
        SessionId::from_bits(self.0.dice.bits())
    }

    fn unused_id(&self) -> SessionId {
        self.reserve()
    }

    fn prepare(&self, _: SessionId) {}

    fn release(&self, _: SessionId) {}

    fn start(&self, id: SessionId, launch: Launch) {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        let given = Session {
            agent: Agent(launch.record.agent.as_str().into()),
            conversation: None,
            command: text(&launch.record.command).into(),
            keys: (launch.record.keys.into_iter())
                .map(|key| Key(key.into()))
                .collect(),
            started_by: StartedBy::from_name(launch.record.started_by.as_deref()),
            created: Wall(launch.record.created_wall_ms),
            idle: launch.record.idle_ms.map(Millis),
            inactivity: launch.record.inactivity_ms.map(Millis),
            unasked_until: Mono::default(),
            bytes: 0,
            unattended: false,
            interrupted: false,
            end_heard: None,
            phase: Phase::Starting,
        };
        let keepers = &self.0;
        let book = &keepers.book;
        book.tell(keepers.clock.truth(), || format!("start: {id}"));
        book.tally.count("start");
        if &*given.command == super::callers::HELD {
            book.held_command_started(id);
        }
        for key in &given.keys {
            let same = |keeper: &Keeper| {
                keeper.given.agent == given.agent && keeper.given.keys.contains(key)
            };
            let before = keepers.ids(same);
            assert!(before.is_empty(), "{key:?} of {before:?} started {id} too");
        }
        let (now, limit) = (keepers.mono(), launch.record.deadline_ms.map(Millis));
        let dice = &keepers.dice;
        let keeper = dice.with(|random| Keeper::new(id, given, limit, now, random));
        let before = keepers.all.lock().unwrap().insert(id, keeper);
        assert!(before.is_none(), "{id} was started twice");
        keepers.changed.notify_one();
    }

    fn fail(&self, id: SessionId, why: &str) {
        panic!("{id} was not started: {why}");
    }

    fn send(&self, id: SessionId, order: &ToKeeper) {
        let dice = &self.0.dice;
        self.0.with(id, |keeper, now, _| match order {
            ToKeeper::Kill { end, .. } => dice.with(|random| keeper.kill(*end, now, random)),
            ToKeeper::Deadline { in_ms } => {
                keeper.deadline = Some(Deadline::At(now + Millis(*in_ms)));
            }
            ToKeeper::Look => dice.with(|random| keeper.look(now, random)),
            ToKeeper::Watch { beyond } => dice.with(|random| keeper.watch(*beyond, now, random)),
            other => panic!("{other:?}"),
        });
    }

    fn end_forcibly(&self, id: SessionId, end: End) {
        let dice = &self.0.dice;
        self.0.with(id, |keeper, now, tally| {
            dice.with(|random| keeper.force(end, now, random, tally));
        });
    }

    fn write_limits(&self, id: SessionId, limits: ChangedLimits) {
        self.0.with(id, |keeper, _, _| {
            keeper.given.idle = limits.idle;
            keeper.given.inactivity = limits.inactivity;
            keeper.given.unasked_until = limits.unasked_until;
        });
    }

    fn mark_interrupted(&self, id: SessionId) {
        self.0
            .with(id, |keeper, _, _| keeper.given.interrupted = true);
    }

    fn mark_ending_delivered(&self, id: SessionId) {
        let now = self.0.clock.truth();
        self.0.book.tell(now, || format!("delivered: {id}"));
        self.0.delivered.lock().unwrap().insert(id);
    }

    fn forget(&self, _: SessionId) {}

    fn remove(&self, id: SessionId) {
        panic!("{id} is no try");
    }

    fn folder(&self, id: SessionId) -> PathBuf {
        PathBuf::from("/nonexistent").join(id.to_string())
    }

    fn contained_by(&self, _: SessionId) -> Option<Containment> {
        None
    }

    fn published_ports(&self, _: SessionId) -> BTreeMap<u16, PortState> {
        BTreeMap::new()
    }

    fn answer_connection(&self, _: SessionId, _: u64, _: &abide_core::ConnectionAnswer) {}

    fn sandboxed(&self, _: SessionId) -> Option<abide_core::Sandboxed> {
        None
    }
}
