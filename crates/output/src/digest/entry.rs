//! Line of the text, or what stands for lines, and how it is shown.

use super::density::Kind;
use super::fold::{Folded, Line, LineNumber};
use super::signals::telling_place;
use super::truncate::{self, Truncated};

const BLANKS_LEFT_ALONE: u64 = 2;
/// Memory of a line beside its text, roughly.
const OVERHEAD: usize = 160;

/// Number of lines and bytes of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub lines: u64,
    pub bytes: u64,
}

impl Amount {
    pub fn add(&mut self, other: Amount) {
        self.lines += other.lines;
        self.bytes += other.bytes;
    }

    pub fn subtract(&mut self, other: Amount) {
        self.lines -= other.lines;
        self.bytes -= other.bytes;
    }
}

/// Line, or what stands for lines.
pub struct Entry {
    pub what: Folded,
    /// Number of characters with the newline.
    pub chars: usize,
    /// Lines before it were dropped.
    pub after_hole: bool,
    pub kind: Option<Kind>,
}

/// Entry as it is shown.
pub struct Shown {
    pub text: String,
    /// Lines and bytes of the output that it shows.
    pub shows: Amount,
}

impl Shown {
    /// Number of characters with the newline.
    pub fn size(&self) -> usize {
        self.text.chars().count() + 1
    }

    /// Line of ours that stands for no line of the output.
    pub fn note(text: String) -> Self {
        Shown {
            text,
            shows: Amount::default(),
        }
    }
}

impl Entry {
    pub fn new(what: Folded, kind: Option<Kind>) -> Self {
        let mut entry = Entry {
            what,
            chars: 0,
            after_hole: false,
            kind,
        };
        entry.chars = match &entry.what {
            Folded::Line(line) if line.omission.is_some() => usize::MAX >> 8,
            Folded::Line(line) if line.count == 1 => line.text.chars().count() + 1,
            _ => entry.text(usize::MAX).chars().count() + 1,
        };
        entry
    }

    /// Number of the line, if it is one.
    pub fn number(&self) -> Option<LineNumber> {
        match &self.what {
            Folded::Line(line) => Some(line.number),
            Folded::Note { .. } | Folded::Gap(_) => None,
        }
    }

    /// Lines and bytes of the output that it stands for.
    pub fn stands_for(&self) -> Amount {
        let (lines, bytes) = match &self.what {
            Folded::Line(line) => (line.count, line.bytes()),
            Folded::Note { lines, bytes, .. } => (*lines, *bytes),
            Folded::Gap(_) => (0, 0),
        };
        Amount { lines, bytes }
    }

    /// Entry with the number of its line, in at most `max_chars` characters beside it.
    pub fn numbered(&self, max_chars: usize) -> Shown {
        let mut shown = self.shown(max_chars);
        if let Some(number) = self.number() {
            shown.text = format!("{number}: {}", shown.text);
        }
        shown
    }

    /// Bytes of memory that it takes, roughly.
    pub fn memory(&self) -> usize {
        let text = match &self.what {
            Folded::Line(line) => line.text.len(),
            Folded::Note { text, .. } | Folded::Gap(text) => text.len(),
        };
        text + OVERHEAD
    }

    /// Text in at most `max_chars` characters, if it is a line.
    pub fn text(&self, max_chars: usize) -> String {
        self.shown(max_chars).text
    }

    /// Entry in at most `max_chars` characters, if it is a line.
    pub fn shown(&self, max_chars: usize) -> Shown {
        let mut shows = self.stands_for();
        let text = match &self.what {
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
                let Truncated { mut text, bytes } =
                    shortened(line, chars_beside(&count, max_chars));
                shows.bytes -= (line.bytes() / line.count.max(1)).saturating_sub(bytes + 1);
                text.push_str(&count);
                text
            }
        };
        Shown { text, shows }
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

/// Line in at most `max_chars` characters. Of a long line, the part that tells most is kept.
fn shortened(line: &Line, max_chars: usize) -> Truncated {
    let too_long = line.omission.is_some() || line.text.chars().count() > max_chars;
    match too_long.then(|| telling_place(&line.text)).flatten() {
        Some(at) => truncate::with_part(&line.text, line.omission, at, max_chars),
        None => truncate::middle(&line.text, line.omission, max_chars),
    }
}
