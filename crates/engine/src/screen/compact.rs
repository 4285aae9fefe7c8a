//! Compact form of a screen: the few bytes that paint it again. Kept for screens that are not in use, and sent first
//! to a person's terminal that attaches.
//!
//! Some of the state can only be read from the emulator by moving its cursor, so compacting consumes the screen;
//! expanding gives an equal one back. One thing is lost: that a blank was half of a wide character whose other half
//! was overwritten.

use std::io::Write;

use alacritty_terminal::grid::{Cursor, Dimensions};
use alacritty_terminal::index::{Column, Line, Point};
use alacritty_terminal::term::TermMode;
use alacritty_terminal::term::cell::{Cell, Flags};
use alacritty_terminal::vte::ansi::{CharsetIndex, Color, NamedColor, StandardCharset};

use super::{Screen, Size};

/// Screen in compact form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactScreen {
    size: Size,
    paint: Vec<u8>,
    incomplete_sequence: Vec<u8>,
}

impl CompactScreen {
    /// An empty screen, before anything was written.
    pub fn empty(size: Size) -> Self {
        CompactScreen {
            size: size.clamped(),
            paint: Vec::new(),
            incomplete_sequence: Vec::new(),
        }
    }

    /// Screen with the same content.
    pub fn expand(&self) -> Screen {
        let mut screen = Screen::new(self.size);
        screen.replay(&self.paint);
        screen.replay(&self.incomplete_sequence);
        screen
    }

    /// Bytes that paint the screen on an empty terminal of its size.
    pub fn paint(&self) -> &[u8] {
        &self.paint
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        self.paint.len() + self.incomplete_sequence.len()
    }

    pub fn size(&self) -> Size {
        self.size
    }
}

impl Screen {
    pub fn compact(mut self) -> CompactScreen {
        let size = self.size();
        let incomplete_sequence = std::mem::take(&mut self.incomplete_sequence);
        let mode = *self.term.mode();
        let title = self.events.lock().title.clone();
        let front = Buffer::of(&self);
        let region = self.region();
        let shifted = self.is_shifted();
        let mut paint = EscapeWriter::default();
        if mode.contains(TermMode::ALT_SCREEN) {
            self.replay(b"\x1b[?6l\x1b[?1049l");
            Buffer::of(&self).paint(&mut paint);
            paint.put(b"\x1b[?1049h");
        }
        front.paint(&mut paint);
        match region {
            (0, bottom) if bottom + 1 == size.rows => {}
            // A region of the last row alone is accepted only if it reaches beyond the screen.
            (top, bottom) if bottom + 1 == size.rows => {
                paint.put_fmt(format_args!("\x1b[{};{}r", top + 1, size.rows + 1));
            }
            (top, bottom) => paint.put_fmt(format_args!("\x1b[{};{}r", top + 1, bottom + 1)),
        }
        let top = if mode.contains(TermMode::ORIGIN) {
            paint.put(b"\x1b[?6h");
            region.0
        } else {
            0
        };
        front.place_cursor(&mut paint, top);
        if shifted {
            paint.put(b"\x0e");
        }
        paint_modes(mode, &mut paint);
        if let Some(title) = title {
            paint.put_fmt(format_args!("\x1b]2;{title}\x07"));
        }
        let mut paint = paint.out;
        paint.shrink_to_fit();
        CompactScreen {
            size,
            paint,
            incomplete_sequence,
        }
    }

    /// Top and bottom row of the scrolling region. Moves the cursor.
    fn region(&mut self) -> (u16, u16) {
        self.replay(b"\x1b[?6h");
        let top = self.term.grid().cursor.point.line.0;
        self.replay(b"\x1b[9999;1H");
        let bottom = self.term.grid().cursor.point.line.0;
        self.replay(b"\x1b[?6l");
        (top as u16, bottom as u16)
    }

    /// True if character set G1 is in use. Writes a character.
    fn is_shifted(&mut self) -> bool {
        self.replay(b"\x1b(B\x1b)0\x1b[Hq");
        self.term.grid()[Line(0)][Column(0)].c != 'q'
    }
}

