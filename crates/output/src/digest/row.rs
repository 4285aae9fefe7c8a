//! One row of the screen: text that can be written over, and a long text kept by its two ends.

/// Nothing writes over text farther right than this; no terminal is that wide. It bounds what a
/// single overwriting byte can cost.
const WIDE: usize = 512;
/// A row that is written over and has more bytes than this in so few cells is mostly marks (accents
/// and their like), which are left out then. It bounds the same.
const HEAVY: usize = 8 * WIDE;

/// How many bytes of a row are kept: that many from its begin, that many up to its end.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    pub head: usize,
    pub tail: usize,
}

/// A hole in the middle of a long line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// Byte offset in the kept text.
    pub at: usize,
    pub chars: u64,
    pub bytes: u64,
}

#[derive(Default)]
pub struct Row {
    text: String,
    /// Width in cells, those in the hole included.
    cells: usize,
    wide_or_combining: bool,
    /// A column and its byte offset, from which others are looked for.
    found: (usize, usize),
    hole: Option<Hole>,
    overwritten: bool,
    /// Characters that were passed over in search of a column.
    #[cfg(test)]
    passed_over: usize,
    /// How many newlines came before this row was last written to.
    pub newlines: u64,
}

impl Row {
    pub fn new(newlines: u64) -> Self {
        Row {
            newlines,
            ..Row::default()
        }
    }

    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Its text, where that was only ever added to.
    pub fn as_it_came(&self) -> Option<&str> {
        (!self.overwritten && self.hole.is_none()).then_some(&self.text)
    }

    pub fn clear(&mut self) {
        self.text.clear();
        self.cells = 0;
        self.wide_or_combining = false;
        self.found = (0, 0);
        self.hole = None;
        self.overwritten = false;
    }

    /// Blanks the row on screen, as something that had been written.
    pub fn erase(&mut self) {
        self.clear();
        self.overwritten = true;
    }

    /// Fills a cleared row with a line of ASCII.
    pub fn set(&mut self, line: &str) {
        self.text.push_str(line);
        self.cells = line.len();
    }

    /// Writes at a column and says where the cursor is then.
    pub fn write(&mut self, column: usize, text: &str, keep: Keep) -> usize {
        let plain = text.is_ascii();
        let width = if plain { text.len() } else { str_width(text) };
        if column == self.cells {
            self.append(text, plain, width, keep);
            return self.cells;
        }
        if column > self.cells {
            if column > WIDE {
                self.append(text, plain, width, keep);
                return self.cells;
            }
            let gap = column - self.cells;
            self.text.extend(std::iter::repeat_n(' ', gap));
            self.cells = column;
            self.append(text, plain, width, keep);
            return self.cells;
        }
        if self.is_long(keep) && column >= WIDE {
            self.append(text, plain, width, keep);
            return self.cells;
        }
        self.overwritten = true;
        if self.cells > WIDE {
            // A line longer than any screen is being written anew.
            self.truncate(column, keep);
            self.append(text, plain, width, keep);
            return self.cells;
        }
        // Not in the middle of a text: it must make no difference where that was cut.
        if self.text.len() > HEAVY && column != self.found.0 {
            self.drop_marks();
        }
        let start = self.split(column);
        let end = self.split(column + width);
        self.text.replace_range(start..end, text);
        self.wide_or_combining |= !plain;
        self.found = (column + width, start + text.len());
        self.cells = self.cells.max(column + width);
        column + width
    }

    fn append(&mut self, text: &str, plain: bool, width: usize, keep: Keep) {
        self.text.push_str(text);
        self.cells += width;
        self.wide_or_combining |= !plain;
        if self.overwritten {
            self.found = (self.cells, self.text.len());
        }
        if self.text.len() > keep.head + 2 * keep.tail {
            self.drop_middle(keep);
        }
    }

    /// Longer than what is kept of it? Must not depend on when the middle was dropped.
    fn is_long(&self, keep: Keep) -> bool {
        self.whole() > (keep.head + keep.tail) as u64
    }

    /// Bytes of the row, those not kept included.
    pub fn whole(&self) -> u64 {
        self.text.len() as u64 + self.hole.map_or(0, |hole| hole.bytes)
    }

    /// Forgets the middle of a long row. Done seldom, and then much at once.
    fn drop_middle(&mut self, keep: Keep) {
        let from = match self.hole {
            Some(hole) => hole.at,
            None => floor(&self.text, keep.head),
        };
        let to = ceil(&self.text, self.text.len().saturating_sub(keep.tail));
        if from >= to {
            return;
        }
        if self.found.1 > from {
            self.found = (0, 0);
        }
        let chars = self.text[from..to].chars().count() as u64;
        let bytes = (to - from) as u64;
        self.text.replace_range(from..to, "");
        let before = self.hole.map_or((0, 0), |hole| (hole.chars, hole.bytes));
        self.hole = Some(Hole {
            at: from,
            chars: before.0 + chars,
            bytes: before.1 + bytes,
        });
    }

    /// Ends the row at a column.
    pub fn truncate(&mut self, column: usize, keep: Keep) {
        if column >= self.cells || (self.is_long(keep) && column >= WIDE) {
            return;
        }
        let at = self.split(column);
        self.hole = None;
        self.text.truncate(at);
        self.found = (column, at);
        self.cells = column;
        self.overwritten = true;
    }

    /// Blanks the cells between two columns, as if spaces were written.
    pub fn blank(&mut self, from: usize, to: usize) {
        let to = to.min(self.cells);
        if from < to && self.cells <= WIDE {
            self.splice(from, to, to - from);
        }
    }

    pub fn delete(&mut self, column: usize, count: usize) {
        if column < self.cells && self.cells <= WIDE {
            self.splice(column, column.saturating_add(count), 0);
        }
    }

