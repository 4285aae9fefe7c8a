//! What all lists have in common.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::problem::Problem;
use crate::tools;

/// Things in one page of a list where the request names no limit.
const PAGE: usize = 100;
/// The most it may name.
const PAGE_LIMIT: usize = 1_000;

/// Reads a number of a query. What is none is told with what it should have been: the sentence around
/// it names the field.
pub fn count<'de, D: Deserializer<'de>>(given: D) -> Result<Option<usize>, D::Error> {
    let given = String::deserialize(given)?;
    let number = given.parse().map(Some);
    number.map_err(|_| {
        let shown = tools::shown(&given);
        D::Error::custom(format!("it must be 1 to {PAGE_LIMIT}; got {shown}"))
    })
}

/// Reads a yes or no of a query.
pub fn flag<'de, D: Deserializer<'de>>(given: D) -> Result<bool, D::Error> {
    let given = String::deserialize(given)?;
    match given.as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => {
            let shown = tools::shown(&given);
            Err(D::Error::custom(format!(
                "it must be true or false; got {shown}"
            )))
        }
    }
}

/// How many things a page may hold.
pub fn limit(given: Option<usize>) -> Result<usize, Problem> {
    let limit = given.unwrap_or(PAGE);
    if (1..=PAGE_LIMIT).contains(&limit) {
        return Ok(limit);
    }
    Err(Problem::bad_input(format!(
        "`limit` must be 1 to {PAGE_LIMIT}; got {limit}"
    )))
}

/// What is said of an `after` that no page before has told.
pub fn no_place(after: &str) -> Problem {
    let shown = tools::shown(after);
    Problem::bad_input(format!(
        "`after` must be the `next` of the page before; got {shown}"
    ))
}

/// A text that is looked for, large and small letters alike.
pub struct Text(String);

impl Text {
    /// This one.
    pub fn new(text: &str) -> Self {
        Text(text.to_lowercase())
    }

    /// Whether another text holds it.
    pub fn is_in(&self, other: &str) -> bool {
        other.to_lowercase().contains(&self.0)
    }
}
