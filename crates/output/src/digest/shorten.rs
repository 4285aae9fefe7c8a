//! Shortening of a text that is too long: head, highlights and tail.
//!
//! The text is not cut at the limit. Some lines of its begin, more of its end and the important lines
//! between them are kept.

use std::collections::VecDeque;

use super::filler::Filler;
use super::fold::{FoldSink, Folded, Line, LineNumber};
use super::highlights::{Budget, Highlight, Highlights};
use super::importance::{self, Importance};
use super::truncate::{self, Truncated};

/// Limit for which the numbers of lines below are meant. They grow with a higher limit.
const USUAL_CHARS: usize = 10_000;
const HEAD_LINES: usize = 20;
const TAIL_LINES: usize = 60;
const HEAD_PERCENT: usize = 12;
const TAIL_PERCENT: usize = 36;
/// A line that is too long for the rest of the head is truncated to fit, if at least this many characters
/// are left.
const BEGIN_CHARS: usize = 200;
/// Maximum number of gaps that are noted in the part that is left out.
const GAPS_MAX: usize = 8;
const BLANKS_LEFT_ALONE: u64 = 2;

/// Lines of the text, as many as may be shown.
pub struct Shortener {
    limit: usize,
    hint: String,
    head: Vec<Entry>,
    head_chars: usize,
    head_is_full: bool,
    /// All lines at first; the tail, when they are too long.
    recent: VecDeque<Entry>,
    recent_chars: usize,
    crowded: bool,
    highlights: Highlights,
    filler: Filler,
    gaps: Vec<Highlight>,
    left_out: LeftOut,
    number: LineNumber,
}

/// Number of lines and bytes that are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    pub lines: u64,
    pub bytes: u64,
}

/// Line, or what stands for lines.
pub struct Entry {
    pub what: Folded,
    /// Number of characters with the newline.
    pub chars: usize,
    /// Maximum number of characters of it, if known.
    room: usize,
}

impl Shortener {
    pub fn new(limit: usize, hint: &str) -> Self {
        Shortener {
            limit,
            hint: hint.to_owned(),
            head: Vec::new(),
            head_chars: 0,
            head_is_full: false,
            recent: VecDeque::new(),
            recent_chars: 0,
            crowded: false,
            highlights: Highlights::default(),
            filler: Filler::new(limit),
            gaps: Vec::new(),
            left_out: LeftOut::default(),
            number: LineNumber::default(),
        }
    }

    pub fn finish(mut self) -> (String, LeftOut, bool) {
        if !self.crowded {
            let lines: Vec<_> = self.recent.iter().map(|e| e.text(usize::MAX)).collect();
            return (lines.join("\n"), self.left_out, false);
        }
        let shown = |entries: &mut dyn Iterator<Item = &Entry>, room| -> Vec<ShownLine> {
            entries.map(|entry| entry.shown(room)).collect()
        };
        let mut lines = shown(&mut self.head.iter(), self.head_room());
        let tail = shown(&mut self.recent.iter(), self.tail_room());
        self.left_out.bytes += lines.iter().chain(&tail).map(|line| line.cut).sum::<u64>();
        let size = |lines: &[ShownLine]| lines.iter().map(ShownLine::size).sum::<usize>();
        let used = size(&lines) + size(&tail);
        let note = self.note(true).chars().count() + 40;
        let room = self.limit.saturating_sub(used + note);
        let mut kept = self.highlights(room);
        let filler = std::mem::replace(&mut self.filler, Filler::new(0));
        let mut before_tail = Vec::new();
        let mut tail_number = self.recent.iter().find_map(Entry::number);
        if filler.is_dense() {
            let size: usize = kept.iter().map(|kept| kept.text.chars().count() + 1).sum();
            let (after_head, before) = filler.select(room.saturating_sub(size), &mut kept);
            lines.extend(shown(&mut after_head.iter(), usize::MAX));
            before_tail = shown(&mut before.iter(), usize::MAX);
            tail_number = before.iter().find_map(Entry::number).or(tail_number);
            for line in lines[self.head.len()..].iter().chain(&before_tail) {
                self.left_out.lines -= line.holds.lines;
                self.left_out.bytes -= line.holds.bytes;
            }
        }
        for line in &kept {
            self.left_out.lines = self.left_out.lines.saturating_sub(line.lines);
            self.left_out.bytes = self.left_out.bytes.saturating_sub(line.bytes);
        }
        let note_at = lines.len();
        let mut highlights = kept.len();
        lines.extend(kept.into_iter().map(ShownLine::from));
        if let (Some(number), true) = (tail_number, highlights > 0) {
            lines.push(ShownLine::note(format!("[The end, from line {number}:]")));
            highlights += 1;
        }
        lines.extend(before_tail);
        lines.extend(tail);
        // Needed only with a limit of a few hundred characters.
        while size(&lines) + self.note(highlights > 0).chars().count() > self.limit
            && !lines.is_empty()
        {
            let at = if lines.len() > note_at { note_at } else { 0 };
            let ShownLine { holds, .. } = lines.remove(at);
            self.left_out.lines += holds.lines;
            self.left_out.bytes += holds.bytes;
            highlights = highlights.saturating_sub(1);
        }
        let note_at = note_at.min(lines.len());
        let mut lines: Vec<String> = lines.into_iter().map(|line| line.text).collect();
        lines.insert(note_at, self.note(highlights > 0));
        let text = lines.join("\n").chars().take(self.limit).collect();
        (text, self.left_out, true)
    }

