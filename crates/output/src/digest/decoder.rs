//! Decoder of terminal output: bytes in, text and terminal operations out.
//!
//! Reads UTF-8 and escape sequences and holds what is incomplete at the end of a chunk, so that the
//! result does not depend on how the stream is cut. Rows and lines are not known here.
//!
//! The following never pass: escape sequences, control characters other than those in [`TerminalOp`], C1
//! control characters in either encoding, and characters that reorder or hide the text around them. The
//! last become U+FFFD, so that the reader sees that something was there, but for a byte order mark at the
//! start of a line.

use super::csi::{CsiParams, TerminalOp};
use crate::printable::{BYTE_ORDER_MARK, is_misleading};
use crate::tokenizer::{Token, Tokenizer, sgr_len};

const REPLACEMENT: &str = "\u{FFFD}";
/// Maximum length of a run of non-ASCII bytes that is decoded at once. An invalid byte restarts the run
/// behind it, so this bound keeps the work proportional to the number of bytes.
const MAX_RUN: usize = 128;

/// Receiver of text and operations.
pub trait Surface {
    /// Printable text: no control characters except tab.
    fn text(&mut self, text: &str);
    /// Operation other than printing.
    fn op(&mut self, op: TerminalOp);
    /// Returns whether the cursor is at the start of an empty last row, so that whole lines can be taken.
    fn at_fresh_line(&self) -> bool;
    /// Whole line of printable ASCII, at a fresh line.
    fn line(&mut self, line: &str);
}

/// Decoder of one stream.
#[derive(Default)]
pub struct Decoder {
    tokenizer: Tokenizer,
    /// Parameters of the control sequence that is being read.
    csi: CsiParams,
    charsets: Charsets,
    /// Text that is not passed on yet; empty between calls.
    text: String,
    /// Begin of a UTF-8 character without its rest.
    incomplete: Vec<u8>,
    /// Number of non-ASCII bytes that were decoded, counting repeated attempts.
    #[cfg(test)]
    looked_at: usize,
}

/// Character sets G0 and G1: which of them is DEC Special Graphics (box drawing), and whether G1 is in
/// use. Menus and dialogs often use it for their borders.
#[derive(Default)]
struct Charsets {
    is_graphics: [bool; 2],
    second: bool,
}

impl Charsets {
    fn uses_graphics(&self) -> bool {
        self.is_graphics[usize::from(self.second)]
    }

    fn is_ascii(&self) -> bool {
        !self.is_graphics[0] && !self.second
    }

    /// Resets the character set, in case the program forgot to: later lines must stay readable.
    fn end_line(&mut self) {
        self.is_graphics[0] = false;
        self.second = false;
    }
}

/// Characters of DEC Special Graphics for the bytes from `_` on.
const BOX_DRAWING: [char; 32] = [
    ' ', '◆', '▒', '␉', '␌', '␍', '␊', '°', '±', '␤', '␋', '┘', '┐', '┌', '└', '┼', '⎺', '⎻', '─',
    '⎼', '⎽', '├', '┤', '┴', '┬', '│', '≤', '≥', 'π', '≠', '£', '·',
];

