//! Marks by which a machine sees, with one statement, that timers of other machines have changed.

use tokio_postgres::types::{ToSql, Type};

use super::batch::Statement;
use super::frames::{FrameTable, NOW_MS};
use crate::store::StoreFault;

/// Newest rows that are looked at. More changes of this machine than these hide one of another until the next change.
const NEWEST: usize = 200;
/// Time by which the clock of a machine may be ahead, in milliseconds. Rows of one that is more ahead are left out: they
/// would hide those of all others.
const AHEAD_MS: u64 = 10_000;

/// Marks of the timers of other machines. Other values mean that something has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerMarks {
    /// Newest time at which one ended.
    ended: i64,
    /// Position of the newest change in the history.
    changed: i64,
    /// Sum of the newest number of each shard.
    made: i64,
}

impl FrameTable {
    /// Reads the marks. Each part is answered by an index.
    pub async fn timer_marks(&self) -> Result<Option<TimerMarks>, StoreFault> {
        let own = self.own();
        let sql = format!(
            "SELECT (SELECT coalesce(max(e.ended_ms), 0) FROM (SELECT shard, ended_ms FROM timer \
             WHERE ended_ms IS NOT NULL AND ended_ms <= {NOW_MS} + {AHEAD_MS} \
             ORDER BY ended_ms DESC LIMIT {NEWEST}) AS e WHERE e.shard <> $1), \
             (SELECT coalesce(max(c.position), 0) FROM (SELECT shard, position FROM timer_change \
             WHERE position <= ({NOW_MS} + {AHEAD_MS}) * 1024 \
             ORDER BY position DESC LIMIT {NEWEST}) AS c WHERE c.shard <> $1), \
             (SELECT coalesce(sum(n.newest), 0)::bigint FROM shard AS s CROSS JOIN LATERAL \
             (SELECT max(number) AS newest FROM timer WHERE shard = s.id AND ended_ms IS NULL) AS n \
             WHERE s.id <> $1)"
        );
        let params = vec![(&own as &(dyn ToSql + Sync), Type::INT8)];
        let rows = self.link().read(&Statement { sql, params }).await?;
        Ok(rows.first().and_then(|row| {
            Some(TimerMarks {
                ended: row.try_get(0).ok()?,
                changed: row.try_get(1).ok()?,
                made: row.try_get(2).ok()?,
            })
        }))
    }
}
