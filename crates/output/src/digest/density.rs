//! Density of an output: whether most of it is more than repetition.
//!
//! Dense output (source code, a diff, a table) is left out only as far as it is over the limit. Of repetitive output
//! (a log, a long build), the important lines are enough, and the rest of the limit stays unused.

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

/// Counts of kinds of lines.
#[derive(Default)]
pub struct Density {
    kinds: Vec<(u64, u32)>,
    lines: u64,
    repetitive: u64,
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
                return;
            }
            Folded::Gap(_) => return,
        };
        self.lines += line.count;
        self.repetitive += line.count - 1;
        let Some(kind) = kind(line) else {
            return;
        };
        if self.kinds.is_empty() {
            self.kinds = vec![(0, 0); KINDS];
        }
        let slot = &mut self.kinds[usize::try_from(kind % KINDS as u64).unwrap_or(0)];
        if slot.0 != kind {
            *slot = (kind, 0);
        }
        slot.1 += 1;
        if slot.1 > REPETITIVE_AFTER {
            self.repetitive += 1;
        }
    }

    /// Returns whether most lines are more than repetition.
    pub fn is_dense(&self) -> bool {
        self.repetitive * 2 < self.lines
    }
}

/// Kind of a line. In a log or in a build, that is its first word; of indented lines, as in source code, and of
/// those that begin with a count, the first two. Rows of a table are of one kind only if they differ in nothing but
/// numbers. A line of JSON and one of numbers alone have no kind.
fn kind(line: &Line) -> Option<u64> {
    let text = line.text[prefix_len(&line.text)..].trim_end();
    if is_success(text) {
        return Some(SUCCESS);
    }
    if is_hex_dump(text) {
        return Some(HEX_DUMP);
    }
    let is_indented = text.starts_with([' ', '\t', '+', '-']);
    let (inner, indent) = without_gutter(text);
    if (is_indented && inner.starts_with('"')) || is_only_numbers(text) {
        return None;
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

/// Returns whether a line has decimal or hexadecimal numbers and no word.
fn is_only_numbers(text: &str) -> bool {
    let is_of_word =
        |byte: u8| byte >= 0x80 || (byte.is_ascii_alphabetic() && !byte.is_ascii_hexdigit());
    text.contains(|c: char| c.is_ascii_digit()) && !text.bytes().any(is_of_word)
}
