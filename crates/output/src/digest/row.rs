//! Row of the screen: text that can be overwritten. Of a long text only both ends are kept, and a part that matters.

use super::signals::telling_place;

/// Text right of this column cannot be overwritten; no terminal is that wide. Bounds the work for one
/// overwriting byte.
const MAX_COLUMNS: usize = 512;
/// Maximum bytes of a row that is being overwritten. A larger one is mostly combining characters, which
/// are dropped then. Bounds the same work.
const MAX_CELL_BYTES: usize = 8 * MAX_COLUMNS;

/// A row up to this size is held whole until it ends, so that the part of it that matters can be found.
const WHOLE_BYTES: usize = 1 << 20;
/// Bytes before and behind the place in a long row that matters, which are kept with it.
const PART_BEFORE: usize = 200;
const PART_AFTER: usize = 600;

/// Omitted middle of a long line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Omission {
    /// Byte offset in the kept text.
    pub at: usize,
    /// Number of bytes of the kept text from that offset on that are a part of the middle, because it matters.
    pub part: usize,
    pub chars: u64,
    /// Number of those characters that are before that part.
    pub chars_before: u64,
    /// Number of bytes of the omitted text.
    bytes: u64,
    /// Number of bytes of the output that it stands for.
    pub output_bytes: u64,
}

/// Number of bytes that are searched for U+FFFD at once, so that their count fits into a byte.
const COUNTED_AT_ONCE: usize = 192;

/// Number of bytes of the output that a text stands for. An invalid byte was replaced by U+FFFD, which has three bytes.
pub fn output_bytes(text: &str) -> u64 {
    if text.is_ascii() {
        return text.len() as u64;
    }
    // Without branches and with counts in bytes, the compiler compares many bytes at a time.
    let parts = |from: usize| text.as_bytes()[from.min(text.len())..].chunks(COUNTED_AT_ONCE);
    let is_replaced =
        |((a, b), c): ((&u8, &u8), &u8)| u8::from((*a == 0xEF) & (*b == 0xBF) & (*c == 0xBD));
    let parts = parts(0).zip(parts(1)).zip(parts(2));
    let counts = parts.map(|((a, b), c)| a.iter().zip(b).zip(c).map(is_replaced).sum::<u8>());
    let replaced: usize = counts.map(usize::from).sum();
    (text.len() - 2 * replaced) as u64
}

/// Text of a row and its width.
#[derive(Default)]
pub struct Row {
    text: String,
    /// Width in cells, including omitted text.
    cells: usize,
    wide_or_combining: bool,
    /// A column and its byte offset, from which other columns are searched.
    anchor: (usize, usize),
    omission: Option<Omission>,
    overwritten: bool,
    /// Number of characters scanned in search of a column.
    #[cfg(test)]
    chars_scanned: usize,
    /// Number of newlines in the stream before the last write to this row.
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

    /// Text, if it was never overwritten or shortened.
    pub fn unmodified_text(&self) -> Option<&str> {
        (!self.overwritten && self.omission.is_none()).then_some(&self.text)
    }

    pub fn clear(&mut self) {
        self.text.clear();
        self.cells = 0;
        self.wide_or_combining = false;
        self.anchor = (0, 0);
        self.omission = None;
        self.overwritten = false;
    }

    /// Erases the row, which counts as overwriting it.
    pub fn erase(&mut self) {
        self.clear();
        self.overwritten = true;
    }

    /// Fills a cleared row with a line of ASCII.
    pub fn set(&mut self, line: &str) {
        self.text.push_str(line);
        self.cells = line.len();
    }

    /// Writes at a column and returns the column behind the text.
    pub fn write(&mut self, column: usize, text: &str, keep: usize) -> usize {
        let plain = text.is_ascii();
        let width = if plain { text.len() } else { str_width(text) };
        if column == self.cells {
            self.append(text, plain, width, keep);
            return self.cells;
        }
        if column > self.cells {
            if column > MAX_COLUMNS {
                self.append(text, plain, width, keep);
                return self.cells;
            }
            let gap = column - self.cells;
            self.text.extend(std::iter::repeat_n(' ', gap));
            self.cells = column;
            self.append(text, plain, width, keep);
            return self.cells;
        }
        if self.is_long(keep) && column >= MAX_COLUMNS {
            self.append(text, plain, width, keep);
            return self.cells;
        }
        self.overwritten = true;
        if self.cells > MAX_COLUMNS {
            // A line wider than any screen is being rewritten.
            self.truncate(column, keep);
            self.append(text, plain, width, keep);
            return self.cells;
        }
        // Only at the begin of a write: the result must not depend on how the stream was cut.
        if self.text.len() > MAX_CELL_BYTES && column != self.anchor.0 {
            self.drop_combining();
        }
        let start = self.offset_of(column);
        let end = self.offset_of(column + width);
        self.text.replace_range(start..end, text);
        self.wide_or_combining |= !plain;
        self.anchor = (column + width, start + text.len());
        self.cells = self.cells.max(column + width);
        column + width
    }

