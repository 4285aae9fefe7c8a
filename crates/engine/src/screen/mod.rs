//! The emulated screen: what a person would see now, computed from the output of a terminal session.
//!
//! The emulator also produces the replies of a terminal to queries (device attributes, cursor position). Replies are
//! returned only for live output: a screen that is rebuilt from the log was queried long ago, and a reply now would
//! be typed into whatever program reads.
//!
//! Output cannot make it grow: strings, combining marks per cell and replies are all bounded.

mod compact;
mod guard;
mod mode_scanner;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use abide_output::tokenizer;
use alacritty_terminal::event::{Event, EventListener};
use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::{Column, Line};
use alacritty_terminal::term::cell::{Cell, Flags};
use alacritty_terminal::term::{Config, Osc52, Term, TermMode};
use alacritty_terminal::vte::ansi::{NamedColor, Processor, Rgb, Timeout};

pub use compact::CompactScreen;
pub use mode_scanner::ModeScanner;

use guard::Guard;

use crate::lock::lock;

/// Columns and rows of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters per line.
    pub cols: u16,
    /// Lines.
    pub rows: u16,
}

impl Size {
    /// Minimum of columns: a wide character must fit.
    pub const LEAST_COLS: u16 = 2;
    pub const MOST_COLS: u16 = 1_000;
    pub const LEAST_ROWS: u16 = 1;
    pub const MOST_ROWS: u16 = 500;

    /// Nearest size that can be emulated.
    pub fn clamped(self) -> Self {
        Size {
            cols: self.cols.clamp(Self::LEAST_COLS, Self::MOST_COLS),
            rows: self.rows.clamp(Self::LEAST_ROWS, Self::MOST_ROWS),
        }
    }
}

impl Dimensions for Size {
    fn total_lines(&self) -> usize {
        self.screen_lines()
    }

    fn screen_lines(&self) -> usize {
        self.rows.into()
    }

    fn columns(&self) -> usize {
        self.cols.into()
    }
}

/// Content of a screen as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub size: Size,
    /// One text per row, without trailing blanks.
    pub lines: Vec<String>,
    /// For each row: its text goes on in the next row, since it did not fit.
    pub wraps: Vec<bool>,
    pub cursor: Cursor,
    /// Window title that the program set.
    pub title: Option<String>,
    /// True if a full-screen program uses the alternate screen.
    pub alternate: bool,
    /// Modes that change how input is sent.
    pub modes: Modes,
}

/// Position on the screen, counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Row from the top.
    pub row: u16,
    /// Column from the left.
    pub col: u16,
    pub visible: bool,
}

/// Modes that change how keys and text are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// Pasted text is bracketed.
    pub bracketed_paste: bool,
    /// Cursor keys are sent in their application form.
    pub application_cursor: bool,
    /// The program receives mouse events.
    pub mouse: bool,
    /// The program paints the whole screen: it uses the alternate screen, or has the cursor keys for itself and shows
    /// no cursor, as `top` does.
    pub full_screen: bool,
}

/// Longest title, in bytes.
const TITLE_LIMIT: usize = 1_024;
/// Maximum bytes of replies to one portion of output.
const REPLY_LIMIT: usize = 4 << 10;
/// Bytes fed at once, so that the limits below are checked often enough.
const PORTION: usize = 64 << 10;
/// Bytes and repeated characters after which the cells are checked for too many combining marks.
const MARK_CHECK_INTERVAL: usize = 1 << 20;
/// Maximum of combining marks per cell.
const MAX_MARKS: usize = 32;

/// Emulated terminal without a window.
pub struct Screen {
    term: Term<TermEvents>,
    parser: Processor<NoSyncUpdates>,
    guard: Guard,
    events: TermEvents,
    /// Begin of a sequence or character whose end has not arrived.
    incomplete_sequence: Vec<u8>,
    since_mark_check: usize,
}

