//! Numbers of lines that are otherwise equal, column by column.
//!
//! A repetition must not hide the line whose number means something: the one request that took seconds, the
//! one test that returned 0. Such a number differs in a column that is the same in all other lines, is much longer than
//! all others, or is an amount far outside the range of the others and far from the one before it. Dates and times do not
//! count if they only rise. The range is learned from the first lines, and widened by amounts that drift out of it and by
//! those that are often far outside.

use std::ops::Range;

use super::repeat_fast_path::Bounds;

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
/// Lines with amounts far from the others are usual if so many come in a row, or if there are so many of them and they are
/// more than one of `FAR_EACH` lines.
const FAR_USUAL: u32 = 8;
const FAR_EACH: u32 = 20;
/// Maximum number of digits of an amount.
const AMOUNT_DIGITS: usize = 12;
/// Maximum number of columns that are looked at.
const COLUMNS_MAX: usize = 10;
/// Dates that are not further apart than about a month are near each other, as a difference of their digits.
const FAR_DATE: f64 = 100.;
/// In place of the hash of the second number of a ratio whose numbers are equal, such as `3/3`.
const COMPLETE: u32 = 1;

/// The numbers of a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Numbers {
    count: usize,
    values: [Value; COLUMNS_MAX],
}

/// One number, time or date.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Value {
    /// Hash of its digits.
    hash: u32,
    /// Number of digits before the point.
    digits: u8,
    form: Form,
    /// Value, if the amount is no part of a name, a place or a longer number. That of a time or a date is the number made of
    /// its digits.
    amount: Option<f64>,
}

/// Form of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    #[default]
    Whole,
    Decimal,
    /// Time or duration, such as `0:12:01`.
    Time,
    /// Date, such as `2026-05-01`.
    Date,
}

impl Form {
    fn of(number: &[u8]) -> Self {
        match number.iter().find(|byte| !byte.is_ascii_digit()) {
            None => Form::Whole,
            Some(b':') => Form::Time,
            Some(b'-') => Form::Date,
            Some(_) => Form::Decimal,
        }
    }

    fn is_number(self) -> bool {
        matches!(self, Form::Whole | Form::Decimal)
    }
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

    /// Amounts of another line, with their columns, where this line has amounts too.
    fn judged<'a>(&'a self, other: &'a Numbers) -> impl Iterator<Item = (usize, f64)> + 'a {
        let pairs = self.values.iter().zip(other.values()).enumerate();
        pairs.filter_map(|(at, (value, other))| Some((at, value.amount.and(other.amount)?)))
    }
}

impl Value {
    fn of(line: &[u8], range: Range<usize>) -> Self {
        let number = &line[range.clone()];
        let form = Form::of(number);
        if let [.., b'/'] = line[..range.start]
            && line[..range.start - 1].ends_with(number)
        {
            return Value {
                hash: COMPLETE,
                digits: 1,
                ..Value::default()
            };
        }
        let point = number.iter().position(|byte| *byte == b'.');
        let hash = number.iter().fold(0, |hash: u32, byte| {
            hash.wrapping_mul(31).wrapping_add(u32::from(*byte))
        });
        let before = range.start.checked_sub(1).map(|at| line[at]);
        let is_joined = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-/#:@".contains(&byte);
        let is_address = form.is_number()
            && line.get(range.end) == Some(&b'.')
            && line.get(range.end + 1).is_some_and(u8::is_ascii_digit);
        let is_amount =
            !before.is_some_and(is_joined) && !is_address && number.len() <= AMOUNT_DIGITS;
        Value {
            hash,
            digits: u8::try_from(point.unwrap_or(number.len())).unwrap_or(u8::MAX),
            form,
            amount: is_amount.then(|| amount(number)),
        }
    }
}

