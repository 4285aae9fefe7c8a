//! Numbers of lines that are otherwise equal, column by column.
//!
//! A repetition must not hide the line whose number means something: the one request that took seconds, the
//! one test that returned 0. Such a number differs in a column that is the same in all other lines, is much longer than
//! all others, or is an amount far outside the range of the others. Dates and times do not count, nor do amounts that grow
//! from line to line. The range is learned from the first lines, because the fast path does not look at values.

use std::ops::{Range, RangeInclusive};

/// Lines that a column must have had before a number in it can be an outlier.
const LINES_BEFORE_OUTLIER: u32 = 4;
/// A number with this many more digits than any before it is an outlier.
const MORE_DIGITS: u8 = 2;
/// Lines that a column must have had before an amount in it can be far from the others.
pub const LINES_BEFORE_FAR: u32 = 12;
/// An amount is far from the others if its distance to them is more than so many times the width of their range, more
/// than this part of the largest of them, and of whole numbers more than `FAR_WHOLE`.
const FAR_WIDTHS: f64 = 1.5;
const FAR_PART: f64 = 0.25;
const FAR_WHOLE: f64 = 3.;
/// So is an amount that is so many times smaller than others that are at least `LARGE`, or `MAGNITUDE` times if these differ
/// as much.
const FAR_TIMES: f64 = 3.;
const MAGNITUDE: f64 = 10.;
const LARGE: f64 = 5.;
/// Number of lines from which the amounts of a column are learned.
const LINES_LEARNED: u32 = 50;
/// Number of amounts far from the others from which on they belong to the range.
const FAR_MAX: u8 = 3;
/// Maximum number of digits of an amount.
const AMOUNT_DIGITS: usize = 12;
/// Maximum number of columns that are looked at.
const COLUMNS_MAX: usize = 8;

/// The numbers of a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers {
    count: usize,
    values: [Value; COLUMNS_MAX],
}

/// One number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Value {
    /// Hash of its digits.
    hash: u32,
    /// Number of digits before the point.
    digits: u8,
    is_whole: bool,
    /// Value, if the amount is no part of a name, a place or a longer number.
    amount: Option<f64>,
}

impl Numbers {
    /// Numbers of this line.
    pub fn of(line: &str) -> Self {
        let mut numbers = Numbers::default();
        for range in ranges(line) {
            numbers.values[numbers.count] = Value::of(line.as_bytes(), range);
            numbers.count += 1;
        }
        numbers
    }

    fn values(&self) -> &[Value] {
        &self.values[..self.count]
    }
}

impl Value {
    fn of(line: &[u8], range: Range<usize>) -> Self {
        let number = &line[range.clone()];
        let point = number.iter().position(|byte| *byte == b'.');
        let hash = number.iter().fold(0, |hash: u32, byte| {
            hash.wrapping_mul(31).wrapping_add(u32::from(*byte))
        });
        let before = range.start.checked_sub(1).map(|at| line[at]);
        let is_joined = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-/#:@".contains(&byte);
        let is_address = line.get(range.end) == Some(&b'.')
            && line.get(range.end + 1).is_some_and(u8::is_ascii_digit);
        let is_amount =
            !before.is_some_and(is_joined) && !is_address && number.len() <= AMOUNT_DIGITS;
        Value {
            hash,
            digits: u8::try_from(point.unwrap_or(number.len())).unwrap_or(u8::MAX),
            is_whole: point.is_none(),
            amount: is_amount.then(|| amount(number)),
        }
    }
}

/// Value of the digits of a number, with or without a point.
fn amount(number: &[u8]) -> f64 {
    let digits = number.iter().filter(|byte| **byte != b'.');
    let value = digits.fold(0_u64, |value, digit| value * 10 + u64::from(*digit - b'0'));
    let decimals = number.iter().rev().position(|byte| *byte == b'.');
    value as f64 / 10_f64.powi(i32::try_from(decimals.unwrap_or(0)).unwrap_or(0))
}

/// Smallest and largest of some amounts.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    pub min: f64,
    pub max: f64,
}

impl Default for Interval {
    fn default() -> Self {
        Interval {
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
        }
    }
}

impl Interval {
    fn add(&mut self, amount: f64) {
        self.min = self.min.min(amount);
        self.max = self.max.max(amount);
    }

    /// Amounts that are not far from these.
    pub fn usual(self, is_whole: bool) -> Interval {
        let Interval { min, max } = self;
        let whole = if is_whole { FAR_WHOLE } else { 0. };
        let far = (FAR_WIDTHS * (max - min))
            .max(FAR_PART * max.abs())
            .max(whole);
        let times = match max <= FAR_TIMES * min {
            true => FAR_TIMES,
            false => MAGNITUDE,
        };
        let small = match min >= LARGE {
            true => min / times,
            false => f64::NEG_INFINITY,
        };
        Interval {
            min: small.max(min - far),
            max: max + far,
        }
    }