fn box_drawing(text: &str) -> String {
    let shown = |c: char| match c {
        '_'..='~' => BOX_DRAWING[c as usize - '_' as usize],
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

    /// Returns whether nothing is incomplete.
    pub fn is_idle(&self) -> bool {
        self.tokenizer.is_ground() && self.incomplete.is_empty() && self.charsets.is_ascii()
    }

    /// Ends the stream, or the part before missing bytes, and drops what is incomplete.
    pub fn cut(&mut self, surface: &mut impl Surface) {
        if !self.incomplete.is_empty() {
            self.incomplete.clear();
            surface.text(REPLACEMENT);
        }
        self.tokenizer = Tokenizer::default();
        self.charsets = Charsets::default();
    }

    /// Takes bytes outside of any sequence; returns their number.
    fn ground(&mut self, bytes: &[u8], surface: &mut impl Surface) -> usize {
        if !self.incomplete.is_empty() {
            return self.complete_char(bytes, surface);
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
            return self.non_ascii_text(bytes, surface);
        }
        let text = std::str::from_utf8(text).unwrap_or_default();
        if self.charsets.uses_graphics() {
            surface.text(&box_drawing(text));
            return plain;
        }
        let newline = match rest {
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            _ => 0,
        };
        if newline > 0 && surface.at_fresh_line() {
            self.charsets.end_line();
            surface.line(text);
            return plain + newline;
        }
        surface.text(text);
        plain
    }

    /// Takes text with non-ASCII bytes, up to the next control character.
    fn non_ascii_text(&mut self, bytes: &[u8], surface: &mut impl Surface) -> usize {
        let mut used = 0;
        while let Some(byte) = bytes.get(used)
            && !is_control(*byte)
            && self.tokenizer.is_ground()
            && self.incomplete.is_empty()
        {
            let rest = &bytes[used..];
            let plain = plain_length(rest);
            let text = std::str::from_utf8(&rest[..plain]).unwrap_or_default();
            match self.charsets.uses_graphics() {
                true => self.text.push_str(&box_drawing(text)),
                false => self.text.push_str(text),
            }
            used += plain + self.beyond_ascii(&rest[plain..], surface);
        }
        self.flush_text(surface);
        used
    }

    /// Takes bytes up to the next ASCII byte, or up to a C1 control character that begins a sequence.
    fn beyond_ascii(&mut self, bytes: &[u8], surface: &mut impl Surface) -> usize {
        let run = &bytes[..bytes.len().min(MAX_RUN)];
        let end = run.iter().position(|&b| b < 0x80);
        let run = &run[..end.unwrap_or(run.len())];
        #[cfg(test)]
        {
            self.looked_at += run.len();
        }
        let mut used = 0;
        for chunk in run.utf8_chunks() {
            used += self.characters(chunk.valid(), surface);
            if !self.tokenizer.is_ground() {
                return used;
            }
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            if end.is_none() && used + invalid.len() == run.len() && is_incomplete_char(invalid) {
                if run.len() == bytes.len() {
                    self.incomplete.extend_from_slice(invalid);
                    used += invalid.len();
                }
                break;
            }
            self.text.push_str(REPLACEMENT);
            used += invalid.len();
        }
        used
    }

    fn complete_char(&mut self, bytes: &[u8], surface: &mut impl Surface) -> usize {
        self.incomplete.push(bytes[0]);
        let held = std::mem::take(&mut self.incomplete);
        match std::str::from_utf8(&held) {
            Ok(text) => {
                self.characters(text, surface);
                self.flush_text(surface);
                1
            }
            Err(error) if error.error_len().is_none() => {
                self.incomplete = held;
                1
            }
            Err(_) => {
                // The new byte does not continue the character, so it is decoded separately.
                surface.text(REPLACEMENT);
                0
            }
        }
    }

    /// Adds valid non-ASCII text to the text to be written, without characters that must not pass. Stops
    /// behind a C1 control character that begins a sequence; returns the number of bytes taken.
    fn characters(&mut self, text: &str, surface: &mut impl Surface) -> usize {
        for (at, c) in text.char_indices() {
            match c {
                '\u{80}'..='\u{9F}' => {
                    self.flush_text(surface);
                    self.c1(c, surface);
                    if !self.tokenizer.is_ground() {
                        return at + c.len_utf8();
                    }
                }
                BYTE_ORDER_MARK if self.text.is_empty() && surface.at_fresh_line() => {}
                c if is_misleading(c) => self.text.push_str(REPLACEMENT),
                c => self.text.push(c),
            }
        }
        text.len()
    }

    /// Passes on the collected text.
    fn flush_text(&mut self, surface: &mut impl Surface) {
        if !self.text.is_empty() {
            surface.text(&self.text);
            self.text.clear();
        }
    }

    fn c1(&mut self, c: char, surface: &mut impl Surface) {
        // Each C1 control character is equivalent to ESC and the character 0x40 below it.
        let letter = u8::try_from(u32::from(c) - 0x40).unwrap_or(0);
        self.step(0x1B, surface);
        self.step(letter, surface);
    }

    /// Takes one byte of a sequence, or a control character. Returns 0 if it is text, which ended a broken
    /// sequence and is decoded outside of it.
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
            Token::EscapeEnd(b'(') => self.charsets.is_graphics[0] = byte == b'0',
            Token::EscapeEnd(b')') => self.charsets.is_graphics[1] = byte == b'0',
            Token::EscapeEnd(_) | Token::Part | Token::End => {}
        }
        1
    }

    fn control(&mut self, byte: u8, surface: &mut impl Surface) {
        match byte {
            b'\n' => {
                self.charsets.end_line();
                surface.op(TerminalOp::Newline);
            }
            // Vertical tab and form feed: `printf 'a\fb'` shows two lines.
            0x0B | 0x0C if !surface.at_fresh_line() => surface.op(TerminalOp::Index),
            // Outside of sequences a tab is text.
            b'\t' => surface.text("\t"),
            0x0E => self.charsets.second = true,
            0x0F => self.charsets.second = false,
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
                self.charsets = Charsets::default();
                surface.op(TerminalOp::Reset);
            }
            _ => {}
        }
    }
}

/// Returns whether bytes are the begin of a valid UTF-8 character.
fn is_incomplete_char(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// Returns whether a byte is a control character, which ends a run of text; a tab does not end it.
fn is_control(byte: u8) -> bool {
    (byte < 0x20 && byte != b'\t') || byte == 0x7F
}

/// Number of bytes of printable ASCII at the start; looks at eight bytes at a time.
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
            // A tab is printable, and can make bytes behind it look special.
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
    fn invalid_utf8_is_decoded_in_linear_time() {
        let invalid: &[&[u8]] = &[b"\xff", b"\xe2\x82", b"a\xff", b"\xf0\x9f\xa6", b"\xc2\x85"];
        for pattern in invalid.iter().chain([&&b"\xc2\x9d\xc2\x9c"[..]]) {
            let bytes = pattern.repeat(50_000);
            let mut decoder = Decoder::default();
            let mut tally = Tally::default();
            decoder.feed(&bytes, &mut tally);
            let most = MAX_RUN / 2 * bytes.len();
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
