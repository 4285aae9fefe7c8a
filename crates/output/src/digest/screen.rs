//! The last rows of a terminal, on which cursor movements act.
//!
//! A row that scrolls out at the top is final and goes on as a line. So a progress bar, drawn a
//! hundred times into the same row, is one line.
//!
//! - A first erasing of the screen lets go what was on it; each further one replaces what was
//!   painted since. So a program that paints the screen again and again leaves its last picture,
//!   and what stood there before it is not lost.
//! - A program on the alternate screen leaves its last picture, too.
//! - Rows below a scrolling region are a status line (a package manager's bar) and are not shown.

use std::collections::VecDeque;
use std::ops::Range;

use super::csi::{EraseRange, TerminalOp};
use super::decoder::Surface;
use super::row::{Hole, Keep, Row};

/// A row with more bytes than this does not wait to be written over: when the cursor leaves it, it
/// is final. So at most one row of the screen is long.
const BIG_ROW: u64 = 4_096;

/// Where finished lines go.
pub trait Lines {
    /// `newlines`: how many newlines came before it.
    fn line(&mut self, newlines: u64, text: &str, hole: Option<Hole>);
}

pub struct Screen {
    rows: VecDeque<Row>,
    row: usize,
    column: usize,
    saved: (usize, usize),
    height: usize,
    keep: Keep,
    region: Option<(usize, usize)>,
    place: Place,
    shown: Shown,
    newlines: u64,
}

/// Where what is written goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Rows,
    /// Below the region that scrolls.
    StatusLine,
}

/// What is on the screen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// Lines, one after the other.
    Lines,
    /// What was painted since the screen was erased.
    Picture,
    /// The alternate screen.
    Alternate,
}

impl Screen {
    pub fn new(height: usize, keep: Keep) -> Self {
        Screen {
            rows: VecDeque::from([Row::default()]),
            row: 0,
            column: 0,
            saved: (0, 0),
            height: height.max(2),
            keep,
            region: None,
            place: Place::Rows,
            shown: Shown::Lines,
            newlines: 0,
        }
    }

    pub fn newlines(&self) -> u64 {
        self.newlines
    }

    pub fn is_at_fresh_line(&self) -> bool {
        self.column == 0
            && self.row + 1 == self.rows.len()
            && self.rows[self.row].is_empty()
            && self.place == Place::Rows
            && self.shown != Shown::Alternate
    }

    pub fn height(&self) -> usize {
        self.height
    }

    /// The rows above a fresh line, where the screen is full of lines that nothing was written over;
    /// each `None` where it is not as it came.
    pub fn full_of_lines(&self) -> Option<impl DoubleEndedIterator<Item = Option<&str>>> {
        let full = self.rows.len() == self.height && self.shown == Shown::Lines;
        let above = self.rows.range(..self.rows.len() - 1);
        (full && self.is_at_fresh_line()).then(|| above.map(Row::as_it_came))
    }

    /// So many lines have gone by that were not painted.
    pub fn pass(&mut self, lines: u64) {
        self.newlines += lines;
    }

    /// Lets go of all rows, without the blank ones at the end.
    pub fn flush(&mut self, out: &mut impl Lines) {
        let filled = self.rows.iter().rposition(|row| !row.is_empty());
        let count = filled.map_or(0, |last| last + 1);
        for mut row in self.rows.drain(..count) {
            let newlines = row.newlines;
            let (text, hole) = row.seal(self.keep);
            out.line(newlines, text, hole);
        }
        self.empty();
    }

    /// Back to an empty screen of lines; nothing is known of what came before.
    pub fn start_over(&mut self) {
        self.empty();
        (self.column, self.saved) = (0, (0, 0));
        (self.region, self.place) = (None, Place::Rows);
        self.shown = Shown::Lines;
    }

    fn empty(&mut self) {
        self.rows.clear();
        self.row = 0;
        self.push_row();
    }

    fn push_row(&mut self) {
        self.rows.push_back(Row::new(self.newlines));
    }

    /// Lets go of the first row, which is used again as the last.
    fn scroll_out(&mut self, out: &mut impl Lines) {
        let Some(mut row) = self.rows.pop_front() else {
            return;
        };
        if self.shown == Shown::Picture {
            // Longer than a screen: these are lines again.
            self.shown = Shown::Lines;
        }
        let newlines = row.newlines;
        let (text, hole) = row.seal(self.keep);
        out.line(newlines, text, hole);
        row.clear();
        row.newlines = self.newlines;
        self.rows.push_back(row);
    }

