//! Parser for whole numbers of the command line, whose errors say which numbers are allowed.

use std::fmt;

/// Text that is no whole number of the allowed range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidNumber {
    min: u64,
    max: u64,
}

impl fmt::Display for InvalidNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (0, u64::MAX) => f.write_str("must be a whole number"),
            (min, u64::MAX) => write!(f, "must be a whole number of at least {min}"),
            (min, max) => write!(f, "must be a whole number from {min} to {max}"),
        }
    }
}

impl std::error::Error for InvalidNumber {}

/// Parses a number from `MIN` to `MAX`. The type must hold `MAX`.
pub fn parse<T, const MIN: u64, const MAX: u64>(text: &str) -> Result<T, InvalidNumber>
where
    T: TryFrom<u64>,
{
    let number = text.trim().parse::<u64>().ok();
    let number = number.filter(|number| (MIN..=MAX).contains(number));
    let fits = number.and_then(|number| T::try_from(number).ok());
    fits.ok_or(InvalidNumber { min: MIN, max: MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_the_range_are_refused_with_the_range() {
        assert_eq!(parse::<u16, 1, 1_000>("20"), Ok(20));
        for text in ["0", "1001", "x", "", "-3", "1.5", "99999999999999999999"] {
            let refused = parse::<u16, 1, 1_000>(text).expect_err(text);
            let said = refused.to_string();
            assert_eq!(said, "must be a whole number from 1 to 1000", "{text}");
        }
        let refused = parse::<u64, 0, { u64::MAX }>("x").expect_err("no number");
        assert_eq!(refused.to_string(), "must be a whole number");
    }
}
