//! Composition of the shortened text: head, note, important lines, tail.

use std::collections::BTreeMap;

use super::entry::{Amount, Entry, Shown};
use super::fold::Folded;
use super::select::Quote;
use super::truncate::{self, Truncated};

/// Maximum number of gaps that are noted in the part that is left out.
const GAPS_MAX: usize = 8;
/// Number of characters for the line between important lines and the tail.
const SEPARATOR_ROOM: usize = 50;
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
    pub quotes: BTreeMap<usize, Quote>,
    /// The important lines were selected.
    pub is_selected: bool,
    pub dropped: Amount,
    pub hint: &'a str,
}

impl Composition<'_> {
    /// Number of characters of all parts.
    pub fn size(&self) -> usize {
        let size = |lines: Vec<Shown>| lines.iter().map(Shown::size).sum::<usize>();
        let quotes: usize = self.quotes.values().map(Quote::size).sum();
        size(self.head_lines()) + size(self.tail_lines()) + quotes + self.note_size()
    }

    fn note_size(&self) -> usize {
        let is_alone = self.quotes.is_empty() && self.is_selected;
        let note = note(self.all(), self.hint, !is_alone).chars().count();
        note + if is_alone { 1 } else { SEPARATOR_ROOM }
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
                let quote = Quote {
                    text: text.clone(),
                    bytes: 0,
                };
                self.quotes.insert(at, quote);
            }
        }
    }

    /// Adds lines behind the head and before the tail until the text has `max_chars` characters.
    pub fn fill(&mut self, max_chars: usize) {
        let mut size = self.size();
        let mut more = [true, true];
        while self.head < self.tail && more != [false, false] {
            for (side, more) in more.iter_mut().enumerate() {
                if !*more || self.head == self.tail {
                    continue;
                }
                let at = if side == 0 { self.head } else { self.tail - 1 };
                let entry = &self.entries[at];
                let quoted = self.quotes.get(&at).map_or(0, Quote::size);
                let is_cut = match side {
                    0 => entry.after_hole,
                    _ => self
                        .entries
                        .get(self.tail)
                        .is_some_and(|next| next.after_hole),
                };
                let after = size.saturating_add(entry.chars).saturating_sub(quoted);
                if is_cut
                    || matches!(entry.what, Folded::Gap(_))
                    || after > max_chars
                    || entry.chars > self.tail_room
                {
                    *more = false;
                    continue;
                }
                size = after;
                self.quotes.remove(&at);
                match side {
                    0 => self.head += 1,
                    _ => self.tail -= 1,
                }
            }
        }
        // A long line of the head that was cut takes what is left.
        self.head_room += max_chars.saturating_sub(self.size());
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

    /// Text, what it leaves out, and that it is shortened.
    pub fn compose(self) -> (String, Amount, bool) {
        let mut left_out = self.all();
        let mut lines = self.head_lines();
        let mut note_at = lines.len();
        let mut highlights = self.quotes.len();
        let number = self.entries[self.tail..].iter().find_map(Entry::number);
        lines.extend(self.quotes.values().map(|quote| Shown {
            text: quote.text.clone(),
            shows: Amount {
                lines: u64::from(quote.bytes > 0),
                bytes: quote.bytes,
            },
        }));
        if let (Some(number), true) = (number, highlights > 0) {
            lines.push(Shown::note(format!("[The end, from line {number}:]")));
            highlights += 1;
        }
        lines.extend(self.tail_lines());
        lines.iter().for_each(|line| left_out.subtract(line.shows));
        // Needed only with a limit of a few hundred characters.
        let size = |lines: &[Shown]| lines.iter().map(Shown::size).sum::<usize>();
        let mut note = note(left_out, self.hint, highlights > 0);
        while size(&lines) + note.chars().count() > self.limit && !lines.is_empty() {
            let at = if lines.len() > note_at { note_at } else { 0 };
            left_out.add(lines.remove(at).shows);
            highlights = highlights.saturating_sub(1);
            note = self::note(left_out, self.hint, highlights > 0);
            note_at = note_at.min(lines.len());
        }
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
            note = self::note(left_out, self.hint, false);
        }
        let mut lines: Vec<String> = lines.into_iter().map(|line| line.text).collect();
        lines.insert(note_at, note);
        let text = lines.join("\n").chars().take(self.limit).collect();
        (text, left_out, true)
    }
}

/// Note in place of what is left out.
fn note(left_out: Amount, hint: &str, highlights_follow: bool) -> String {
    let amount = amount(left_out);
    let follows = if highlights_follow {
        " What matters of it, by line number:"
    } else {
        ""
    };
    let hint = hint_clause(hint);
    format!("[… {amount} left out{hint}.{follows}]")
}

/// Number of lines and bytes. A part of a long line is no line.
pub fn amount(Amount { lines, bytes }: Amount) -> String {
    match lines {
        0 => format!("{bytes} bytes"),
        lines => format!("{}, {bytes} bytes", line_count(lines)),
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