/// Modes with the value that differs from a fresh terminal, and the sequence that sets it.
const MODES: &[(TermMode, bool, &[u8])] = &[
    (TermMode::LINE_WRAP, false, b"\x1b[?7l"),
    (TermMode::INSERT, true, b"\x1b[4h"),
    (TermMode::LINE_FEED_NEW_LINE, true, b"\x1b[20h"),
    (TermMode::APP_CURSOR, true, b"\x1b[?1h"),
    (TermMode::APP_KEYPAD, true, b"\x1b="),
    (TermMode::MOUSE_REPORT_CLICK, true, b"\x1b[?1000h"),
    (TermMode::MOUSE_DRAG, true, b"\x1b[?1002h"),
    (TermMode::MOUSE_MOTION, true, b"\x1b[?1003h"),
    (TermMode::UTF8_MOUSE, true, b"\x1b[?1005h"),
    (TermMode::SGR_MOUSE, true, b"\x1b[?1006h"),
    (TermMode::FOCUS_IN_OUT, true, b"\x1b[?1004h"),
    (TermMode::ALTERNATE_SCROLL, false, b"\x1b[?1007l"),
    (TermMode::URGENCY_HINTS, false, b"\x1b[?1042l"),
    (TermMode::BRACKETED_PASTE, true, b"\x1b[?2004h"),
    (TermMode::SHOW_CURSOR, false, b"\x1b[?25l"),
];

fn paint_modes(mode: TermMode, paint: &mut EscapeWriter) {
    for (flag, said_when, sequence) in MODES {
        if mode.contains(*flag) == *said_when {
            paint.put(sequence);
        }
    }
}

/// Primary or alternate screen with its cursors.
struct Buffer {
    rows: Vec<Vec<Cell>>,
    cursor: Cursor<Cell>,
    saved: Cursor<Cell>,
}

impl Buffer {
    fn of(screen: &Screen) -> Self {
        let grid = screen.term.grid();
        Buffer {
            rows: (0..screen.term.screen_lines())
                .map(|row| screen.cells(row))
                .collect(),
            cursor: grid.cursor.clone(),
            saved: grid.saved_cursor.clone(),
        }
    }

    fn paint(&self, paint: &mut EscapeWriter) {
        paint.pen(&Cell::default());
        paint.charsets(&Cursor::default());
        paint.put(b"\x1b[H\x1b[2J");
        let mut flows_on = false;
        for (at, row) in self.rows.iter().enumerate() {
            let wraps = row
                .last()
                .is_some_and(|cell| cell.flags.contains(Flags::WRAPLINE));
            let next = self.rows.get(at + 1).and_then(|row| row.first());
            // A wide character that does not fit leaves a blank in its own colours before it wraps.
            let leaves_a_blank = |blank: &Cell| {
                next.is_some_and(|wide| {
                    wide.flags.contains(Flags::WIDE_CHAR) && same_style(wide, blank)
                })
            };
            let written = match row.iter().rposition(|cell| *cell != Cell::default()) {
                _ if wraps => row.len(),
                Some(last) => last + 1,
                // A row that continues the row above must be written, blank or not.
                None => usize::from(flows_on),
            };
            if written > 0 && !flows_on {
                paint.put_fmt(format_args!("\x1b[{};1H", at + 1));
            }
            for cell in &row[..written] {
                let left = cell.flags.contains(Flags::LEADING_WIDE_CHAR_SPACER);
                if !(left && wraps && leaves_a_blank(cell)) {
                    paint.cell(cell);
                }
            }
            flows_on = wraps;
        }
        if self.saved != Cursor::default() {
            self.place(&self.saved, paint, 0);
            paint.put(b"\x1b7");
        }
        self.place(&self.cursor, paint, 0);
    }

    /// Puts the cursor at its position, counted from the row `top`.
    fn place_cursor(&self, paint: &mut EscapeWriter, top: u16) {
        self.place(&self.cursor, paint, top);
    }

    fn place(&self, cursor: &Cursor<Cell>, paint: &mut EscapeWriter, top: u16) {
        let Point { line, column } = cursor.point;
        let row = line.0 - i32::from(top) + 1;
        if cursor.input_needs_wrap
            && let Some(cells) = self.rows.get(line.0 as usize)
        {
            // The cursor is behind the last column, and only writing there puts it there.
            let wide = cells[column.0].flags.contains(Flags::WIDE_CHAR_SPACER);
            let col = column.0 - usize::from(wide);
            paint.put_fmt(format_args!("\x1b[{row};{}H", col + 1));
            paint.charsets(&Cursor::default());
            paint.cell(&cells[col]);
        } else {
            paint.put_fmt(format_args!("\x1b[{row};{}H", column.0 + 1));
        }
        paint.charsets(cursor);
        paint.pen(&cursor.template);
    }
}

