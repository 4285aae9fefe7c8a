//! Numbers of lines that are otherwise equal, column by column.
//!
//! A repetition must not hide the line whose number means something: the one request that took seconds, the
//! one test that returned 0. Such a number differs in a column that is the same in all other lines, or it is
//! much larger or smaller than all others of its column. Dates and times do not count. Only the numbers of digits of the
//! others are known, and the first digits of the first of them, because the fast path does not look at their values.

use std::ops::{Range, RangeInclusive};

/// Lines that a column must have had before a number in it can be an outlier.
const LINES_BEFORE_OUTLIER: u32 = 4;
/// A number with this many more digits than any before it is an outlier.
const MORE_DIGITS: u8 = 2;
/// Lines that a column must have had before an amount in it is too large, or too small. It is if no number with as many
/// digits as those before it is within `FAR` times of it.
const LINES_BEFORE_LARGE: u32 = 12;
const LINES_BEFORE_SMALL: u32 = 50;
const FAR: u64 = 3;
/// Number of lines from which the first digits of a column are learned.
const LINES_LEARNED: u32 = 50;
/// Number of such lines from which on they are like the others.
const FAR_MAX: u8 = 3;
/// Number of digits of the largest amount.
const VALUE_DIGITS: u8 = 9;
/// Maximum number of columns that are looked at.
const COLUMNS_MAX: usize = 8;

/// The numbers of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    count: usize,
    values: [Value; COLUMNS_MAX],
}

/// One number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Value {
    /// Value, or a hash of a number with more than `VALUE_DIGITS`.
    value: u32,
    digits: u8,
    first_digit: u8,
    /// The number is no part of a name, a place or a longer number.
    is_amount: bool,
}

impl Numbers {
    /// Numbers of this line.
    pub fn of(line: &str) -> Self {
        let mut numbers = Numbers::default();
        for range in ranges(line) {
            let before = line[..range.start].bytes().next_back();
            let is_joined = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-/#:@".contains(&byte);
            let digits = &line.as_bytes()[range];
            let value = digits.iter().fold(0, |value: u32, digit| {
                value
                    .wrapping_mul(10)
                    .wrapping_add(u32::from(*digit - b'0'))
            });
            numbers.values[numbers.count] = Value {
                value,
                digits: u8::try_from(digits.len()).unwrap_or(u8::MAX),
                first_digit: digits[0] - b'0',
                is_amount: !before.is_some_and(is_joined),
            };
            numbers.count += 1;
        }
        numbers
    }

    fn values(&self) -> &[Value] {
        &self.values[..self.count]
    }
}

/// First digits of a column in its first lines.
#[derive(Clone, Copy, Default)]
struct FirstDigits {
    /// Number of digits of all of these numbers.
    digits: Option<u8>,
    min: u8,
    max: u8,
    previous: u32,
    /// Each number is at least, or at most, the one before it.
    rises: bool,
    falls: bool,
}

impl FirstDigits {
    fn of(value: &Value) -> Self {
        FirstDigits {
            digits: Some(value.digits),
            min: value.first_digit,
            max: value.first_digit,
            previous: value.value,
            rises: true,
            falls: true,
        }
    }

    fn add(&mut self, value: &Value) {
        self.digits = self.digits.filter(|digits| *digits == value.digits);
        self.min = self.min.min(value.first_digit);
        self.max = self.max.max(value.first_digit);
        self.rises &= self.previous <= value.value;
        self.falls &= self.previous >= value.value;
        self.previous = value.value;
    }

    /// First digits of numbers with so many digits that are within `FAR` times of these numbers. A counter has all.
    fn near(&self, digits: u8) -> RangeInclusive<u8> {
        let is_counter = self.rises || self.falls;
        if digits < 2 || self.digits != Some(digits) || is_counter {
            return 0..=9;
        }
        let far = FAR as u8;
        self.min / far..=(far * (self.max + 1) - 1).min(9)
    }
}

/// Columns of the lines of a repetition.
#[derive(Default)]
pub struct Columns {
    first: Numbers,
    is_constant: [bool; COLUMNS_MAX],
    digits_min: [u8; COLUMNS_MAX],
    digits_max: [u8; COLUMNS_MAX],
    first_digits: [FirstDigits; COLUMNS_MAX],
    lines: u32,
    far: u8,
}

impl Columns {
    /// Returns whether a number of this line is an outlier among the lines before it.
    pub fn has_outlier(&self, line: &Numbers) -> bool {
        if self.lines < LINES_BEFORE_OUTLIER || line.count != self.first.count {
            return false;
        }
        let mut values = line.values().iter().enumerate();
        values.any(|(at, value)| {
            (self.is_constant[at] && self.first.values[at] != *value)
                || value.digits >= self.digits_max[at].saturating_add(MORE_DIGITS)
        })
    }

