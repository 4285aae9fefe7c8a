//! Lines behind the head and before the tail that fill the rest of the limit.
//!
//! Output that is dense (source code, a diff, a table) is left out only as far as it is over the limit. Of
//! repetitive output (a log, a long build), the important lines are enough, and the rest of the limit stays
//! unused.

use std::collections::VecDeque;

use super::fold::{Folded, Line, LineNumber};
use super::highlights::Highlight;
use super::line_shape::hash;
use super::shorten::Entry;

/// Slots for kinds of lines.
const KINDS: usize = 1_024;
/// A line is repetitive if this many lines of its kind came before.
const USUAL_KIND: u32 = 3;
/// Bytes of the first word that make a kind.
const WORD_BYTES: usize = 12;
/// Number of lines after which it is decided whether the output is repetitive.
const LINES_JUDGED: u64 = 10_000;
/// Maximum number of rounds in which lines that became visible make room for more.
const ROUNDS: usize = 3;

/// Lines of the part that is left out: the first ones and the last ones, and in between a hole, if there were
/// more.
pub struct Filler {
    limit: usize,
    first: Vec<Entry>,
    first_chars: usize,
    first_is_full: bool,
    last: VecDeque<Entry>,
    last_chars: usize,
    has_hole: bool,
    kinds: Vec<(u64, u32)>,
    lines: u64,
    repetitive: u64,
}

impl Filler {
    pub fn new(limit: usize) -> Self {
        Filler {
            limit,
            first: Vec::new(),
            first_chars: 0,
            first_is_full: false,
            last: VecDeque::new(),
            last_chars: 0,
            has_hole: false,
            kinds: Vec::new(),
            lines: 0,
            repetitive: 0,
        }
    }

    /// Keeps a line, as long as it may be shown.
    pub fn keep(&mut self, entry: Entry) {
        let is_judged = self.lines >= LINES_JUDGED;
        if is_judged && !self.is_dense() {
            return;
        }
        match &entry.what {
            Folded::Line(line) if !is_judged => self.count(line),
            Folded::Note { lines, .. } if !is_judged => {
                self.lines += lines;
                self.repetitive += lines;
            }
            Folded::Line(_) | Folded::Note { .. } => {}
            // Lines on both sides of a gap do not belong together.
            Folded::Gap(_) => {
                (self.first_is_full, self.has_hole) = (true, true);
                self.last.clear();
                self.last_chars = 0;
                return;
            }
        }
        if !self.first_is_full && self.first_chars + entry.chars <= self.limit / 2 {
            self.first_chars += entry.chars;
            self.first.push(entry);
            return;
        }
        self.first_is_full = true;
        self.last_chars += entry.chars;
        self.last.push_back(entry);
        while self.last_chars > self.limit {
            let dropped = self.last.pop_front();
            self.last_chars -= dropped.map_or(0, |entry| entry.chars);
            self.has_hole = true;
        }
    }

    /// Counts a line, and whether it is one of many of its kind.
    fn count(&mut self, line: &Line) {
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
        if slot.1 > USUAL_KIND {
            self.repetitive += 1;
        }
    }

    /// Returns whether most of the part that is left out is more than repetition.
    pub fn is_dense(&self) -> bool {
        self.repetitive * 2 < self.lines
    }

    /// Lines that are shown behind the head and before the tail, in `room` characters. Highlights that are among
    /// them are removed, and their room is used too.
    pub fn select(self, room: usize, highlights: &mut Vec<Highlight>) -> (Vec<Entry>, Vec<Entry>) {
        let hole = self.has_hole.then_some(self.first.len());
        let mut entries: Vec<Entry> = self.first.into_iter().chain(self.last).collect();
        let mut wanted = room;
        let mut shown = Shown::fitting(&entries, hole, wanted, highlights);
        for _ in 0..ROUNDS {
            let among = highlights.iter().filter(|kept| shown.has(&entries, kept));
            let freed: usize = among.map(|kept| kept.text.chars().count() + 1).sum();
            if room + freed <= wanted {
                break;
            }
            wanted = room + freed;
            shown = Shown::fitting(&entries, hole, wanted, highlights);
        }
        highlights.retain(|kept| !shown.has(&entries, kept));
        let before_tail = entries.split_off(shown.before_tail);
        entries.truncate(shown.after_head);
        (entries, before_tail)
    }
}

/// Part of the entries that is shown: those before `after_head` and those from `before_tail` on.
struct Shown {
    after_head: usize,
    before_tail: usize,
}

impl Shown {
    /// Half of the room is for each side, and what one side does not need is for the other. No highlight is cut
    /// in two.
    fn fitting(
        entries: &[Entry],
        hole: Option<usize>,
        room: usize,
        highlights: &[Highlight],
    ) -> Self {
        let mut shown = Shown {
            after_head: 0,
            before_tail: entries.len(),
        };
        let mut chars = 0;
        let mut fits = |entry: &Entry, room: usize| {
            let is_room = chars + entry.chars <= room;
            chars += if is_room { entry.chars } else { 0 };
            is_room
        };
        let first_end = hole.unwrap_or(entries.len());
        let first = &entries[..first_end];
        shown.after_head += first.iter().take_while(|e| fits(e, room / 2)).count();
        let last = &entries[hole.unwrap_or(shown.after_head)..];
        shown.before_tail -= last.iter().rev().take_while(|e| fits(e, room)).count();
        let end = first_end.min(shown.before_tail);
        let rest = &entries[shown.after_head..end];
        shown.after_head += rest.iter().take_while(|e| fits(e, room)).count();
        for kept in highlights {
            let is_before = |entry: &Entry| entry.number().is_none_or(|n| n < kept.number);
            let is_behind = |entry: &Entry| entry.number().is_some_and(|n| n > kept.last);
            if shown.until(entries).is_some_and(|until| until < kept.last) {
                let whole = entries[..shown.after_head]
                    .iter()
                    .take_while(|e| is_before(e));
                shown.after_head = whole.count();
            }
            if shown.from(entries).is_some_and(|from| from > kept.number) {
                let split = entries[shown.before_tail..]
                    .iter()
                    .rev()
                    .take_while(|e| is_behind(e));
                shown.before_tail = entries.len() - split.count();
            }
        }
        shown
    }

    /// Number of the last line that is shown behind the head.
    fn until(&self, entries: &[Entry]) -> Option<LineNumber> {
        let shown = entries[..self.after_head].iter().rev();
        shown.filter_map(Entry::number).next()
    }

    /// Number of the first line that is shown before the tail.
    fn from(&self, entries: &[Entry]) -> Option<LineNumber> {
        let shown = entries[self.before_tail..].iter();
        shown.filter_map(Entry::number).next()
    }

    /// Returns whether a highlight is among these lines.
    fn has(&self, entries: &[Entry], kept: &Highlight) -> bool {
        let is_line = kept.lines > 0;
        is_line
            && (self.until(entries).is_some_and(|until| kept.last <= until)
                || self.from(entries).is_some_and(|from| kept.number >= from))
    }
}

/// Kind of a line. In a log or in a build, that is its first word. Indented lines, as in source code, and rows of a
/// table are of one kind only if they differ in nothing but numbers. A line of JSON has no kind.
fn kind(line: &Line) -> Option<u64> {
    let text = line.text.trim_end();
    let is_indented = text.starts_with([' ', '\t', '+', '-']);
    if is_indented && text.trim_start().starts_with('"') {
        return None;
    }
    let columns = text.as_bytes().windows(2).filter(|pair| *pair == b"  ");
    if text.is_empty() || is_indented || columns.take(2).count() > 1 {
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
