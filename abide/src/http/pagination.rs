//! Query parameters and limits that all lists share.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::problem::Problem;
use crate::tools;

/// Default page size.
const PAGE: usize = 100;
/// Largest page size.
const PAGE_LIMIT: usize = 1_000;

/// Deserializes a number from a query. The error says the accepted range; the caller adds the name of
/// the field.
pub fn count<'de, D: Deserializer<'de>>(given: D) -> Result<Option<usize>, D::Error> {
    let given = String::deserialize(given)?;
    let number = given.parse().map(Some);
    number.map_err(|_| {
        let shown = tools::shown(&given);
        D::Error::custom(format!("it must be 1 to {PAGE_LIMIT}; got {shown}"))
    })
}

/// Deserializes a boolean from a query.
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

/// Checks the page size.
pub fn limit(given: Option<usize>) -> Result<usize, Problem> {
    let limit = given.unwrap_or(PAGE);
    if (1..=PAGE_LIMIT).contains(&limit) {
        return Ok(limit);
    }
    Err(Problem::bad_input(format!(
        "`limit` must be 1 to {PAGE_LIMIT}; got {limit}"
    )))
}

/// Problem for an `after` cursor that no page has returned.
pub fn invalid_cursor(after: &str) -> Problem {
    let shown = tools::shown(after);
    Problem::bad_input(format!(
        "`after` must be the `next` of the page before; got {shown}"
    ))
}

/// Case-insensitive search text.
pub struct SearchText(String);

impl SearchText {
    /// Creates a search text.
    pub fn new(text: &str) -> Self {
        SearchText(text.to_lowercase())
    }

    /// Returns `true` if `other` contains the search text.
    pub fn is_contained_in(&self, other: &str) -> bool {
        other.to_lowercase().contains(&self.0)
    }
}
