//! Bytes in, text and cursor movements out.
//!
//! Reads UTF-8 and the escape sequences of terminals, and keeps whatever a chunk left unfinished,
//! so that it does not matter where chunks begin and end. Knows nothing of rows and lines.
//!
//! What never leaves here: escape sequences, control characters other than those named in
//! [`Motion`], the C1 controls in either coding, and characters that change the order or
//! visibility of the text around them. The last become U+FFFD: whoever reads should see that
//! something was there.

use super::sequence::{Motion, Sequence};

/// The longest image that is passed over.
const IMAGE_MAX: usize = 4 << 20;
const COLOUR_MAX: usize = 32;
const REPLACEMENT: &str = "\u{FFFD}";

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
    sets: Sets,
    /// The beginning of a UTF-8 character whose rest has not come yet.
    carry: Vec<u8>,
}

/// The two character sets that a terminal has at hand: which of them draw lines instead of letters,
/// and whether the second is in use. Boxes around menus and dialogs are often drawn so.
#[derive(Default)]
struct Sets {
    draws: [bool; 2],
    second: bool,
}

impl Sets {
    fn in_use_draws(&self) -> bool {
        self.draws[usize::from(self.second)]
    }

    fn are_plain(&self) -> bool {
        !self.draws[0] && !self.second
    }

    /// A program that forgot to go back to letters must not make the lines behind it unreadable.
    fn line_ends(&mut self) {
        self.draws[0] = false;
        self.second = false;
    }
}

/// What the drawing set shows for each byte from `_` on.
const DRAWN: [char; 32] = [
    ' ', '◆', '▒', '␉', '␌', '␍', '␊', '°', '±', '␤', '␋', '┘', '┐', '┌', '└', '┼', '⎺', '⎻', '─',
    '⎼', '⎽', '├', '┤', '┴', '┬', '│', '≤', '≥', 'π', '≠', '£', '·',
];

fn drawn(text: &str) -> String {
    let shown = |c: char| match c {
        '_'..='~' => DRAWN[c as usize - '_' as usize],
        c => c,
    };
    text.chars().map(shown).collect()
}

#[derive(Default)]
enum State {
    #[default]
    Ground,
    Escape,
    /// `ESC (` and its like, with that byte: one more belongs to it.
    EscapeIntermediate(u8),
    Control(Sequence),
    /// OSC, DCS, APC, PM or SOS, up to its terminator.
    Text(Str),
    /// An escape within such a string: its end, or the begin of something new.
    TextEscape,
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
    /// DCS, up to the letter that says what it is. `plain`: there were only numbers so far.
    DcsHead {
        plain: bool,
    },
    /// A DCS that paints. It may go over many lines, but whatever paints nothing shows that it is none.
    Image,
    Other,
}