    /// Returns whether an amount of this line is much larger or smaller than those before it, or the line has more or
    /// fewer numbers, such as a whole number among decimal ones.
    pub fn is_far(&self, line: &Numbers) -> bool {
        if line.count != self.first.count {
            return self.lines >= LINES_BEFORE_LARGE && self.far < FAR_MAX;
        }
        let power = |digits: u8| 10_u64.checked_pow(digits.into()).unwrap_or(u64::MAX);
        let is_far = |(at, value): (usize, &Value)| {
            let (min, max) = (self.digits_min[at], self.digits_max[at]);
            let amount = u64::from(value.value);
            let is_large = self.lines >= LINES_BEFORE_LARGE
                && value.digits > max
                && amount >= power(max).saturating_mul(FAR);
            let is_small = self.lines >= LINES_BEFORE_SMALL
                && value.digits < min
                && amount * FAR <= power(min - 1);
            let is_near = self.near(at, value).contains(&value.first_digit);
            value.is_amount && value.digits <= VALUE_DIGITS && (is_large || is_small || !is_near)
        };
        line.values().iter().enumerate().any(is_far)
    }

    /// First digits with which a number of this column is not far from the others.
    fn near(&self, at: usize, value: &Value) -> RangeInclusive<u8> {
        let is_judged = value.is_amount && value.digits <= VALUE_DIGITS;
        match is_judged && self.has_learned() && self.far < FAR_MAX {
            true => self.first_digits[at].near(value.digits),
            false => 0..=9,
        }
    }

    /// Returns whether the first digits of later lines change nothing.
    pub fn has_learned(&self) -> bool {
        self.lines >= LINES_LEARNED
    }

    /// Counts a line with an amount that is far from the others.
    pub fn add_far(&mut self, line: &Numbers) {
        self.far = self.far.saturating_add(1);
        if self.far >= FAR_MAX {
            self.add(line);
        }
    }

    /// Counts lines with numbers that have as many digits as those of a line that was added.
    pub fn add_alike(&mut self, lines: u64) {
        let lines = u32::try_from(lines).unwrap_or(u32::MAX);
        self.lines = self.lines.saturating_add(lines);
    }

    /// Counts a line.
    pub fn add(&mut self, line: &Numbers) {
        if self.lines == 0 {
            self.first = line.clone();
            self.is_constant = [true; COLUMNS_MAX];
            self.digits_min = [u8::MAX; COLUMNS_MAX];
            self.first_digits = line.values.each_ref().map(FirstDigits::of);
        }
        let learns = !self.has_learned();
        self.add_alike(1);
        if line.count != self.first.count {
            return;
        }
        for (at, value) in line.values().iter().enumerate() {
            self.is_constant[at] &= self.first.values[at] == *value;
            self.digits_min[at] = self.digits_min[at].min(value.digits);
            self.digits_max[at] = self.digits_max[at].max(value.digits);
            if learns {
                self.first_digits[at].add(value);
            }
        }
    }

    /// Bytes of the numbers of `line` that are not any digit: those of numbers that were the same in all lines so far, and
    /// the first digits of the others.
    pub fn bounds(&self, line: &str) -> Vec<(usize, RangeInclusive<u8>)> {
        let numbers = Numbers::of(line);
        if numbers.count != self.first.count {
            return Vec::new();
        }
        let mut bounds = Vec::new();
        for (at, range) in ranges(line).enumerate() {
            if self.is_constant[at] {
                bounds.extend(
                    range.map(|byte| (byte, line.as_bytes()[byte]..=line.as_bytes()[byte])),
                );
            } else {
                let near = self.near(at, &numbers.values[at]);
                bounds.push((range.start, b'0' + near.start()..=b'0' + near.end()));
            }
        }
        bounds
    }
}

/// Returns whether one of these lines has a number that is much longer than all others, or differs where at least
/// two thirds of the lines agree.
pub fn any_outlier<'a>(lines: impl Iterator<Item = &'a Numbers> + Clone) -> bool {
    let Some(first) = lines.clone().next() else {
        return false;
    };
    let count = lines.clone().count();
    if count < 3 || lines.clone().any(|line| line.count != first.count) {
        return false;
    }
    (0..first.count).any(|at| {
        let column = lines.clone().map(|line| line.values[at]);
        let (mut longest, mut second) = (0, 0);
        // The only value that most lines can agree on.
        let (mut usual, mut votes) = (Value::default(), 0);
        for value in column.clone() {
            if value.digits > longest {
                (longest, second) = (value.digits, longest);
            } else {
                second = second.max(value.digits);
            }
            match (votes, value == usual) {
                (0, _) => (usual, votes) = (value, 1),
                (_, true) => votes += 1,
                (_, false) => votes -= 1,
            }
        }
        let agree = column.filter(|value| *value == usual).count();
        longest >= second.saturating_add(MORE_DIGITS) || (agree < count && agree * 3 >= count * 2)
    })
}

