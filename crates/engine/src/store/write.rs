//! Writes records to SQLite, and removes old rows from it.

use abide_core::message;
use abide_core::timer::{self, Status};
use abide_core::{Record, Wall, limit};
use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, Params, ToSql, params, params_from_iter};

use super::deliveries::WakerRecord;
use super::records::{RecordRows, Value, WriteForm};
use super::seal::{RowSeal, UNSEALED};
use super::{StoreFault, in_transaction};
use abide_session::crash_point;

/// Maximum of rows that one prune removes, so that it never blocks a turn for long.
pub(super) const PRUNE_BATCH: usize = 2_000;

/// Writes all records in one transaction.
pub(crate) fn commit(db: &Connection, records: &[Record]) -> Result<(), StoreFault> {
    in_transaction(db, |db| {
        let next = "SELECT coalesce(max(position), 0) + 1 FROM timer_change";
        let mut position = db.prepare_cached(next)?.query_one([], |row| row.get(0))?;
        let mut rows = SqliteRows::new(db);
        for record in records {
            rows.record(record, &mut position);
        }
        rows.done?;
        crash_points(records, |[before, _]| before);
        Ok(())
    })?;
    crash_points(records, |[_, after]| after);
    Ok(())
}

/// Writes a record about wakers in one transaction.
pub(super) fn write_waker_record(db: &Connection, record: &WakerRecord) -> Result<(), StoreFault> {
    in_transaction(db, |db| {
        let mut rows = SqliteRows::new(db);
        match record {
            WakerRecord::Deliveries(all) => {
                for (message, delivery) in all {
                    rows.delivery(*message, delivery);
                }
            }
            record => rows.waker_record(record),
        }
        rows.done
    })
}

/// Rows that are written to SQLite. Nothing is written after the first fault.
struct SqliteRows<'a> {
    db: &'a Connection,
    done: Result<(), StoreFault>,
}

impl<'a> SqliteRows<'a> {
    fn new(db: &'a Connection) -> Self {
        SqliteRows { db, done: Ok(()) }
    }

    fn execute(&mut self, sql: &str, params: impl Params) {
        if self.done.is_ok() {
            let statement = self.db.prepare_cached(sql);
            let written = statement.and_then(|mut statement| statement.execute(params));
            self.done = written.map(drop).map_err(StoreFault::from);
        }
    }
}

impl RecordRows for SqliteRows<'_> {
    fn put<const COLUMNS: usize>(
        &mut self,
        form: WriteForm,
        table: &'static str,
        _: &str,
        columns: [(&'static str, Value); COLUMNS],
    ) {
        let sql = statement(form, table, columns.each_ref().map(|(name, _)| *name));
        self.execute(&sql, params_from_iter(columns.map(|(_, value)| value)));
    }

    fn seal(&self) -> &RowSeal {
        &UNSEALED
    }

    fn delivery_begun(&mut self, numbers: &[u64], _: bool, at: Wall) {
        for number in numbers {
            let sql = "UPDATE message SET told_ms = ? WHERE number = ?";
            self.execute(sql, params![at.0, number]);
        }
    }

    fn trim_history(&mut self, timer: u64) {
        let sql = "DELETE FROM timer_change WHERE timer = ?1 AND position <= (SELECT position FROM timer_change \
             WHERE timer = ?1 ORDER BY position DESC LIMIT 1 OFFSET ?2)";
        self.execute(sql, params![timer, limit::TIMER_CHANGES]);
    }

    fn enable_waker(&mut self, waker: &str) {
        self.execute("DELETE FROM waker WHERE id = ?", [waker]);
    }

    fn anchored(&mut self, anchor: &timer::Anchor) {
        let sql = "INSERT OR REPLACE INTO clock (one, boot_id, boot_offset_ms, wall_offset_ms, reached_ms) \
             VALUES (1, ?, ?, ?, ?)";
        let boot_id = format!("{:032x}", anchor.boot_id);
        let (boot, wall) = (anchor.boot_offset, anchor.wall_offset);
        self.execute(sql, params![boot_id, boot, wall, anchor.reached.0]);
    }
}

/// Statement that writes a row with these columns.
fn statement<const COLUMNS: usize>(form: WriteForm, table: &str, names: [&str; COLUMNS]) -> String {
    let columns = names.join(", ");
    let marks = ["?"; COLUMNS].join(", ");
    match form {
        WriteForm::Insert => format!("INSERT INTO {table} ({columns}) VALUES ({marks})"),
        WriteForm::Put(_) => format!("INSERT OR REPLACE INTO {table} ({columns}) VALUES ({marks})"),
        WriteForm::Update(condition) => {
            let changed = names.iter().enumerate().skip(1);
            let changed = changed.map(|(at, name)| format!("{name} = ?{}", at + 1));
            let changed = changed.collect::<Vec<_>>().join(", ");
            format!(
                "UPDATE {table} AS t SET {changed} WHERE {} = ?1 AND {condition}",
                names[0]
            )
        }
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Value::Int(number) => number.to_sql(),
            Value::Text(text) => text.to_sql(),
            Value::Bytes(bytes) => bytes.to_sql(),
            Value::Ints(numbers) => {
                let list = serde_json::to_string(numbers).unwrap_or_default();
                Ok(ToSqlOutput::from(list))
            }
        }
    }
}

