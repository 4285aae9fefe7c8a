//! Batch of rows as statements. Rows of one kind are gathered into arrays, so that a batch of any size is a few statements;
//! a value that all these rows have is one parameter.
//! Every row is stamped with its shard, the epoch and the number of its batch, which tells later whether the batch was
//! committed.

use std::collections::HashSet;

use tokio_postgres::types::{ToSql, Type};

use super::prepared::{Literal, Prepared};

/// Kind of statement. A column is a number unless its name ends with `$` (text) or `#` (bytes). The first column is
/// the key.
pub(super) struct Kind {
    pub table: &'static str,
    pub form: Form,
    pub columns: &'static [&'static str],
}

pub(super) enum Form {
    /// New rows. A row that exists is a conflict, unless the batch may have been committed before.
    Insert,
    /// New or replaced rows, by this key.
    Put(&'static str),
    /// Changed rows, under this condition.
    Update(&'static str),
    /// Any other statement that stamps rows. Its first three parameters are the stamp.
    Stamping(&'static str),
    /// Any other statement. Its first three parameters are the stamp, too.
    Sql(&'static str),
}

/// Value of a column.
pub(super) enum Value {
    Int(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Some(number).into()
    }
}

impl From<Option<u64>> for Value {
    fn from(number: Option<u64>) -> Self {
        Value::Int(number.map(|number| i64::try_from(number).unwrap_or(i64::MAX)))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Int(Some(number))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Value::Int(Some(flag.into()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(Some(text))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Some(text).into()
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        // PostgreSQL has no zero bytes in texts; one would make every record of the batch fail.
        Value::Text(text.map(|text| text.replace('\0', "\u{fffd}")))
    }
}

impl From<Option<&[u8]>> for Value {
    fn from(bytes: Option<&[u8]>) -> Self {
        Value::Bytes(bytes.map(<[u8]>::to_vec))
    }
}

/// Values of one column.
enum Column {
    Ints(Vec<Option<i64>>),
    Texts(Vec<Option<String>>),
    Bytes(Vec<Option<Vec<u8>>>),
}

impl Column {
    fn new(name: &str) -> Self {
        match name.as_bytes().last() {
            Some(b'$') => Column::Texts(Vec::new()),
            Some(b'#') => Column::Bytes(Vec::new()),
            _ => Column::Ints(Vec::new()),
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

    /// First value, as SQL.
    fn literal(&self) -> Literal {
        match self {
            Column::Ints(column) => Literal::int(column[0]),
            Column::Texts(column) => Literal::text(column[0].as_deref()),
            Column::Bytes(column) => Literal::bytes(column[0].as_deref()),
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

    /// First value, as text.
    fn first(&self) -> Option<String> {
        match self {
            Column::Ints(column) => column.first().copied().flatten().map(|n| n.to_string()),
            Column::Texts(column) => column.first().cloned().flatten(),
            Column::Bytes(_) => None,
        }
    }
}

/// Rows of one kind.
struct Group {
    kind: &'static Kind,
    columns: Vec<Column>,
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

/// Records of one shard that are committed together.
pub(super) struct Batch {
    pub stamp: Stamp,
    groups: Vec<Group>,
    /// Bytes of its values, approximately.
    pub size: usize,
}

impl Batch {
    pub fn empty(stamp: Stamp) -> Self {
        Batch {
            stamp,
            groups: Vec::new(),
            size: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Adds a row. Rows of different tables, and of different keys in one table, may be written in any order.
    pub fn put<const COLUMNS: usize>(
        &mut self,
        kind: &'static Kind,
        key: &str,
        values: [Value; COLUMNS],
    ) {
        self.size += values.iter().map(Value::size).sum::<usize>();
        let same_table = |group: &usize| self.groups[*group].kind.table == kind.table;
        let mut found = None;
        for group in (0..self.groups.len()).rev().filter(same_table) {
            let changes_it = self.groups[group].keys.contains(key);
            if std::ptr::eq(self.groups[group].kind, kind) && !changes_it {
                found = Some(group);
                break;
            }
            if changes_it {
                break;
            }
        }
        let group = found.unwrap_or_else(|| {
            self.groups.push(Group {
                kind,
                columns: kind.columns.iter().map(|name| Column::new(name)).collect(),
                keys: HashSet::new(),
            });
            self.groups.len() - 1
        });
        let group = &mut self.groups[group];
        group.keys.insert(key.to_owned());
        for (column, value) in group.columns.iter_mut().zip(values) {
            column.push(value);
        }
    }

    /// Statements with their parameters. `again`: the batch may have been committed before.
    pub fn statements(&self, again: bool) -> Vec<Statement<'_>> {
        let all = self.groups.iter().map(|group| Statement {
            sql: group.sql(again),
            params: [&self.stamp.epoch, &self.stamp.batch, &self.stamp.shard]
                .map(|number| (number as &(dyn ToSql + Sync), Type::INT8))
                .into_iter()
                .chain(group.params())
                .collect(),
        });
        all.collect()
    }

    /// The statements with their values, if each is of a single row.
    pub fn prepared(&self, again: bool) -> Option<Vec<Prepared>> {
        if self.groups.iter().any(|group| group.keys.len() > 1) {
            return None;
        }
        let Stamp {
            shard,
            epoch,
            batch,
        } = self.stamp;
        let all = self.groups.iter().map(|group| {
            let stamp = [epoch, batch, shard].map(|number| Literal::int(Some(number)));
            let values = group
                .columns
                .iter()
                .map(|column| match group.takes_arrays() {
                    true => column.literal().into_array(),
                    false => column.literal(),
                });
            Prepared::new(&group.sql(again), stamp.into_iter().chain(values))
        });
        Some(all.collect())
    }

    /// Query that counts rows which this batch has written, or also a later one, if it has rows of its own.
    pub fn look(&self, by: WrittenBy) -> Option<String> {
        let is_stamped = |group: &&Group| !matches!(group.kind.form, Form::Sql(_));
        let group = self.groups.iter().rev().find(is_stamped)?;
        let key = group.columns.first()?.first()?.replace('\'', "''");
        let column = group.kind.columns[0].trim_end_matches(['$', '#']);
        let Stamp {
            shard,
            epoch,
            batch,
        } = self.stamp;
        let written = match by {
            WrittenBy::It => format!("shard = {shard} AND (epoch, batch) = ({epoch}, {batch})"),
            // A message that another machine has taken was written before.
            WrittenBy::ItOrLater => {
                format!("(shard <> {shard} OR (epoch, batch) >= ({epoch}, {batch}))")
            }
        };
        Some(format!(
            "SELECT count(*) FROM {} WHERE {column} = '{key}' AND {written}",
            group.kind.table
        ))
    }
}

/// Writer of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrittenBy {
    /// The batch.
    It,
    /// The batch or a later one.
    ItOrLater,
}

/// Statement with typed parameters.
pub(crate) struct Statement<'a> {
    pub sql: String,
    pub params: Vec<(&'a (dyn ToSql + Sync), Type)>,
}

impl Value {
    fn size(&self) -> usize {
        match self {
            Value::Int(_) => 16,
            Value::Text(text) => 24 + text.as_ref().map_or(0, String::len),
            Value::Bytes(bytes) => 24 + bytes.as_ref().map_or(0, Vec::len),
        }
    }
}

/// Time at which the transaction began, in milliseconds.
pub(super) const NOW: &str = "(extract(epoch FROM now()) * 1000)::bigint";

impl Group {
    /// Parameters of its statement after the stamp: an array for each column, or the value that all rows have.
    fn params(&self) -> impl Iterator<Item = (&(dyn ToSql + Sync), Type)> {
        (self.columns.iter()).map(|column| match column.is_uniform() && !self.takes_arrays() {
            true => column.value(),
            false => column.array(),
        })
    }

    fn takes_arrays(&self) -> bool {
        matches!(self.kind.form, Form::Stamping(_) | Form::Sql(_))
    }

    /// Statement. A single row needs no arrays, which makes it much cheaper for the server.
    fn sql(&self, again: bool) -> String {
        let Kind { table, form, .. } = self.kind;
        let mut columns: Vec<(&str, String)> = Vec::new();
        let (mut names, mut arrays) = (Vec::new(), Vec::new());
        for (at, (name, column)) in self.kind.columns.iter().zip(&self.columns).enumerate() {
            let (name, param) = (name.trim_end_matches(['$', '#']), format!("${}", at + 4));
            if column.is_uniform() {
                columns.push((name, param));
            } else {
                columns.push((name, format!("u.{name}")));
                names.push(name);
                arrays.push(param);
            }
        }
        let from = match arrays.is_empty() {
            true => String::new(),
            false => format!(
                " FROM unnest({}) AS u({})",
                arrays.join(", "),
                names.join(", ")
            ),
        };
        let insert = || {
            let all: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
            let total = columns.iter().find(|(name, _)| *name == "total_ms");
            let values = columns.iter().map(|(name, value)| match (*name, total) {
                // The clock of a machine that was paused is behind, so the later of the two times counts.
                ("due_ms", Some((_, total))) if !again => {
                    format!(
                        "greatest({value}, {total} + {NOW} - (SELECT clock_ahead_ms FROM fleet WHERE one = 1))"
                    )
                }
                _ => value.clone(),
            });
            format!(
                "INSERT INTO {table} ({}, epoch, batch, shard) SELECT {}, $1, $2, $3{from}",
                all.join(", "),
                values.collect::<Vec<_>>().join(", ")
            )
        };
        match form {
            Form::Stamping(sql) | Form::Sql(sql) => (*sql).to_owned(),
            Form::Insert if again => format!("{} ON CONFLICT DO NOTHING", insert()),
            Form::Insert => insert(),
            Form::Put(key) => {
                let set = columns
                    .iter()
                    .map(|(name, _)| *name)
                    .chain(["epoch", "batch"]);
                let set: Vec<String> = set
                    .map(|name| format!("{name} = excluded.{name}"))
                    .collect();
                format!(
                    "{} ON CONFLICT ({key}) DO UPDATE SET {}",
                    insert(),
                    set.join(", ")
                )
            }
            Form::Update(condition) => {
                let (key, rows) = &columns[0];
                let set = columns[1..].iter();
                let set: Vec<String> = set
                    .map(|(name, value)| format!("{name} = {value}"))
                    .collect();
                format!(
                    "UPDATE {table} AS t SET {}, epoch = $1, batch = $2{from} \
                     WHERE t.{key} = {rows} AND t.shard = $3 AND {condition}",
                    set.join(", ")
                )
            }
        }
    }
}
