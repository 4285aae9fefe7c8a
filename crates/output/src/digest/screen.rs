//! Last rows of a terminal, on which cursor movements act.
//!
//! A row that scrolls off at the top is final and becomes a line. So a progress bar that is drawn a
//! hundred times in the same row is one line.
//!
//! - The first erase of the screen emits its rows; each further one replaces what was painted since. So
//!   a program that repaints the screen leaves its last picture, and the text before it is not lost.
//! - A program on the alternate screen also leaves its last picture.
//! - Rows below a scrolling region are a status line (the bar of a package manager) and are not shown.

use std::collections::VecDeque;
use std::ops::Range;

use super::csi::{EraseRange, TerminalOp};
use super::decoder::Surface;
use super::line_counter::LineCounter;
use super::row::{Omission, Row};

/// A row with more bytes than this is final when the cursor leaves it. So at most one row of the screen
/// is long.
const MAX_OPEN_ROW: u64 = 4_096;

/// Maximum number of long rows that are searched for the part that matters, which bounds the time.
const SEARCHED_ROWS: u32 = 16;

/// Receiver of finished lines.
pub trait LineSink {
    /// Takes a line; `newlines` is the number of newlines before it.
    fn line(&mut self, newlines: u64, text: &str, omission: Option<Omission>);
}

/// Rows that can still be overwritten, and the cursor.
pub struct Screen {
    rows: VecDeque<Row>,
    row: usize,
    column: usize,
    saved: (usize, usize),
    height: usize,
    /// Number of bytes that are kept at the begin and at the end of a row.
    keep: usize,
    region: Option<(usize, usize)>,
    target: WriteTarget,
    mode: ScreenMode,
    lines: LineCounter,
    /// Number of long rows that were searched for the part that matters.
    searched: u32,
}

/// Final text of a row, and what is omitted of it.
fn seal<'a>(row: &'a mut Row, keep: usize, searched: &mut u32) -> (&'a str, Option<Omission>) {
    if row.is_long(keep) && *searched < SEARCHED_ROWS {
        *searched += 1;
        row.drop_middle_around_part(keep);
    }
    row.seal(keep)
}

/// Destination of text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteTarget {
    Rows,
    /// Below the region that scrolls.
    StatusLine,
}

/// Content of the screen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScreenMode {
    /// Lines, one after the other.
    Lines,
    /// Picture that was painted since the screen was erased.
    Picture,
    /// The alternate screen.
    Alternate,
}

impl Screen {
    /// Empty screen of a stream before which there are lines.
    pub fn new(height: usize, keep: usize, lines_before: u64) -> Self {
        Screen {
            rows: VecDeque::from([Row::default()]),
            row: 0,
            column: 0,
            saved: (0, 0),
            height: height.max(2),
            keep,
            region: None,
            target: WriteTarget::Rows,
            mode: ScreenMode::Lines,
            lines: LineCounter::after(lines_before),
            searched: 0,
        }
    }

    /// Number of newlines so far, of the stream and of others.
    pub fn newlines(&self) -> u64 {
        self.lines.count()
    }

    /// Counts lines of other streams that come after `at` lines of this one.
    pub fn note_other_lines(&mut self, at: u64, lines: u64) {
        self.lines.note(at, lines);
    }

    pub fn is_at_fresh_line(&self) -> bool {
        self.column == 0
            && self.row + 1 == self.rows.len()
            && self.rows[self.row].is_empty()
            && self.target == WriteTarget::Rows
            && self.mode != ScreenMode::Alternate
    }

    pub fn height(&self) -> usize {
        self.height
    }

    /// Rows above a fresh line, if the screen is full of lines; `None` for each that was overwritten or
    /// shortened.
    pub fn full_of_lines(&self) -> Option<impl DoubleEndedIterator<Item = Option<&str>>> {
        let full = self.rows.len() == self.height && self.mode == ScreenMode::Lines;
        let above = self.rows.range(..self.rows.len() - 1);
        (full && self.is_at_fresh_line()).then(|| above.map(Row::unmodified_text))
    }

    /// Counts lines that took the fast path.
    pub fn skip_lines(&mut self, lines: u64) {
        self.lines.advance(lines);
    }