/// Crash points around a commit, for tests.
pub(super) fn crash_points(records: &[Record], when: fn([&'static str; 2]) -> &'static str) {
    for record in records {
        let what = match record {
            Record::Timer(timer::Record::Created(_)) => ["timer.create.pre", "timer.create.post"],
            Record::Timer(timer::Record::Changed(_)) => ["timer.change.pre", "timer.change.post"],
            Record::Timer(timer::Record::Ended(timer::Ended {
                status: Status::Stopped,
                ..
            })) => ["timer.stop.pre", "timer.stop.post"],
            Record::Timer(timer::Record::Ended(_)) => ["timer.due.pre", "timer.due.post"],
            Record::Message(message::Record::DeliveryStarted { .. }) => {
                ["message.told.pre", "message.told.post"]
            }
            Record::Message(message::Record::Seen { .. }) => {
                ["message.seen.pre", "message.seen.post"]
            }
            Record::Closed { .. } => ["question.close.pre", "question.close.post"],
            Record::Held { record, .. } => match record {
                abide_core::held::Record::Approved { .. } => {
                    ["held.approve.pre", "held.approve.post"]
                }
                abide_core::held::Record::Started => ["held.start.pre", "held.start.post"],
                abide_core::held::Record::Declined { .. }
                | abide_core::held::Record::Refused { .. } => continue,
            },
            Record::Message(message::Record::Posted { .. } | message::Record::Released { .. })
            | Record::Timer(timer::Record::Acted { .. } | timer::Record::Anchored(_))
            | Record::Asked { .. } => continue,
        };
        crash_point(when(what));
    }
}

/// Removes old rows. The newest row of each table stays, so that no number is used twice; a timer stays while a
/// message about it has not been seen.
pub(super) fn prune(db: &mut Connection, before_ms: u64) -> Result<usize, StoreFault> {
    let round = db.transaction()?;
    let old = "(SELECT number FROM message \
         WHERE seen_ms < ?1 AND number < (SELECT max(number) FROM message) LIMIT ?2)";
    round.execute(
        &format!("DELETE FROM delivery WHERE message IN {old}"),
        params![before_ms, PRUNE_BATCH],
    )?;
    let messages = round.execute(
        &format!("DELETE FROM message WHERE number IN {old}"),
        params![before_ms, PRUNE_BATCH],
    )?;
    crash_point("gc.mid");
    let timers = round.execute(
        "DELETE FROM timer WHERE number IN (SELECT number FROM timer t \
         WHERE ended_ms < ?1 AND number < (SELECT max(number) FROM timer) AND t.id NOT IN \
         (SELECT about FROM message WHERE seen_ms IS NULL) LIMIT ?2)",
        params![before_ms, PRUNE_BATCH],
    )?;
    let questions = round.execute(
        "DELETE FROM question WHERE id IN \
         (SELECT id FROM question WHERE closed_ms < ?1 LIMIT ?2)",
        params![before_ms, PRUNE_BATCH],
    )?;
    round.commit()?;
    Ok(messages + timers + questions)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::store::{connect, schema};

    fn database(folder: &tempfile::TempDir) -> Connection {
        let mut db = connect(&folder.path().join("abide.db")).expect("a database");
        schema::migrate(&mut db).expect("tables");
        db
    }

    fn count(db: &Connection, table: &str) -> usize {
        let sql = format!("SELECT count(*) FROM {table}");
        db.query_row(&sql, [], |row| row.get(0)).expect("a count")
    }

    #[test]
    fn unread_messages_do_not_make_prune_slow() {
        const MANY: usize = 3_000;
        let folder = tempfile::tempdir().unwrap();
        let mut db = database(&folder);
        let fill = format!(
            "WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < {MANY})
             INSERT INTO timer SELECT n, 't' || n, 'a', 'mission', 'm', NULL, NULL, 0, 0, 1, NULL,
             'completed', 0, NULL, NULL, 0, NULL, NULL, NULL, 'time', 0, 1, NULL, NULL, NULL FROM n;
             INSERT INTO message SELECT number, 'm' || number, 'a', id, 1, NULL, NULL, NULL, 0
             FROM timer;"
        );
        db.execute_batch(&fill).expect("rows");
        let steps = Arc::new(AtomicUsize::new(0));
        let taken = steps.clone();
        let each = move || {
            taken.fetch_add(1, Ordering::Relaxed);
            false
        };
        db.progress_handler(100, Some(each)).expect("a counter");
        assert_eq!(prune(&mut db, 2).expect("tidied"), 0);
        assert_eq!(count(&db, "timer"), MANY + 1, "what was not told stays");
        let for_each = steps.load(Ordering::Relaxed) * 100 / MANY;
        assert!(for_each < 200, "{for_each} steps for each of them");
    }

    #[test]
    fn prune_removes_old_closed_questions_and_keeps_open_ones() {
        let folder = tempfile::tempdir().unwrap();
        let mut db = database(&folder);
        db.execute_batch(
            "INSERT INTO question (id, session, idle_ms, asked_ms, closing, closed_ms)
             VALUES ('old', 's', 1, 1, 'yes', 1), ('young', 's', 1, 1, 'yes', 5), ('open', 's', 1, 1, NULL, NULL);",
        )
        .expect("rows");
        assert_eq!(prune(&mut db, 2).expect("tidied"), 1);
        assert_eq!(count(&db, "question"), 2);
        assert_eq!(prune(&mut db, 2).expect("tidied"), 0);
    }
}
