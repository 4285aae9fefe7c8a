//! The one connection that writes, and the choice of the thread that commits: the store's thread or the event loop.
//!
//! The loop waits for every commit. Passing one to a thread and back takes about as long as a good disk needs to
//! sync, so a small commit is made on the loop if the last ones were quick. A slow disk is left to the thread: then
//! only the loop waits, and the interfaces go on.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_core::{Record, message};
use abide_session::accelerator::Accelerator;
use rusqlite::Connection;

use super::checkpoint::WalSize;
use super::{StoreFault, write};
use crate::clock;

/// Maximum of rows that are committed on the loop. More than one means several callers at a time; while the thread
/// commits for some, the loop can take calls of others.
const MAX_INLINE_ROWS: usize = 1;
/// Duration up to which a small commit counts as quick.
const QUICK_COMMIT_US: u64 = 400;
/// Number of quick commits in a row before the loop commits itself.
const MIN_QUICK_COMMITS: u32 = 8;

/// Connection that writes, with statistics of its commits.
pub(super) struct Writer {
    db: Mutex<Connection>,
    /// Quick commits since the last one that was not.
    quick: AtomicU32,
    pub(super) wal_size: Arc<WalSize>,
}

impl Writer {
    pub(super) fn new(mut db: Connection) -> Result<Self, StoreFault> {
        let wal_size = Arc::new(WalSize::default());
        let grown = wal_size.clone();
        // Replaces SQLite's automatic checkpoint, for which a commit would have to wait.
        db.wal_hook(Some(move |_: &mut _, pages| {
            grown.set_pages(pages);
            Ok(())
        }))?;
        Ok(Writer {
            db: Mutex::new(db),
            quick: AtomicU32::new(0),
            wal_size,
        })
    }

    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Connection) -> T) -> T {
        work(&mut self.db.lock().expect("no holder panics"))
    }

    /// Commits, however long it takes.
    pub(super) fn commit(&self, records: &[Record]) -> Result<(), StoreFault> {
        self.with(|db| self.timed(db, records))
    }

    /// Commits on this thread. `None`: it may take long, or another write is running.
    pub(super) fn try_commit_inline(&self, records: &[Record]) -> Option<Result<(), StoreFault>> {
        if !Accelerator::LoopCommits.is_on()
            || rows(records) > MAX_INLINE_ROWS
            || self.quick.load(Ordering::Relaxed) < MIN_QUICK_COMMITS
        {
            return None;
        }
        let db = self.db.try_lock().ok()?;
        // The thread waits for another program that holds the database.
        db.busy_timeout(Duration::ZERO).ok()?;
        let result = self.timed(&db, records);
        db.busy_timeout(super::BUSY_TIMEOUT).ok()?;
        match result {
            Err(StoreFault::Unwritable(_) | StoreFault::Unopenable(_)) => None,
            result => Some(result),
        }
    }

    fn timed(&self, db: &Connection, records: &[Record]) -> Result<(), StoreFault> {
        let begun = clock::micros();
        let result = write::commit(db, records);
        // Many rows mean many callers: while the thread commits for some, the loop takes calls of others.
        let quick = rows(records) <= MAX_INLINE_ROWS
            && clock::micros().saturating_sub(begun) <= QUICK_COMMIT_US;
        let before = self.quick.load(Ordering::Relaxed);
        let now = if quick { before.saturating_add(1) } else { 0 };
        self.quick.store(now, Ordering::Relaxed);
        result
    }
}

/// Number of rows that these records write.
fn rows(records: &[Record]) -> usize {
    let rows = records.iter().map(|record| match record {
        Record::Message(message::Record::Told { numbers, .. })
        | Record::Message(message::Record::Seen { numbers, .. }) => numbers.len(),
        _ => 1,
    });
    rows.sum()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use abide_core::time::{Millis, Steady, Wall};
    use abide_core::timer::{self, Kind};
    use abide_core::{Agent, TimerId};

    use super::*;
    use crate::store::{connect, schema};

    fn writer(folder: &Path) -> Writer {
        let mut db = connect(&folder.join("abide.db")).expect("a database");
        schema::migrate(&mut db).expect("tables");
        Writer::new(db).expect("a writer")
    }

    fn made(number: u64, text: &str) -> Record {
        Record::Timer(timer::Record::Created {
            number,
            id: TimerId::from_bits(number),
            agent: Agent("ann".into()),
            conversation: None,
            kind: Kind::Mission,
            text: text.into(),
            until: None,
            key: None,
            total: Millis(60_000),
            due: Steady(60_000),
            standby: None,
            at: Wall(0),
        })
    }

    fn timers(writer: &Writer) -> i64 {
        let count =
            |db: &mut Connection| db.query_row("SELECT count(*) FROM timer", [], |row| row.get(0));
        writer.with(count).expect("a count")
    }

    #[test]
    fn inline_commit_needs_quick_commits_before() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(folder.path());
        assert!(writer.try_commit_inline(&[made(1, "m")]).is_none());
        writer.quick.store(MIN_QUICK_COMMITS, Ordering::Relaxed);
        let done = writer.try_commit_inline(&[made(1, "m")]);
        assert!(matches!(done, Some(Ok(()))), "{done:?}");
        assert_eq!(timers(&writer), 1);
    }

    #[test]
    fn large_or_locked_commit_is_not_made_inline() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(folder.path());
        writer.quick.store(MIN_QUICK_COMMITS, Ordering::Relaxed);
        let many: Vec<Record> = (0..=MAX_INLINE_ROWS as u64).map(|n| made(n, "m")).collect();
        assert!(writer.try_commit_inline(&many).is_none());
        let numbers = (0..=MAX_INLINE_ROWS as u64).collect();
        let seen = message::Record::Seen {
            numbers,
            at: Wall(0),
        };
        let seen = [Record::Message(seen)];
        assert!(writer.try_commit_inline(&seen).is_none());
        writer.with(|_| assert!(writer.try_commit_inline(&[made(1, "m")]).is_none()));
        assert_eq!(timers(&writer), 0);
        writer.commit(&many).unwrap();
        let after_many = writer.try_commit_inline(&[made(9, "m")]);
        assert!(after_many.is_none(), "many call: the loop has to hear them");
    }

    #[test]
    fn inline_commit_does_not_wait_for_another_program() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(folder.path());
        writer.quick.store(MIN_QUICK_COMMITS, Ordering::Relaxed);
        let other = connect(&folder.path().join("abide.db")).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(writer.try_commit_inline(&[made(1, "m")]).is_none());
        other.execute_batch("ROLLBACK").unwrap();
        writer.commit(&[made(1, "m")]).unwrap();
        assert_eq!(timers(&writer), 1);
    }
}