    fn append(&mut self, text: &str, plain: bool, width: usize, keep: usize) {
        self.text.push_str(text);
        self.cells += width;
        self.wide_or_combining |= !plain;
        if self.overwritten {
            self.anchor = (self.cells, self.text.len());
        }
        if self.text.len() > WHOLE_BYTES.max(3 * keep) {
            self.drop_middle(keep);
        }
    }

    /// Returns whether the row is longer than what is kept. Must not depend on when the middle was dropped.
    pub fn is_long(&self, keep: usize) -> bool {
        self.total_bytes() > (2 * keep) as u64
    }

    /// Number of bytes of the row, including omitted ones.
    pub fn total_bytes(&self) -> u64 {
        self.text.len() as u64 + self.omission.map_or(0, |omission| omission.bytes)
    }

    /// Drops the middle of a long row. Done rarely, and much at once.
    fn drop_middle(&mut self, keep: usize) {
        let from = match self.omission {
            // The part that matters is there already.
            Some(omission) if omission.part > 0 => return,
            Some(omission) => omission.at,
            None => floor(&self.text, keep),
        };
        let to = ceil(&self.text, self.text.len().saturating_sub(keep));
        if from >= to {
            return;
        }
        if self.anchor.1 > from {
            self.anchor = (0, 0);
        }
        let dropped = &self.text[from..to];
        let before = self.omission.unwrap_or_default();
        self.omission = Some(Omission {
            at: from,
            part: 0,
            chars_before: 0,
            chars: before.chars + dropped.chars().count() as u64,
            bytes: before.bytes + dropped.len() as u64,
            output_bytes: before.output_bytes + output_bytes(dropped),
        });
        self.text.replace_range(from..to, "");
    }

    /// Ends the row at a column.
    pub fn truncate(&mut self, column: usize, keep: usize) {
        if column >= self.cells || (self.is_long(keep) && column >= MAX_COLUMNS) {
            return;
        }
        let at = self.offset_of(column);
        self.omission = None;
        self.text.truncate(at);
        self.anchor = (column, at);
        self.cells = column;
        self.overwritten = true;
    }

    /// Replaces the cells between two columns with spaces.
    pub fn blank(&mut self, from: usize, to: usize) {
        let to = to.min(self.cells);
        if from < to && self.cells <= MAX_COLUMNS {
            self.splice(from, to, to - from);
        }
    }

    pub fn delete(&mut self, column: usize, count: usize) {
        if column < self.cells && self.cells <= MAX_COLUMNS {
            self.splice(column, column.saturating_add(count), 0);
        }
    }

    pub fn insert(&mut self, column: usize, count: usize) {
        if column < self.cells && self.cells + count <= MAX_COLUMNS {
            self.splice(column, column, count);
        }
    }

    fn splice(&mut self, from: usize, to: usize, blanks: usize) {
        let to = to.min(self.cells);
        let start = self.offset_of(from);
        let end = self.offset_of(to);
        self.text.replace_range(start..end, &" ".repeat(blanks));
        self.anchor = (from, start);
        self.cells = self.cells - (to - from) + blanks;
        self.overwritten = true;
    }

    /// Final text of the row, with its omission if it is long.
    pub fn seal(&mut self, keep: usize) -> (&str, Option<Omission>) {
        if self.is_long(keep) {
            self.drop_middle(keep);
        }
        let text = self.text.as_str();
        if self.overwritten {
            // Programs that paint pad with spaces, which are invisible.
            return (text.trim_end_matches(' '), self.omission);
        }
        (text, self.omission)
    }