    pub fn insert(&mut self, column: usize, count: usize) {
        if column < self.cells && self.cells + count <= WIDE {
            self.splice(column, column, count);
        }
    }

    fn splice(&mut self, from: usize, to: usize, blanks: usize) {
        let to = to.min(self.cells);
        let start = self.split(from);
        let end = self.split(to);
        self.text.replace_range(start..end, &" ".repeat(blanks));
        self.found = (from, start);
        self.cells = self.cells - (to - from) + blanks;
        self.overwritten = true;
    }

    /// The row as it stays, with a hole wherever it is longer than what is kept.
    pub fn seal(&mut self, keep: Keep) -> (&str, Option<Hole>) {
        if self.is_long(keep) {
            self.drop_middle(keep);
        }
        let text = self.text.as_str();
        if self.overwritten {
            // Programs that paint pad with spaces; nobody sees them.
            return (text.trim_end_matches(' '), self.hole);
        }
        (text, self.hole)
    }

    fn drop_marks(&mut self) {
        self.text.retain(|c| char_width(c) > 0);
        self.found = (0, 0);
    }

    /// The byte offset of a column; of the row's end where it is shorter. A wide character that
    /// lies across the column is blanked, as a terminal does.
    fn split(&mut self, column: usize) -> usize {
        if !self.wide_or_combining {
            return column.min(self.text.len());
        }
        self.go_back_to(column);
        let (mut cells, from) = self.found;
        let mut found = None;
        for (at, c) in self.text[from..].char_indices() {
            #[cfg(test)]
            {
                self.passed_over += 1;
            }
            let (at, width) = (from + at, char_width(c));
            if cells >= column && width > 0 {
                self.found = (cells, at);
                return at;
            }
            if cells < column && cells + width > column {
                found = Some((at, at + c.len_utf8()));
                break;
            }
            cells += width;
        }
        match found {
            Some((start, end)) => {
                self.text.replace_range(start..end, "  ");
                self.found = (column, start + 1);
                start + 1
            }
            None => self.text.len(),
        }
    }

    /// Brings the place from which a column is looked for to that column or before it.
    fn go_back_to(&mut self, column: usize) {
        let (mut cells, mut at) = self.found;
        if column < cells / 2 {
            (cells, at) = (0, 0);
        }
        while cells > column {
            let Some(c) = self.text[..at].chars().next_back() else {
                break;
            };
            cells -= char_width(c).min(cells);
            at -= c.len_utf8();
            #[cfg(test)]
            {
                self.passed_over += 1;
            }
        }
        self.found = (cells, at);
    }
}

fn str_width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// Cells a character takes. A rough table: wrong only for writing over rare scripts.
#[inline]
fn char_width(c: char) -> usize {
    match u32::from(c) {
        // Latin; arrows, boxes and blocks; the replacement character.
        0..0x300 | 0x2100..0x2E80 | 0xFFFD => 1,
        code => rarer_width(code),
    }
}

fn rarer_width(code: u32) -> usize {
    match code {
        0x300..=0x36F | 0x483..=0x489 | 0x591..=0x5BD | 0x64B..=0x65F => 0,
        0x200B..=0x200D | 0x20D0..=0x20FF | 0xFE00..=0xFE0F | 0xFE20..=0xFE2F | 0xFEFF => 0,
        0x1100..=0x115F | 0x2E80..=0x303E | 0x3041..=0xA4CF | 0xAC00..=0xD7A3 => 2,
        0xF900..=0xFAFF | 0xFE30..=0xFE6F | 0xFF00..=0xFF60 | 0xFFE0..=0xFFE6 => 2,
        0x1F300..=0x1F64F | 0x1F680..=0x1F6FF | 0x1F900..=0x1F9FF | 0x20000..=0x3FFFD => 2,
        _ => 1,
    }
}

/// The largest character boundary not above `at`.
pub fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The smallest character boundary not below `at`.
pub fn ceil(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: Keep = Keep {
        head: 1 << 20,
        tail: 1 << 20,
    };

    /// Writes `text`, and then over it at each of these columns in turn, 10,000 times.
    fn written_over(text: &str, columns: &[usize]) -> Row {
        let mut row = Row::default();
        row.write(0, text, KEEP);
        for time in 0..10_000 {
            row.write(columns[time % columns.len()], "é", KEEP);
        }
        row
    }

    #[test]
    fn writing_over_wide_or_marked_text_passes_over_a_bounded_part_of_it() {
        let wide = written_over(&"日".repeat(250), &[400, 401, 402]);
        assert!(wide.passed_over < 20 * 10_000, "{}", wide.passed_over);
        let marked = format!("a{}b", "\u{301}".repeat(100_000));
        for columns in [&[1][..], &[0, 1]] {
            let row = written_over(&marked, columns);
            assert!(row.passed_over < 20 * 10_000, "{}", row.passed_over);
        }
    }

    #[test]
    fn a_column_is_found_from_either_side() {
        let mut row = Row::default();
        row.write(0, "日本語e\u{301}f", KEEP);
        for (column, text, wanted) in [
            (6, "x", "日本語xf"),
            (2, "ab", "日ab語xf"),
            (1, "-", " -ab語xf"),
            (5, "y", " -ab yxf"),
            (7, "zz", " -ab yxzz"),
            (0, "日", "日ab yxzz"),
        ] {
            row.write(column, text, KEEP);
            assert_eq!(row.seal(KEEP).0, wanted, "at {column}");
        }
        row.truncate(1, KEEP);
        row.write(1, "本", KEEP);
        assert_eq!(row.seal(KEEP).0, " 本");
    }
}