    /// Emits all rows, except blank ones at the end.
    pub fn flush(&mut self, out: &mut impl LineSink) {
        let is_blank = |row: Option<&str>| row == Some("");
        if self
            .full_of_lines()
            .is_some_and(|mut rows| rows.all(is_blank))
        {
            // Many blank lines, of which those that are no longer on the screen are counted already.
            return self.flush_before_skip(out);
        }
        let filled = self.rows.iter().rposition(|row| !row.is_empty());
        let count = filled.map_or(0, |last| last + 1);
        for mut row in self.rows.drain(..count) {
            let newlines = row.newlines;
            let (text, omission) = seal(&mut row, self.keep, &mut self.searched);
            out.line(newlines, text, omission);
        }
        self.clear();
    }

    /// Emits all rows, also blank ones, because lines behind them are skipped.
    pub fn flush_before_skip(&mut self, out: &mut impl LineSink) {
        let count = self.rows.len() - usize::from(self.is_at_fresh_line());
        for mut row in self.rows.drain(..count) {
            let newlines = row.newlines;
            let (text, omission) = seal(&mut row, self.keep, &mut self.searched);
            out.line(newlines, text, omission);
        }
        self.clear();
    }

    /// Resets to an empty screen, as after missing bytes.
    pub fn reset(&mut self) {
        self.clear();
        (self.column, self.saved) = (0, (0, 0));
        (self.region, self.target) = (None, WriteTarget::Rows);
        self.mode = ScreenMode::Lines;
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.row = 0;
        self.push_row();
    }

    fn push_row(&mut self) {
        self.rows.push_back(Row::new(self.newlines()));
    }

    /// Emits the first row and reuses it as the last.
    fn scroll_off(&mut self, out: &mut impl LineSink) {
        let Some(mut row) = self.rows.pop_front() else {
            return;
        };
        if self.mode == ScreenMode::Picture {
            // Longer than the screen, so these are lines again.
            self.mode = ScreenMode::Lines;
        }
        let newlines = row.newlines;
        let (text, omission) = seal(&mut row, self.keep, &mut self.searched);
        out.line(newlines, text, omission);
        row.clear();
        row.newlines = self.newlines();
        self.rows.push_back(row);
    }

    fn newline(&mut self, out: &mut impl LineSink) {
        self.lines.advance(1);
        self.index(out);
    }

    fn index(&mut self, out: &mut impl LineSink) {
        self.column = 0;
        if self.target == WriteTarget::StatusLine {
            // A newline in the status line: the program forgot to move the cursor back.
            self.target = WriteTarget::Rows;
            self.row = self.rows.len() - 1;
        }
        if self.leave_row(out) {
            return;
        }
        if self.mode == ScreenMode::Alternate {
            let (top, bottom) = self.scrolling();
            if self.row == bottom {
                self.shift_up(top, bottom, 1);
            } else {
                self.go_to_row(self.row + 1);
            }
        } else if self.row + 1 < self.rows.len() {
            self.row += 1;
        } else if self.rows.len() < self.height {
            self.push_row();
            self.row += 1;
        } else {
            self.scroll_off(out);
        }
    }

    /// Handles that the cursor leaves its row. Returns true if the row was long and was emitted with those
    /// above it; the cursor is below it then.
    fn leave_row(&mut self, out: &mut impl LineSink) -> bool {
        if self.rows[self.row].total_bytes() <= MAX_OPEN_ROW {
            return false;
        }
        if self.mode == ScreenMode::Alternate {
            self.rows[self.row].clear();
            return false;
        }
        for mut row in self.rows.drain(..=self.row) {
            let newlines = row.newlines;
            let (text, omission) = seal(&mut row, self.keep, &mut self.searched);
            out.line(newlines, text, omission);
        }
        self.row = 0;
        self.ensure_row(0);
        true
    }

    fn go_to_row(&mut self, row: usize) {
        let row = row.min(self.height - 1);
        self.ensure_row(row);
        self.row = row;
    }