    fn highlights(&mut self, all: usize) -> Vec<Highlight> {
        let share = |percent: usize| self.limit * percent / 100;
        let gaps: Vec<_> = std::mem::take(&mut self.gaps);
        let gap_chars: usize = gaps.iter().map(|kept| kept.text.chars().count() + 1).sum();
        let room = Budget {
            all: all.saturating_sub(gap_chars),
            further: share(15),
            summaries: share(6),
            mentions: share(8),
            warnings: share(8),
        };
        let mut kept = std::mem::take(&mut self.highlights).select(room);
        kept.extend(gaps);
        kept.sort_by_key(|kept| kept.number);
        kept
    }

    fn note(&self, highlights_follow: bool) -> String {
        let LeftOut { lines, bytes } = self.left_out;
        let lines = line_count(lines);
        let follows = if highlights_follow {
            " What matters of it, by line number:"
        } else {
            ""
        };
        let hint = hint_clause(&self.hint);
        format!("[… {lines}, {bytes} bytes left out{hint}.{follows}]")
    }

    fn head_room(&self) -> usize {
        self.limit * HEAD_PERCENT / 100
    }

    fn tail_room(&self) -> usize {
        self.limit * TAIL_PERCENT / 100
    }

    /// Number of lines, scaled with a higher limit.
    fn scaled(&self, lines: usize) -> usize {
        lines * self.limit.max(USUAL_CHARS) / USUAL_CHARS
    }

    /// Reduces the held lines to head and tail.
    fn trim(&mut self) {
        while !self.head_is_full {
            let Some(entry) = self.recent.front() else {
                return;
            };
            let left = self.head_room().saturating_sub(self.head_chars);
            let fits = entry.chars <= left || left >= BEGIN_CHARS;
            if !fits || self.head.len() >= self.scaled(HEAD_LINES) {
                self.head_is_full = true;
                break;
            }
            if let Some(mut entry) = self.pop() {
                entry.room = left;
                self.head_chars += entry.chars.min(left);
                if let Folded::Line(line) = &entry.what {
                    self.highlights.note(line);
                }
                self.head.push(entry);
            }
        }
        let lines = self.scaled(TAIL_LINES);
        while self.recent.len() > lines
            || (self.recent_chars > self.tail_room() && self.recent.len() > 1)
        {
            if let Some(entry) = self.pop() {
                self.leave_out(entry);
            }
        }
    }

    fn pop(&mut self) -> Option<Entry> {
        let entry = self.recent.pop_front()?;
        self.recent_chars -= entry.chars;
        Some(entry)
    }

    fn leave_out(&mut self, entry: Entry) {
        match &entry.what {
            Folded::Line(line) => {
                self.left_out.lines += line.count;
                self.left_out.bytes += line.bytes();
                self.number = line.number;
                self.highlights.add(line);
            }
            Folded::Note {
                period,
                lines,
                bytes,
                ..
            } => {
                self.left_out.lines += lines;
                self.left_out.bytes += bytes;
                self.highlights.repeat(*period, *lines);
            }
            Folded::Gap(text) => {
                if self.gaps.len() < GAPS_MAX {
                    self.gaps.push(Highlight {
                        number: self.number,
                        last: self.number,
                        text: text.clone(),
                        lines: 0,
                        bytes: 0,
                    });
                }
            }
        }
        self.filler.keep(entry);
    }
}

