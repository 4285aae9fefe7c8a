//! Bytes in, text and cursor movements out.
//!
//! Reads UTF-8 and the escape sequences of terminals, and keeps whatever a chunk left unfinished,
//! so that it does not matter where chunks begin and end. Knows nothing of rows and lines.
//!
//! What never leaves here: escape sequences, control characters other than those named in
//! [`Motion`], the C1 controls in either coding, and characters that change the order or
//! visibility of the text around them. The last become U+FFFD: whoever reads should see that
//! something was there.

use memchr::memchr;

/// A DCS string may hold newlines (an image does), so only its length tells a broken one.
const DCS_MAX: usize = 4 << 20;
/// No honest control sequence has more parameters than this; further ones are ignored.
const PARAMS_MAX: usize = 16;
/// How far to look for the end of a line that could be taken at once.
const LOOK_AHEAD: usize = 4_096;
const COLOUR_MAX: usize = 32;
const PARAM_CEILING: u16 = 9_999;
const REPLACEMENT: &str = "\u{FFFD}";

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

/// What the decoder writes on.
pub trait Surface {
    /// Printable text: no control characters except tab.
    fn text(&mut self, text: &str);
    fn motion(&mut self, motion: Motion);
    /// Is the cursor at the start of an empty last row? Then whole lines can be taken at once.
    fn at_fresh_line(&self) -> bool;
    /// A whole line of printable ASCII, at a fresh line.
    fn line(&mut self, line: &str);
}

#[derive(Default)]
pub struct Decoder {
    state: State,
    /// The beginning of a UTF-8 character whose rest has not come yet.
    carry: Vec<u8>,
}

#[derive(Default)]
enum State {
    #[default]
    Ground,
    Escape,
    /// `ESC (` and its like: one more byte belongs to it.
    EscapeIntermediate,
    Control(Sequence),
    /// OSC, DCS, APC, PM or SOS, up to its terminator.
    Text(Str),
    /// An escape within such a string: its end, or the begin of something new.
    TextEscape,
}

#[derive(Clone, Copy, Default)]
struct Sequence {
    params: [u16; PARAMS_MAX],
    count: usize,
    marker: u8,
    intermediate: bool,
}

struct Str {
    kind: StrKind,
    length: usize,
    last: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StrKind {
    /// Ends with BEL too.
    Osc,
    /// May hold newlines.
    Dcs,
    Other,
}

impl Decoder {
    pub fn feed(&mut self, mut bytes: &[u8], surface: &mut impl Surface) {
        while !bytes.is_empty() {
            let used = match self.state {
                State::Ground => self.ground(bytes, surface),
                State::Text(_) => self.skip_string(bytes),
                _ => {
                    self.step(bytes[0], surface);
                    1
                }
            };
            bytes = &bytes[used..];
        }
    }

    /// The stream is over, or bytes are missing from here on: what is unfinished stays so.
    pub fn cut(&mut self, surface: &mut impl Surface) {
        if !self.carry.is_empty() {
            self.carry.clear();
            surface.text(REPLACEMENT);
        }
        self.state = State::Ground;
    }

    fn ground(&mut self, bytes: &[u8], surface: &mut impl Surface) -> usize {
        if !self.carry.is_empty() {
            return self.complete_carry(bytes, surface);
        }
        let mut used = 0;
        while surface.at_fresh_line() {
            let rest = &bytes[used..];
            let Some(end) = memchr(b'\n', &rest[..rest.len().min(LOOK_AHEAD)]) else {
                break;
            };
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            if !is_plain(line) {
                break;
            }
            let Ok(line) = std::str::from_utf8(line) else {
                break;
            };
            surface.line(line);
            used += end + 1;
        }
        if used > 0 {
            return used;
        }
        if let Some(length) = colour_length(bytes) {
            return length;
        }
        if is_control(bytes[0]) {
            self.step(bytes[0], surface);
            return 1;
        }
        self.printable(bytes, surface)
    }