/// Value of the digits of a number, with or without a point.
fn amount(number: &[u8]) -> f64 {
    let digits = number.iter().filter(|byte| byte.is_ascii_digit());
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
    pub fn usual(self, form: Form) -> Interval {
        self.around(self, form)
    }

    /// Amounts that are not far from those of `center`, in a column whose amounts are in this interval.
    fn around(self, center: Interval, form: Form) -> Interval {
        let Interval { min, max } = self;
        let part = FAR_PART * max.abs();
        let least = match form {
            Form::Decimal => part,
            Form::Whole | Form::Time => part.max(FAR_WHOLE),
            Form::Date => FAR_DATE,
        };
        let far = (FAR_WIDTHS * (max - min)).max(least);
        let times = match max <= FAR_TIMES * min {
            true => FAR_TIMES,
            false => MAGNITUDE,
        };
        let small = match center.min >= LARGE {
            true => center.min / times,
            false => f64::NEG_INFINITY,
        };
        Interval {
            min: small.max(center.min - far),
            max: center.max + far,
        }
    }

    pub fn contains(self, amount: f64) -> bool {
        (self.min..=self.max).contains(&amount)
    }
}

/// Amounts of a column.
#[derive(Clone, Copy, Default)]
struct Amounts {
    /// Those that are not far from the ones before them.
    near: Interval,
    /// Those that are.
    far: Interval,
    /// Amounts that are not far from `near`.
    usual: Interval,
    /// The last amount that is not far from the ones before it.
    previous: Option<f64>,
    /// An amount is less, or more, than the one before it.
    has_fallen: bool,
    has_risen: bool,
}

impl Amounts {
    fn add(&mut self, amount: f64, form: Form) {
        let previous = self.previous.replace(amount).unwrap_or(amount);
        self.has_fallen |= amount < previous;
        self.has_risen |= amount > previous;
        self.near.add(amount);
        self.usual = self.near.usual(form);
    }

    /// Returns whether they are the times or dates at which the lines were written, because they never fall.
    fn is_clock(&self, form: Form) -> bool {
        !form.is_number() && self.has_risen && !self.has_fallen
    }

    /// Returns whether an amount is far from the others. One that is near the one before it is not, so amounts may
    /// drift.
    fn is_far(&self, amount: f64, form: Form) -> bool {
        let is_near = |to: f64| {
            let center = Interval { min: to, max: to };
            self.near.around(center, form).contains(amount)
        };
        !self.usual.contains(amount) && !self.previous.is_some_and(is_near) && !self.is_clock(form)
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
    /// Number of lines with an amount that is far from the others, and of the last ones that are.
    far: u32,
    far_in_a_row: u32,
    /// Numbers of another form are usual too.
    has_any_form: bool,
}

impl Columns {
    /// Returns whether a number of this line is an outlier among the lines before it.
    pub fn has_outlier(&self, line: &Numbers) -> bool {
        if self.lines < LINES_BEFORE_OUTLIER || line.count != self.first.count {
            return false;
        }
        let mut values = line.values().iter().enumerate();
        values.any(|(at, value)| {
            value.form.is_number()
                && ((self.is_constant[at]
                    && self.first.values[at] != *value
                    && value.hash != COMPLETE)
                    || value.digits >= self.digits_max[at].saturating_add(MORE_DIGITS))
        })
    }

    /// Returns whether an amount of this line is far from those before it, or a number has another form: there are more
    /// or fewer of them, or a whole number is among decimal ones.
    pub fn is_far(&self, line: &Numbers) -> bool {
        if self.lines < LINES_BEFORE_FAR {
            return false;
        }
        if !self.has_form(line) {
            return !self.has_any_form;
        }
        self.first
            .judged(line)
            .any(|(at, amount)| self.amounts[at].is_far(amount, self.first.values[at].form))
    }

    /// Returns whether a line has as many numbers as the others, and these have the same form.
    fn has_form(&self, line: &Numbers) -> bool {
        let values = || line.values().iter().zip(self.first.values());
        line.count == self.first.count
            && values().all(|(value, first)| first.amount.is_none() || value.form == first.form)
    }

    /// Returns whether its numbers say nothing that the first and the last line do not say: they are all equal, or
    /// count from line to line.
    pub fn only_count(&self) -> bool {
        let counts = |amounts: &Amounts| !(amounts.has_fallen && amounts.has_risen);
        self.amounts[..self.first.count].iter().all(counts)
    }

