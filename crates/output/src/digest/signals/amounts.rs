//! Amounts that are far from those of all similar lines: the one query that took minutes, the one table with no rows.
//!
//! A column is made of all numbers between the same words and with the same unit, whatever else is in their lines. Numbers
//! behind first words that few lines have, as in a list of keys, are a column too, and so are those at one place of the rows
//! of a table. Times, dates, addresses, versions and names with digits are no amounts, and counters say nothing.

use crate::digest::columns::{Form, Interval};
use crate::digest::line_shape::{Fnv1a, HashKeyMap};
use crate::digest::view::ViewLine;

/// Longer lines are not looked at beyond this, nor more numbers of a line.
const BYTES_MAX: usize = 600;
const NUMBERS_PER_LINE: usize = 12;
/// Maximum number of columns, before those of keys, and lines that a column must have.
const COLUMNS_MAX: usize = 2_048;
const LINES_MIN: u64 = 12;
/// Number of outliers at either end of a column.
const OUTLIERS_MAX: usize = 3;
/// Cells of a row, at least and at most.
const CELLS_MIN: usize = 4;
const CELLS_MAX: usize = 24;
/// Begin of the keys of columns of cells.
const CELL: u64 = 1 << 40;
/// Longest unit: `tokens/s`.
const UNIT_MAX: usize = 8;
/// Counters: the part of steps to a smaller number, and of steps to a larger one, in percent.
const STEPS_DOWN: usize = 10;
const STEPS_UP: usize = 30;

/// Amounts between the same words, each with the index of its line.
#[derive(Default)]
struct Column {
    amounts: Vec<(f64, usize)>,
    lines: u64,
    /// Key of the list of keys that it belongs to if it has few lines.
    list: u64,
}