    /// Interval between whole first digits, if the amounts that it was made of have several. So the fast path can judge by the
    /// first digit of a number.
    fn rounded(self, amounts: Interval) -> Interval {
        let unit = 10_f64.powf(amounts.max.log10().floor());
        let first = |amount: f64| (amount / unit).floor();
        if amounts.min < unit || first(amounts.min) >= first(amounts.max) {
            return self;
        }
        let min = match self.min >= unit {
            true => first(self.min) * unit,
            false => self.min,
        };
        Interval {
            min,
            max: ((first(self.max) + 1.) * unit).next_down(),
        }
    }

    pub fn contains(self, amount: f64) -> bool {
        (self.min..=self.max).contains(&amount)
    }
}

/// Amounts of a column in its first lines.
#[derive(Clone, Copy, Default)]
struct Amounts {
    early: Interval,
    late: Interval,
    previous: Option<f64>,
    /// An amount is less, or more, than the one before it.
    has_fallen: bool,
    has_risen: bool,
}

impl Amounts {
    fn add(&mut self, amount: f64, is_early: bool) {
        let previous = self.previous.replace(amount).unwrap_or(amount);
        self.has_fallen |= amount < previous;
        self.has_risen |= amount > previous;
        match is_early {
            true => self.early.add(amount),
            false => self.late.add(amount),
        }
    }

    fn all(&self) -> Interval {
        Interval {
            min: self.early.min.min(self.late.min),
            max: self.early.max.max(self.late.max),
        }
    }

    /// Returns whether no amount is less, or none more, than the one before it.
    fn is_sorted(&self) -> bool {
        !(self.has_fallen && self.has_risen)
    }

    /// Returns whether the later amounts are all larger, or all smaller, than the middle of the earlier ones.
    fn has_moved(&self) -> bool {
        let middle = f64::midpoint(self.early.min, self.early.max);
        self.late.min > middle || self.late.max < middle
    }
}

/// Columns of the lines of a repetition.
#[derive(Default)]
pub struct Columns {
    first: Numbers,
    is_constant: [bool; COLUMNS_MAX],
    digits_max: [u8; COLUMNS_MAX],
    amounts: [Amounts; COLUMNS_MAX],
    lines: u32,
    far: u8,
    /// Result of `usual_now` for each column, once the amounts are learned.
    learned: Option<[Option<Interval>; COLUMNS_MAX]>,
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

    /// Returns whether an amount of this line is far from those before it, or a number has another form: there are more
    /// or fewer of them, or a whole number is among decimal ones.
    pub fn is_far(&self, line: &Numbers) -> bool {
        if self.lines < LINES_BEFORE_FAR {
            return false;
        }
        let values = || line.values().iter().enumerate();
        let has_its_form = |(at, value): (usize, &Value)| {
            let known = &self.first.values[at];
            known.amount.is_none() || value.is_whole == known.is_whole
        };
        if line.count != self.first.count || !values().all(has_its_form) {
            return self.far < FAR_MAX;
        }
        let is_far = |(at, value): (usize, &Value)| match (self.usual(at), value.amount) {
            (Some(usual), Some(amount)) => !usual.contains(amount),
            _ => false,
        };
        values().any(is_far)
    }

    /// Amounts that are not far from the others of a column. All are, if they are no amounts or grow from line to line.
    fn usual(&self, at: usize) -> Option<Interval> {
        match &self.learned {
            Some(learned) => learned[at],
            None => self.usual_now(at),
        }
    }

    fn usual_now(&self, at: usize) -> Option<Interval> {
        let first = &self.first.values[at];
        let amounts = &self.amounts[at];
        let is_judged = first.amount.is_some() && !self.is_counter(at);
        let all = amounts.all();
        is_judged.then(|| all.usual(first.is_whole).rounded(all))
    }

    /// Returns whether its numbers say nothing that the first and the last line do not say: they are all equal, or
    /// count from line to line.
    pub fn only_count(&self) -> bool {
        (0..self.first.count).all(|at| self.is_counter(at))
    }

    /// Returns whether the amounts of a column grow, or shrink, from line to line, or nearly so.
    fn is_counter(&self, at: usize) -> bool {
        let amounts = &self.amounts[at];
        amounts.is_sorted() || (self.has_learned() && amounts.has_moved())
    }

    /// Returns whether the amounts of later lines change nothing.
    pub fn has_learned(&self) -> bool {
        self.lines >= LINES_LEARNED
    }

    /// Counts a line with an amount that is far from the others.
    pub fn add_far(&mut self, line: &Numbers) {
        self.far = self.far.saturating_add(1);
        if self.far >= FAR_MAX {
            self.learn(line);
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
        }
        if !self.has_learned() {
            self.learn(line);
        }
        self.add_alike(1);
        if self.has_learned() && self.learned.is_none() {
            self.learned = Some(std::array::from_fn(|at| self.usual_now(at)));
        }
        if line.count != self.first.count {
            return;
        }
        for (at, value) in line.values().iter().enumerate() {
            self.is_constant[at] &= self.first.values[at] == *value;
            self.digits_max[at] = self.digits_max[at].max(value.digits);
        }
    }