    /// Drops the middle of a long row that has ended, but for a part that matters.
    pub fn drop_middle_around_part(&mut self, keep: usize) {
        let Some((before, part)) = self.part_that_matters(keep) else {
            return;
        };
        self.drop_middle(keep);
        if let Some(omission) = &mut self.omission {
            self.text.insert_str(omission.at, &part);
            omission.part = part.len();
            omission.chars -= part.chars().count() as u64;
            omission.bytes -= part.len() as u64;
            omission.output_bytes -= output_bytes(&part);
            omission.chars_before = before;
        }
    }

    /// Part of the middle of a long row that matters, and the number of characters of the middle before it.
    fn part_that_matters(&self, keep: usize) -> Option<(u64, String)> {
        if self.omission.is_some() {
            return None;
        }
        let middle =
            floor(&self.text, keep)..ceil(&self.text, self.text.len().saturating_sub(keep));
        let at = telling_place(&self.text).filter(|at| middle.contains(at))?;
        let from = floor(&self.text, at.saturating_sub(PART_BEFORE)).max(middle.start);
        let to = ceil(&self.text, at + PART_AFTER).min(middle.end);
        let before = self.text[middle.start..from].chars().count() as u64;
        Some((before, self.text[from..to].to_owned()))
    }

    fn drop_combining(&mut self) {
        self.text.retain(|c| char_width(c) > 0);
        self.anchor = (0, 0);
    }

    /// Byte offset of a column, or of the end of the row if it is shorter. A wide character across the
    /// column is replaced with spaces, as terminals do.
    fn offset_of(&mut self, column: usize) -> usize {
        if !self.wide_or_combining {
            return column.min(self.text.len());
        }
        self.move_anchor_before(column);
        let (mut cells, from) = self.anchor;
        let mut anchor = None;
        for (at, c) in self.text[from..].char_indices() {
            #[cfg(test)]
            {
                self.chars_scanned += 1;
            }
            let (at, width) = (from + at, char_width(c));
            if cells >= column && width > 0 {
                self.anchor = (cells, at);
                return at;
            }
            if cells < column && cells + width > column {
                anchor = Some((at, at + c.len_utf8()));
                break;
            }
            cells += width;
        }
        match anchor {
            Some((start, end)) => {
                self.text.replace_range(start..end, "  ");
                self.anchor = (column, start + 1);
                start + 1
            }
            None => self.text.len(),
        }
    }

    /// Moves the anchor to the column or before it.
    fn move_anchor_before(&mut self, column: usize) {
        let (mut cells, mut at) = self.anchor;
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
                self.chars_scanned += 1;
            }
        }
        self.anchor = (cells, at);
    }
}

fn str_width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// Width of a character in cells. A rough table: wrong only for overwritten text in rare scripts.
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

/// Largest character boundary that is not above `at`.
pub fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Smallest character boundary that is not below `at`.
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

    const KEEP: usize = 1 << 20;

    /// Writes `text` and overwrites it at these columns in turn, 10,000 times.
    fn written_over(text: &str, columns: &[usize]) -> Row {
        let mut row = Row::default();
        row.write(0, text, KEEP);
        for time in 0..10_000 {
            row.write(columns[time % columns.len()], "é", KEEP);
        }
        row
    }

    #[test]
    fn overwriting_wide_or_combining_text_scans_a_bounded_part_of_it() {
        let wide = written_over(&"日".repeat(250), &[400, 401, 402]);
        assert!(wide.chars_scanned < 20 * 10_000, "{}", wide.chars_scanned);
        let marked = format!("a{}b", "\u{301}".repeat(100_000));
        for columns in [&[1][..], &[0, 1]] {
            let row = written_over(&marked, columns);
            assert!(row.chars_scanned < 20 * 10_000, "{}", row.chars_scanned);
        }
    }

    #[test]
    fn replaced_bytes_count_once_wherever_they_are() {
        assert_eq!(output_bytes(""), 0);
        assert_eq!(output_bytes("ü"), 2);
        assert_eq!(output_bytes("\u{fffd}"), 1);
        for before in 0..3 * COUNTED_AT_ONCE {
            let text = "a".repeat(before) + "\u{fffd}\u{fffe}\u{fffd}ü";
            assert_eq!(output_bytes(&text), before as u64 + 7, "{before}");
        }
        let all = "\u{fffd}".repeat(1_000);
        assert_eq!(output_bytes(&all), 1_000);
    }

    #[test]
    fn column_is_found_from_either_side() {
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
