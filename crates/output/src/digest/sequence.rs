//! Control sequences: their parameters, and what they mean to a cursor.

/// No honest sequence has more parameters than this; further ones are ignored.
const PARAMS_MAX: usize = 16;
const PARAM_CEILING: u16 = 9_999;

/// What a terminal does besides printing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    Newline,
    Return,
    Backspace,
    Up(u16),
    Down(u16),
    Right(u16),
    Left(u16),
    /// Zero-based.
    Column(u16),
    /// Zero-based.
    Row(u16),
    /// Row and column, zero-based.
    To(u16, u16),
    Save,
    Restore,
    EraseLine(Part),
    EraseScreen(Part),
    /// Erase this many characters from the cursor on.
    EraseChars(u16),
    DeleteChars(u16),
    InsertChars(u16),
    InsertLines(u16),
    DeleteLines(u16),
    ScrollUp(u16),
    ScrollDown(u16),
    /// One row up, scrolling down at the top.
    ReverseIndex,
    /// Top and bottom row of the part that scrolls, zero-based; `None`: all of it.
    Region(Option<(u16, u16)>),
    AlternateOn,
    AlternateOff,
    Reset,
}

/// Which part of a line or screen is erased, seen from the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    After,
    Before,
    All,
}

/// A sequence that is being read.
#[derive(Clone, Copy, Default)]
pub struct Sequence {
    params: [u16; PARAMS_MAX],
    count: usize,
    marker: u8,
    intermediate: bool,
}

impl Sequence {
    /// Takes a byte between the introducer and the last one.
    pub fn add(&mut self, byte: u8) {
        match byte {
            b'0'..=b'9' => {
                self.count = self.count.max(1);
                let last = &mut self.params[self.count - 1];
                let longer = last
                    .saturating_mul(10)
                    .saturating_add(u16::from(byte - b'0'));
                *last = longer.min(PARAM_CEILING);
            }
            b';' | b':' => self.count = (self.count.max(1) + 1).min(PARAMS_MAX),
            b'<'..=b'?' => self.marker = byte,
            _ => self.intermediate = true,
        }
    }

    /// What it does, told by its last byte; nothing where that cannot be seen in a text.
    pub fn meaning(&self, last: u8) -> Option<Motion> {
        if self.intermediate {
            return None;
        }
        if self.marker == b'?' {
            let alternate = self.params[..self.count]
                .iter()
                .any(|p| matches!(p, 47 | 1047 | 1049));
            return match last {
                b'h' if alternate => Some(Motion::AlternateOn),
                b'l' if alternate => Some(Motion::AlternateOff),
                _ => None,
            };
        }
        if self.marker != 0 {
            return None;
        }
        let raw = |at: usize| self.params.get(at).copied().unwrap_or(0);
        let count = raw(0).max(1);
        let place = |at: usize| raw(at).max(1) - 1;
        let part = match raw(0) {
            0 => Part::After,
            1 => Part::Before,
            _ => Part::All,
        };
        Some(match last {
            b'A' | b'F' => Motion::Up(count),
            b'B' | b'E' | b'e' => Motion::Down(count),
            b'C' | b'a' => Motion::Right(count),
            b'D' => Motion::Left(count),
            b'G' | b'`' => Motion::Column(place(0)),
            b'd' => Motion::Row(place(0)),
            b'H' | b'f' => Motion::To(place(0), place(1)),
            b's' => Motion::Save,
            b'u' => Motion::Restore,
            b'K' => Motion::EraseLine(part),
            b'J' if raw(0) == 3 => return None,
            b'J' => Motion::EraseScreen(part),
            b'X' => Motion::EraseChars(count),
            b'P' => Motion::DeleteChars(count),
            b'@' => Motion::InsertChars(count),
            b'L' => Motion::InsertLines(count),
            b'M' => Motion::DeleteLines(count),
            b'S' => Motion::ScrollUp(count),
            b'T' => Motion::ScrollDown(count),
            b'r' if self.count < 2 => Motion::Region(None),
            b'r' => Motion::Region(Some((place(0), place(1)))),
            _ => return None,
        })
    }
}
