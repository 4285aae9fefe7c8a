//! Density of an output: whether most of it is more than repetition.
//!
//! Dense output (source code, a diff, a table, a listing of files) is left out only as far as it is over the limit. Of
//! repetitive output (a log, a long build) that is much longer than the limit, the important lines are enough, and the
//! rest of the limit stays unused.

use super::fold::{Folded, Line};
use super::line_shape::hash;
use super::signals::levels::is_success;
use super::view::{begin_key, is_counter, is_hex_dump, prefix_len, without_gutter};

/// Slots for kinds of lines.
const KINDS: usize = 1_024;
/// A line is repetitive if this many lines of its kind came before.
const REPETITIVE_AFTER: u32 = 3;
/// Bytes of the first word that make a kind.
const WORD_BYTES: usize = 12;
/// Number of lines after which it is decided whether the output is repetitive.
const LINES_JUDGED: u64 = 10_000;

/// Kind of all lines that say that something succeeded.
const SUCCESS: u64 = 1;

/// Kind of all lines of a hex dump.
const HEX_DUMP: u64 = 2;

/// Number of characters of the mode of a file, such as `-rw-r--r--`.
const MODE_CHARS: usize = 10;

/// Repetition that most lines of an output are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// Most lines are more than repetition.
    Dense,
    /// Lines that say that something succeeded.
    Passed,
    /// Lines of a hex dump.
    Bytes,
    /// Other lines that begin alike, but differ in more than numbers.
    Names,
    /// Other lines that differ only in numbers.
    Log,
}

/// Number of lines of each kind. A kind displaces another one of the same slot.
#[derive(Default)]
struct Slots(Vec<(u64, u32)>);

impl Slots {
    /// Counts a line. Returns whether it is one of many of its kind.
    fn is_one_of_many(&mut self, kind: u64) -> bool {
        if self.0.is_empty() {
            self.0 = vec![(0, 0); KINDS];
        }
        let slot = &mut self.0[usize::try_from(kind % KINDS as u64).unwrap_or(0)];
        if slot.0 != kind {
            *slot = (kind, 0);
        }
        slot.1 += 1;
        slot.1 > REPETITIVE_AFTER
    }
}

/// Counts of kinds of lines.
#[derive(Default)]
pub struct Density {
    kinds: Slots,
    shapes: Slots,
    lines: u64,
    repetitive: u64,
    /// Number of repetitive lines that differ only in numbers.
    numbered: u64,
    passed: u64,
    bytes: u64,
}

impl Density {
    /// Counts a line, and whether it is one of many of its kind.
    pub fn count(&mut self, what: &Folded) {
        if self.lines >= LINES_JUDGED {
            return;
        }
        let line = match what {
            Folded::Line(line) => line,
            Folded::Note { lines, .. } => {
                self.lines += lines;
                self.repetitive += lines;
                self.numbered += lines;
                return;
            }
            Folded::Gap(_) => return,
        };
        self.lines += line.count;
        self.repetitive += line.count - 1;
        self.numbered += line.count - 1;
        let is_numbered = self.shapes.is_one_of_many(line.shape.without_numbers);
        self.numbered += u64::from(is_numbered);
        let Some(kind) = kind(line) else {
            return;
        };
        match kind {
            SUCCESS => self.passed += line.count,
            HEX_DUMP => self.bytes += line.count,
            _ => {}
        }
        self.repetitive += u64::from(self.kinds.is_one_of_many(kind));
    }

    /// Kind of repetition that most lines are.
    pub fn repetition(&self) -> Repetition {
        let is_most = |lines: u64| lines * 2 >= self.lines;
        if !is_most(self.repetitive) {
            Repetition::Dense
        } else if is_most(self.passed) {
            Repetition::Passed
        } else if is_most(self.bytes) {
            Repetition::Bytes
        } else if is_most(self.numbered) {
            Repetition::Log
        } else {
            Repetition::Names
        }
    }
}

/// Kind of a line. In a log or in a build, that is its first word; of indented lines, as in source code, and of
/// those that begin with a count, the first two. Rows of a table, names and files in a listing are of one kind only if
/// they differ in nothing but numbers. A line of JSON and one of numbers, perhaps behind a key, have no kind.
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
