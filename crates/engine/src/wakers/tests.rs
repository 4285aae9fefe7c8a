//! Queues of wakers with a database that cannot always be read.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use abide_core::time::{Boot, Now, Wall};
use abide_core::{Record, id::IdPermutation};
use rusqlite::{Connection, OpenFlags};
use tokio::sync::oneshot;

use super::*;
use crate::clock::Alarm;
use crate::config::{Config, WakerKind};
use crate::handle::HandleParts;
use crate::lock::lock;
use crate::store::{self, Store, StoreReader};

/// All clocks of a test, in milliseconds.
struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn now(&self) -> Now {
        let at = self.0.load(Ordering::Relaxed);
        Now {
            wall: Wall(at),
            boot: Boot(at),
            mono: Mono(at),
        }
    }

    fn alarm(&self) -> std::io::Result<Box<dyn Alarm>> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

/// Store that keeps the records about wakers.
#[derive(Default)]
struct TestStore(Mutex<Vec<WakerRecord>>);

impl Store for TestStore {
    fn commit(&self, _: Vec<Record>) -> oneshot::Receiver<Result<(), StoreFault>> {
        oneshot::channel().1
    }

    fn write_waker_record(&self, record: WakerRecord) -> oneshot::Receiver<Result<(), StoreFault>> {
        lock(&self.0).push(record);
        let (done, answer) = oneshot::channel();
        let _ = done.send(Ok(()));
        answer
    }

    fn prune(&self, _: u64) -> oneshot::Receiver<Result<usize, StoreFault>> {
        oneshot::channel().1
    }
}

/// Wakers of one daemon, with its database and its clock.
struct World {
    task: WakerTask,
    clock: Arc<TestClock>,
    db: Connection,
    store: Arc<TestStore>,
    /// True while the database cannot be read.
    unreadable: Arc<AtomicBool>,
}

impl World {
    /// World with one waker for all agents that waits for nothing, and a database of this name in memory.
    fn new(name: &str) -> Self {
        let open = || {
            let uri = format!("file:{name}?mode=memory&cache=shared");
            let flags = OpenFlags::SQLITE_OPEN_URI | OpenFlags::default();
            Connection::open_with_flags(uri, flags).expect("a database")
        };
        let mut db = open();
        store::load(&mut db, 1).expect("tables");
        let unreadable = Arc::new(AtomicBool::new(false));
        let read = || {
            let (mut db, unreadable) = (open(), unreadable.clone());
            let interrupts = move || unreadable.load(Ordering::Relaxed);
            db.progress_handler(1, Some(interrupts)).expect("a hook");
            db
        };
        let reader = StoreReader::new(read(), read(), IdPermutation { key: 1 });
        let store = Arc::new(TestStore::default());
        let parts = HandleParts::of_test(mpsc::channel(1).0, reader, store.clone());
        let clock = Arc::new(TestClock(AtomicU64::new(1_000_000)));
        let config = WakerConfig {
            agent: "*".into(),
            kind: WakerKind::Command(vec!["true".into()]),
            wakes_for: WakesFor::All,
            cwd: None,
            after: 0.0,
            most_per_hour: 1_000,
        };
        let task = WakerTask {
            handle: Handle::new(mpsc::channel(1).0, parts, Config::default()),
            clock: clock.clone(),
            configured: [config].into(),
            wakers: BTreeMap::new(),
            disabled: HashMap::new(),
            read_again_at: None,
        };
        World {
            task,
            clock,
            db,
            store,
            unreadable,
        }
    }

    /// Stores messages with the numbers 1 to `last`.
    fn post(&self, last: usize) {
        let fill = format!(
            "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {last})
             INSERT INTO message (number, id, agent, about, made_ms, wakes)
             SELECT n, 'message_k3v9x2bc', 'a', 'timer_k3v9x2bc', 1, 0 FROM n;"
        );
        self.db.execute_batch(&fill).expect("rows");
    }

    fn set_unreadable(&self, unreadable: bool) {
        self.unreadable.store(unreadable, Ordering::Relaxed);
    }

    /// Messages of the attempts that are due when this time has passed.
    async fn due_after(&mut self, time: Millis) -> Vec<u64> {
        self.clock.0.fetch_add(time.0, Ordering::Relaxed);
        let attempts = self.task.due().await;
        attempts.iter().flat_map(Attempt::numbers).collect()
    }
}

#[tokio::test]
async fn queued_message_that_cannot_be_read_is_delivered_later() {
    let mut world = World::new("queued");
    world.post(1);
    world.task.catch_up().await;
    world.set_unreadable(true);
    assert!(world.due_after(Millis(0)).await.is_empty());
    world.set_unreadable(false);
    assert_eq!(world.due_after(READ_RETRY).await, [1]);
    assert!(lock(&world.store.0).is_empty(), "nobody has seen it");
}

#[tokio::test]
async fn new_message_that_cannot_be_read_is_delivered_later() {
    let mut world = World::new("posted");
    world.post(1);
    world.set_unreadable(true);
    world.task.posted(&Agent("a".into()), 1).await;
    assert!(world.due_after(READ_RETRY).await.is_empty());
    world.set_unreadable(false);
    assert_eq!(world.due_after(READ_RETRY).await, [1]);
}

#[tokio::test]
async fn full_queue_is_filled_again_after_its_agent_has_read_all_of_it() {
    let mut world = World::new("full");
    world.post(MAX_QUEUED + 1);
    world.task.catch_up().await;
    let read = format!("UPDATE message SET seen_ms = 2 WHERE number <= {MAX_QUEUED}");
    world.db.execute_batch(&read).expect("rows");
    assert!(world.due_after(Millis(0)).await.is_empty());
    let last = MAX_QUEUED as u64 + 1;
    assert_eq!(world.due_after(Millis(0)).await, [last]);
}
