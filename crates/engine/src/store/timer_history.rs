//! History of a timer: pauses, resumes and cancellations, each with the reason that was given.

use abide_core::{TimerId, Wall};

use super::query::Query;
use super::{StoreFault, StoreReader};
use crate::text::safe_words;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerChangeRow {
    pub change: String,
    pub reason: Option<String>,
    pub at: Wall,
}

impl StoreReader {
    /// Changes of a timer, oldest first.
    pub async fn timer_changes(&self, id: TimerId) -> Result<Vec<TimerChangeRow>, StoreFault> {
        let number = self.timer_number(id);
        let read = move |db: &dyn Query| {
            let sql =
                "SELECT change, reason, at_ms FROM timer_change WHERE timer = ?1 ORDER BY position";
            db.rows(sql, &[number.into()], |row| {
                Ok(TimerChangeRow {
                    change: row.string(0)?,
                    reason: row.opt_string(1)?.as_deref().map(safe_words),
                    at: Wall(row.u64(2)?),
                })
            })
        };
        self.read(read).await
    }
}
