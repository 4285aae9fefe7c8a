//! Small statements that the server parses and plans once for a connection, which is most of its work for a commit.
//!
//! They are prepared by SQL, under names that are made of their text, so that a name means the same to every daemon: a
//! pooler may give each transaction to another server process, which knows other names. The server says which name it
//! does not know, or knows already, before anything is written, and the transaction is sent again.

use std::collections::HashSet;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

use tokio_postgres::error::SqlState;

use crate::secret;

/// Setting of a transaction of such statements: a plan that was made while a table was small must not read all of it
/// when it is large. So each statement must find its rows by an index; a plan that cannot is compiled, which takes half a
/// second.
pub(super) const PLANNING: &str = "SET LOCAL enable_seqscan = off";

/// Statement with its values as SQL.
pub(super) struct Prepared {
    name: String,
    /// Declaration behind the name: types and text.
    declaration: String,
    /// Values, separated by commas.
    values: String,
}

impl Prepared {
    /// Statement in which `$1`, `$2` … stand for the values.
    pub fn new(sql: &str, values: impl Iterator<Item = Literal>) -> Self {
        let (types, values): (Vec<_>, Vec<_>) = values.map(|of| (of.type_name, of.sql)).unzip();
        let declaration = format!("({}) AS {sql}", types.join(", "));
        let mut hasher = DefaultHasher::new();
        declaration.hash(&mut hasher);
        Prepared {
            name: format!("abide_{:016x}", hasher.finish()),
            declaration,
            values: values.join(", "),
        }
    }

    /// Statement whose values are numbers.
    pub fn with_numbers(sql: &str, numbers: &[i64]) -> Self {
        Prepared::new(
            sql,
            numbers.iter().map(|number| Literal::int(Some(*number))),
        )
    }
}

/// Names that the server process of a connection knows, as far as it has told.
#[derive(Default)]
pub(super) struct KnownNames(HashSet<String>);

impl KnownNames {
    /// SQL that prepares the statements that are not known and executes all of them.
    pub fn sql(&self, statements: &[Prepared]) -> String {
        let mut sql = PLANNING.to_owned();
        let mut declared = HashSet::new();
        for Prepared {
            name,
            declaration,
            values,
        } in statements
        {
            if !self.0.contains(name) && declared.insert(name) {
                let _ = write!(sql, "; PREPARE {name} {declaration}");
            }
            let _ = write!(sql, "; EXECUTE {name}({values})");
        }
        sql
    }

    /// Notes that all of these are known.
    pub fn add(&mut self, statements: &[Prepared]) {
        for statement in statements {
            if !self.0.contains(&statement.name) {
                self.0.insert(statement.name.clone());
            }
        }
    }

    /// Learns from a refusal. Returns whether the transaction can be sent again.
    pub fn learn(&mut self, statements: &[Prepared], code: &SqlState, why: &str) -> bool {
        let mut named = statements.iter().filter(|of| why.contains(&of.name));
        let Some(Prepared { name, .. }) = named.next() else {
            return false;
        };
        if *code == SqlState::INVALID_SQL_STATEMENT_NAME {
            self.0.remove(name)
        } else if *code == SqlState::DUPLICATE_PSTATEMENT {
            self.0.insert(name.clone())
        } else {
            false
        }
    }
}

/// Value as SQL.
pub(super) struct Literal {
    type_name: &'static str,
    sql: String,
}

impl Literal {
    pub fn int(number: Option<i64>) -> Self {
        Literal {
            type_name: "bigint",
            sql: number.map_or_else(null, |number| number.to_string()),
        }
    }

    pub fn text(text: Option<&str>) -> Self {
        Literal {
            type_name: "text",
            sql: text.map_or_else(null, quoted),
        }
    }

    pub fn bytes(bytes: Option<&[u8]>) -> Self {
        let hex = |bytes| format!("E'\\\\x{}'", secret::hex(bytes));
        Literal {
            type_name: "bytea",
            sql: bytes.map_or_else(null, hex),
        }
    }

    /// Array of this value.
    pub fn into_array(self) -> Self {
        let type_name = match self.type_name {
            "bigint" => "bigint[]",
            "text" => "text[]",
            _ => "bytea[]",
        };
        let sql = format!("ARRAY[{}]::{type_name}", self.sql);
        Literal { type_name, sql }
    }
}

fn null() -> String {
    "NULL".to_owned()
}

/// Text as a literal that means the same with every setting of the server.
fn quoted(text: &str) -> String {
    let mut sql = String::with_capacity(text.len() + 3);
    sql.push_str("E'");
    for c in text.chars() {
        match c {
            '\'' => sql.push_str("''"),
            '\\' => sql.push_str("\\\\"),
            // PostgreSQL has no zero bytes in texts.
            '\0' => sql.push('\u{fffd}'),
            c => sql.push(c),
        }
    }
    sql.push('\'');
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer(number: i64, text: &str) -> Prepared {
        let values = [
            Literal::int(Some(number)),
            Literal::text(Some(text)),
            Literal::int(None),
        ];
        Prepared::new("INSERT INTO t SELECT $1, $2, $3", values.into_iter())
    }

    #[test]
    fn statement_is_prepared_until_it_is_known() {
        let mut known = KnownNames::default();
        let both = [timer(1, "a"), timer(2, "b")];
        let name = &both[0].name;
        assert_eq!(
            known.sql(&both),
            format!(
                "{PLANNING}; PREPARE {name} (bigint, text, bigint) AS INSERT INTO t SELECT $1, $2, $3; \
                 EXECUTE {name}(1, E'a', NULL); EXECUTE {name}(2, E'b', NULL)"
            )
        );
        known.add(&both);
        assert_eq!(
            known.sql(&both[..1]),
            format!("{PLANNING}; EXECUTE {name}(1, E'a', NULL)")
        );
    }

    #[test]
    fn refusal_of_a_name_changes_what_is_known() {
        let mut known = KnownNames::default();
        let one = [timer(1, "a")];
        let why = format!("prepared statement \"{}\" …", one[0].name);
        let (missing, there) = (
            SqlState::INVALID_SQL_STATEMENT_NAME,
            SqlState::DUPLICATE_PSTATEMENT,
        );
        assert!(!known.learn(&one, &missing, &why), "it was prepared");
        assert!(known.learn(&one, &there, &why));
        assert!(!known.sql(&one).contains("PREPARE"));
        assert!(known.learn(&one, &missing, &why));
        assert!(known.sql(&one).contains("PREPARE"));
        assert!(!known.learn(&one, &there, "another name"));
        assert!(!known.learn(&one, &SqlState::DIVISION_BY_ZERO, &why));
    }

    #[test]
    fn quotes_and_backslashes_do_not_end_a_literal() {
        assert_eq!(quoted("it's \\'; DROP\0"), "E'it''s \\\\''; DROP\u{fffd}'");
        let bytes = Literal::bytes(Some(&[0, 0x27, 255])).into_array();
        assert_eq!(bytes.sql, "ARRAY[E'\\\\x0027ff']::bytea[]");
    }
}