    fn go_to(&mut self, row: usize, column: usize) {
        self.column = column;
        let below = self.region.is_some_and(|(_, bottom)| row > bottom);
        if below && self.mode != ScreenMode::Alternate {
            self.target = WriteTarget::StatusLine;
        } else {
            self.target = WriteTarget::Rows;
            self.go_to_row(row);
        }
    }

    fn scrolling(&self) -> (usize, usize) {
        let last = self.height - 1;
        match self.region {
            Some((top, bottom)) if top < bottom => (top.min(last), bottom.min(last)),
            _ => (0, last),
        }
    }

    /// Moves rows up by `count` and clears those below, in one step: the work must not grow with the square
    /// of the height.
    fn shift_up(&mut self, top: usize, bottom: usize, count: usize) {
        let count = count.min(bottom + 1 - top);
        self.ensure_row(bottom);
        if count == 1 {
            self.move_row(top, bottom);
        } else {
            self.rows.make_contiguous()[top..=bottom].rotate_left(count);
        }
        self.clear_rows(bottom + 1 - count..bottom + 1);
    }

    fn shift_down(&mut self, top: usize, bottom: usize, count: usize) {
        let count = count.min(bottom + 1 - top);
        self.ensure_row(bottom);
        if count == 1 {
            self.move_row(bottom, top);
        } else {
            self.rows.make_contiguous()[top..=bottom].rotate_right(count);
        }
        self.clear_rows(top..top + count);
    }

    fn move_row(&mut self, from: usize, to: usize) {
        if let Some(row) = self.rows.remove(from) {
            self.rows.insert(to, row);
        }
    }

    fn clear_rows(&mut self, rows: Range<usize>) {
        let newlines = self.newlines();
        for row in self.rows.range_mut(rows) {
            row.clear();
            row.newlines = newlines;
        }
    }

    /// Adds rows until this one exists.
    fn ensure_row(&mut self, row: usize) {
        while self.rows.len() <= row {
            self.push_row();
        }
    }

    fn erase_screen(&mut self, part: EraseRange, out: &mut impl LineSink) {
        let at_home = self.row == 0 && self.column == 0;
        match part {
            EraseRange::All => self.erase_all(out),
            EraseRange::After if at_home => self.erase_all(out),
            EraseRange::After => {
                let keep = self.keep;
                self.rows[self.row].truncate(self.column, keep);
                self.rows.truncate(self.row + 1);
            }
            EraseRange::Before => {
                for row in self.rows.iter_mut().take(self.row) {
                    row.clear();
                }
                self.rows[self.row].blank(0, self.column + 1);
            }
        }
    }

    fn erase_all(&mut self, out: &mut impl LineSink) {
        match self.mode {
            ScreenMode::Lines => {
                self.flush(out);
                self.mode = ScreenMode::Picture;
            }
            ScreenMode::Picture | ScreenMode::Alternate => self.clear(),
        }
    }

    fn move_cursor(&mut self, op: TerminalOp, out: &mut impl LineSink) {
        self.leave_row(out);
        if !matches!(op, TerminalOp::Save) {
            self.target = WriteTarget::Rows;
        }
        match op {
            TerminalOp::Up(n) => self.row = self.row.saturating_sub(n.into()),
            TerminalOp::Down(n) => self.go_to_row(self.row + usize::from(n)),
            TerminalOp::Row(row) => self.go_to(row.into(), self.column),
            TerminalOp::To(row, column) => self.go_to(row.into(), column.into()),
            TerminalOp::Save => self.saved = (self.row, self.column),
            TerminalOp::Restore => {
                self.column = self.saved.1;
                self.row = self.saved.0.min(self.rows.len() - 1);
            }
            TerminalOp::ReverseIndex if self.row > 0 => self.row -= 1,
            TerminalOp::ReverseIndex => {
                let (top, bottom) = self.scrolling();
                self.shift_down(top, bottom, 1);
                self.rows.truncate(self.height);
            }
            _ => {}
        }
    }

