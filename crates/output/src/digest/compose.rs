//! Composition of the shortened text: head, note, important lines, tail.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::{Amount, Entry, Shown};
use super::fold::{Folded, Line};
use super::truncate::{self, Truncated};

/// Maximum number of gaps that are noted in the part that is left out.
const GAPS_MAX: usize = 8;
/// Number of characters for the line between important lines and the tail.
const SEPARATOR_ROOM: usize = 50;
/// End of the note, if lines with their numbers follow.
const LINES_FOLLOW: &str = " What matters of it, by line number:";
/// Number of characters for the number of a line, and what follows it.
const NUMBER_ROOM: usize = 20;
/// A line that is too long for what is left of the limit is truncated to fit, if at least this many characters are left.
pub const BEGIN_CHARS: usize = 200;
/// Minimum number of characters of a line that is shown without its end.
const START_CHARS: usize = 20;

/// Text in the making.
pub struct Composition<'a> {
    pub entries: &'a [Entry],
    pub limit: usize,
    /// End of the head and start of the tail.
    pub head: usize,
    pub tail: usize,
    /// Number of lines of the head before others were added to fill the limit.
    pub head_lines: usize,
    /// Number of characters for the head, and for a single long line of the tail.
    pub head_room: usize,
    pub tail_room: usize,
    /// Lines between them that are shown.
    pub quotes: BTreeMap<usize, Shown>,
    /// The important lines were selected.
    pub is_selected: bool,
    pub dropped: Amount,
    /// Number of bytes that were not read, and so not counted as lines.
    pub unread: u64,
    pub hint: &'a str,
}