/// Lines with an amount that is far from the others of its column: their indices, and the column.
pub fn outliers(lines: &[ViewLine<'_>]) -> Vec<(usize, u64)> {
    let mut columns: HashKeyMap<Column> = HashKeyMap::default();
    for (at, line) in lines.iter().enumerate() {
        each_amount(line.text, |key, list, amount| {
            let fits = |key: u64, most: usize| columns.len() < most || columns.contains_key(&key);
            let key = match (fits(key, COLUMNS_MAX), fits(list, 2 * COLUMNS_MAX)) {
                (true, _) => key,
                (false, true) => list,
                (false, false) => return,
            };
            let column = columns.entry(key).or_default();
            column.amounts.push((amount, at));
            column.lines += line.count;
            column.list = list;
        });
    }
    merge_keys(&mut columns);
    let mut found: Vec<_> = columns
        .into_iter()
        .flat_map(|(key, column)| column.outliers().into_iter().map(move |at| (at, key)))
        .collect();
    found.sort_unstable();
    found.dedup_by_key(|(at, _)| *at);
    found
}

/// Makes one column of all that have few lines and belong to the same list of keys.
fn merge_keys(columns: &mut HashKeyMap<Column>) {
    let small: Vec<Column> = columns
        .extract_if(|_, column| column.lines < LINES_MIN)
        .map(|(_, column)| column)
        .collect();
    for mut column in small {
        let list = columns.entry(column.list).or_default();
        list.amounts.append(&mut column.amounts);
        list.lines += column.lines;
    }
    for column in columns.values_mut() {
        column.amounts.sort_unstable_by_key(|(_, at)| *at);
    }
}

impl Column {
    /// Indices of the lines with an outlier.
    fn outliers(mut self) -> Vec<usize> {
        if self.lines < LINES_MIN || self.amounts.len() < 2 || self.is_counter() {
            return Vec::new();
        }
        self.amounts.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let all = &self.amounts;
        let most = OUTLIERS_MAX.min(all.len() / 2);
        let is_whole = all.iter().all(|(amount, _)| amount.fract() == 0.);
        let form = if is_whole { Form::Whole } else { Form::Decimal };
        let usual = |from: usize, to: usize| {
            let (min, max) = (all[from].0, all[to].0);
            Interval { min, max }.usual(form)
        };
        let is_above = |count: &usize| {
            let at = all.len() - count;
            !usual(0, at - 1).contains(all[at].0)
        };
        let above = (1..=most).rev().find(is_above).unwrap_or(0);
        let is_below = |count: &usize| !usual(*count, all.len() - 1).contains(all[count - 1].0);
        let below = (1..=most).rev().find(is_below).unwrap_or(0);
        let outliers = all[..below].iter().chain(&all[all.len() - above..]);
        outliers.map(|(_, at)| *at).collect()
    }

    /// Returns whether the amounts grow from line to line.
    fn is_counter(&self) -> bool {
        let steps = self.amounts.windows(2);
        let part = |is: fn(f64, f64) -> bool| {
            let count = steps
                .clone()
                .filter(|step| is(step[0].0, step[1].0))
                .count();
            count * 100 / (self.amounts.len() - 1)
        };
        part(|a, b| b < a) < STEPS_DOWN && part(|a, b| b > a) > STEPS_UP
    }
}

/// Calls with each number of a row with commas, or of one that is mostly numbers: the key of its column, and the value.
fn each_cell(text: &str, mut call: impl FnMut(u64, f64)) {
    let has_commas = text.matches(',').count() + 1 >= CELLS_MIN && !text.contains(", ");
    let is_between = |c: char| match has_commas {
        true => c == ',',
        false => c.is_ascii_whitespace(),
    };
    let cells = text.split(is_between).map(str::trim);
    let cells = cells.filter(|cell| has_commas || !cell.is_empty());
    let count = cells.clone().count();
    let number = |cell: &str| amount(cell).and_then(|(n, unit)| unit.is_empty().then_some(n));
    let numbers = || cells.clone().map(number);
    let is_row = has_commas || numbers().flatten().count() * 2 >= count;
    if !(CELLS_MIN..=CELLS_MAX).contains(&count) || !is_row {
        return;
    }
    for (at, number) in numbers().enumerate() {
        if let Some(number) = number {
            call(
                CELL | u64::from(has_commas) << 16 | (count << 8 | at) as u64,
                number,
            );
        }
    }
}

/// Calls with each amount of a line: the keys of its column and of its list of keys, and the value.
fn each_amount(text: &str, mut call: impl FnMut(u64, u64, f64)) {
    let text = &text[..super::super::row::floor(text, BYTES_MAX)];
    each_cell(text, |key, number| call(key, key, number));
    let bytes = text.as_bytes();
    let mut before = Fnv1a::default();
    let (mut at, mut found, mut words) = (0, 0, 0);
    while at < bytes.len() && found < NUMBERS_PER_LINE {
        if !is_of_word(bytes[at]) {
            at += 1;
            continue;
        }
        let end = word_end(bytes, at);
        let word = &text[at..end];
        if let Some((amount, unit)) = amount(word)
            && is_apart(bytes, at, end)
        {
            let next = end + usize::from(bytes.get(end) == Some(&b' '));
            let next = &bytes[next..word_end(bytes, next)];
            let next = if is_name(next) { next } else { b"" };
            let behind_first = if words == 1 { 1 } else { before.0 ^ 1 };
            let [key, list] = [before.0 ^ 1, behind_first].map(|begin| {
                let mut key = Fnv1a(begin);
                unit.bytes()
                    .chain([0])
                    .chain(next.iter().copied())
                    .for_each(|byte| key.add(byte));
                key.0
            });
            call(key, list, amount);
            found += 1;
        }
        before = Fnv1a::default();
        word.bytes()
            .map(|byte| if byte.is_ascii_digit() { b'0' } else { byte })
            .for_each(|byte| before.add(byte));
        at = end;
        words += 1;
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80 || b"_.-+%".contains(&byte)
}

fn word_end(bytes: &[u8], at: usize) -> usize {
    let length = bytes[at..]
        .iter()
        .take_while(|byte| is_of_word(**byte))
        .count();
    at + length
}

fn is_name(word: &[u8]) -> bool {
    !word.is_empty() && word.iter().all(u8::is_ascii_alphabetic)
}

/// Number at the begin of a word, and the unit behind it.
fn amount(word: &str) -> Option<(f64, &str)> {
    let word = word.strip_prefix('+').unwrap_or(word);
    let is_digit = |c: char| c.is_ascii_digit();
    let whole = word
        .strip_prefix('-')
        .unwrap_or(word)
        .trim_start_matches(is_digit);
    let unit = match whole.strip_prefix('.') {
        Some(part) if part.starts_with(is_digit) => part.trim_start_matches(is_digit),
        _ => whole,
    };
    let number = &word[..word.len() - unit.len()];
    let is_unit = unit.len() <= UNIT_MAX && !unit.contains(is_digit);
    is_unit
        .then(|| number.parse().ok())
        .flatten()
        .map(|number| (number, unit.trim_end_matches('.')))
}

/// Returns whether a number is not a part of a time, a path, a place, a list or a larger number.
fn is_apart(bytes: &[u8], at: usize, end: usize) -> bool {
    let byte = |at: Option<usize>| at.and_then(|at| bytes.get(at)).copied().unwrap_or(b' ');
    let (before, earlier) = (byte(at.checked_sub(1)), byte(at.checked_sub(2)));
    let (after, later) = (byte(Some(end)), byte(Some(end + 1)));
    let joins = |mark: u8, other: u8| match mark {
        b'/' | b'\\' | b'#' | b'@' | b'$' | b'&' | b'?' => true,
        b':' => other.is_ascii_alphanumeric(),
        b',' => other.is_ascii_digit(),
        _ => false,
    };
    !joins(before, earlier) && !joins(after, later)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(line: &str) -> Vec<f64> {
        let mut amounts = Vec::new();
        each_amount(line, |_, _, amount| amounts.push(amount));
        amounts
    }

    fn outliers_of(amounts: &[f64]) -> Vec<usize> {
        let column = Column {
            amounts: amounts.iter().copied().zip(0..).collect(),
            lines: amounts.len() as u64,
            list: 0,
        };
        column.outliers()
    }

    #[test]
    fn amounts_without_times_addresses_and_names() {
        for (line, expected) in [
            ("GET /orders completed in 48211.5 ms", &[48211.5][..]),
            ("{\"dur\":31,\"ok\": 4}", &[31., 4.]),
            ("time=0.4s rows=-7", &[0.4, -7.]),
            (
                "2026-11-19 12:30:01 worker3 10.0.0.1:80 v1.2.3 a.rs:7 3/4 1,412",
                &[],
            ),
        ] {
            assert_eq!(amounts(line), expected, "{line}");
        }
    }

    #[test]
    fn amount_far_from_all_others_is_an_outlier() {
        let mut usual: Vec<f64> = (0..40).map(|n| 10. + f64::from(n * 7 % 11)).collect();
        assert!(outliers_of(&usual).is_empty());
        for odd in [985., 65., 0., 3., -1.] {
            usual[20] = odd;
            assert_eq!(outliers_of(&usual), [20], "{odd}");
        }
        usual[20] = 30.;
        assert!(outliers_of(&usual).is_empty());
    }

    #[test]
    fn counters_and_small_amounts_have_no_outliers() {
        let grows: Vec<f64> = (0..40)
            .map(|n| 1.5_f64.powi(n) + f64::from(n / 30) * 1e9)
            .collect();
        assert!(outliers_of(&grows).is_empty());
        let mut small = vec![1.; 40];
        small[20] = 4.;
        assert!(outliers_of(&small).is_empty());
    }
}
