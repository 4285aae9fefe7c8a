//! The one connection that writes, and who does a commit: the store's thread, or whoever wants it.
//!
//! The loop waits for every commit. To hand one to a thread and to be woken by its answer takes about
//! as long as a good disk needs to sync, so a small commit is done in passing where the last ones
//! were quick. A disk that is slow, or becomes so, is left to the thread: then only the loop waits,
//! and the doors go on.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_core::{Record, message};
use abide_session::accelerator::Accelerator;
use rusqlite::Connection;

use super::journal::Journal;
use super::{StoreFault, write};
use crate::clock;

/// Rows that a small commit writes at most. More than one comes of callers at the same time, of which
/// some can be heard while the thread commits for the others.
const SMALL: usize = 1;
/// A small commit that takes no longer was quick.
const QUICK_US: u64 = 400;
/// So many in a row must have been.
const IN_A_ROW: u32 = 8;

pub(super) struct Writer {
    db: Mutex<Connection>,
    /// How many commits were small and quick since one was not.
    quick: AtomicU32,
    pub(super) journal: Arc<Journal>,
}

impl Writer {
    pub(super) fn new(mut db: Connection) -> Result<Self, StoreFault> {
        let journal = Arc::new(Journal::default());
        let grown = journal.clone();
        // This takes the place of SQLite's own checkpoint, for which a commit would have to wait.
        db.wal_hook(Some(move |_: &mut _, pages| {
            grown.has(pages);
            Ok(())
        }))?;
        Ok(Writer {
            db: Mutex::new(db),
            quick: AtomicU32::new(0),
            journal,
        })
    }

    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Connection) -> T) -> T {
        work(&mut self.db.lock().expect("no holder panics"))
    }

    /// Commits, however long it takes.
    pub(super) fn commit(&self, records: &[Record]) -> Result<(), StoreFault> {
        self.with(|db| self.timed(db, records))
    }

    /// Commits here and now, unless that may take long or something else is being written.
    pub(super) fn commit_in_passing(&self, records: &[Record]) -> Option<Result<(), StoreFault>> {
        if !Accelerator::LoopCommits.is_on()
            || rows(records) > SMALL
            || self.quick.load(Ordering::Relaxed) < IN_A_ROW
        {
            return None;
        }
        let db = self.db.try_lock().ok()?;
        // Another program that holds the database is waited for by the thread.
        db.busy_timeout(Duration::ZERO).ok()?;
        let result = self.timed(&db, records);
        db.busy_timeout(super::BUSY_PATIENCE).ok()?;
        match result {
            Err(StoreFault::Unwritable(_) | StoreFault::Unopenable(_)) => None,
            result => Some(result),
        }
    }

    fn timed(&self, db: &Connection, records: &[Record]) -> Result<(), StoreFault> {
        let begun = clock::micros();
        let result = write::commit(db, records);
        // Much at once means that many call: while the thread commits for some, the loop hears the others.
        let quick = rows(records) <= SMALL && clock::micros().saturating_sub(begun) <= QUICK_US;
        let before = self.quick.load(Ordering::Relaxed);
        let now = if quick { before.saturating_add(1) } else { 0 };
        self.quick.store(now, Ordering::Relaxed);
        result
    }
}

/// How many rows some records write.
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
    fn a_disk_has_to_show_that_it_is_quick() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(folder.path());
        assert!(writer.commit_in_passing(&[made(1, "m")]).is_none());
        writer.quick.store(IN_A_ROW, Ordering::Relaxed);
        let done = writer.commit_in_passing(&[made(1, "m")]);
        assert!(matches!(done, Some(Ok(()))), "{done:?}");
        assert_eq!(timers(&writer), 1);
    }

    #[test]
    fn what_is_large_or_would_have_to_wait_is_not_done_in_passing() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(folder.path());
        writer.quick.store(IN_A_ROW, Ordering::Relaxed);
        let many: Vec<Record> = (0..=SMALL as u64).map(|n| made(n, "m")).collect();
        assert!(writer.commit_in_passing(&many).is_none());
        let numbers = (0..=SMALL as u64).collect();
        let seen = message::Record::Seen {
            numbers,
            at: Wall(0),
        };
        let seen = [Record::Message(seen)];
        assert!(writer.commit_in_passing(&seen).is_none());
        writer.with(|_| assert!(writer.commit_in_passing(&[made(1, "m")]).is_none()));
        assert_eq!(timers(&writer), 0);
        writer.commit(&many).unwrap();
        let after_many = writer.commit_in_passing(&[made(9, "m")]);
        assert!(after_many.is_none(), "many call: the loop has to hear them");
    }

    #[test]
    fn another_program_that_writes_is_not_waited_for_in_passing() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(folder.path());
        writer.quick.store(IN_A_ROW, Ordering::Relaxed);
        let other = connect(&folder.path().join("abide.db")).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(writer.commit_in_passing(&[made(1, "m")]).is_none());
        other.execute_batch("ROLLBACK").unwrap();
        writer.commit(&[made(1, "m")]).unwrap();
        assert_eq!(timers(&writer), 1);
    }
}
