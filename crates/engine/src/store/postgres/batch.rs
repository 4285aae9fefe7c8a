//! Batch of rows as statements. Rows of one kind are gathered into arrays, so that a batch of any size is a few statements;
//! a value that all these rows have is one parameter.
//! Every row is stamped with its shard, the epoch and the number of its batch, which tells later whether the batch was
//! committed.

use std::collections::HashSet;

use abide_core::{Wall, limit, timer};
use tokio_postgres::types::{ToSql, Type};

use super::sharing::NOW;
use crate::store::records::{RecordRows, Value, WriteForm};
use crate::store::seal::RowSeal;

/// Values of one column.
enum Column {
    Ints(Vec<Option<i64>>),
    Texts(Vec<Option<String>>),
    Bytes(Vec<Option<Vec<u8>>>),
}

impl Column {
    /// Column for values of this type.
    fn of_type(value: &Value) -> Self {
        match value {
            Value::Int(_) => Column::Ints(Vec::new()),
            Value::Text(_) => Column::Texts(Vec::new()),
            Value::Bytes(_) => Column::Bytes(Vec::new()),
            Value::Ints(_) => unreachable!("a list in a column"),
        }
    }

    fn push(&mut self, value: Value) {
        match (self, value) {
            (Column::Ints(column), Value::Int(value)) => column.push(value),
            (Column::Texts(column), Value::Text(value)) => column.push(value),
            (Column::Bytes(column), Value::Bytes(value)) => column.push(value),
            _ => unreachable!("a value of another type than its column"),
        }
    }

    fn array(&self) -> (&(dyn ToSql + Sync), Type) {
        match self {
            Column::Ints(column) => (column, Type::INT8_ARRAY),
            Column::Texts(column) => (column, Type::TEXT_ARRAY),
            Column::Bytes(column) => (column, Type::BYTEA_ARRAY),
        }
    }

    /// First value.
    fn value(&self) -> (&(dyn ToSql + Sync), Type) {
        match self {
            Column::Ints(column) => (&column[0], Type::INT8),
            Column::Texts(column) => (&column[0], Type::TEXT),
            Column::Bytes(column) => (&column[0], Type::BYTEA),
        }
    }

    /// True if all rows have the same value.
    fn is_uniform(&self) -> bool {
        fn all_equal<T: PartialEq>(column: &[T]) -> bool {
            column.windows(2).all(|pair| pair[0] == pair[1])
        }
        match self {
            Column::Ints(column) => all_equal(column),
            Column::Texts(column) => all_equal(column),
            Column::Bytes(column) => all_equal(column),
        }
    }

    fn first(&self) -> Option<String> {
        match self {
            Column::Ints(column) => column.first().copied().flatten().map(|n| n.to_string()),
            Column::Texts(column) => column.first().cloned().flatten(),
            Column::Bytes(_) => None,
        }
    }
}

/// Form of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    Row(WriteForm),
    /// Changes rows, each of which must be there.
    UpdateEvery,
    /// Any other statement. Its first three parameters are the stamp.
    Sql(&'static str),
}

/// Rows that one statement writes.
struct Group {
    form: Form,
    table: &'static str,
    columns: Vec<(&'static str, Column)>,
    /// Rows that it changes: each once.
    keys: HashSet<String>,
}

/// Shard, epoch of its claim and number of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stamp {
    pub shard: i64,
    pub epoch: i64,
    pub batch: i64,
}

/// Parameters of a stamp, which are the first ones of a statement.
pub(super) const STAMP_PARAMS: usize = 3;

impl Stamp {
    pub fn params(&self) -> impl Iterator<Item = (&(dyn ToSql + Sync), Type)> {
        let all: [&(dyn ToSql + Sync); STAMP_PARAMS] = [&self.epoch, &self.batch, &self.shard];
        all.map(|number| (number, Type::INT8)).into_iter()
    }
}

/// Form of the text of a statement.
#[derive(Clone, Copy)]
pub(super) struct Style<'a> {
    /// Number of the parameter of the first column.
    pub first_param: usize,
    /// Schema of the tables if the statement is part of one with a fence (`prepared.rs`).
    pub schema: Option<&'a str>,
    /// True if the batch may have been committed before.
    pub again: bool,
}

/// Form, table and columns of a row.
pub(super) type RowShape = (Form, &'static str, Vec<&'static str>);

/// Records of one shard that are committed together.
pub(super) struct Batch {
    pub stamp: Stamp,
    groups: Vec<Group>,
    /// Bytes of its values, approximately.
    pub size: usize,
    seal: RowSeal,
}

