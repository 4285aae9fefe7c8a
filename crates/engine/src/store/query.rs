//! Queries that SQLite and PostgreSQL answer alike: each is written once, with `?1`, `?2` … for its parameters, and
//! selects integers, texts and bytes only. A truth value is an integer.

use rusqlite::{Connection, params_from_iter};

use super::StoreFault;
use super::records::Value;

/// Differences between the two databases that show in queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// Condition that a column is in the list of integers that is the first parameter.
    pub fn is_among(self, column: &str) -> String {
        match self {
            Dialect::Sqlite => format!("{column} IN (SELECT value FROM json_each(?1))"),
            Dialect::Postgres => format!("{column} = ANY(?1)"),
        }
    }

    /// `LIKE` that ignores case.
    pub const fn like(self) -> &'static str {
        match self {
            Dialect::Sqlite => "LIKE",
            Dialect::Postgres => "ILIKE",
        }
    }
}

pub(super) trait Columns {
    fn int(&self, at: usize) -> Result<Option<i64>, StoreFault>;
    fn text(&self, at: usize) -> Result<Option<&str>, StoreFault>;
    fn bytes(&self, at: usize) -> Result<Option<&[u8]>, StoreFault>;
}

impl dyn Columns + '_ {
    pub fn opt_u64(&self, at: usize) -> Result<Option<u64>, StoreFault> {
        let negative = |_| StoreFault::Damaged(format!("column {at} is negative"));
        let number = self.int(at)?.map(u64::try_from);
        number.transpose().map_err(negative)
    }

    pub fn u64(&self, at: usize) -> Result<u64, StoreFault> {
        self.opt_u64(at)?.ok_or_else(|| is_null(at))
    }

    pub fn i64(&self, at: usize) -> Result<i64, StoreFault> {
        self.int(at)?.ok_or_else(|| is_null(at))
    }

    pub fn flag(&self, at: usize) -> Result<bool, StoreFault> {
        Ok(self.i64(at)? != 0)
    }

    pub fn str(&self, at: usize) -> Result<&str, StoreFault> {
        self.text(at)?.ok_or_else(|| is_null(at))
    }

    pub fn string(&self, at: usize) -> Result<String, StoreFault> {
        Ok(self.str(at)?.to_owned())
    }

    pub fn opt_string(&self, at: usize) -> Result<Option<String>, StoreFault> {
        Ok(self.text(at)?.map(str::to_owned))
    }
}

fn is_null(at: usize) -> StoreFault {
    StoreFault::Damaged(format!("column {at} has no value"))
}

/// Connection that answers queries.
pub(super) trait Query {
    fn dialect(&self) -> Dialect;

    /// Calls `each` with every row of the result.
    fn for_each(
        &self,
        sql: &str,
        params: &[Value],
        each: &mut dyn FnMut(&dyn Columns) -> Result<(), StoreFault>,
    ) -> Result<(), StoreFault>;
}

impl dyn Query + '_ {
    pub fn rows<T>(
        &self,
        sql: &str,
        params: &[Value],
        mut read: impl FnMut(&dyn Columns) -> Result<T, StoreFault>,
    ) -> Result<Vec<T>, StoreFault> {
        let mut rows = Vec::new();
        self.for_each(sql, params, &mut |row| {
            rows.push(read(row)?);
            Ok(())
        })?;
        Ok(rows)
    }

    pub fn first<T>(
        &self,
        sql: &str,
        params: &[Value],
        read: impl FnMut(&dyn Columns) -> Result<T, StoreFault>,
    ) -> Result<Option<T>, StoreFault> {
        Ok(self.rows(sql, params, read)?.into_iter().next())
    }

    /// The only row, of a query that always has one.
    pub fn one<T>(
        &self,
        sql: &str,
        params: &[Value],
        read: impl FnMut(&dyn Columns) -> Result<T, StoreFault>,
    ) -> Result<T, StoreFault> {
        let row = self.first(sql, params, read)?;
        row.ok_or_else(|| StoreFault::Damaged("a query without a row".into()))
    }
}

impl Query for Connection {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn for_each(
        &self,
        sql: &str,
        params: &[Value],
        each: &mut dyn FnMut(&dyn Columns) -> Result<(), StoreFault>,
    ) -> Result<(), StoreFault> {
        let mut select = self.prepare_cached(sql)?;
        let mut rows = select.query(params_from_iter(params))?;
        while let Some(row) = rows.next()? {
            each(row)?;
        }
        Ok(())
    }
}

impl Columns for rusqlite::Row<'_> {
    fn int(&self, at: usize) -> Result<Option<i64>, StoreFault> {
        Ok(self.get(at)?)
    }

    fn text(&self, at: usize) -> Result<Option<&str>, StoreFault> {
        let cell = self.get_ref(at)?.as_str_or_null();
        cell.map_err(|fault| StoreFault::Damaged(fault.to_string()))
    }

    fn bytes(&self, at: usize) -> Result<Option<&[u8]>, StoreFault> {
        let cell = self.get_ref(at)?.as_blob_or_null();
        cell.map_err(|fault| StoreFault::Damaged(fault.to_string()))
    }
}