    /// Takes bytes up to the next control character, or to a C1 control among the text.
    fn printable(&mut self, bytes: &[u8], surface: &mut impl Surface) -> usize {
        let plain = plain_length(bytes);
        if plain > 0 {
            surface.text(std::str::from_utf8(&bytes[..plain]).unwrap_or_default());
            return plain;
        }
        let end = bytes.iter().position(|&b| b < 0x80).unwrap_or(bytes.len());
        let (stretch, invalid) = match std::str::from_utf8(&bytes[..end]) {
            Ok(text) => (text, None),
            Err(error) => {
                let valid = &bytes[..error.valid_up_to()];
                let text = std::str::from_utf8(valid).unwrap_or_default();
                (text, Some(error.error_len()))
            }
        };
        let used = self.harmless(stretch, surface);
        if used < stretch.len() || !matches!(self.state, State::Ground) {
            return used;
        }
        match invalid {
            None => used,
            Some(Some(length)) => {
                surface.text(REPLACEMENT);
                used + length
            }
            Some(None) if end == bytes.len() => {
                self.carry.extend_from_slice(&bytes[used..]);
                end
            }
            Some(None) => {
                surface.text(REPLACEMENT);
                end
            }
        }
    }

    fn complete_carry(&mut self, bytes: &[u8], surface: &mut impl Surface) -> usize {
        self.carry.push(bytes[0]);
        let held = std::mem::take(&mut self.carry);
        match std::str::from_utf8(&held) {
            Ok(text) => {
                self.harmless(text, surface);
                1
            }
            Err(error) if error.error_len().is_none() => {
                self.carry = held;
                1
            }
            Err(_) => {
                // The new byte does not continue the character, so it is read on its own.
                surface.text(REPLACEMENT);
                0
            }
        }
    }

    /// Writes valid text without the characters that must not pass. Stops behind a C1 control.
    fn harmless(&mut self, text: &str, surface: &mut impl Surface) -> usize {
        let mut start = 0;
        for (at, c) in text.char_indices() {
            let next = at + c.len_utf8();
            match c {
                '\u{80}'..='\u{9F}' => {
                    if start < at {
                        surface.text(&text[start..at]);
                    }
                    self.c1(c, surface);
                    return next;
                }
                c if misleads(c) => {
                    if start < at {
                        surface.text(&text[start..at]);
                    }
                    surface.text(REPLACEMENT);
                    start = next;
                }
                _ => {}
            }
        }
        if start < text.len() {
            surface.text(&text[start..]);
        }
        text.len()
    }

    fn c1(&mut self, c: char, surface: &mut impl Surface) {
        // Each C1 control is the same as ESC and a letter 0x40 below it.
        let letter = u8::try_from(u32::from(c) - 0x40).unwrap_or(0);
        self.escape(letter, surface);
    }

    fn step(&mut self, byte: u8, surface: &mut impl Surface) {
        match &mut self.state {
            State::Ground => self.control(byte, surface),
            State::Escape => self.escape(byte, surface),
            State::EscapeIntermediate => {
                if !matches!(byte, 0x20..=0x2F) {
                    self.state = State::Ground;
                    if is_control(byte) {
                        self.control(byte, surface);
                    }
                }
            }
            State::Control(_) => self.sequence(byte, surface),
            State::TextEscape => {
                self.state = State::Ground;
                if byte != b'\\' {
                    self.escape(byte, surface);
                }
            }
            State::Text(_) => {}
        }
    }

    fn control(&mut self, byte: u8, surface: &mut impl Surface) {
        match byte {
            b'\n' => surface.motion(Motion::Newline),
            b'\r' => surface.motion(Motion::Return),
            0x08 => surface.motion(Motion::Backspace),
            0x1B => self.state = State::Escape,
            _ => {}
        }
    }

    fn escape(&mut self, byte: u8, surface: &mut impl Surface) {
        self.state = State::Ground;
        match byte {
            b'[' => self.state = State::Control(Sequence::default()),
            b']' => self.string(StrKind::Osc),
            b'P' => self.string(StrKind::Dcs),
            b'X' | b'^' | b'_' => self.string(StrKind::Other),
            0x20..=0x2F => self.state = State::EscapeIntermediate,
            b'7' => surface.motion(Motion::Save),
            b'8' => surface.motion(Motion::Restore),
            b'D' | b'E' => surface.motion(Motion::Newline),
            b'M' => surface.motion(Motion::ReverseIndex),
            b'c' => surface.motion(Motion::Reset),
            byte if is_control(byte) => self.control(byte, surface),
            // A broken escape must not swallow the text behind it.
            0x80.. => self.carry.push(byte),
            _ => {}
        }
    }