impl Batch {
    pub fn empty(stamp: Stamp, seal: RowSeal) -> Self {
        Batch {
            stamp,
            seal,
            groups: Vec::new(),
            size: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Statements with their parameters. `again`: the batch may have been committed before.
    pub fn statements(&self, again: bool) -> Vec<Statement<'_>> {
        let style = Style {
            first_param: STAMP_PARAMS + 1,
            schema: None,
            again,
        };
        let all = self.groups.iter().map(|group| Statement {
            sql: group.statement(&style),
            params: self.stamp.params().chain(group.params()).collect(),
        });
        all.collect()
    }

    /// Form, table and columns of its rows, if one statement can write them: each table has a single row.
    pub fn single_rows(&self) -> Option<Vec<RowShape>> {
        let mut rows: Vec<RowShape> = Vec::with_capacity(self.groups.len());
        for group in &self.groups {
            let Group {
                form, table, keys, ..
            } = group;
            let is_part = keys.len() == 1 && !matches!(form, Form::Sql(_));
            if !is_part || rows.iter().any(|(_, other, _)| other == table) {
                return None;
            }
            rows.push((*form, table, group.names().collect()));
        }
        Some(rows)
    }

    /// Named queries that write its rows, and values that fail if a row was not there.
    pub fn queries(&self, mut style: Style<'_>) -> (Vec<String>, Vec<String>) {
        let (mut writes, mut checks) = (Vec::new(), Vec::new());
        for group in &self.groups {
            let name = format!("{}_row", group.table);
            writes.push(format!("{name} AS ({})", group.sql(&style)));
            if let Form::UpdateEvery = group.form {
                checks.push(format!("({})", all_found(&name, 1)));
            }
            style.first_param += group.columns.len();
        }
        (writes, checks)
    }

    /// Parameters of all its columns.
    pub fn params(&self) -> impl Iterator<Item = (&(dyn ToSql + Sync), Type)> {
        self.groups.iter().flat_map(Group::params)
    }

    /// Query that counts rows which this batch has written, or also a later one, if it has rows of its own.
    pub fn look(&self, by: WrittenBy) -> Option<String> {
        // Another machine may have taken a message, which says nothing about the batches that changed it here.
        let may_move = |table: &str| table == "message" && by == WrittenBy::ItOrLater;
        let is_stamped =
            |group: &&Group| !matches!(group.form, Form::Sql(_)) && !may_move(group.table);
        let group = self.groups.iter().rev().find(is_stamped)?;
        let (column, keys) = group.columns.first()?;
        let key = keys.first()?.replace('\'', "''");
        let Stamp {
            shard,
            epoch,
            batch,
        } = self.stamp;
        let relation = match by {
            WrittenBy::It => "=",
            WrittenBy::ItOrLater => ">=",
        };
        Some(format!(
            "SELECT count(*) FROM {} WHERE {column} = '{key}' AND shard = {shard} \
             AND (epoch, batch) {relation} ({epoch}, {batch})",
            group.table
        ))
    }
}

/// Writer of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrittenBy {
    It,
    ItOrLater,
}

/// Statement with typed parameters.
pub(crate) struct Statement<'a> {
    pub sql: String,
    pub params: Vec<(&'a (dyn ToSql + Sync), Type)>,
}

