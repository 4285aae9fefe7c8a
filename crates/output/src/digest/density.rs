//! Repetition: lines that are like many others, among lines that are.
//!
//! Of an output that is too long, no more is left out than is over the limit, unless it is repetition. So source code, a
//! diff, a table or a listing of files fills the limit, whatever is before or behind it, while of a log or a long build that
//! is much longer than the limit the important lines are enough. Whether a line is repetition depends on the lines around
//! it: a closing brace is none in source code, and a name is a part of it in a list of warnings.

use super::entry::Entry;
use super::fold::{Folded, Line};
use super::line_shape::{HashKeyMap, hash};
use super::signals::levels::is_success;
use super::view::{begin_key, is_counter, is_hex_dump, prefix_len, without_gutter};

/// Maximum number of kinds of lines that are counted.
const KINDS_MAX: usize = 16_384;
/// A kind with more lines is a repetition.
const LINES_MAX: u64 = 2;
/// Number of lines before a line, and behind it, that are looked at, and the part of them, in percent, that are each one of
/// many of their kind if it is in a repetition.
const AROUND: usize = 24;
const REPETITION_PERCENT: usize = 45;
/// Length of the output, in percent of the limit, up to which lines that differ only in numbers fill the limit.
const NUMBERS_PERCENT: usize = 110;
/// The same for lines that differ in more than numbers.
const NAMES_PERCENT: usize = 140;
/// The same for a hex dump.
const BYTES_PERCENT: usize = 400;
/// The same for lines that say that something succeeded.
const SUCCESS_PERCENT: usize = 0;
/// Bytes of the first word that make a kind.
const WORD_BYTES: usize = 12;

/// Kind of all lines that say that something succeeded.
const SUCCESS: u64 = 1;

/// Kind of all lines of a hex dump.
const HEX_DUMP: u64 = 2;

/// Kind of all notes in place of lines that differ only in numbers.
const FOLDED: u64 = 3;

/// Number of characters of the mode of a file, such as `-rw-r--r--`.
const MODE_CHARS: usize = 10;

/// Kind of a line, if it can have others like it.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    key: u64,
    /// Length of the output, in percent of the limit, up to which lines of this kind fill the limit.
    fill_percent: usize,
}

/// Number of lines of each kind.
#[derive(Default)]
struct Counts(HashKeyMap<u64>);

impl Counts {
    /// Counts lines. Returns their number up to now.
    fn add(&mut self, key: u64, lines: u64) -> u64 {
        if self.0.len() >= KINDS_MAX && !self.0.contains_key(&key) {
            return lines;
        }
        let count = self.0.entry(key).or_default();
        *count += lines;
        *count
    }
}

/// Counts of kinds of lines, and of lines that differ only in numbers.
#[derive(Default)]
pub struct Kinds {
    kinds: Counts,
    shapes: Counts,
}

impl Kinds {
    /// Counts a line, and returns its kind.
    pub fn add(&mut self, what: &Folded) -> Option<Kind> {
        let (key, lines, fill_percent) = match what {
            Folded::Gap(_) => return None,
            Folded::Note { lines, .. } => (FOLDED, *lines, NUMBERS_PERCENT),
            Folded::Line(line) => {
                let is_numbered = self.shapes.add(line.shape.without_numbers, 1) > LINES_MAX;
                let key = kind(line)?;
                let percent = match key {
                    SUCCESS => SUCCESS_PERCENT,
                    HEX_DUMP => BYTES_PERCENT,
                    _ if is_numbered => NUMBERS_PERCENT,
                    _ => NAMES_PERCENT,
                };
                (key, 1, percent)
            }
        };
        self.kinds.add(key, lines);
        Some(Kind { key, fill_percent })
    }

