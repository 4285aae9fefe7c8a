//! Parser for durations such as `60s`, `1m30s` and `2h`; bare numbers are seconds.

use abide_core::Millis;

/// Limit on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurationLimit {
    /// No limit.
    Never,
    /// Limit of this duration.
    After(Millis),
}

impl DurationLimit {
    /// Limit in seconds, if there is one.
    pub fn seconds(self) -> Option<f64> {
        match self {
            DurationLimit::Never => None,
            DurationLimit::After(duration) => Some(duration.as_secs_f64()),
        }
    }
}

impl std::fmt::Display for DurationLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DurationLimit::Never => f.write_str("never"),
            DurationLimit::After(duration) => duration.fmt(f),
        }
    }
}

/// Text that is no duration, or none of the allowed length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDuration {
    #[error("not a duration; write it as 60s, 1m30s, 2h, 3d, or as a number of seconds")]
    Unreadable,
    #[error("must be greater than zero")]
    Zero,
    #[error("must be at most 100 years")]
    TooLong,
}

/// Text that is neither a duration nor `never`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}, or `never` for no limit")]
pub struct InvalidLimit(InvalidDuration);

/// Parses a duration greater than zero.
pub fn parse(text: &str) -> Result<Millis, InvalidDuration> {
    match parse_units(text.trim()).ok_or(InvalidDuration::Unreadable)? {
        Millis(0) => Err(InvalidDuration::Zero),
        duration if duration > Millis::MAX => Err(InvalidDuration::TooLong),
        duration => Ok(duration),
    }
}

/// Parses a duration or `never`.
pub fn parse_limit(text: &str) -> Result<DurationLimit, InvalidLimit> {
    match text.trim() {
        "never" => Ok(DurationLimit::Never),
        text => parse(text).map(DurationLimit::After).map_err(InvalidLimit),
    }
}

fn parse_units(text: &str) -> Option<Millis> {
    if let Ok(seconds) = text.parse::<f64>()
        && !text.contains(['e', 'E', 'n', 'i'])
    {
        return millis(seconds, 1_000.0);
    }
    let mut rest = text;
    let mut total = 0u64;
    let mut largest = f64::INFINITY;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let letters = after
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let unit = match unit {
            "ms" => 1.0,
            "s" => 1_000.0,
            "m" => 60_000.0,
            "h" => 3_600_000.0,
            "d" => 86_400_000.0,
            "w" => 7.0 * 86_400_000.0,
            "y" => 365.0 * 86_400_000.0,
            _ => return None,
        };
        // Units must decrease: `30s1m` is probably a typing error.
        if unit >= largest {
            return None;
        }
        largest = unit;
        total = total.checked_add(millis(number.parse().ok()?, unit)?.0)?;
        rest = after;
    }
    (!text.is_empty()).then_some(Millis(total))
}

fn millis(number: f64, unit: f64) -> Option<Millis> {
    let millis = number * unit;
    (millis.is_finite() && (0.0..1e18).contains(&millis)).then(|| Millis(millis.ceil() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_with_units_parse() {
        for (text, millis) in [
            ("60s", 60_000),
            ("1m30s", 90_000),
            ("100", 100_000),
            ("2h", 7_200_000),
            ("1.5", 1_500),
            ("0.2s", 200),
            ("250ms", 250),
            ("1d2h3m4s5ms", 93_784_005),
            ("2w", 1_209_600_000),
            ("1y1d", 31_622_400_000),
            ("100y", 3_153_600_000_000),
        ] {
            assert_eq!(parse(text), Ok(Millis(millis)), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_refused() {
        for text in [
            "",
            "s",
            "1x",
            "30s1m",
            "1m1m",
            "-5",
            "0",
            "0s",
            "1e9",
            "inf",
            "nan",
            "5 s",
            "1..5s",
            "101d9999999999h",
            "101y",
            "1d1w",
            "99999999999999999999",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn limit_accepts_never() {
        assert_eq!(parse_limit("never"), Ok(DurationLimit::Never));
        // Zero could mean at once or never.
        assert!(parse_limit("0").is_err_and(|why| why.to_string().contains("`never`")));
        assert_eq!(parse_limit("5s"), Ok(DurationLimit::After(Millis(5_000))));
        assert!(parse_limit("soon").is_err());
    }
}
