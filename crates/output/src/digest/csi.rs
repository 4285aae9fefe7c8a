//! Control sequences (CSI): their parameters, and the operations on the screen that they encode.

/// Further parameters are ignored.
const PARAMS_MAX: usize = 16;
const PARAM_CEILING: u16 = 9_999;

/// Operation of a terminal other than printing text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalOp {
    Newline,
    /// A newline that is not counted as one.
    Index,
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
    EraseLine(EraseRange),
    EraseScreen(EraseRange),
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
    /// Top and bottom row of the scrolling region, zero-based; `None`: the whole screen.
    Region(Option<(u16, u16)>),
    AlternateOn,
    AlternateOff,
    Reset,
}

/// Erased part of a line or screen, relative to the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EraseRange {
    After,
    Before,
    All,
}

/// Parameters of a control sequence.
#[derive(Clone, Copy, Default)]
pub struct CsiParams {
    params: [u16; PARAMS_MAX],
    count: usize,
    marker: u8,
    intermediate: bool,
}

impl CsiParams {
    /// Adds a byte between the introducer and the last byte.
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

    /// Operation of the sequence with this last byte; `None` if it has no effect on the text.
    pub fn op(&self, last: u8) -> Option<TerminalOp> {
        if self.intermediate {
            return None;
        }
        if self.marker == b'?' {
            let alternate = self.params[..self.count]
                .iter()
                .any(|p| matches!(p, 47 | 1047 | 1049));
            return match last {
                b'h' if alternate => Some(TerminalOp::AlternateOn),
                b'l' if alternate => Some(TerminalOp::AlternateOff),
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
            0 => EraseRange::After,
            1 => EraseRange::Before,
            _ => EraseRange::All,
        };
        Some(match last {
            b'A' | b'F' => TerminalOp::Up(count),
            b'B' | b'E' | b'e' => TerminalOp::Down(count),
            b'C' | b'a' => TerminalOp::Right(count),
            b'D' => TerminalOp::Left(count),
            b'G' | b'`' => TerminalOp::Column(place(0)),
            b'd' => TerminalOp::Row(place(0)),
            b'H' | b'f' => TerminalOp::To(place(0), place(1)),
            b's' => TerminalOp::Save,
            b'u' => TerminalOp::Restore,
            b'K' => TerminalOp::EraseLine(part),
            b'J' if raw(0) == 3 => return None,
            b'J' => TerminalOp::EraseScreen(part),
            b'X' => TerminalOp::EraseChars(count),
            b'P' => TerminalOp::DeleteChars(count),
            b'@' => TerminalOp::InsertChars(count),
            b'L' => TerminalOp::InsertLines(count),
            b'M' => TerminalOp::DeleteLines(count),
            b'S' => TerminalOp::ScrollUp(count),
            b'T' => TerminalOp::ScrollDown(count),
            b'r' if self.count < 2 => TerminalOp::Region(None),
            b'r' => TerminalOp::Region(Some((place(0), place(1)))),
            _ => return None,
        })
    }
}
