//! Checkpoints of the database: copying the write-ahead log (WAL), into which every commit goes first, into the
//! database file.
//!
//! Most of the work is done beside the commits, over a connection of its own: a commit that waited for it would be
//! late by some ten milliseconds. Commits wait only for the few pages that were written meanwhile: a WAL that was
//! copied completely starts over, and one that grows makes every commit slower.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, mpsc};

use rusqlite::Connection;

use super::StoreFault;
use super::writer::Writer;

/// New pages after which a checkpoint is made.
const CHECKPOINT_PAGES: i32 = 1_000;

#[derive(Default)]
pub(super) struct WalSize {
    /// Pages after the last commit.
    pages: AtomicI32,
    /// Pages that are in the database file too.
    checkpointed: AtomicI32,
}

impl WalSize {
    /// Sets the number of pages after a commit.
    pub(super) fn set_pages(&self, pages: i32) {
        let before = self.pages.swap(pages, Ordering::Relaxed);
        if pages < before {
            // The WAL has started over.
            self.checkpointed.store(0, Ordering::Relaxed);
        }
    }

    /// True if enough pages were added since the last checkpoint.
    pub(super) fn needs_checkpoint(&self) -> bool {
        let pages = self.pages.load(Ordering::Relaxed);
        let checkpointed = self.checkpointed.load(Ordering::Relaxed);
        let new = if checkpointed > pages {
            pages
        } else {
            pages - checkpointed
        };
        new >= CHECKPOINT_PAGES
    }

    /// Copies what can be copied. On failure nothing is lost: the pages stay in the WAL.
    pub(super) fn checkpoint(&self, db: &Connection) {
        let pragma = "PRAGMA wal_checkpoint(PASSIVE)";
        match db.query_row(pragma, [], |row| row.get(2)) {
            Ok(checkpointed) => self.checkpointed.store(checkpointed, Ordering::Relaxed),
            Err(fault) => tracing::warn!("checkpoint of the database failed: {fault}"),
        }
    }
}

/// Thread that makes checkpoints on request.
pub(super) struct Checkpointer(mpsc::SyncSender<()>);

impl Checkpointer {
    /// Starts the thread. It copies over `db` first, and the rest over the connection of the `writer`, until the
    /// sender is dropped.
    pub(super) fn start(db: Connection, writer: Arc<Writer>) -> Result<Self, StoreFault> {
        let (requests_tx, requests) = mpsc::sync_channel(1);
        std::thread::Builder::new()
            .name("abide-wal".into())
            .spawn(move || {
                while requests.recv().is_ok() {
                    // An earlier request may have done the work.
                    if writer.wal_size.needs_checkpoint() {
                        writer.wal_size.checkpoint(&db);
                        writer.with(|db| writer.wal_size.checkpoint(db));
                    }
                }
            })
            .map_err(|e| StoreFault::Refused(format!("a thread for the database: {e}")))?;
        Ok(Checkpointer(requests_tx))
    }

    /// Requests a checkpoint. Does nothing if one is requested already.
    pub(super) fn request(&self) {
        let _ = self.0.try_send(());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::store::connect;

    /// Database whose WAL has some pages.
    fn filled(path: &Path, wal_size: &Arc<WalSize>, pages: i32) -> Connection {
        let mut db = connect(path).expect("a database");
        let grown = wal_size.clone();
        db.wal_hook(Some(move |_: &mut _, pages| {
            grown.set_pages(pages);
            Ok(())
        }))
        .expect("a hook");
        db.execute_batch("CREATE TABLE text (bytes BLOB)")
            .expect("a table");
        let sql = "INSERT INTO text VALUES (zeroblob(?1))";
        db.execute(sql, [pages * 4_096]).expect("a row");
        db
    }

    fn insert_row(db: &Connection) {
        db.execute("INSERT INTO text VALUES ('x')", [])
            .expect("a row");
    }

    #[test]
    fn checkpoint_of_a_long_wal_restarts_it() {
        let folder = tempfile::tempdir().unwrap();
        let wal_size = Arc::new(WalSize::default());
        let db = filled(&folder.path().join("abide.db"), &wal_size, CHECKPOINT_PAGES);
        assert!(wal_size.needs_checkpoint());
        wal_size.checkpoint(&db);
        assert!(!wal_size.needs_checkpoint());
        insert_row(&db);
        assert!(!wal_size.needs_checkpoint());
        assert!(
            wal_size.pages.load(Ordering::Relaxed) < CHECKPOINT_PAGES,
            "it has restarted"
        );
    }

    #[test]
    fn checkpoint_succeeds_during_a_transaction() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abide.db");
        let wal_size = Arc::new(WalSize::default());
        let db = filled(&path, &wal_size, CHECKPOINT_PAGES);
        db.execute_batch("BEGIN IMMEDIATE").unwrap();
        insert_row(&db);
        wal_size.checkpoint(&connect(&path).unwrap());
        assert!(
            !wal_size.needs_checkpoint(),
            "what is being written does not keep it from being copied"
        );
        db.execute_batch("COMMIT").unwrap();
        assert!(!wal_size.needs_checkpoint());
        assert!(
            wal_size.pages.load(Ordering::Relaxed) > CHECKPOINT_PAGES,
            "not all of it was copied"
        );
    }

    #[test]
    fn needs_checkpoint_counts_only_new_pages() {
        let wal_size = WalSize::default();
        for (pages, checkpointed, long) in [
            (CHECKPOINT_PAGES - 1, 0, false),
            (CHECKPOINT_PAGES, 0, true),
            (2 * CHECKPOINT_PAGES - 1, CHECKPOINT_PAGES, false),
            (2 * CHECKPOINT_PAGES, CHECKPOINT_PAGES, true),
        ] {
            wal_size.set_pages(pages);
            wal_size.checkpointed.store(checkpointed, Ordering::Relaxed);
            assert_eq!(wal_size.needs_checkpoint(), long, "{pages} {checkpointed}");
        }
        wal_size.set_pages(1);
        assert!(!wal_size.needs_checkpoint(), "it has restarted");
        wal_size.set_pages(CHECKPOINT_PAGES);
        assert!(wal_size.needs_checkpoint());
    }
}