    /// For each entry in a repetition, the length of the output, in percent of the limit, up to which it fills the limit.
    pub fn fill_percents(&self, entries: &[Entry]) -> Vec<Option<usize>> {
        let count = |kind: Kind| self.kinds.0.get(&kind.key).copied().unwrap_or(0);
        let is_one_of_many = |entry: &Entry| entry.kind.is_some_and(|kind| count(kind) > LINES_MAX);
        let many: Vec<bool> = entries.iter().map(is_one_of_many).collect();
        let is_repetition = |lines: &[bool]| {
            let count = lines
                .iter()
                .filter(|is_one_of_many| **is_one_of_many)
                .count();
            count * 100 >= lines.len() * REPETITION_PERCENT
        };
        let is_in_repetition = |at: usize| {
            let (before, behind) = (&many[..=at], &many[at..]);
            is_repetition(&before[before.len().saturating_sub(AROUND)..])
                && is_repetition(&behind[..behind.len().min(AROUND)])
        };
        let percent = |entry: &Entry| entry.kind.map_or(NAMES_PERCENT, |kind| kind.fill_percent);
        let entries = entries.iter().enumerate();
        entries
            .map(|(at, entry)| is_in_repetition(at).then(|| percent(entry)))
            .collect()
    }
}

/// Kind of a line. In a log or in a build, that is its first word; of indented lines, as in source code, and of
/// those that begin with a count, the first two, and of a setting its key. Rows of a table, names and files in a listing
/// are of one kind only if they differ in nothing but numbers. A line of JSON and one of numbers, perhaps behind a key, have
/// no kind.
fn kind(line: &Line) -> Option<u64> {
    let text = line.text[prefix_len(&line.text)..].trim_end();
    if is_success(text) {
        return Some(SUCCESS);
    }
    if is_hex_dump(text) {
        return Some(HEX_DUMP);
    }
    if is_listed_file(text) {
        return Some(line.shape.without_numbers);
    }
    let is_indented = text.starts_with([' ', '\t', '+', '-']);
    let (inner, indent) = without_gutter(text);
    if (is_indented && inner.starts_with('"')) || is_only_numbers(text) {
        return None;
    }
    if is_name(text) {
        return Some(line.shape.without_numbers);
    }
    if is_indented || is_counter(inner) {
        return Some(begin_key(inner, indent));
    }
    let columns = text.as_bytes().windows(2).filter(|pair| *pair == b"  ");
    if text.is_empty() || columns.take(2).count() > 1 {
        return Some(line.shape.without_numbers);
    }
    if let Some((key, _)) = text.split_once(" = ")
        && !key.contains(' ')
    {
        return Some(hash(key.as_bytes()));
    }
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic() || *byte >= 0x80;
    let bytes = text.as_bytes();
    let from = bytes.iter().position(is_letter).unwrap_or(0);
    let word = bytes[from..]
        .iter()
        .take(WORD_BYTES)
        .take_while(|byte| is_letter(byte));
    Some(hash(&bytes[from..from + word.count()]))
}

/// Returns whether a line has decimal or hexadecimal numbers and no word, but perhaps a key with a colon before them.
fn is_only_numbers(text: &str) -> bool {
    let is_of_word =
        |byte: u8| byte >= 0x80 || (byte.is_ascii_alphabetic() && !byte.is_ascii_hexdigit());
    let numbers = match text.split_once(' ') {
        Some((key, numbers)) if key.ends_with(':') => numbers,
        _ => text,
    };
    numbers.contains(|c: char| c.is_ascii_digit()) && !numbers.bytes().any(is_of_word)
}

/// Returns whether a line is a single word, such as a path of a listing, and neither a JSON record nor a place in a
/// file; or a path behind numbers or a hash, as `du`, `wc` and `sha256sum` write it.
fn is_name(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace();
    let last = words.next_back().unwrap_or_default();
    let mut before = words.peekable();
    match before.peek() {
        None => !last.is_empty() && !last.starts_with(['{', '[']) && !last.contains(':'),
        Some(_) => last.contains('/') && before.all(is_only_numbers),
    }
}

/// Returns whether a line begins with the mode of a file, as `ls -l` and `tar tv` write it.
fn is_listed_file(text: &str) -> bool {
    let mode = text.as_bytes().get(..MODE_CHARS).unwrap_or_default();
    let is_of_mode = |(at, byte): (usize, &u8)| match at {
        0 => b"-dlcbps".contains(byte),
        1 | 4 | 7 => b"-r".contains(byte),
        2 | 5 | 8 => b"-w".contains(byte),
        _ => b"-xsStT".contains(byte),
    };
    !mode.is_empty() && mode.iter().enumerate().all(is_of_mode)
}