    fn newline(&mut self, out: &mut impl Lines) {
        self.newlines += 1;
        self.column = 0;
        if self.place == Place::StatusLine {
            // Whoever writes lines there has forgotten to go back.
            self.place = Place::Rows;
            self.row = self.rows.len() - 1;
        }
        if self.leave(out) {
            return;
        }
        if self.shown == Shown::Alternate {
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
            self.scroll_out(out);
        }
    }

    /// The cursor leaves its row. True where that row was long and is gone with those above it:
    /// then the cursor is already below.
    fn leave(&mut self, out: &mut impl Lines) -> bool {
        if self.rows[self.row].whole() <= BIG_ROW {
            return false;
        }
        if self.shown == Shown::Alternate {
            self.rows[self.row].clear();
            return false;
        }
        for mut row in self.rows.drain(..=self.row) {
            let newlines = row.newlines;
            let (text, hole) = row.seal(self.keep);
            out.line(newlines, text, hole);
        }
        self.row = 0;
        self.go_deep(0);
        true
    }

    fn go_to_row(&mut self, row: usize) {
        let row = row.min(self.height - 1);
        self.go_deep(row);
        self.row = row;
    }

    fn go_to(&mut self, row: usize, column: usize) {
        self.column = column;
        let below = self.region.is_some_and(|(_, bottom)| row > bottom);
        if below && self.shown != Shown::Alternate {
            self.place = Place::StatusLine;
        } else {
            self.place = Place::Rows;
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

    /// Moves rows up and leaves blank ones below. All in one go: the work must not grow with the square
    /// of the height.
    fn shift_up(&mut self, top: usize, bottom: usize, count: usize) {
        let count = count.min(bottom + 1 - top);
        self.go_deep(bottom);
        if count == 1 {
            self.move_row(top, bottom);
        } else {
            self.rows.make_contiguous()[top..=bottom].rotate_left(count);
        }
        self.clear_rows(bottom + 1 - count..bottom + 1);
    }

    fn shift_down(&mut self, top: usize, bottom: usize, count: usize) {
        let count = count.min(bottom + 1 - top);
        self.go_deep(bottom);
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
        for row in self.rows.range_mut(rows) {
            row.clear();
            row.newlines = self.newlines;
        }
    }

    /// Rows down to this one exist.
    fn go_deep(&mut self, row: usize) {
        while self.rows.len() <= row {
            self.push_row();
        }
    }

    fn erase_screen(&mut self, part: EraseRange, out: &mut impl Lines) {
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

    fn erase_all(&mut self, out: &mut impl Lines) {
        match self.shown {
            Shown::Lines => {
                self.flush(out);
                self.shown = Shown::Picture;
            }
            Shown::Picture | Shown::Alternate => self.empty(),
        }
    }

    fn move_cursor(&mut self, op: TerminalOp, out: &mut impl Lines) {
        self.leave(out);
        if !matches!(op, TerminalOp::Save) {
            self.place = Place::Rows;
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

/// A screen, and where its finished lines go.
pub struct Painter<'a, L> {
    pub screen: &'a mut Screen,
    pub out: &'a mut L,
}

impl<L: Lines> Surface for Painter<'_, L> {
    fn text(&mut self, text: &str) {
        let screen = &mut *self.screen;
        if screen.place == Place::StatusLine {
            return;
        }
        let row = &mut screen.rows[screen.row];
        row.newlines = screen.newlines;
        screen.column = row.write(screen.column, text, screen.keep);
    }

    fn op(&mut self, op: TerminalOp) {
        let screen = &mut *self.screen;
        match op {
            TerminalOp::Newline => screen.newline(self.out),
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
                screen.place = Place::Rows;
                screen.column = 0;
                screen.erase_all(self.out);
            }
            TerminalOp::Region(region) => {
                screen.region = region.map(|(top, bottom)| (top.into(), bottom.into()));
                screen.place = Place::Rows;
            }
            TerminalOp::AlternateOn if screen.shown != Shown::Alternate => {
                screen.flush(self.out);
                screen.shown = Shown::Alternate;
                (screen.region, screen.place) = (None, Place::Rows);
            }
            TerminalOp::AlternateOff if screen.shown == Shown::Alternate => {
                screen.flush(self.out);
                screen.shown = Shown::Lines;
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
                if screen.place == Place::Rows {
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
        let row = &mut screen.rows[screen.row];
        row.newlines = screen.newlines;
        row.set(line);
        screen.newline(self.out);
    }
}