    /// Returns whether the amounts of lines that are not far from the others change nothing.
    pub fn has_learned(&self) -> bool {
        self.lines >= LINES_LEARNED
    }

    /// Counts a line with an amount that is far from the others.
    pub fn add_far(&mut self, line: &Numbers) {
        self.far += 1;
        self.far_in_a_row += 1;
        self.lines = self.lines.saturating_add(1);
        if self.has_form(line) {
            for (at, amount) in self.first.judged(line) {
                self.amounts[at].far.add(amount);
            }
        }
        let is_often = self.far >= FAR_USUAL && self.far.saturating_mul(FAR_EACH) > self.lines;
        if is_often || self.far_in_a_row >= FAR_USUAL {
            (self.far, self.far_in_a_row, self.has_any_form) = (0, 0, true);
            for (amounts, first) in self.amounts.iter_mut().zip(&self.first.values) {
                let far = std::mem::take(&mut amounts.far);
                if far.min <= far.max {
                    amounts.near.add(far.min);
                    amounts.near.add(far.max);
                    amounts.usual = amounts.near.usual(first.form);
                }
            }
        }
    }

    /// Counts lines with amounts that are not far from the others.
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
        self.far_in_a_row = 0;
        if line.count == self.first.count {
            let has_learned = self.has_learned();
            for (at, amount) in self.first.judged(line) {
                let (amounts, form) = (&mut self.amounts[at], self.first.values[at].form);
                let is_usual = amounts.usual.contains(amount) || amounts.is_clock(form);
                match has_learned && is_usual {
                    true => amounts.previous = Some(amount),
                    false => amounts.add(amount, form),
                }
            }
            for (at, value) in line.values().iter().enumerate() {
                self.is_constant[at] &= self.first.values[at] == *value;
                self.digits_max[at] = self.digits_max[at].max(value.digits);
            }
        }
        self.add_alike(1);
    }

    /// Bounds of the numbers of `line`, each with its place: they are the same in all lines so far, or amounts.
    pub fn bounds(&self, line: &str) -> Vec<Bounds> {
        let numbers = Numbers::of(line);
        if numbers.count != self.first.count {
            return Vec::new();
        }
        let bounds_of = |(at, range): (usize, Range<usize>)| {
            let number = &line.as_bytes()[range.clone()];
            let (first, amounts) = (&self.first.values[at], &self.amounts[at]);
            if self.is_constant[at] && first.form.is_number() {
                let both = match first.hash {
                    COMPLETE => number.len() + 1,
                    _ => 0,
                };
                let start = range.start - both;
                let fixed = line.as_bytes()[start..range.end].to_vec();
                return Some(Bounds {
                    start,
                    low: fixed.clone(),
                    high: fixed,
                });
            }
            let is_judged = first.amount.is_some() && !amounts.is_clock(first.form);
            numbers.values[at].amount.filter(|_| is_judged)?;
            Some(Bounds::within(amounts.usual, number, range.start))
        };
        ranges(line).enumerate().filter_map(bounds_of).collect()
    }
}

/// Returns whether one of these lines has a number that is much longer than all others, differs where at least
/// two thirds of the lines agree, or is one of at most `far_max` that are far from the others.
pub fn any_outlier<'a>(lines: impl Iterator<Item = &'a Numbers> + Clone, far_max: usize) -> bool {
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
        let agrees = |value: &Value| *value == usual || value.hash == COMPLETE;
        let agree = column.clone().filter(agrees).count();
        let has_odd_number = usual.form.is_number()
            && (longest >= second.saturating_add(MORE_DIGITS)
                || (agree < count && agree * 3 >= count * 2));
        has_odd_number || (count >= LINES_BEFORE_FAR as usize && has_far_amounts(column, far_max))
    })
}