impl Composition<'_> {
    /// Number of characters of all parts.
    pub fn size(&self) -> usize {
        let size = |lines: Vec<Shown>| lines.iter().map(Shown::size).sum::<usize>();
        let quotes: usize = self.quotes.values().map(Shown::size).sum();
        size(self.head_lines()) + size(self.tail_lines()) + quotes + self.note_size()
    }

    fn note_size(&self) -> usize {
        let is_alone = self.quotes.is_empty() && self.is_selected;
        let note = self.note(self.all(), !is_alone).chars().count();
        note + if is_alone { 1 } else { SEPARATOR_ROOM }
    }

    /// Note in place of what is left out.
    fn note(&self, left_out: Amount, highlights_follow: bool) -> String {
        let amount = amount(left_out, self.unread);
        let follows = if highlights_follow { LINES_FOLLOW } else { "" };
        let hint = hint_clause(self.hint);
        format!("[… {amount}{hint}.{follows}]")
    }

    fn head_lines(&self) -> Vec<Shown> {
        let mut left = self.head_room;
        let mut lines = Vec::new();
        for (at, entry) in self.entries[..self.head].iter().enumerate() {
            let room = if at < self.head_lines {
                left
            } else {
                usize::MAX
            };
            let shown = entry.shown(room);
            left = left.saturating_sub(shown.size());
            lines.push(shown);
        }
        lines
    }

    fn tail_lines(&self) -> Vec<Shown> {
        let lines = self.entries[self.tail..].iter();
        lines.map(|entry| entry.shown(self.tail_room)).collect()
    }

    /// Lines and bytes of the whole output.
    fn all(&self) -> Amount {
        let mut all = self.dropped;
        self.entries
            .iter()
            .for_each(|entry| all.add(entry.stands_for()));
        all
    }

    /// Notes the gaps between head and tail.
    pub fn add_gaps(&mut self) {
        let mut gaps = 0;
        for (at, entry) in self.entries.iter().enumerate() {
            if let Folded::Gap(text) = &entry.what
                && (self.head..self.tail).contains(&at)
                && gaps < GAPS_MAX
            {
                gaps += 1;
                self.quotes.insert(at, Shown::note(text.clone()));
            }
        }
    }

    /// Adds lines behind the head and before the tail until the text has as many characters as the limit allows.
    /// Repetitions are added only as long as it has at most `max_repetitive`.
    pub fn fill(&mut self, max_chars: &[usize]) {
        let mut size = self.size();
        let (mut front, mut back) = (self.head, self.tail);
        let mut more = [true, true];
        while front < back && more != [false, false] {
            for (side, more) in more.iter_mut().enumerate() {
                while *more && front < back {
                    let at = if side == 0 { front } else { back - 1 };
                    (front, back) = match side {
                        0 => (front + 1, back),
                        _ => (front, back - 1),
                    };
                    let before = size;
                    match self.add(at, max_chars[at].saturating_sub(size)) {
                        Some(added) => size += added,
                        None => *more = max_chars[at] < self.limit,
                    }
                    if size > before {
                        break;
                    }
                }
            }
        }
        // A long line of the head that was cut takes what is left.
        self.head_room += self.limit.saturating_sub(self.size());
    }

    /// Adds an entry to head, tail or the lines between them. Returns by how many characters the text grows, at most
    /// `room`.
    fn add(&mut self, at: usize, room: usize) -> Option<usize> {
        let entry = &self.entries[at];
        let quoted = self.quotes.get(&at).map_or(0, Shown::size);
        let is_gap = matches!(entry.what, Folded::Gap(_));
        let is_next = at == self.head && !entry.after_hole;
        let tail = self.entries.get(self.tail);
        let is_previous = at + 1 == self.tail && !tail.is_some_and(|tail| tail.after_hole);
        let added = entry.chars.saturating_sub(quoted);
        let joins = !is_gap && added <= room;
        if joins && is_next {
            self.quotes.remove(&at);
            self.head += 1;
            return Some(added);
        }
        if joins && is_previous && entry.chars <= self.tail_room {
            self.quotes.remove(&at);
            self.tail -= 1;
            return Some(added);
        }
        let is_blank = |line: &Line| line.text.trim().is_empty();
        let is_whole = quoted >= entry.chars;
        if is_whole || matches!(&entry.what, Folded::Line(line) if is_blank(line)) {
            return Some(0);
        }
        // The note announces the first one.
        let announced = match self.quotes.is_empty() {
            true => SEPARATOR_ROOM + LINES_FOLLOW.len(),
            false => 0,
        };
        // A line that is too long takes what is left.
        let left = (room + quoted).saturating_sub(NUMBER_ROOM + announced);
        if entry.chars > left && left < BEGIN_CHARS {
            return None;
        }
        let shown = entry.numbered(left);
        let added = (shown.size() + announced).saturating_sub(quoted);
        self.quotes.insert(at, shown);
        Some(added)
    }

    /// Returns whether the output is a single line.
    fn is_one_line(&self) -> bool {
        self.entries.len() == 1 && self.dropped.lines == 0
    }

    /// Start of the first line that matters, for a limit that has no room for a whole one. Of an output that is one line
    /// it takes the room of the note too.
    fn start_of_line(&self, note: &str) -> Option<Shown> {
        let first = self.quotes.keys().next().copied().unwrap_or(0);
        let mut lines = self.entries[first..].iter();
        let line = lines.find_map(|entry| match &entry.what {
            Folded::Line(line) if line.count == 1 => Some(line),
            _ => None,
        })?;
        let is_alone = self.is_one_line();
        let room = match is_alone {
            true => self.limit,
            false => self.limit.saturating_sub(note.chars().count() + 1),
        };
        let Truncated { text, bytes } = truncate::start(&line.text, room);
        // With its newline, like every line that is shown.
        let (lines, bytes) = (0, bytes + u64::from(is_alone));
        let shows = Amount { lines, bytes };
        (room >= START_CHARS || is_alone).then_some(Shown { text, shows })
    }

    /// Drops the notes on repetitions of which not all lines are shown before them. Returns for what they stood.
    fn drop_orphans(&self, lines: &mut Vec<(usize, Shown)>) -> Amount {
        let shown: BTreeSet<usize> = lines.iter().map(|(at, _)| *at).collect();
        let mut dropped = Amount::default();
        lines.retain(|(at, line)| {
            let Folded::Note { period, lines, .. } = &self.entries[*at].what else {
                return true;
            };
            // Not the separator in front of it.
            if line.shows.lines != *lines {
                return true;
            }
            let begin = at.saturating_sub(*period);
            let is_whole = (begin..*at).all(|before| shown.contains(&before))
                && self.entries[begin + 1..=*at]
                    .iter()
                    .all(|entry| !entry.after_hole);
            if !is_whole {
                dropped.add(line.shows);
            }
            is_whole
        });
        dropped
    }

    /// Text, what it leaves out, and that it is shortened.
    pub fn compose(mut self) -> (String, Amount, bool) {
        let mut left_out = self.all();
        let head = (0..).zip(self.head_lines());
        let quotes = std::mem::take(&mut self.quotes);
        let tail = (self.tail..).zip(self.tail_lines());
        let mut lines: Vec<(usize, Shown)> = head.chain(quotes).chain(tail).collect();
        self.drop_orphans(&mut lines);
        let mut note_at = lines.partition_point(|(at, _)| *at < self.head);
        let tail_at = lines.partition_point(|(at, _)| *at < self.tail);
        let mut highlights = tail_at - note_at;
        let number = self.entries[self.tail..].iter().find_map(Entry::number);
        if let (Some(number), true) = (number, highlights > 0) {
            let separator = Shown::note(format!("[The end, from line {number}:]"));
            lines.insert(tail_at, (self.tail, separator));
            highlights += 1;
        }
        lines
            .iter()
            .for_each(|(_, line)| left_out.subtract(line.shows));
        // Needed only with a limit of a few hundred characters.
        let size = |lines: &[(usize, Shown)]| {
            let sizes = lines.iter().map(|(_, line)| line.size());
            sizes.sum::<usize>()
        };
        let mut note = self.note(left_out, highlights > 0);
        while size(&lines) + note.chars().count() > self.limit && !lines.is_empty() {
            let at = if lines.len() > note_at { note_at } else { 0 };
            left_out.add(lines.remove(at).1.shows);
            highlights = highlights.saturating_sub(1);
            left_out.add(self.drop_orphans(&mut lines));
            note_at = note_at.min(lines.len());
            note = self.note(left_out, highlights > 0);
        }
        let mut lines: Vec<Shown> = lines.into_iter().map(|(_, line)| line).collect();
        // More mark than text, or nothing at all.
        let shows_little = |line: &Shown| line.size() as u64 > 2 * line.shows.bytes;
        if lines.iter().all(shows_little)
            && let Some(start) = self.start_of_line(&note)
        {
            left_out = self.all();
            left_out.subtract(start.shows);
            lines.clear();
            if self.is_one_line() {
                return (start.text, left_out, true);
            }
            lines.push(start);
            note_at = 1;
            note = self.note(left_out, false);
        }
        let mut lines: Vec<String> = lines.into_iter().map(|line| line.text).collect();
        lines.insert(note_at, note);
        let text = lines.join("\n").chars().take(self.limit).collect();
        (text, left_out, true)
    }
}

/// Number of lines and bytes that are left out, with those that were not read. A part of a long line is no line.
pub fn amount(Amount { lines, bytes }: Amount, unread: u64) -> String {
    let counted = match (lines, unread) {
        (0, _) => format!("{bytes} bytes left out"),
        (_, 0) => format!("{}, {bytes} bytes left out", line_count(lines)),
        _ => format!("at least {}, {bytes} bytes left out", line_count(lines)),
    };
    match unread {
        0 => counted,
        _ => format!("{counted}, with a gap of {unread} bytes that were not read"),
    }
}

/// Hint as the end of a sentence.
pub fn hint_clause(hint: &str) -> String {
    match hint {
        "" => String::new(),
        hint => format!("; {hint}"),
    }
}

/// Number of lines in words: `1 line`, `2 lines`.
pub fn line_count(lines: u64) -> String {
    match lines {
        1 => "1 line".into(),
        lines => format!("{lines} lines"),
    }
}
