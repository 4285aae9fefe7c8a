//! Simulated disk: a database in memory that outlives the daemon. The statements are the real ones; commits are slow,
//! fail, or end the daemon before or after they are durable.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_core::record::StoredState;
use abide_core::{Record, message};
use rusqlite::{Connection, Params};
use tokio::sync::{Notify, oneshot};

use super::Dice;
use super::check::Book;
use super::clock::SimClock;
use crate::clock::pause;
use crate::store::{self, OpenRows, Store, StoreFault, StoreReader, WakerRecord};

pub struct Disk {
    db: Mutex<Connection>,
    /// Commit in flight.
    pending: Mutex<Option<Pending>>,
    book: Arc<Book>,
    clock: Arc<SimClock>,
    dice: Dice,
    pub faults: AtomicBool,
    /// True if commits fail in this simulation.
    fails: bool,
    /// Number of commits that failed.
    pub failures: AtomicU64,
    /// Notified when the daemon dies in a commit.
    pub crash: Notify,
}

type Done = oneshot::Sender<Result<(), StoreFault>>;

struct Pending {
    number: u64,
    records: Vec<Record>,
    done: Done,
}

/// Longest time that a commit takes, in milliseconds.
pub const SLOWEST: u64 = 6_000;

enum Fate {
    Durable,
    Fails,
    DiesBefore,
    DiesAfter,
}

impl Disk {
    pub fn new(dice: Dice, clock: Arc<SimClock>, book: Arc<Book>) -> Arc<Self> {
        let db = EMPTY.take().unwrap_or_else(|| {
            let mut db = memory();
            store::load(&mut db, 1).expect("tables");
            db
        });
        let key = dice.bits().cast_signed();
        db.execute("UPDATE ids SET key = ?", [key]).expect("a key");
        Arc::new(Disk {
            db: Mutex::new(db),
            pending: Mutex::default(),
            book,
            clock,
            fails: dice.chance(60),
            faults: AtomicBool::new(true),
            failures: AtomicU64::new(0),
            dice,
            crash: Notify::new(),
        })
    }

    pub fn load(&self) -> (StoredState, OpenRows, StoreReader) {
        let (state, open) = store::load(&mut self.db.lock().unwrap(), 1).expect("a database");
        let reader = StoreReader::new(memory(), memory(), state.id_permutation);
        (state, open, reader)
    }

    /// The daemon has died: the commit in flight is durable, or nothing of it is.
    pub fn cut_off(&self) {
        let pending = self.pending.lock().unwrap().take();
        if let Some(pending) = pending.filter(|_| self.dice.chance(50)) {
            self.write(&pending.records);
        }
    }

    /// Number that a query returns.
    pub fn count(&self, sql: &str, params: impl Params) -> i64 {
        let db = self.db.lock().unwrap();
        let mut select = db.prepare_cached(sql).expect("a query");
        select
            .query_row(params, |row| row.get(0))
            .expect("a number")
    }

    pub fn texts(&self, sql: &str, params: impl Params) -> Vec<String> {
        let db = self.db.lock().unwrap();
        let mut select = db.prepare_cached(sql).expect("a query");
        let rows = select.query_map(params, |row| row.get(0)).expect("rows");
        rows.collect::<Result<_, _>>().expect("texts")
    }

    fn write(&self, records: &[Record]) {
        store::commit(&self.db.lock().unwrap(), records).expect("a commit");
        let now = self.clock.truth();
        for record in records {
            self.book.recorded(record, now);
        }
    }

    fn fate(&self) -> (Fate, u64) {
        if !self.faults.load(Ordering::Relaxed) {
            return (Fate::Durable, 0);
        }
        let delay = match self.dice.below(100) {
            0..3 => self.dice.below(SLOWEST),
            3..20 => self.dice.below(300),
            20..40 => 1,
            _ => 0,
        };
        let fate = match self.dice.below(200) {
            0..10 if self.fails => Fate::Fails,
            10..12 => Fate::DiesBefore,
            12..14 => Fate::DiesAfter,
            _ => Fate::Durable,
        };
        (fate, delay)
    }

    /// Ends the commit in flight, if it is still this one.
    fn finish(&self, number: u64, fate: Fate) {
        let mut pending = self.pending.lock().unwrap();
        if pending.as_ref().is_none_or(|of| of.number != number) {
            return;
        }
        match fate {
            Fate::Durable => {
                let Pending { records, done, .. } = pending.take().expect("the commit");
                self.write(&records);
                let _ = done.send(Ok(()));
            }
            Fate::Fails => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                self.book.tally.count("commit failed");
                let fault = StoreFault::Unwritable("simulated".into());
                let _ = pending.take().expect("the commit").done.send(Err(fault));
            }
            // The commit is never answered, and is not applied a second time when the daemon is gone.
            Fate::DiesBefore | Fate::DiesAfter => {
                let of = pending.as_mut().expect("the commit");
                let records = std::mem::take(&mut of.records);
                if matches!(fate, Fate::DiesAfter) {
                    self.book.tally.count("died after a commit");
                    self.write(&records);
                } else {
                    self.book.tally.count("died before a commit");
                }
                self.crash.notify_one();
            }
        }
    }
}

thread_local! {
    /// Empty database of an earlier simulation, because tables and prepared statements take time to make.
    static EMPTY: Cell<Option<Connection>> = const { Cell::new(None) };
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Ok(db) = self.db.get_mut() {
            let db = std::mem::replace(db, memory());
            let tables =
                "DELETE FROM question; DELETE FROM timer; DELETE FROM message; DELETE FROM clock;";
            if db.execute_batch(tables).is_ok() {
                EMPTY.set(Some(db));
            }
        }
    }
}

/// Database without tables.
fn memory() -> Connection {
    let db = Connection::open_in_memory().expect("memory");
    db.set_prepared_statement_cache_capacity(64);
    db
}

/// Disk of one life of the daemon.
pub struct DiskStore(pub Arc<Disk>);

impl Store for DiskStore {
    fn commit(&self, records: Vec<Record>) -> oneshot::Receiver<Result<(), StoreFault>> {
        let disk = self.0.clone();
        let (done, answer) = oneshot::channel();
        check_generation(&records);
        let number = disk.dice.bits();
        let pending = Pending {
            number,
            records,
            done,
        };
        let before = disk.pending.lock().unwrap().replace(pending);
        assert!(before.is_none(), "two commits are in flight");
        match disk.fate() {
            (fate, 0) => disk.finish(number, fate),
            (fate, delay) => {
                disk.book.tally.count("slow commit");
                tokio::spawn(async move {
                    pause(Duration::from_millis(delay)).await;
                    disk.finish(number, fate);
                });
            }
        }
        answer
    }

    fn write_waker_record(&self, _: WakerRecord) -> oneshot::Receiver<Result<(), StoreFault>> {
        oneshot::channel().1
    }

    fn prune(&self, _: u64) -> oneshot::Receiver<Result<usize, StoreFault>> {
        oneshot::channel().1
    }
}

/// A completion and its message are in one commit.
fn check_generation(records: &[Record]) {
    use abide_core::timer::{self, Status};
    for record in records {
        let Record::Timer(timer::Record::Ended(timer::Ended { id, status, .. })) = record else {
            continue;
        };
        let posted = |record: &&Record| {
            let Record::Message(message::Record::Posted { content, .. }) = record else {
                return false;
            };
            content.about == abide_core::About::Timer(*id)
        };
        let posts = records.iter().filter(posted).count();
        let due = usize::from(matches!(status, Status::Completed { .. }));
        assert_eq!(posts, due, "messages about {id} in the commit of its end");
    }
}
