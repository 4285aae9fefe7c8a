//! Verdicts: the word at the begin or at the end of each line that says how something went, in the words of any tool.
//!
//! The word at the end is a column together with what sets it off: `… - pass`, `…: proved`, `… (yes)`. So the columns of
//! [`super::rarity`] find the few lines with another verdict, however long the names before it are.

use crate::digest::line_shape::{HashKeyMap, hash};
use crate::digest::view::ViewLine;

use super::levels::{self, Finding, Importance};

/// Cells of a line with commas that are columns, and how many make it a row.
const CELLS: usize = 8;
const CELLS_MIN: usize = 3;
/// Lines from which on a verdict can be the usual one.
const LINES_MIN: u64 = 12;
/// Part of the lines that must have a verdict, and of these that must have the usual one, in percent.
const USUAL_PERCENT: u64 = 90;

const FIRST: u64 = 1 << 32;
const LAST: u64 = 2 << 32;
const CELL: u64 = 3 << 32;

/// Calls with each such column of a line and its value.
pub fn each_value(text: &str, mut call: impl FnMut(u64, u64)) {
    if let Some((first, _)) = text.split_once(' ') {
        call(FIRST, hash(first.as_bytes()));
    }
    if let Some((mark, verdict)) = last(text) {
        call(LAST | mark, hash(verdict.as_bytes()));
    }
    let cells = text.split(',').count();
    if cells >= CELLS_MIN {
        for (at, cell) in text.split(',').take(CELLS).enumerate() {
            let column = CELL | (cells as u64) << 8 | at as u64;
            call(column, hash(cell.trim().as_bytes()));
        }
    }
}

/// Last word of a line, and the mark that sets it off, which is zero for a word behind another.
fn last(text: &str) -> Option<(u64, &str)> {
    let (before, last) = text.trim_end().rsplit_once([' ', '\t'])?;
    let mark = match last.bytes().next()? {
        open @ (b'(' | b'[' | b'<') => open,
        _ => before.trim_end().bytes().next_back()?,
    };
    let mark = if mark.is_ascii_punctuation() { mark } else { 0 };
    Some((mark.into(), last))
}

/// Indices of the lines with the verdict that nearly all lines have, unless that is a failure. Words of failure in them are
/// parts of names.
pub fn usual(lines: &[ViewLine<'_>]) -> Vec<usize> {
    let mut counts: HashKeyMap<u64> = HashKeyMap::default();
    let mut all = 0;
    for line in lines.iter().filter(|line| !line.is_blank()) {
        all += line.count;
        if let Some((key, _)) = verdict(line) {
            *counts.entry(key).or_default() += line.count;
        }
    }
    let is_usual = |count: u64| all >= LINES_MIN && count * 100 >= all * USUAL_PERCENT;
    let Some((usual, _)) = counts.into_iter().find(|(_, count)| is_usual(*count)) else {
        return Vec::new();
    };
    let usual_word = |line: &ViewLine<'_>| {
        let (key, word) = verdict(line)?;
        (key == usual).then(|| levels::classify(word))
    };
    let is_failure = |found: Finding| found.importance != Importance::Summary;
    if lines
        .iter()
        .find_map(usual_word)
        .flatten()
        .is_some_and(is_failure)
    {
        return Vec::new();
    }
    let has_it = |at: &usize| verdict(&lines[*at]).is_some_and(|(key, _)| key == usual);
    (0..lines.len()).filter(has_it).collect()
}

/// Verdict of a line, if it is a word that is set off: a key, and the word.
fn verdict<'a>(line: &ViewLine<'a>) -> Option<(u64, &'a str)> {
    let (mark, last) = last(line.text)?;
    let word = last.trim_matches(['(', ')']);
    let is_word = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphabetic());
    (mark != 0 && is_word).then(|| (hash(word.as_bytes()) ^ mark, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_is_the_last_word_with_its_mark() {
        for (line, mark, verdict) in [
            ("adds two numbers - pass", '-', "pass"),
            ("adds two numbers: proved", ':', "proved"),
            ("adds two numbers (passed)", '(', "(passed)"),
            ("adds two numbers ... yes", '.', "yes"),
            ("adds two numbers => true", '>', "true"),
        ] {
            assert_eq!(last(line), Some((u64::from(mark), verdict)), "{line}");
        }
        assert_eq!(last("served in 31 ms"), Some((0, "ms")));
        assert_eq!(last("done"), None);
    }
}