/// Byte ranges of the numbers of a line, without those of dates, times and identifiers.
fn ranges(line: &str) -> impl Iterator<Item = Range<usize>> {
    let bytes = line.as_bytes();
    let mut at = 0;
    let mut end = 0;
    let next = move || {
        while at < bytes.len() {
            if at >= end {
                if CLASS[usize::from(bytes[at])] == 0 {
                    at += 1;
                    continue;
                }
                let has_numbers;
                (end, has_numbers) = token(bytes, at);
                if !has_numbers {
                    at = end;
                    continue;
                }
            }
            let start = at;
            while at < end && bytes[at].is_ascii_digit() {
                at += 1;
            }
            if at > start {
                return Some(start..at);
            }
            at += 1;
        }
        None
    };
    std::iter::from_fn(next).take(COLUMNS_MAX)
}

const OTHER: u8 = 1;
const DIGIT: u8 = 2;
const HEX: u8 = 4;
const COLON: u8 = 8;
const DASH: u8 = 16;

/// Class of a byte in a token; 0 if it is not part of one.
const CLASS: [u8; 256] = {
    let mut class = [0; 256];
    let mut byte = 0;
    while byte < 128 {
        class[byte] = match byte as u8 {
            b'0'..=b'9' => DIGIT | HEX,
            b'a'..=b'f' | b'A'..=b'F' => HEX,
            b'-' => DASH | HEX,
            b':' => COLON,
            b'g'..=b'z' | b'G'..=b'Z' | b'.' => OTHER,
            _ => 0,
        };
        byte += 1;
    }
    class
};

/// End of the token that begins at `start`, and whether it has numbers: it is no date, no time and no hexadecimal id.
fn token(bytes: &[u8], start: usize) -> (usize, bool) {
    let (mut digits, mut colons, mut dashes, mut common) = (0, 0, 0, HEX);
    let mut end = start;
    while let Some(byte) = bytes.get(end)
        && CLASS[usize::from(*byte)] != 0
    {
        let class = CLASS[usize::from(*byte)];
        digits += usize::from(class & DIGIT != 0);
        colons += usize::from(class & COLON != 0);
        dashes += usize::from(class & DASH != 0);
        common &= class;
        end += 1;
    }
    let length = end - start;
    let is_id = common == HEX && digits < length && length >= 4;
    let is_time_or_id = colons >= 2 || dashes >= 2 || bytes[start..].starts_with(b"0x") || is_id;
    (end, digits > 0 && !is_time_or_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<&str> {
        ranges(line).map(|range| &line[range]).collect()
    }

    fn columns(lines: impl Iterator<Item = String>) -> Columns {
        let mut columns = Columns::default();
        lines.for_each(|line| columns.add(&Numbers::of(&line)));
        columns
    }

    #[test]
    fn numbers_without_times_and_ids() {
        assert_eq!(texts("GET /a 200 in 12.5ms"), ["200", "12", "5"]);
        assert_eq!(texts("2026-05-01T10:00:01Z worker3 ok"), ["3"]);
        assert_eq!(texts("id 00ab12ff-e89b-12d3 0xff 7"), ["7"]);
        assert!(texts("12:00:01 tick").is_empty());
    }

    #[test]
    fn number_that_differs_in_a_constant_column_is_an_outlier() {
        let columns = columns((1..9).map(|n| format!("test_{n} returned 1")));
        assert!(columns.has_outlier(&Numbers::of("test_9 returned 0")));
        assert!(!columns.has_outlier(&Numbers::of("test_9 returned 1")));
    }

    #[test]
    fn number_that_is_much_longer_is_an_outlier() {
        let columns = columns((1..9).map(|n| format!("request {n} took {n} ms")));
        assert!(columns.has_outlier(&Numbers::of("request 9 took 5000 ms")));
        assert!(!columns.has_outlier(&Numbers::of("request 10 took 12 ms")));
    }

    #[test]
    fn amount_that_is_much_larger_or_smaller_is_far() {
        let columns = columns((0..60).map(|n| format!("{n} queue7 depth {}", 10 + n % 11)));
        for (depth, is_far) in [
            (985, true),
            (300, true),
            (99, true),
            (89, false),
            (0, true),
            (8, false),
        ] {
            let line = Numbers::of(&format!("60 queue7 depth {depth}"));
            assert_eq!(columns.is_far(&line), is_far, "{depth}");
        }
        assert!(!columns.is_far(&Numbers::of("60 queue700 depth 10")));
    }

    #[test]
    fn amount_with_as_many_digits_can_be_far() {
        let near = columns((0..60).map(|n| format!("{n} took {}.5 s", 12 + n * 7 % 5)));
        for (amount, is_far) in [
            ("87.5", true),
            ("60.5", true),
            ("59.5", false),
            ("14", true),
        ] {
            let line = Numbers::of(&format!("60 took {amount} s"));
            assert_eq!(near.is_far(&line), is_far, "{amount}");
        }
        let counter = columns((0..60).map(|n| format!("line {} is read", 10_000 + n)));
        assert!(!counter.is_far(&Numbers::of("line 90000 is read")));
    }

    #[test]
    fn one_of_some_lines_differs() {
        let line = |n: u32| Numbers::of(&format!("test_case_{n} {}", u32::from(n != 3)));
        let lines: Vec<_> = (1..9).map(line).collect();
        assert!(any_outlier(lines.iter()));
        assert!(!any_outlier(lines[3..].iter()));
    }
}
