//! Final text of one line of output, after carriage returns and cursor movements.

use super::csi::{EraseRange, TerminalOp};
use super::decoder::{Decoder, Surface};
use super::row::Row;
use super::truncate;

/// Rows that one line of raw output shows on a terminal. Usually it is one; a program that paints the
/// screen writes several rows without a newline. A row longer than `max_chars` is truncated in its middle.
///
/// ```
/// use abide_output::digest::rendered_rows;
///
/// assert_eq!(rendered_rows(b" 10%\r100% \x1b[32mok\x1b[0m\r", 80), ["100% ok"]);
/// ```
pub fn rendered_rows(raw: &[u8], max_chars: usize) -> Vec<String> {
    // Lines of a terminal end with a carriage return, which changes nothing.
    let end = raw.iter().rposition(|byte| *byte != b'\r');
    let line = &raw[..end.map_or(0, |end| end + 1)];
    if line.len() <= max_chars && line.iter().all(|byte| matches!(byte, 0x20..=0x7e)) {
        return vec![String::from_utf8_lossy(line).into_owned()];
    }
    let mut collector = RowCollector {
        keep: 4 * max_chars,
        max_chars,
        row: Row::default(),
        column: 0,
        rows: Vec::new(),
    };
    let mut decoder = Decoder::default();
    decoder.feed(raw, &mut collector);
    decoder.cut(&mut collector);
    if collector.rows.is_empty() || !collector.row.is_empty() {
        collector.seal();
    }
    collector.rows
}

struct RowCollector {
    /// Number of bytes that are kept at the begin and at the end of a row.
    keep: usize,
    max_chars: usize,
    row: Row,
    column: usize,
    rows: Vec<String>,
}

impl RowCollector {
    fn seal(&mut self) {
        let (text, omission) = self.row.seal(self.keep);
        self.rows
            .push(truncate::middle(text, omission, self.max_chars).text);
        self.row.clear();
        self.column = 0;
    }

    /// Ends the row, because the cursor moves to another one.
    fn next_row(&mut self) {
        if !self.row.is_empty() {
            self.seal();
        }
        self.column = 0;
    }

    fn erase(&mut self, part: EraseRange) {
        match part {
            EraseRange::After => self.row.truncate(self.column, self.keep),
            EraseRange::Before => self.row.blank(0, self.column + 1),
            EraseRange::All => self.row.erase(),
        }
    }
}

impl Surface for RowCollector {
    fn text(&mut self, text: &str) {
        self.column = self.row.write(self.column, text, self.keep);
    }

    fn op(&mut self, op: TerminalOp) {
        match op {
            TerminalOp::Return => self.column = 0,
            TerminalOp::Backspace => self.column = self.column.saturating_sub(1),
            TerminalOp::Right(by) => self.column += usize::from(by),
            TerminalOp::Left(by) => self.column = self.column.saturating_sub(by.into()),
            TerminalOp::Column(to) => self.column = to.into(),
            TerminalOp::EraseLine(part) => self.erase(part),
            TerminalOp::EraseChars(count) => {
                self.row
                    .blank(self.column, self.column + usize::from(count));
            }
            TerminalOp::DeleteChars(count) => self.row.delete(self.column, count.into()),
            TerminalOp::InsertChars(count) => self.row.insert(self.column, count.into()),
            TerminalOp::Save
            | TerminalOp::Restore
            | TerminalOp::Region(_)
            | TerminalOp::EraseScreen(_) => {}
            TerminalOp::Newline
            | TerminalOp::Index
            | TerminalOp::Up(_)
            | TerminalOp::Down(_)
            | TerminalOp::Row(_)
            | TerminalOp::To(..)
            | TerminalOp::InsertLines(_)
            | TerminalOp::DeleteLines(_)
            | TerminalOp::ScrollUp(_)
            | TerminalOp::ScrollDown(_)
            | TerminalOp::ReverseIndex
            | TerminalOp::AlternateOn
            | TerminalOp::AlternateOff
            | TerminalOp::Reset => self.next_row(),
        }
    }

    fn at_fresh_line(&self) -> bool {
        self.row.is_empty() && self.column == 0
    }

    fn line(&mut self, line: &str) {
        self.text(line);
        self.next_row();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(raw: &str) -> Vec<String> {
        rendered_rows(raw.as_bytes(), 100)
    }

    #[test]
    fn overwritten_text_is_replaced() {
        assert_eq!(seen("plain"), ["plain"]);
        assert_eq!(seen(""), [""]);
        assert_eq!(seen("\r"), [""]);
        assert_eq!(
            seen("as it ends at a terminal\r\r"),
            ["as it ends at a terminal"]
        );
        assert_eq!(seen("\rplain\r"), ["plain"]);
        assert_eq!(seen("\u{feff}a\u{feff}"), ["a\u{fffd}"]);
        assert_eq!(seen("\x1b[1;31merror\x1b[0m: x\r"), ["error: x"]);
        assert_eq!(seen(" 10%\r 20%\r100%"), ["100%"]);
        assert_eq!(seen("longer text\rshort\x1b[K"), ["short"]);
        assert_eq!(seen("ab\x08c"), ["ac"]);
        assert_eq!(seen("日本\r\x1b[2Cx"), ["日x"]);
        assert_eq!(seen("a\x1b]0;title\x07b"), ["ab"]);
    }

    #[test]
    fn dec_special_graphics_become_box_drawing() {
        assert_eq!(seen("\x1b(0lqk\x1b(B yes"), ["┌─┐ yes"]);
        assert_eq!(seen("\x1b)0q\x0eqx\x0fq"), ["q─│q"]);
        assert_eq!(seen("\x0eq\x0f \x1b(Aq \x1b(0q\x1b(Bx"), ["q q ─x"]);
        // The character set is reset at the end of the line.
        assert_eq!(seen("\x1b(0qq\r\nquit"), ["──", "quit"]);
    }

    #[test]
    fn cursor_positioning_begins_a_new_row() {
        assert_eq!(
            seen("\x1b[2J\x1b[1;1Htop\x1b[5;3Hlow\x1b[H"),
            ["top", "low"]
        );
    }

    #[test]
    fn long_row_is_truncated_in_its_middle() {
        let long = seen(&"x".repeat(100_000));
        assert_eq!(long.len(), 1);
        assert!(long[0].contains("characters"), "{}", long[0]);
        assert!(long[0].chars().count() <= 100);
    }
}