/// Writer of escape sequences and cells that leaves out what is set already.
#[derive(Default)]
struct EscapeWriter {
    out: Vec<u8>,
    pen: Cell,
    charsets: [bool; 2],
}

/// Cell flags that are set by escape sequences.
const SHOWN: Flags = Flags::INVERSE
    .union(Flags::BOLD_ITALIC)
    .union(Flags::DIM)
    .union(Flags::HIDDEN)
    .union(Flags::STRIKEOUT)
    .union(Flags::ALL_UNDERLINES);

/// True if both cells have the same colours and flags.
fn same_attributes(left: &Cell, right: &Cell) -> bool {
    left.flags & SHOWN == right.flags & SHOWN
        && left.fg == right.fg
        && left.bg == right.bg
        && left.underline_color() == right.underline_color()
}

/// True if both cells were written with the same attributes and hyperlink.
fn same_style(left: &Cell, right: &Cell) -> bool {
    same_attributes(left, right) && left.hyperlink() == right.hyperlink()
}

impl EscapeWriter {
    fn put(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    fn put_fmt(&mut self, words: std::fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(words);
    }

    fn cell(&mut self, cell: &Cell) {
        if cell.flags.contains(Flags::WIDE_CHAR_SPACER) {
            return;
        }
        self.pen(cell);
        let mut utf8 = [0; 4];
        self.put(cell.c.encode_utf8(&mut utf8).as_bytes());
        for mark in cell.zerowidth().unwrap_or_default() {
            self.put(mark.encode_utf8(&mut utf8).as_bytes());
        }
    }

    fn charsets(&mut self, cursor: &Cursor<Cell>) {
        let drawing =
            |index| cursor.charsets[index] == StandardCharset::SpecialCharacterAndLineDrawing;
        let wanted = [drawing(CharsetIndex::G0), drawing(CharsetIndex::G1)];
        for (slot, letter) in [(0, b'('), (1, b')')] {
            if self.charsets[slot] != wanted[slot] {
                let set = if wanted[slot] { b'0' } else { b'B' };
                self.put(&[0x1b, letter, set]);
            }
        }
        self.charsets = wanted;
    }

    /// Sets the attributes of a cell.
    fn pen(&mut self, cell: &Cell) {
        if self.pen.hyperlink() != cell.hyperlink() {
            match cell.hyperlink() {
                Some(link) => {
                    self.put_fmt(format_args!("\x1b]8;id={};{}\x1b\\", link.id(), link.uri()))
                }
                None => self.put(b"\x1b]8;;\x1b\\"),
            }
        }
        if !same_attributes(&self.pen, cell) {
            self.put(b"\x1b[0");
            self.attributes(cell.flags & SHOWN);
            self.color(38, cell.fg, NamedColor::Foreground);
            self.color(48, cell.bg, NamedColor::Background);
            if let Some(color) = cell.underline_color() {
                self.color(58, color, NamedColor::Foreground);
            }
            self.put(b"m");
        }
        self.pen = cell.clone();
    }

    fn attributes(&mut self, flags: Flags) {
        for (flag, code) in [
            (Flags::BOLD, "1"),
            (Flags::DIM, "2"),
            (Flags::ITALIC, "3"),
            (Flags::UNDERLINE, "4"),
            (Flags::INVERSE, "7"),
            (Flags::HIDDEN, "8"),
            (Flags::STRIKEOUT, "9"),
            (Flags::DOUBLE_UNDERLINE, "4:2"),
            (Flags::UNDERCURL, "4:3"),
            (Flags::DOTTED_UNDERLINE, "4:4"),
            (Flags::DASHED_UNDERLINE, "4:5"),
        ] {
            if flags.contains(flag) {
                self.put_fmt(format_args!(";{code}"));
            }
        }
    }

    fn color(&mut self, code: u8, color: Color, default: NamedColor) {
        match color {
            Color::Named(name) if name == default => {}
            Color::Named(name) => {
                let base = u32::from(code) - 8;
                match name as u32 {
                    index @ 0..=7 => self.put_fmt(format_args!(";{}", base + index)),
                    index @ 8..=15 => self.put_fmt(format_args!(";{}", base + 60 + index - 8)),
                    _ => {}
                }
            }
            Color::Indexed(index) => self.put_fmt(format_args!(";{code};5;{index}")),
            Color::Spec(rgb) => {
                self.put_fmt(format_args!(";{code};2;{};{};{}", rgb.r, rgb.g, rgb.b));
            }
        }
    }
}