impl Group {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.columns.iter().map(|(name, _)| *name)
    }

    /// Parameters of its statement after the stamp: an array for each column, or the value that all rows have.
    fn params(&self) -> impl Iterator<Item = (&(dyn ToSql + Sync), Type)> {
        let takes_arrays = matches!(self.form, Form::Sql(_));
        self.columns.iter().map(
            move |(_, column)| match column.is_uniform() && !takes_arrays {
                true => column.value(),
                false => column.array(),
            },
        )
    }

    /// Statement that fails if a row which must be there is not.
    fn statement(&self, style: &Style<'_>) -> String {
        let sql = self.sql(style);
        match self.form {
            // A database that was restored from a backup may not have the rows.
            Form::UpdateEvery if !style.again => {
                let check = all_found("written", self.keys.len());
                format!("WITH written AS ({sql}) {check}")
            }
            _ => sql,
        }
    }

    /// SQL that writes the rows. A single row needs no arrays, which makes it much cheaper for the server.
    fn sql(&self, style: &Style<'_>) -> String {
        let mut columns: Vec<(&str, String)> = Vec::new();
        let (mut names, mut arrays) = (Vec::new(), Vec::new());
        for (at, (name, column)) in self.columns.iter().enumerate() {
            let param = format!("${}", at + style.first_param);
            if column.is_uniform() {
                columns.push((name, param));
            } else {
                columns.push((name, format!("u.{name}")));
                names.push(*name);
                arrays.push(param);
            }
        }
        let mut from = Vec::new();
        if !arrays.is_empty() {
            let (arrays, names) = (arrays.join(", "), names.join(", "));
            from.push(format!("unnest({arrays}) AS u({names})"));
        }
        let table = match style.schema {
            Some(schema) => format!("{schema}.{}", self.table),
            None => self.table.to_owned(),
        };
        if style.schema.is_some() {
            from.push("fence".to_owned());
        }
        match self.form {
            Form::Sql(sql) => sql.to_owned(),
            Form::Row(WriteForm::Insert) => {
                let insert = inserted(&table, &columns, from, style);
                match style.again {
                    true => format!("{insert} ON CONFLICT DO NOTHING"),
                    false => insert,
                }
            }
            Form::Row(WriteForm::Put(key)) => {
                let set = columns.iter().map(|(name, _)| *name);
                let set: Vec<String> = (set.chain(["epoch", "batch"]))
                    .map(|name| format!("{name} = excluded.{name}"))
                    .collect();
                let put = format!(
                    "{} ON CONFLICT ({key}) DO UPDATE SET {}",
                    inserted(&table, &columns, from, style),
                    set.join(", ")
                );
                match style.again {
                    true => format!("{put} WHERE ({table}.epoch, {table}.batch) <= ($1, $2)"),
                    false => put,
                }
            }
            Form::Row(WriteForm::Update(condition)) => {
                let (key, value) = &columns[0];
                // A timer stays in its shard, so one that is in another is not ours to decide about.
                let own = match self.table {
                    "timer" if !style.again => in_own_shard(key, value),
                    _ => own_rows(style).to_owned(),
                };
                let condition = format!("{own} AND {condition}");
                updated(&table, &columns, &from, &condition, style.schema)
            }
            Form::UpdateEvery => {
                let sql = updated(&table, &columns, &from, own_rows(style), style.schema);
                format!("{sql} RETURNING 1")
            }
        }
    }
}

fn inserted(
    table: &str,
    columns: &[(&str, String)],
    mut from: Vec<String>,
    style: &Style<'_>,
) -> String {
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let total = columns.iter().find(|(name, _)| *name == "total_ms");
    let mut values: Vec<String> = columns.iter().map(|(_, value)| value.clone()).collect();
    if let (Some(due), Some((_, total)), false) = (
        names.iter().position(|name| *name == "due_ms"),
        total,
        style.again,
    ) {
        let fleet_ms = match style.schema {
            Some(_) => "clock.fleet_ms".to_owned(),
            None => fleet_time(None),
        };
        // The clock of a machine that was paused is behind, so the later of the two times counts.
        values[due] = format!("greatest({}, {total} + {fleet_ms})", values[due]);
        if style.schema.is_some() {
            from.push("clock".to_owned());
        }
    }
    let from = match from.is_empty() {
        true => String::new(),
        false => format!(" FROM {}", from.join(", ")),
    };
    format!(
        "INSERT INTO {table} ({}, epoch, batch, shard) SELECT {}, $1, $2, $3{from}",
        names.join(", "),
        values.join(", ")
    )
}

fn updated(
    table: &str,
    columns: &[(&str, String)],
    from: &[String],
    condition: &str,
    schema: Option<&str>,
) -> String {
    let (key, rows) = &columns[0];
    let mut set: Vec<String> = (columns[1..].iter())
        .map(|(name, value)| format!("{name} = {value}"))
        .collect();
    let is_end = |(name, _): &(&str, String)| ["ended_ms", "seen_ms", "closed_ms"].contains(name);
    if columns.iter().any(is_end) {
        set.push(format!("over_ms = {}", fleet_time(schema)));
    }
    let from = match from.is_empty() {
        true => String::new(),
        false => format!(" FROM {}", from.join(", ")),
    };
    format!(
        "UPDATE {table} AS t SET {}, epoch = $1, batch = $2{from} \
         WHERE t.{key} = {rows} AND {condition}",
        set.join(", ")
    )
}

