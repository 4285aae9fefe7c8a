//! Timestamps in the formats of RFC 3339 and HTTP.

use std::time::UNIX_EPOCH;

const DAY: u64 = 86_400;

/// Unix milliseconds as in RFC 3339, in UTC.
pub fn rfc3339(ms: u64) -> String {
    let (days, rest) = (ms / 1_000 / DAY, ms / 1_000 % DAY);
    let (year, month, day) = date(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        rest / 3_600,
        rest / 60 % 60,
        rest % 60,
        ms % 1_000
    )
}

/// Date such as `2026-11-15`, this many days after 1 January 1970.
pub fn day(days: u64) -> String {
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02}")
}

/// HTTP date (`Sun, 06 Nov 1994 08:49:37 GMT`) in Unix milliseconds.
pub fn http_date(text: &str) -> Option<u64> {
    let time = httpdate::parse_http_date(text).ok()?;
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// Date this many days after 1 January 1970. Years begin in March here, so that the leap day is their last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn timestamps_are_formatted_and_parsed() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_827_696_007), "2000-02-29T12:34:56.007Z");
        assert_eq!(rfc3339(4_102_444_799_999), "2099-12-31T23:59:59.999Z");
        let text = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(http_date(text), Some(784_111_777_000));
        for nonsense in ["", "soon", "Sun, 06 Nov 1994 25:49:37 GMT", "06 Nov 1994"] {
            assert_eq!(http_date(nonsense), None, "{nonsense}");
        }
        for day in (0..40_000).step_by(13) {
            let (year, _, date) = date(day);
            let text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(day * DAY));
            assert!(text.contains(&format!(" {date:02} ")), "{text}");
            assert!(text.contains(&format!(" {year} ")), "{text}");
        }
    }
}