    /// Adds the amounts of a line to those of the columns.
    fn learn(&mut self, line: &Numbers) {
        let is_early = self.lines < LINES_LEARNED / 2;
        if line.count == self.first.count {
            for (amounts, value) in self.amounts.iter_mut().zip(line.values()) {
                if let Some(amount) = value.amount {
                    amounts.add(amount, is_early);
                }
            }
        }
        self.learned = None;
    }

    /// Bytes of the numbers of `line` that are not any digit: those of numbers that were the same in all lines so far, and
    /// the first digits of amounts, so that the others can be any digit.
    pub fn bounds(&self, line: &str) -> Vec<(usize, RangeInclusive<u8>)> {
        let numbers = Numbers::of(line);
        if numbers.count != self.first.count {
            return Vec::new();
        }
        let mut bounds = Vec::new();
        for (at, range) in ranges(line).enumerate() {
            let number = &line.as_bytes()[range.clone()];
            let usual = self
                .usual(at)
                .filter(|_| numbers.values[at].amount.is_some());
            let bounded = match usual {
                _ if self.is_constant[at] => number.iter().map(|byte| *byte..=*byte).collect(),
                Some(usual) => bounds_of(number, usual),
                None => Vec::new(),
            };
            bounds.extend((range.start..).zip(bounded));
        }
        bounds
    }
}

/// Bytes that the first digits of a number can be, so that it is in an interval whatever the others are.
fn bounds_of(number: &[u8], interval: Interval) -> Vec<RangeInclusive<u8>> {
    let mut bounds = Vec::new();
    for (at, byte) in number.iter().enumerate() {
        if *byte != b'.' {
            let with = |digit: u8, rest: u8| {
                let rest = number[at + 1..].iter().map(|byte| match byte {
                    b'.' => b'.',
                    _ => rest,
                });
                let all: Vec<u8> = (number[..at].iter().copied())
                    .chain([digit])
                    .chain(rest)
                    .collect();
                interval.contains(amount(&all))
            };
            let fits = |digit: u8| with(digit, b'0') && with(digit, b'9');
            if fits(*byte) {
                let low = (b'0'..=*byte).rev().take_while(|digit| fits(*digit)).last();
                let high = (*byte..=b'9').take_while(|digit| fits(*digit)).last();
                bounds.push(low.unwrap_or(*byte)..=high.unwrap_or(*byte));
                break;
            }
        }
        bounds.push(*byte..=*byte);
    }
    bounds
}

/// Returns whether one of these lines has a number that is much longer than all others, differs where at least
/// two thirds of the lines agree, or is far from the others.
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
        let agree = column.clone().filter(|value| *value == usual).count();
        longest >= second.saturating_add(MORE_DIGITS)
            || (agree < count && agree * 3 >= count * 2)
            || (count >= LINES_BEFORE_FAR as usize && has_far_amount(column))
    })
}

/// Returns whether the largest or the smallest amount of a column is far from the others.
fn has_far_amount(column: impl Iterator<Item = Value> + Clone) -> bool {
    let is_whole = column.clone().all(|value| value.is_whole);
    let mut sorted: Vec<f64> = column.filter_map(|value| value.amount).collect();
    if sorted.is_sorted() || sorted.iter().rev().is_sorted() {
        return false;
    }
    sorted.sort_unstable_by(f64::total_cmp);
    let [min, second, .., last, max] = sorted[..] else {
        return false;
    };
    let of = |min, max| Interval { min, max }.usual(is_whole);
    !of(min, last).contains(max) || !of(second, max).contains(min)
}

/// Byte ranges of the numbers of a line, with their decimals, without those of dates, times and identifiers.
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
            at = digits_end(bytes, start);
            if at > start {
                let decimals = decimals_end(bytes, at);
                let is_first = start == 0 || bytes[start - 1] != b'.';
                if is_first && decimals_end(bytes, decimals) == decimals {
                    at = decimals;
                }
                return Some(start..at);
            }
            at += 1;
        }
        None
    };
    std::iter::from_fn(next).take(COLUMNS_MAX)
}

fn digits_end(bytes: &[u8], at: usize) -> usize {
    let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit());
    at + digits.count()
}

/// End of the point and the digits behind it that begin at `at`, or `at`.
fn decimals_end(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at..) {
        Some([b'.', digit, ..]) if digit.is_ascii_digit() => digits_end(bytes, at + 1),
        _ => at,
    }
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
        assert_eq!(texts("GET /a 200 in 12.5ms"), ["200", "12.5"]);
        assert_eq!(
            texts("v1.2.3 of 10.0.0.1"),
            ["1", "2", "3", "10", "0", "0", "1"]
        );
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
            (40, true),
            (39, false),
            (0, true),
            (3, true),
            (4, false),
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
            ("22.6", true),
            ("22.5", false),
            ("6.6", false),
            ("6.4", true),
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