/// Returns whether a column has at most `most` amounts that are larger, or smaller, than the others and far from them.
fn has_far_amounts(column: impl Iterator<Item = Value> + Clone, most: usize) -> bool {
    let mut forms = column.clone().map(|value| value.form);
    let first = forms.next().unwrap_or_default();
    let form = if forms.all(|form| form == first) {
        first
    } else {
        Form::Decimal
    };
    let mut sorted: Vec<f64> = column.filter_map(|value| value.amount).collect();
    if !form.is_number() && sorted.is_sorted() {
        return false;
    }
    sorted.sort_unstable_by(f64::total_cmp);
    let is_far = |others: &[f64], amount: f64| match *others {
        [min, .., max] => !Interval { min, max }.usual(form).contains(amount),
        _ => false,
    };
    (1..=most.min(sorted.len())).any(|count| {
        let (others, large) = sorted.split_at(sorted.len() - count);
        let (small, larger) = sorted.split_at(count);
        is_far(others, large[0]) || is_far(larger, small[count - 1])
    })
}

/// Byte ranges of the numbers of a line, with their decimals, and of dates and times that are no part of a longer word.
/// Identifiers have none.
fn ranges(line: &str) -> impl Iterator<Item = Range<usize>> {
    let bytes = line.as_bytes();
    let (mut at, mut end) = (0, 0);
    let next = move || loop {
        at += bytes[at..].iter().position(u8::is_ascii_digit)?;
        if at >= end {
            let between = |byte: &u8| CLASS[usize::from(*byte)] == 0;
            let start = bytes[..at].iter().rposition(between).map_or(0, |at| at + 1);
            let has_numbers;
            (end, has_numbers) = token(bytes, start);
            if !has_numbers {
                at = end;
                if let Some(length) = time_or_date_len(&bytes[start..end]) {
                    return Some(start..start + length);
                }
                continue;
            }
        }
        let start = at;
        at = digits_end(bytes, start);
        let decimals = decimals_end(bytes, at);
        let is_first = start == 0 || bytes[start - 1] != b'.';
        if is_first && decimals_end(bytes, decimals) == decimals {
            at = decimals;
        }
        return Some(start..at);
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

/// End of the token with a digit that begins at `start`, and whether it has numbers: it is no date, no time and no
/// hexadecimal id.
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
    (end, !is_time_or_id)
}

/// Length of a time without its fraction, or of a date, if the token is nothing else.
fn time_or_date_len(token: &[u8]) -> Option<usize> {
    let digits = digits_end(token, 0);
    let are_digits = |range: Range<usize>| {
        let part = token.get(range);
        part.is_some_and(|part| part.iter().all(u8::is_ascii_digit))
    };
    let mark = *token.get(digits)?;
    let (second, end) = (digits + 3, digits + 6);
    let has_parts = token.get(second) == Some(&mark)
        && are_digits(digits + 1..second)
        && are_digits(second + 1..end);
    let is_whole = match mark {
        b':' => (1..=4).contains(&digits) && decimals_end(token, end).max(end) == token.len(),
        b'-' => digits == 4 && end == token.len(),
        _ => false,
    };
    (has_parts && is_whole).then_some(end)
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
    fn numbers_times_and_dates_without_timestamps_and_ids() {
        assert_eq!(texts("GET /a 200 in 12.5ms"), ["200", "12.5"]);
        assert_eq!(
            texts("v1.2.3 of 10.0.0.1"),
            ["1", "2", "3", "10", "0", "0", "1"]
        );
        assert_eq!(
            texts("12:00:01.5 ends=2026-05-01 0:07:12 a:1:2:3 1-2-3"),
            ["12:00:01", "2026-05-01", "0:07:12"]
        );
        assert_eq!(texts("2026-05-01T10:00:01Z worker3 ok"), ["3"]);
        assert_eq!(texts("id 00ab12ff-e89b-12d3 0xff 7"), ["7"]);
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
            (36, true),
            (35, false),
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
        assert!(!counter.is_far(&Numbers::of("line 12500 is read")));
        assert!(counter.is_far(&Numbers::of("line 90000 is read")));
    }

    #[test]
    fn one_of_some_lines_differs() {
        let line = |n: u32| Numbers::of(&format!("test_case_{n} {}", u32::from(n != 3)));
        let lines: Vec<_> = (1..9).map(line).collect();
        assert!(any_outlier(lines.iter(), 1));
        assert!(!any_outlier(lines[3..].iter(), 1));
    }
}
