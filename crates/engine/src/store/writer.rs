//! The one connection that writes. The store's thread and the checkpoints share it.

use std::sync::{Arc, Mutex};

use rusqlite::Connection;

use super::StoreFault;
use super::checkpoint::WalSize;
use crate::lock::lock;

/// Connection that writes, with the size of the write-ahead log.
pub(super) struct Writer {
    db: Mutex<Connection>,
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
            wal_size,
        })
    }

    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Connection) -> T) -> T {
        work(&mut lock(&self.db))
    }
}
