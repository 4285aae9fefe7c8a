//! What all lists have in common.

use super::problem::Problem;

/// Things in one page of a list where the request names no limit.
const PAGE: usize = 100;
/// The most it may name.
const PAGE_LIMIT: usize = 1_000;

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
