//! The database's journal, into which every commit goes first, and when it is brought into the database itself.
//!
//! Most of that is done beside the commits, over a connection of its own: a commit that had to wait for it would be
//! late by some ten milliseconds, and whoever waits for that commit too. Only for the little that was committed
//! meanwhile they wait: a journal that was copied as a whole begins anew, and one that grows takes the disk longer
//! with every commit.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, mpsc};

use rusqlite::Connection;

use super::StoreFault;
use super::writer::Writer;

/// Pages after which they are brought over.
const LONG: i32 = 1_000;

/// How long the journal is.
#[derive(Default)]
pub(super) struct Journal {
    /// After the last commit.
    pages: AtomicI32,
    /// How many of them are in the database too.
    copied: AtomicI32,
}

impl Journal {
    /// It has so many pages after a commit.
    pub(super) fn has(&self, pages: i32) {
        let before = self.pages.swap(pages, Ordering::Relaxed);
        if pages < before {
            // It has begun anew.
            self.copied.store(0, Ordering::Relaxed);
        }
    }

    /// Whether so much has come since it was copied that it is time again.
    pub(super) fn is_long(&self) -> bool {
        let pages = self.pages.load(Ordering::Relaxed);
        let copied = self.copied.load(Ordering::Relaxed);
        let new = if copied > pages {
            pages
        } else {
            pages - copied
        };
        new >= LONG
    }

    /// Brings over what can be. Where that fails nothing is lost: what is in the journal stays there.
    pub(super) fn copy(&self, db: &Connection) {
        let pragma = "PRAGMA wal_checkpoint(PASSIVE)";
        match db.query_row(pragma, [], |row| row.get(2)) {
            Ok(copied) => self.copied.store(copied, Ordering::Relaxed),
            Err(fault) => tracing::warn!("the journal stays long: {fault}"),
        }
    }
}

/// Asks for the journal to be copied.
pub(super) struct Copier(mpsc::SyncSender<()>);

impl Copier {
    /// Copies over `db` on a thread of its own, and the rest over the `writer`'s, until nobody can ask any more.
    pub(super) fn start(db: Connection, writer: Arc<Writer>) -> Result<Self, StoreFault> {
        let (asked, asks) = mpsc::sync_channel(1);
        std::thread::Builder::new()
            .name("abide-journal".into())
            .spawn(move || {
                while asks.recv().is_ok() {
                    // Whoever asked while this went on may have been answered by it.
                    if writer.journal.is_long() {
                        writer.journal.copy(&db);
                        writer.with(|db| writer.journal.copy(db));
                    }
                }
            })
            .map_err(|e| StoreFault::Refused(format!("a thread for the database: {e}")))?;
        Ok(Copier(asked))
    }

    /// Asks. Where that was asked already, once is enough.
    pub(super) fn ask(&self) {
        let _ = self.0.try_send(());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::store::connect;

    /// A database whose journal has some pages.
    fn filled(path: &Path, journal: &Arc<Journal>, pages: i32) -> Connection {
        let mut db = connect(path).expect("a database");
        let grown = journal.clone();
        db.wal_hook(Some(move |_: &mut _, pages| {
            grown.has(pages);
            Ok(())
        }))
        .expect("a hook");
        db.execute_batch("CREATE TABLE text (bytes BLOB)")
            .expect("a table");
        let sql = "INSERT INTO text VALUES (zeroblob(?1))";
        db.execute(sql, [pages * 4_096]).expect("a row");
        db
    }

    fn one_more(db: &Connection) {
        db.execute("INSERT INTO text VALUES ('x')", [])
            .expect("a row");
    }

    #[test]
    fn a_long_one_is_copied_and_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Arc::new(Journal::default());
        let db = filled(&folder.path().join("abide.db"), &journal, LONG);
        assert!(journal.is_long());
        journal.copy(&db);
        assert!(!journal.is_long());
        one_more(&db);
        assert!(!journal.is_long());
        assert!(
            journal.pages.load(Ordering::Relaxed) < LONG,
            "it has restarted"
        );
    }

    #[test]
    fn it_is_copied_beside_a_commit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abide.db");
        let journal = Arc::new(Journal::default());
        let db = filled(&path, &journal, LONG);
        db.execute_batch("BEGIN IMMEDIATE").unwrap();
        one_more(&db);
        journal.copy(&connect(&path).unwrap());
        assert!(
            !journal.is_long(),
            "what is being written does not keep it from being copied"
        );
        db.execute_batch("COMMIT").unwrap();
        assert!(!journal.is_long());
        assert!(
            journal.pages.load(Ordering::Relaxed) > LONG,
            "not all of it was copied"
        );
    }

    #[test]
    fn it_is_long_by_what_is_new() {
        let journal = Journal::default();
        for (pages, copied, long) in [
            (LONG - 1, 0, false),
            (LONG, 0, true),
            (2 * LONG - 1, LONG, false),
            (2 * LONG, LONG, true),
        ] {
            journal.has(pages);
            journal.copied.store(copied, Ordering::Relaxed);
            assert_eq!(journal.is_long(), long, "{pages} {copied}");
        }
        journal.has(1);
        assert!(!journal.is_long(), "it has restarted");
        journal.has(LONG);
        assert!(journal.is_long());
    }
}