    fn edit(&mut self, op: TerminalOp) {
        let (top, bottom) = self.scrolling();
        let (row, column, keep) = (self.row, self.column, self.keep);
        let line = &mut self.rows[row];
        match op {
            TerminalOp::EraseLine(EraseRange::After) => line.truncate(column, keep),
            TerminalOp::EraseLine(EraseRange::Before) => line.blank(0, column + 1),
            TerminalOp::EraseLine(EraseRange::All) => line.erase(),
            TerminalOp::EraseChars(n) => line.blank(column, column + usize::from(n)),
            TerminalOp::DeleteChars(n) => line.delete(column, n.into()),
            TerminalOp::InsertChars(n) => line.insert(column, n.into()),
            TerminalOp::InsertLines(n) if row <= bottom => self.shift_down(row, bottom, n.into()),
            TerminalOp::DeleteLines(n) if row <= bottom => self.shift_up(row, bottom, n.into()),
            TerminalOp::ScrollUp(n) => self.shift_up(top, bottom, n.into()),
            TerminalOp::ScrollDown(n) => self.shift_down(top, bottom, n.into()),
            _ => {}
        }
        self.rows.truncate(self.height.max(self.row + 1));
    }
}

/// Screen with the receiver of its lines.
pub struct Painter<'a, L> {
    pub screen: &'a mut Screen,
    pub out: &'a mut L,
}

impl<L: LineSink> Surface for Painter<'_, L> {
    fn text(&mut self, text: &str) {
        let screen = &mut *self.screen;
        if screen.target == WriteTarget::StatusLine {
            return;
        }
        let newlines = screen.newlines();
        let row = &mut screen.rows[screen.row];
        row.newlines = newlines;
        screen.column = row.write(screen.column, text, screen.keep);
    }

    fn op(&mut self, op: TerminalOp) {
        let screen = &mut *self.screen;
        match op {
            TerminalOp::Newline => screen.newline(self.out),
            TerminalOp::Index => screen.index(self.out),
            TerminalOp::Return => screen.column = 0,
            TerminalOp::Backspace => screen.column = screen.column.saturating_sub(1),
            TerminalOp::Left(n) => screen.column = screen.column.saturating_sub(n.into()),
            TerminalOp::Right(n) => screen.column += usize::from(n),
            TerminalOp::Column(column) => screen.column = column.into(),
            TerminalOp::Up(_)
            | TerminalOp::Down(_)
            | TerminalOp::Row(_)
            | TerminalOp::To(..)
            | TerminalOp::Save
            | TerminalOp::Restore
            | TerminalOp::ReverseIndex => screen.move_cursor(op, self.out),
            TerminalOp::EraseScreen(part) => screen.erase_screen(part, self.out),
            TerminalOp::Reset => {
                screen.region = None;
                screen.target = WriteTarget::Rows;
                screen.column = 0;
                screen.erase_all(self.out);
            }
            TerminalOp::Region(region) => {
                screen.region = region.map(|(top, bottom)| (top.into(), bottom.into()));
                screen.target = WriteTarget::Rows;
            }
            TerminalOp::AlternateOn if screen.mode != ScreenMode::Alternate => {
                screen.flush(self.out);
                screen.mode = ScreenMode::Alternate;
                (screen.region, screen.target) = (None, WriteTarget::Rows);
            }
            TerminalOp::AlternateOff if screen.mode == ScreenMode::Alternate => {
                screen.flush(self.out);
                screen.mode = ScreenMode::Lines;
                screen.column = 0;
                screen.region = None;
            }
            TerminalOp::AlternateOn | TerminalOp::AlternateOff => {}
            TerminalOp::EraseLine(_)
            | TerminalOp::EraseChars(_)
            | TerminalOp::DeleteChars(_)
            | TerminalOp::InsertChars(_)
            | TerminalOp::InsertLines(_)
            | TerminalOp::DeleteLines(_)
            | TerminalOp::ScrollUp(_)
            | TerminalOp::ScrollDown(_) => {
                if screen.target == WriteTarget::Rows {
                    screen.edit(op);
                }
            }
        }
    }

    fn at_fresh_line(&self) -> bool {
        self.screen.is_at_fresh_line()
    }

    fn line(&mut self, line: &str) {
        let screen = &mut *self.screen;
        let newlines = screen.newlines();
        let row = &mut screen.rows[screen.row];
        row.newlines = newlines;
        row.set(line);
        screen.newline(self.out);
    }
}