impl StrKind {
    /// What it has become with one more byte.
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (StrKind::DcsHead { plain: true }, b'q') => StrKind::Image,
            (StrKind::DcsHead { .. }, 0x40..) => StrKind::Other,
            (StrKind::DcsHead { plain }, byte) => StrKind::DcsHead {
                plain: plain && matches!(byte, b'0'..=b'9' | b';'),
            },
            (kind, _) => kind,
        }
    }

    /// Whether this byte shows that the string was never ended.
    fn is_broken_by(self, byte: u8) -> bool {
        let paints = |byte| matches!(byte, b'?'..=b'~' | b'!'..=b'$' | b'-' | b'0'..=b'9' | b';');
        match self {
            StrKind::Image => !paints(byte) && !matches!(byte, b'\n' | b'\r'),
            _ => byte == b'\n',
        }
    }
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

    /// Is nothing unfinished?
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Ground) && self.carry.is_empty() && self.sets.are_plain()
    }

    /// The stream is over, or bytes are missing from here on: what is unfinished stays so.
    pub fn cut(&mut self, surface: &mut impl Surface) {
        if !self.carry.is_empty() {
            self.carry.clear();
            surface.text(REPLACEMENT);
        }
        self.state = State::Ground;
        self.sets = Sets::default();
    }

    fn ground(&mut self, bytes: &[u8], surface: &mut impl Surface) -> usize {
        if !self.carry.is_empty() {
            return self.complete_carry(bytes, surface);
        }
        if let Some(length) = colour_length(bytes) {
            return length;
        }
        if is_control(bytes[0]) {
            self.step(bytes[0], surface);
            return 1;
        }
        let plain = plain_length(bytes);
        if plain == 0 {
            return self.beyond_ascii(bytes, surface);
        }
        let (text, rest) = bytes.split_at(plain);
        let text = std::str::from_utf8(text).unwrap_or_default();
        if self.sets.in_use_draws() {
            surface.text(&drawn(text));
            return plain;
        }
        let newline = match rest {
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            _ => 0,
        };
        if newline > 0 && surface.at_fresh_line() {
            self.sets.line_ends();
            surface.line(text);
            return plain + newline;
        }
        surface.text(text);
        plain
    }

    /// Takes bytes up to the next ASCII one, or to a C1 control among them.
    fn beyond_ascii(&mut self, bytes: &[u8], surface: &mut impl Surface) -> usize {
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
            State::EscapeIntermediate(first) => {
                let first = *first;
                if !matches!(byte, 0x20..=0x2F) {
                    self.state = State::Ground;
                    match first {
                        _ if is_control(byte) => self.control(byte, surface),
                        b'(' => self.sets.draws[0] = byte == b'0',
                        b')' => self.sets.draws[1] = byte == b'0',
                        _ => {}
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
            b'\n' => {
                self.sets.line_ends();
                surface.motion(Motion::Newline);
            }
            0x0E => self.sets.second = true,
            0x0F => self.sets.second = false,
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
            b'P' => self.string(StrKind::DcsHead { plain: true }),
            b'X' | b'^' | b'_' => self.string(StrKind::Other),
            0x20..=0x2F => self.state = State::EscapeIntermediate(byte),
            b'7' => surface.motion(Motion::Save),
            b'8' => surface.motion(Motion::Restore),
            b'D' | b'E' => surface.motion(Motion::Newline),
            b'M' => surface.motion(Motion::ReverseIndex),
            b'c' => {
                self.sets = Sets::default();
                surface.motion(Motion::Reset);
            }
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
                0xC2 if *kind == StrKind::Image => continue,
                byte if kind.is_broken_by(byte) => {
                    self.state = State::Ground;
                    return at;
                }
                _ if *length >= IMAGE_MAX && *kind == StrKind::Image => State::Ground,
                byte => {
                    *kind = kind.after(byte);
                    continue;
                }
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
            0x20..=0x3F => sequence.add(byte),
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

/// Controls end a stretch of text; a tab is part of it.
fn is_control(byte: u8) -> bool {
    (byte < 0x20 && byte != b'\t') || byte == 0x7F
}

/// How many bytes of printable ASCII come first, looking at eight at a time.
fn plain_length(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const TOPS: u64 = u64::from_ne_bytes([0x80; 8]);
    let (words, _) = bytes.as_chunks::<8>();
    let mut at = 0;
    for word in words {
        let word = u64::from_le_bytes(*word);
        let delete = word ^ (ONES * 0x7F);
        let special =
            word | (word.wrapping_sub(ONES * 0x20) & !word) | (delete.wrapping_sub(ONES) & !delete);
        if special & TOPS != 0 {
            // A tab is printable, and can look like more behind it.
            let eight = &bytes[at..at + 8];
            if let Some(first) = eight.iter().position(|&b| is_control(b) || b >= 0x80) {
                return at + first;
            }
        }
        at += 8;
    }
    let rest = bytes[at..].iter();
    at + rest.take_while(|&&b| !is_control(b) && b < 0x80).count()
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