impl FoldSink for Shortener {
    fn folded(&mut self, what: Folded) {
        let entry = Entry::new(what);
        self.recent_chars += entry.chars;
        self.recent.push_back(entry);
        // The last line has no newline.
        if self.crowded || self.recent_chars > self.limit + 1 {
            self.crowded = true;
            self.trim();
        }
    }

    fn is_crowded(&self) -> bool {
        self.crowded
    }
}

impl Entry {
    /// Number of the line, if it is one.
    pub fn number(&self) -> Option<LineNumber> {
        match &self.what {
            Folded::Line(line) => Some(line.number),
            Folded::Note { .. } | Folded::Gap(_) => None,
        }
    }

    fn new(what: Folded) -> Self {
        let mut entry = Entry {
            what,
            chars: 0,
            room: usize::MAX,
        };
        entry.chars = match &entry.what {
            Folded::Line(line) if line.omission.is_some() => usize::MAX >> 8,
            Folded::Line(line) if line.count == 1 => line.text.chars().count() + 1,
            _ => entry.text(usize::MAX).chars().count() + 1,
        };
        entry
    }

    fn text(&self, max_chars: usize) -> String {
        let max_chars = max_chars.min(self.room);
        match &self.what {
            Folded::Note { text, .. } | Folded::Gap(text) => text.clone(),
            Folded::Line(line) if line.text.is_empty() && line.count > 1 => {
                if line.count <= BLANKS_LEFT_ALONE {
                    "\n".repeat(usize::try_from(line.count).unwrap_or(1) - 1)
                } else {
                    format!("[{} blank lines]", line.count)
                }
            }
            Folded::Line(line) => {
                let count = times(line);
                let mut text = shortened(line, chars_beside(&count, max_chars)).text;
                text.push_str(&count);
                text
            }
        }
    }

    fn shown(&self, max_chars: usize) -> ShownLine {
        let (lines, bytes) = match &self.what {
            Folded::Line(line) => (line.count, line.bytes()),
            Folded::Note { lines, bytes, .. } => (*lines, *bytes),
            Folded::Gap(_) => (0, 0),
        };
        let cut = self.bytes_truncated(max_chars);
        let bytes = bytes - cut;
        ShownLine {
            text: self.text(max_chars),
            holds: LeftOut { lines, bytes },
            cut,
        }
    }

    /// Number of bytes that truncation of the line leaves out.
    fn bytes_truncated(&self, max_chars: usize) -> u64 {
        match &self.what {
            Folded::Line(line) => {
                let room = chars_beside(&times(line), max_chars.min(self.room));
                let shown = shortened(line, room).bytes;
                (line.bytes() / line.count.max(1)).saturating_sub(shown + 1)
            }
            Folded::Note { .. } | Folded::Gap(_) => 0,
        }
    }
}

/// Line of the text, and what it stands for.
struct ShownLine {
    text: String,
    holds: LeftOut,
    /// Number of bytes that its truncation has left out.
    cut: u64,
}

impl ShownLine {
    /// Number of characters with the newline.
    fn size(&self) -> usize {
        self.text.chars().count() + 1
    }
}

impl ShownLine {
    /// Line of ours that stands for no line of the output.
    fn note(text: String) -> Self {
        ShownLine {
            text,
            holds: LeftOut::default(),
            cut: 0,
        }
    }
}

impl From<Highlight> for ShownLine {
    fn from(kept: Highlight) -> Self {
        ShownLine {
            text: kept.text,
            holds: LeftOut {
                lines: kept.lines,
                bytes: kept.bytes,
            },
            cut: 0,
        }
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

/// Count of a line that came more than once.
fn times(line: &Line) -> String {
    match line.count {
        1 => String::new(),
        count => format!(" [×{count}]"),
    }
}

/// Number of characters for a line before this note.
fn chars_beside(note: &str, max_chars: usize) -> usize {
    max_chars.saturating_sub(note.chars().count() + 1)
}

/// Line in at most `max_chars` characters. Of a long line with an error, the part with the error is kept.
fn shortened(line: &Line, max_chars: usize) -> Truncated {
    let too_long = line.omission.is_none() && line.text.chars().count() > max_chars;
    let found = too_long.then(|| importance::classify(&line.text)).flatten();
    match found {
        Some(found) if found.importance == Importance::Error => {
            truncate::around(&line.text, found.at, max_chars)
        }
        _ => truncate::middle(&line.text, line.omission, max_chars),
    }
}
