//! Bytes in, text and cursor movements out.
//!
//! Reads UTF-8 and the escape sequences of terminals, and keeps whatever a chunk left unfinished,
//! so that it does not matter where chunks begin and end. Knows nothing of rows and lines.
//!
//! What never leaves here: escape sequences, control characters other than those named in
//! [`TerminalOp`], the C1 controls in either coding, and characters that change the order or
//! visibility of the text around them. The last become U+FFFD: whoever reads should see that
//! something was there.

use super::csi::{CsiParams, TerminalOp};
use crate::tokenizer::{Token, Tokenizer, sgr_len};

const REPLACEMENT: &str = "\u{FFFD}";
/// Bytes beyond ASCII that are looked at together. A look begins again behind whatever ends the one
/// before, so a bound on its reach keeps the work in proportion to the bytes.
const STRETCH: usize = 128;

/// What the decoder writes on.
pub trait Surface {
    /// Printable text: no control characters except tab.
    fn text(&mut self, text: &str);
    fn op(&mut self, op: TerminalOp);
    /// Is the cursor at the start of an empty last row? Then whole lines can be taken at once.
    fn at_fresh_line(&self) -> bool;
    /// A whole line of printable ASCII, at a fresh line.
    fn line(&mut self, line: &str);
}

#[derive(Default)]
pub struct Decoder {
    tokenizer: Tokenizer,
    /// The control sequence that is being read.
    csi: CsiParams,
    sets: Sets,
    /// Text that is being put together, empty between calls.
    text: String,
    /// The beginning of a UTF-8 character whose rest has not come yet.
    carry: Vec<u8>,
    /// Bytes beyond ASCII that were looked at, again and again perhaps.
    #[cfg(test)]
    looked_at: usize,
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

impl Decoder {
    pub fn feed(&mut self, mut bytes: &[u8], surface: &mut impl Surface) {
        while let Some(&byte) = bytes.first() {
            let used = if self.tokenizer.is_ground() {
                self.ground(bytes, surface)
            } else {
                self.step(byte, surface)
            };
            bytes = &bytes[used..];
        }
    }

    /// Is nothing unfinished?
    pub fn is_idle(&self) -> bool {
        self.tokenizer.is_ground() && self.carry.is_empty() && self.sets.are_plain()
    }

    /// The stream is over, or bytes are missing from here on: what is unfinished stays so.
    pub fn cut(&mut self, surface: &mut impl Surface) {
        if !self.carry.is_empty() {
            self.carry.clear();
            surface.text(REPLACEMENT);
        }
        self.tokenizer = Tokenizer::default();
        self.sets = Sets::default();
    }

