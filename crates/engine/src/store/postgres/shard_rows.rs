//! Rows of one shard, as a daemon reads them when it begins to own the shard.

use std::ops::Range;
use std::sync::Arc;

use abide_core::fleet::ShardId;
use abide_core::id::IdPermutation;
use abide_core::message::StoredMessage;
use abide_core::record::StoredRows;
use abide_core::time::Steady;
use tokio::sync::oneshot;
use tokio_postgres::SimpleQueryMessage;

use super::ownership::column;
use crate::store::load::{self, RowScope};
use crate::store::query::Query;
use crate::store::records::Value;
use crate::store::seal::{RowSeal, UNSEALED};
use crate::store::{OpenRows, StoreFault};

/// Change of the shards that are in memory, for the event loop.
pub(crate) enum ShardChange {
    /// A shard was read.
    Loaded(Box<ShardRows>),
    /// Another machine owns a shard.
    Dropped(ShardId),
    /// Fleet time minus boot time has changed.
    TimeSet(i64),
    /// Numbers for new timers and messages.
    Numbers(Range<u64>),
    /// Numbers for new timers and messages, instead of those before.
    NumbersReplaced(Range<u64>),
    /// Messages of other machines that are of this one from now on, and who is told when the event loop has them.
    MessagesTaken(Vec<StoredMessage>, Option<oneshot::Sender<()>>),
    /// Messages that another machine has taken, by number.
    MessagesGone(Vec<u64>),
    Deadlines(Vec<(u64, Steady)>),
}

/// Rows of a shard that are not over.
pub(crate) struct ShardRows {
    pub shard: ShardId,
    /// Sentence for conditional timers, if another machine has made the shard, which is away.
    pub note: Option<Arc<str>>,
    /// Rows. Of the shard of another machine only timers and messages: questions are about sessions, which stay on
    /// their machine.
    pub open: OpenRows,
    /// True if the machine that made the shard has not written a heartbeat since then: it may still use the server that
    /// was replaced.
    pub may_be_told_elsewhere: bool,
}

pub(super) fn read(
    db: &dyn Query,
    shard: ShardId,
    note: Option<Arc<str>>,
    id_permutation: IdPermutation,
    seal: &RowSeal,
) -> Result<ShardRows, StoreFault> {
    let scope = RowScope::Shard(column(shard));
    let open = match note {
        None => load::open_rows(db, id_permutation, scope, seal)?,
        Some(_) => OpenRows {
            stored: StoredRows {
                // Their conditions are not used.
                timers: load::timers(db, id_permutation, scope, &UNSEALED)?.0,
                messages: load::messages(db, scope)?,
                ..StoredRows::default()
            },
            ..OpenRows::default()
        },
    };
    let mut rows = ShardRows {
        shard,
        note,
        open,
        may_be_told_elsewhere: false,
    };
    let went_back = format!(
        "SELECT went_back_ms, (SELECT count(*) FROM ({}) AS unseen) FROM fleet",
        unseen_since_loss(column(shard))
    );
    db.for_each(&went_back, &[], &mut |row| {
        rows.open.stored.went_back = Steady(row.u64(0)?);
        rows.may_be_told_elsewhere = rows.note.is_some() && row.u64(1)? > 0;
        Ok(())
    })?;
    Ok(rows)
}

/// Query of the machine that made a shard, if it has not written a heartbeat since the database may have lost commits:
/// such a machine may still use the server that was replaced.
pub(super) fn unseen_since_loss(shard: i64) -> String {
    format!(
        "SELECT 1 FROM machine JOIN fleet ON machine.fleet_time < fleet.went_back_ms WHERE machine.id = {shard}"
    )
}

pub(super) fn numbers(answer: &[SimpleQueryMessage]) -> Vec<u64> {
    let rows = answer.iter().filter_map(|message| match message {
        // The fence has answered with rows, too.
        SimpleQueryMessage::Row(row) if row.columns().first()?.name() == "number" => row.get(0),
        _ => None,
    });
    rows.filter_map(|number| number.parse().ok()).collect()
}

/// Those of these messages that are in none of these shards, or were seen.
pub(super) fn gone(
    db: &dyn Query,
    shards: &[i64],
    numbers: &[u64],
) -> Result<Vec<u64>, StoreFault> {
    let among = Value::Ints(numbers.iter().map(|number| number.cast_signed()).collect());
    let sql =
        "SELECT number FROM message WHERE number = ANY(?1) AND shard = ANY(?2) AND seen_ms IS NULL";
    let params = [among, Value::Ints(shards.to_vec())];
    let here = db.rows(sql, &params, |row| row.u64(0))?;
    let gone = numbers.iter().filter(|number| !here.contains(number));
    Ok(gone.copied().collect())
}

/// Deadlines of the running timers of a shard.
pub(super) fn deadlines(db: &dyn Query, shard: i64) -> Result<Vec<(u64, u64)>, StoreFault> {
    let sql = format!(
        "SELECT number, due_ms FROM timer WHERE shard = {shard} AND ended_ms IS NULL AND due_ms IS NOT NULL"
    );
    db.rows(&sql, &[], |row| Ok((row.u64(0)?, row.u64(1)?)))
}