impl Screen {
    /// An empty screen.
    pub fn new(size: Size) -> Self {
        let events = TermEvents::default();
        let config = Config {
            scrolling_history: 0,
            osc52: Osc52::Disabled,
            ..Config::default()
        };
        Screen {
            term: Term::new(config, &size.clamped(), events.clone()),
            parser: Processor::new(),
            guard: Guard::default(),
            events,
            incomplete_sequence: Vec::new(),
            since_mark_check: 0,
        }
    }

    /// Feeds output, and returns the replies of the terminal.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.incomplete_sequence);
        all.extend_from_slice(bytes);
        let whole = all.len() - tokenizer::incomplete_suffix_len(&all);
        let size = self.size();
        for portion in all[..whole].chunks(PORTION) {
            let (term, parser) = (&mut self.term, &mut self.parser);
            let repeated = self.guard.pass(portion, size, |escape_invisible| {
                parser.advance(term, escape_invisible)
            });
            self.answer_colors();
            // The repeated character may be a combining mark.
            self.since_mark_check += portion.len() + repeated;
            if self.since_mark_check >= MARK_CHECK_INTERVAL {
                self.since_mark_check = 0;
                self.remove_excess_marks();
            }
        }
        all.drain(..whole);
        self.incomplete_sequence = all;
        std::mem::take(&mut self.events.lock().replies)
    }

    /// Feeds output of the past; its replies are dropped.
    pub fn replay(&mut self, bytes: &[u8]) {
        self.feed(bytes);
    }

    /// Changes the size of the screen.
    pub fn resize(&mut self, size: Size) {
        self.term.resize(size.clamped());
    }

    pub fn size(&self) -> Size {
        Size {
            cols: self.term.columns() as u16,
            rows: self.term.screen_lines() as u16,
        }
    }

    /// Modes that change how input is sent.
    pub fn modes(&self) -> Modes {
        let mode = self.term.mode();
        Modes {
            bracketed_paste: mode.contains(TermMode::BRACKETED_PASTE),
            application_cursor: mode.contains(TermMode::APP_CURSOR),
            mouse: mode.intersects(TermMode::MOUSE_MODE),
            full_screen: mode.contains(TermMode::ALT_SCREEN)
                || (mode.contains(TermMode::APP_CURSOR) && !mode.contains(TermMode::SHOW_CURSOR)),
        }
    }

    /// Content as text.
    pub fn snapshot(&self) -> Snapshot {
        let grid = self.term.grid();
        let point = grid.cursor.point;
        let (rows, last) = (0..self.term.screen_lines(), self.term.last_column());
        let wraps = |row: usize| grid[Line(row as i32)][last].flags.contains(Flags::WRAPLINE);
        Snapshot {
            size: self.size(),
            lines: rows.clone().map(|row| self.line(row)).collect(),
            wraps: rows.map(wraps).collect(),
            cursor: Cursor {
                row: u16::try_from(point.line.0).unwrap_or(0),
                col: point.column.0 as u16,
                visible: self.term.mode().contains(TermMode::SHOW_CURSOR),
            },
            title: self.events.lock().title.clone(),
            alternate: self.term.mode().contains(TermMode::ALT_SCREEN),
            modes: self.modes(),
        }
    }

    fn line(&self, row: usize) -> String {
        let mut text = String::new();
        for cell in self.cells(row) {
            if cell
                .flags
                .intersects(Flags::WIDE_CHAR_SPACER | Flags::LEADING_WIDE_CHAR_SPACER)
            {
                continue;
            }
            if cell.flags.contains(Flags::HIDDEN) {
                text.push(' ');
                continue;
            }
            text.push(cell.c);
            text.extend(cell.zerowidth().unwrap_or_default());
        }
        text.truncate(text.trim_end_matches(' ').len());
        text
    }

    /// Cells of a row. Half of a wide character whose other half was overwritten is blank; so is what a tab skipped.
    fn cells(&self, row: usize) -> Vec<Cell> {
        let line = &self.term.grid()[Line(row as i32)];
        let mut cells: Vec<Cell> = (0..self.term.columns())
            .map(|column| line[Column(column)].clone())
            .collect();
        for at in 0..cells.len() {
            let is = |at: usize, flag| cells.get(at).is_some_and(|cell| cell.flags.contains(flag));
            let half = if is(at, Flags::WIDE_CHAR) {
                !is(at + 1, Flags::WIDE_CHAR_SPACER)
            } else {
                is(at, Flags::WIDE_CHAR_SPACER) && (at == 0 || !is(at - 1, Flags::WIDE_CHAR))
            };
            if half {
                cells[at].clear_wide();
                cells[at].flags.remove(Flags::WIDE_CHAR_SPACER);
            } else if cells[at].c == '\t' {
                cells[at].c = ' ';
            }
        }
        cells
    }

    /// Replies to queries of colours, which tell a light background from a dark one. Colours that the program has not
    /// set are light on dark; other colours get no reply.
    fn answer_colors(&mut self) {
        let asked = std::mem::take(&mut self.events.lock().colors);
        for (index, answer) in asked {
            let own = self.term.colors()[index];
            let level = match index {
                _ if index == NamedColor::Background as usize => 0,
                _ if index == NamedColor::Foreground as usize => 0xe5,
                _ if index == NamedColor::Cursor as usize => 0xe5,
                _ if own.is_none() => continue,
                _ => 0,
            };
            let color = own.unwrap_or(Rgb {
                r: level,
                g: level,
                b: level,
            });
            self.events.reply(&answer(color));
        }
    }

    /// Removes the combining marks of cells with more than any script needs.
    fn remove_excess_marks(&mut self) {
        let (rows, cols) = (self.term.screen_lines(), self.term.columns());
        let grid = self.term.grid_mut();
        for row in 0..rows {
            for col in 0..cols {
                let cell = &mut grid[Line(row as i32)][Column(col)];
                if cell
                    .zerowidth()
                    .is_some_and(|marks| marks.len() > MAX_MARKS)
                {
                    cell.extra = None;
                }
            }
        }
    }
}