    fn string(&mut self, kind: StrKind) {
        self.state = State::Text(Str {
            kind,
            length: 0,
            last: 0,
        });
    }

    fn skip_string(&mut self, bytes: &[u8]) -> usize {
        let State::Text(Str { kind, length, last }) = &mut self.state else {
            return 0;
        };
        for (at, &byte) in bytes.iter().enumerate() {
            *length += 1;
            let before = std::mem::replace(last, byte);
            let next = match byte {
                0x07 if *kind == StrKind::Osc => State::Ground,
                0x1B => State::TextEscape,
                0x18 | 0x1A => State::Ground,
                // ST as a C1 control: the second byte of U+009C. A text may hold that byte, too,
                // but then ends a little early, which shows more rather than less.
                0x9C if before == 0xC2 => State::Ground,
                b'\n' if *kind != StrKind::Dcs => {
                    self.state = State::Ground;
                    return at;
                }
                _ if *length >= DCS_MAX && *kind == StrKind::Dcs => State::Ground,
                _ => continue,
            };
            self.state = next;
            return at + 1;
        }
        bytes.len()
    }

    fn sequence(&mut self, byte: u8, surface: &mut impl Surface) {
        let State::Control(sequence) = &mut self.state else {
            return;
        };
        match byte {
            b'0'..=b'9' => {
                sequence.count = sequence.count.max(1);
                let last = &mut sequence.params[sequence.count - 1];
                let longer = last
                    .saturating_mul(10)
                    .saturating_add(u16::from(byte - b'0'));
                *last = longer.min(PARAM_CEILING);
            }
            b';' | b':' => sequence.count = (sequence.count.max(1) + 1).min(PARAMS_MAX),
            b'<'..=b'?' => sequence.marker = byte,
            0x20..=0x2F => sequence.intermediate = true,
            0x40..=0x7E => {
                let sequence = *sequence;
                self.state = State::Ground;
                if let Some(motion) = sequence.meaning(byte) {
                    surface.motion(motion);
                    if matches!(byte, b'E' | b'F') {
                        surface.motion(Motion::Return);
                    }
                }
            }
            0x1B => self.state = State::Escape,
            // Anything else ends a sequence that was never finished.
            byte => {
                self.state = State::Ground;
                if is_control(byte) {
                    self.control(byte, surface);
                } else {
                    self.carry.push(byte);
                }
            }
        }
    }
}

impl Sequence {
    fn meaning(&self, last: u8) -> Option<Motion> {
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

/// Controls end a stretch of text; a tab is part of it.
fn is_control(byte: u8) -> bool {
    (byte < 0x20 && byte != b'\t') || byte == 0x7F
}

/// Printable ASCII only. Looks at every byte instead of stopping early, which lets the compiler
/// look at many at once.
fn is_plain(line: &[u8]) -> bool {
    !line
        .iter()
        .fold(false, |bad, &b| bad | is_control(b) | (b >= 0x80))
}

/// How many bytes of printable ASCII come first.
fn plain_length(bytes: &[u8]) -> usize {
    const STRIDE: usize = 32;
    let mut at = 0;
    while at + STRIDE <= bytes.len() && is_plain(&bytes[at..at + STRIDE]) {
        at += STRIDE;
    }
    let rest = bytes[at..].iter();
    let more = rest.take_while(|&&b| !is_control(b) && b < 0x80).count();
    at + more
}

/// The length of a sequence that only sets colours. Most sequences do, and mean nothing here.
fn colour_length(bytes: &[u8]) -> Option<usize> {
    let rest = bytes.strip_prefix(b"\x1B[")?;
    let end = rest
        .iter()
        .take(COLOUR_MAX)
        .position(|b| !matches!(b, b'0'..=b'9' | b';' | b':'))?;
    (rest[end] == b'm').then_some(end + 3)
}

/// Characters that reorder or hide what stands around them: bidirectional overrides and marks,
/// line separators, and the invisible tag characters.
fn misleads(c: char) -> bool {
    matches!(c,
        '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}'
        | '\u{2028}' | '\u{2029}' | '\u{E0000}'..='\u{E0FFF}')
}