    /// Takes bytes outside of any sequence; returns how many.
    fn ground(&mut self, bytes: &[u8], surface: &mut impl Surface) -> usize {
        if !self.carry.is_empty() {
            return self.complete_carry(bytes, surface);
        }
        if let Some(length) = sgr_len(bytes) {
            return length;
        }
        if is_control(bytes[0]) {
            return self.step(bytes[0], surface);
        }
        let plain = plain_length(bytes);
        let (text, rest) = bytes.split_at(plain);
        if plain == 0 || rest.first().is_some_and(|&byte| byte >= 0x80) {
            return self.mixed(bytes, surface);
        }
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

    /// Takes text that is not all ASCII, up to the next control.
    fn mixed(&mut self, bytes: &[u8], surface: &mut impl Surface) -> usize {
        let mut used = 0;
        while let Some(byte) = bytes.get(used)
            && !is_control(*byte)
            && self.tokenizer.is_ground()
            && self.carry.is_empty()
        {
            let rest = &bytes[used..];
            let plain = plain_length(rest);
            let text = std::str::from_utf8(&rest[..plain]).unwrap_or_default();
            match self.sets.in_use_draws() {
                true => self.text.push_str(&drawn(text)),
                false => self.text.push_str(text),
            }
            used += plain + self.beyond_ascii(&rest[plain..], surface);
        }
        self.put(surface);
        used
    }

    /// Takes bytes up to the next ASCII one, or to a C1 control that begins a sequence.
    fn beyond_ascii(&mut self, bytes: &[u8], surface: &mut impl Surface) -> usize {
        let stretch = &bytes[..bytes.len().min(STRETCH)];
        let end = stretch.iter().position(|&b| b < 0x80);
        let stretch = &stretch[..end.unwrap_or(stretch.len())];
        #[cfg(test)]
        {
            self.looked_at += stretch.len();
        }
        let mut used = 0;
        for chunk in stretch.utf8_chunks() {
            used += self.characters(chunk.valid(), surface);
            if !self.tokenizer.is_ground() {
                return used;
            }
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            if end.is_none() && used + invalid.len() == stretch.len() && is_begun(invalid) {
                if stretch.len() == bytes.len() {
                    self.carry.extend_from_slice(invalid);
                    used += invalid.len();
                }
                break;
            }
            self.text.push_str(REPLACEMENT);
            used += invalid.len();
        }
        used
    }

    fn complete_carry(&mut self, bytes: &[u8], surface: &mut impl Surface) -> usize {
        self.carry.push(bytes[0]);
        let held = std::mem::take(&mut self.carry);
        match std::str::from_utf8(&held) {
            Ok(text) => {
                self.characters(text, surface);
                self.put(surface);
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

    /// Adds valid text beyond ASCII, without the characters that must not pass, to what is to be
    /// written. Stops behind a C1 control that begins a sequence; returns the bytes taken.
    fn characters(&mut self, text: &str, surface: &mut impl Surface) -> usize {
        for (at, c) in text.char_indices() {
            match c {
                '\u{80}'..='\u{9F}' => {
                    self.put(surface);
                    self.c1(c, surface);
                    if !self.tokenizer.is_ground() {
                        return at + c.len_utf8();
                    }
                }
                c if misleads(c) => self.text.push_str(REPLACEMENT),
                c => self.text.push(c),
            }
        }
        text.len()
    }

    /// Writes the text that was put together.
    fn put(&mut self, surface: &mut impl Surface) {
        if !self.text.is_empty() {
            surface.text(&self.text);
            self.text.clear();
        }
    }

    fn c1(&mut self, c: char, surface: &mut impl Surface) {
        // Each C1 control is the same as ESC and a letter 0x40 below it.
        let letter = u8::try_from(u32::from(c) - 0x40).unwrap_or(0);
        self.step(0x1B, surface);
        self.step(letter, surface);
    }

    /// Takes one byte of a sequence, or a control character; returns 0 where it is text, which is read
    /// outside of the sequence that it broke.
    fn step(&mut self, byte: u8, surface: &mut impl Surface) -> usize {
        match self.tokenizer.step(byte) {
            Token::Text => return 0,
            Token::Control => self.control(byte, surface),
            Token::CsiBegin => self.csi = CsiParams::default(),
            Token::CsiPart => self.csi.add(byte),
            Token::CsiEnd => {
                if let Some(op) = self.csi.op(byte) {
                    surface.op(op);
                    if matches!(byte, b'E' | b'F') {
                        surface.op(TerminalOp::Return);
                    }
                }
            }
            Token::EscapeEnd(0) => self.escape(byte, surface),
            Token::EscapeEnd(b'(') => self.sets.draws[0] = byte == b'0',
            Token::EscapeEnd(b')') => self.sets.draws[1] = byte == b'0',
            Token::EscapeEnd(_) | Token::Part | Token::End => {}
        }
        1
    }

    fn control(&mut self, byte: u8, surface: &mut impl Surface) {
        match byte {
            b'\n' => {
                self.sets.line_ends();
                surface.op(TerminalOp::Newline);
            }
            // Outside of sequences a tab is text.
            b'\t' => surface.text("\t"),
            0x0E => self.sets.second = true,
            0x0F => self.sets.second = false,
            b'\r' => surface.op(TerminalOp::Return),
            0x08 => surface.op(TerminalOp::Backspace),
            _ => {}
        }
    }

    fn escape(&mut self, byte: u8, surface: &mut impl Surface) {
        match byte {
            b'7' => surface.op(TerminalOp::Save),
            b'8' => surface.op(TerminalOp::Restore),
            b'D' | b'E' => surface.op(TerminalOp::Newline),
            b'M' => surface.op(TerminalOp::ReverseIndex),
            b'c' => {
                self.sets = Sets::default();
                surface.op(TerminalOp::Reset);
            }
            _ => {}
        }
    }
}

/// Whether bytes that are not UTF-8 would be, with more behind them.
fn is_begun(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
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

/// Characters that reorder or hide what stands around them: bidirectional overrides and marks,
/// line separators, and the invisible tag characters.
fn misleads(c: char) -> bool {
    matches!(c,
        '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}'
        | '\u{2028}' | '\u{2029}' | '\u{E0000}'..='\u{E0FFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Tally {
        chars: usize,
        calls: usize,
    }

    impl Surface for Tally {
        fn text(&mut self, text: &str) {
            self.chars += text.chars().count();
            self.calls += 1;
        }

        fn op(&mut self, _: TerminalOp) {
            self.calls += 1;
        }

        fn at_fresh_line(&self) -> bool {
            false
        }

        fn line(&mut self, _: &str) {}
    }

    #[test]
    fn bytes_that_are_not_utf8_are_looked_at_a_bounded_number_of_times() {
        let invalid: &[&[u8]] = &[b"\xff", b"\xe2\x82", b"a\xff", b"\xf0\x9f\xa6", b"\xc2\x85"];
        for pattern in invalid.iter().chain([&&b"\xc2\x9d\xc2\x9c"[..]]) {
            let bytes = pattern.repeat(50_000);
            let mut decoder = Decoder::default();
            let mut tally = Tally::default();
            decoder.feed(&bytes, &mut tally);
            let most = STRETCH / 2 * bytes.len();
            assert!(
                decoder.looked_at <= most,
                "{pattern:?}: {}",
                decoder.looked_at
            );
            assert!(tally.calls <= bytes.len(), "{pattern:?}: {}", tally.calls);
        }
        let bytes = b"\xff".repeat(50_000);
        let mut decoder = Decoder::default();
        let mut tally = Tally::default();
        decoder.feed(&bytes, &mut tally);
        assert_eq!((tally.chars, tally.calls), (50_000, 1));
        assert_eq!(decoder.looked_at, bytes.len());
    }
}