/// Condition of rows that the batch may change: those of its shard, and none that a later batch has changed.
fn own_rows(style: &Style<'_>) -> &'static str {
    match style.again {
        true => "t.shard = $3 AND (t.epoch, t.batch) <= ($1, $2)",
        false => "t.shard = $3",
    }
}

/// Condition that fails if the row with this key is of another shard. It names the key because the server may check
/// conditions in any order.
fn in_own_shard(key: &str, value: &str) -> String {
    format!(
        "CASE WHEN t.{key} <> {value} THEN false WHEN t.shard = $3 THEN true \
         ELSE ('in ' || t.shard)::bigint IS NULL END"
    )
}

/// Query of the fleet time, as the database has it, which is run once for all rows.
pub(super) fn fleet_time(schema: Option<&str>) -> String {
    let schema = schema.map(|schema| format!("{schema}."));
    let schema = schema.unwrap_or_default();
    format!("(SELECT {NOW} - clock_ahead_ms FROM {schema}fleet WHERE one = 1)")
}

/// Query that fails unless another query has changed this number of rows.
fn all_found(written: &str, rows: usize) -> String {
    format!(
        "SELECT CASE count(*) WHEN {rows} THEN 0 ELSE ('taken ' || count(*))::bigint END FROM {written}"
    )
}

/// Fails if another machine has taken one of the messages.
const TOLD: Form = Form::UpdateEvery;
const TRIM_HISTORY: Form = Form::Sql(
    "DELETE FROM timer_change AS t USING unnest($4, $5) AS u(timer, most) WHERE t.timer = u.timer \
         AND t.position <= (SELECT position FROM timer_change AS o WHERE o.timer = u.timer \
         ORDER BY position DESC LIMIT 1 OFFSET u.most)",
);
const ENABLE_WAKER: Form = Form::Sql("DELETE FROM waker WHERE shard = $3 AND id = ANY($4)");

impl Batch {
    /// Adds a row to the statement that writes rows of this form. Rows of different tables, and of different keys in one
    /// table, may be written in any order.
    pub(super) fn add<const COLUMNS: usize>(
        &mut self,
        form: Form,
        table: &'static str,
        row_key: &str,
        columns: [(&'static str, Value); COLUMNS],
    ) {
        self.size += columns.iter().map(|(_, value)| value.size()).sum::<usize>();
        let same_table = |group: &usize| self.groups[*group].table == table;
        let names = columns.each_ref().map(|(name, _)| *name);
        let mut found = None;
        for group in (0..self.groups.len()).rev().filter(same_table) {
            let changes_it = self.groups[group].keys.contains(row_key);
            let same_form = self.groups[group].form == form;
            if same_form && self.groups[group].names().eq(names) && !changes_it {
                found = Some(group);
                break;
            }
            if changes_it {
                break;
            }
        }
        let group = found.unwrap_or_else(|| {
            self.groups.push(Group {
                form,
                table,
                columns: (columns.iter())
                    .map(|(name, value)| (*name, Column::of_type(value)))
                    .collect(),
                keys: HashSet::new(),
            });
            self.groups.len() - 1
        });
        let group = &mut self.groups[group];
        group.keys.insert(row_key.to_owned());
        for ((_, column), (_, value)) in group.columns.iter_mut().zip(columns) {
            column.push(value);
        }
    }
}

impl RecordRows for Batch {
    fn put<const COLUMNS: usize>(
        &mut self,
        form: WriteForm,
        table: &'static str,
        row_key: &str,
        columns: [(&'static str, Value); COLUMNS],
    ) {
        self.add(Form::Row(form), table, row_key, columns);
    }

    fn seal(&self) -> &RowSeal {
        &self.seal
    }

    fn delivery_begun(&mut self, numbers: &[u64], in_flight: bool, at: Wall) {
        let told_by = in_flight.then_some(self.stamp.shard);
        for number in numbers {
            let columns = [
                ("number", (*number).into()),
                ("told_ms", at.0.into()),
                ("told_by", Value::Int(told_by)),
            ];
            self.add(TOLD, "message", &number.to_string(), columns);
        }
    }

    fn trim_history(&mut self, timer: u64) {
        let most = limit::TIMER_CHANGES as u64;
        self.add(
            TRIM_HISTORY,
            "timer_change",
            &timer.to_string(),
            [("timer", timer.into()), ("most", most.into())],
        );
    }

    fn enable_waker(&mut self, waker: &str) {
        self.add(ENABLE_WAKER, "waker", waker, [("id", waker.into())]);
    }

    /// Does nothing: deadlines are in fleet time, which needs no record of this machine's clocks.
    fn anchored(&mut self, _: &timer::Anchor) {}
}
