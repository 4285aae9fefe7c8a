//! Transaction as one statement, which the server parses and plans once for a connection: this is most of its work for a
//! small commit. The statement holds the fence, compares the clocks, writes the rows and is committed by itself.
//!
//! The library names a statement by a number. A pooler may give a transaction to another server process, in which that
//! number is not known, or means the statement of another daemon. So a statement fails unless it is executed with the
//! hash of its own text, before it writes; the connection is then used without names (`link.rs`).

use std::hash::{DefaultHasher, Hash, Hasher};

use tokio_postgres::types::{ToSql, Type};

use super::batch::{Batch, RowShape, STAMP_PARAMS, Style};
use super::link::LOCK_MS;
use super::ownership::{FENCE_VALUES, fence};
use super::sharing::compare_time;

/// Parameter that is the hash of the statement.
const HASH: usize = STAMP_PARAMS + 1;
/// First parameter of the fence.
const FENCE: usize = HASH + 1;
/// Parameter that is the fleet time of this machine.
const TIME: usize = FENCE + FENCE_VALUES;

/// Expression that fails unless the statement is the one that was meant. It also limits the time for which the statement
/// waits for rows that are locked later.
pub(crate) fn statement_guard(param: &str, hash: i64) -> String {
    format!(
        "set_config('lock_timeout', CASE {param} WHEN {hash} THEN '{LOCK_MS}' ELSE 'another statement' END, true)"
    )
}

/// Transaction as one statement.
pub(super) struct Prepared<'a> {
    batch: &'a Batch,
    fence: [i64; FENCE_VALUES],
    /// Fleet time of this machine, for a batch that makes timers.
    time: Option<i64>,
    pub shape: Shape,
}

/// Facts that the text of a statement follows from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    rows: Vec<RowShape>,
    compares_time: bool,
}

/// Text of a statement.
pub(super) struct Text {
    pub sql: String,
    pub hash: i64,
}

impl<'a> Prepared<'a> {
    /// Statement of a batch, if one can write its rows.
    pub fn new(batch: &'a Batch, fence: [i64; FENCE_VALUES], time: Option<i64>) -> Option<Self> {
        let shape = Shape {
            rows: batch.single_rows()?,
            compares_time: time.is_some(),
        };
        Some(Prepared {
            batch,
            fence,
            time,
            shape,
        })
    }

    /// Text for the tables of a schema.
    pub fn text(&self, schema: &str) -> Text {
        let style = Style {
            first_param: TIME + usize::from(self.time.is_some()),
            schema: Some(schema),
            again: false,
        };
        let (writes, checks) = self.batch.queries(style);
        let clock = self.time.map(|_| {
            let compared = compare_time(format_args!("{schema}.fleet"), format_args!("${TIME}"));
            format!("clock AS MATERIALIZED ({compared})")
        });
        let queries: Vec<String> = clock.into_iter().chain(writes).collect();
        let values: Vec<String> = [String::from("held")].into_iter().chain(checks).collect();
        let (queries, values) = (queries.join(", "), values.join(", "));
        let mut hasher = DefaultHasher::new();
        (&queries, &values).hash(&mut hasher);
        let hash = hasher.finish().cast_signed();
        let held = fence(
            &format!("{schema}.shard"),
            std::array::from_fn(|at| format!("${}", FENCE + at)),
            // Evaluated before the row is locked, which is what the limit is for.
            &format!("{} IS NOT NULL", statement_guard(&format!("${HASH}"), hash)),
        );
        let sql =
            format!("WITH fence AS MATERIALIZED ({held}), {queries} SELECT {values} FROM fence");
        Text { sql, hash }
    }