type ColorAnswer = Arc<dyn Fn(Rgb) -> String + Send + Sync>;

/// Replies, queries and title that the emulator reported.
#[derive(Default)]
struct TermOutput {
    replies: Vec<u8>,
    colors: Vec<(usize, ColorAnswer)>,
    title: Option<String>,
}

/// Listener for replies, queries and the title that the emulator reports.
#[derive(Clone, Default)]
struct TermEvents(Arc<Mutex<TermOutput>>);

impl TermEvents {
    fn lock(&self) -> MutexGuard<'_, TermOutput> {
        lock(&self.0)
    }

    fn reply(&self, text: &str) {
        let replies = &mut self.lock().replies;
        if replies.len() + text.len() <= REPLY_LIMIT {
            replies.extend_from_slice(text.as_bytes());
        }
    }
}

impl EventListener for TermEvents {
    fn send_event(&self, event: Event) {
        match event {
            Event::PtyWrite(text) => self.reply(&text),
            Event::ColorRequest(index, answer) => {
                let colors = &mut self.lock().colors;
                // More queries than a program has reason to send would not be answered anyway.
                if colors.len() < REPLY_LIMIT / 16 {
                    colors.push((index, answer));
                }
            }
            Event::Title(mut title) => {
                title.truncate(title.floor_char_boundary(TITLE_LIMIT));
                self.lock().title = Some(title);
            }
            Event::ResetTitle => self.lock().title = None,
            // There is no window, no clipboard and no bell.
            Event::MouseCursorDirty
            | Event::ClipboardStore(..)
            | Event::ClipboardLoad(..)
            | Event::TextAreaSizeRequest(_)
            | Event::CursorBlinkingChange
            | Event::Wakeup
            | Event::Bell
            | Event::Exit
            | Event::ChildExit(_) => {}
        }
    }
}

/// Paints synchronized updates as they arrive: a text screen does not flicker, and a program that dies during an
/// update hides nothing.
#[derive(Default)]
struct NoSyncUpdates;

impl Timeout for NoSyncUpdates {
    fn set_timeout(&mut self, _: Duration) {}

    fn clear_timeout(&mut self) {}

    fn pending_timeout(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