    /// Parameters of the statement with this hash.
    pub fn params<'b>(
        &'b self,
        hash: &'b i64,
    ) -> impl Iterator<Item = (&'b (dyn ToSql + Sync), Type)> {
        let numbers = [hash].into_iter().chain(&self.fence).chain(&self.time);
        let numbers = numbers.map(|number| (number as &(dyn ToSql + Sync), Type::INT8));
        let stamp = self.batch.stamp.params();
        stamp.chain(numbers).chain(self.batch.params())
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::{Form, Stamp};
    use super::super::schema::TIMELINE;
    use super::super::sharing::NOW;
    use super::*;
    use crate::store::records::{RecordRows, WriteForm};
    use crate::store::seal::UNSEALED;

    fn made(batch: &mut Batch) {
        let columns = [("number", 1_u64), ("total_ms", 5), ("due_ms", 6)];
        let columns = columns.map(|(name, value)| (name, value.into()));
        batch.put(WriteForm::Insert, "timer", "1", columns);
    }

    fn ended(batch: &mut Batch) {
        let columns = [("number", 1_u64.into()), ("ended_ms", 5_u64.into())];
        batch.put(
            WriteForm::Update("t.ended_ms IS NULL"),
            "timer",
            "1",
            columns,
        );
    }

    fn told(batch: &mut Batch, key: &str) {
        let columns = [("number", 2_u64.into()), ("told_ms", 6_u64.into())];
        batch.add(Form::UpdateEvery, "message", key, columns);
    }

    fn batch() -> Batch {
        let stamp = Stamp {
            shard: 7,
            epoch: 3,
            batch: 9,
        };
        Batch::empty(stamp, UNSEALED)
    }

    fn text(batch: &Batch, time: Option<i64>) -> Option<Text> {
        let prepared = Prepared::new(batch, [7, 7, 3, 1], time)?;
        Some(prepared.text("ours"))
    }

    #[test]
    fn new_timer_is_one_statement_that_holds_the_fence_and_compares_the_time() {
        let mut one = batch();
        made(&mut one);
        let Text { sql, hash } = text(&one, Some(4)).expect("one statement");
        let (fence, rest) = sql.split_once(", clock AS").expect("a clock");
        assert_eq!(
            fence,
            format!(
                "WITH fence AS MATERIALIZED (SELECT 1 / count(*) AS held FROM (SELECT 1 FROM ours.shard WHERE id = $5 \
                 AND owner = $6 AND epoch = $7 AND {TIMELINE} = $8 AND set_config('lock_timeout', CASE $4 WHEN {hash} \
                 THEN '2000' ELSE 'another statement' END, true) IS NOT NULL FOR UPDATE) AS rows)"
            )
        );
        let (clock, rest) = rest.split_once(", timer_row AS ").expect("a row");
        assert!(
            clock.contains(&format!(
                "{NOW} - clock_ahead_ms AS fleet_ms FROM ours.fleet"
            )),
            "{clock}"
        );
        assert_eq!(
            rest,
            "(INSERT INTO ours.timer (number, total_ms, due_ms, epoch, batch, shard) SELECT $10, $11, \
             greatest($12, $11 + clock.fleet_ms), $1, $2, $3 FROM fence, clock) SELECT held FROM fence"
        );
        let prepared = Prepared::new(&one, [7, 7, 3, 1], Some(4)).expect("one statement");
        assert_eq!(prepared.params(&hash).count(), 12);
    }

    #[test]
    fn rows_of_two_tables_are_written_by_one_statement() {
        let mut both = batch();
        ended(&mut both);
        told(&mut both, "2");
        let Text { sql, .. } = text(&both, None).expect("one statement");
        let (_, rows) = sql.split_once(" AS rows), ").expect("a fence");
        assert_eq!(
            rows,
            format!(
                "timer_row AS (UPDATE ours.timer AS t SET ended_ms = $10, \
             over_ms = (SELECT {NOW} - clock_ahead_ms FROM ours.fleet WHERE one = 1), epoch = $1, batch = $2 FROM fence \
             WHERE t.number = $9 AND CASE WHEN t.number <> $9 THEN false WHEN t.shard = $3 THEN true \
             ELSE ('in ' || t.shard)::bigint IS NULL END AND t.ended_ms IS NULL), \
             message_row AS (UPDATE ours.message AS t SET told_ms = $12, epoch = $1, batch = $2 FROM fence \
             WHERE t.number = $11 AND t.shard = $3 RETURNING 1) \
             SELECT held, (SELECT CASE count(*) WHEN 1 THEN 0 ELSE ('taken ' || count(*))::bigint END \
             FROM message_row) FROM fence"
            )
        );
    }

    #[test]
    fn statements_of_different_rows_have_different_hashes() {
        let (mut one, mut other) = (batch(), batch());
        made(&mut one);
        ended(&mut other);
        let hashes = [text(&one, Some(4)), text(&other, None)];
        let [made, ended] = hashes.map(|text| text.expect("one statement").hash);
        assert_ne!(made, ended);
    }

    #[test]
    fn two_rows_of_a_table_or_other_sql_are_no_single_statement() {
        let mut rows = batch();
        for number in ["1", "2"] {
            told(&mut rows, number);
        }
        assert!(text(&rows, None).is_none());
        let mut kinds = batch();
        made(&mut kinds);
        ended(&mut kinds);
        assert!(text(&kinds, Some(4)).is_none());
        let mut other = batch();
        let removal = Form::Sql("DELETE FROM waker WHERE id = ANY($4)");
        other.add(removal, "waker", "w", [("id", "w".into())]);
        assert!(text(&other, None).is_none());
    }
}
