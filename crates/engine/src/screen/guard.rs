//! Filter that bounds what output can do to the emulator:
//!
//! - The parser buffers a title or a colour until its end arrives; an endless one must not fill the memory.
//! - A few bytes must not keep the emulator busy for long. Most sequences touch each cell at most once; repeating a
//!   character (REP) and moving back by tabs (CBT) would do so 65,535 times.
//! - A sequence ends where [`Tokenizer`] says so. The parser would continue some broken ones.

use abide_output::tokenizer::{Token, Tokenizer};
use memchr::memchr;

use super::Size;

/// Longest string (with its begin) that is passed on; the rest is dropped.
const STRING_LIMIT: usize = 4 << 10;
/// Characters that one byte of output may cause to be repeated on average. Filling one line is always allowed,
/// filling the screen now and then.
const REPEATS_PER_BYTE: usize = 32;
/// Bytes passed on at once: the parser scans all of them for every byte that is not UTF-8.
const PIECE: usize = 256;

const ESC: u8 = 0x1b;
const CAN: u8 = 0x18;

/// Filter of an output stream that may be cut anywhere.
#[derive(Default)]
pub struct Guard {
    tokenizer: Tokenizer,
    /// Bytes of the current string that were passed on.
    string: usize,
    sequence: Sequence,
    /// Repeated characters that later bytes have not yet paid for.
    repeats: usize,
}

/// Control sequence before its last byte.
#[derive(Clone, Copy, Default)]
struct Sequence {
    /// First number.
    count: usize,
    has_second: bool,
    /// True if it has a marker or intermediate bytes, and so another meaning.
    is_special: bool,
}

impl Sequence {
    fn add(&mut self, byte: u8) {
        match byte {
            b'0'..=b'9' if !self.has_second => {
                let count = self.count * 10 + usize::from(byte - b'0');
                self.count = count.min(u16::MAX.into());
            }
            b'0'..=b'9' => {}
            b';' | b':' => self.has_second = true,
            _ => self.is_special = true,
        }
    }
}

impl Guard {
    /// Passes on what is harmless to a screen of this size, in order. Returns the number of repeated characters.
    pub fn pass(&mut self, bytes: &[u8], size: Size, mut on: impl FnMut(&[u8])) -> usize {
        let mut on = |bytes: &[u8]| bytes.chunks(PIECE).for_each(&mut on);
        let mut repeated = 0;
        // Bytes up to here have paid for repetitions.
        let mut counted = 0;
        // Bytes from here to the current one are not passed on yet.
        let mut from = 0;
        let mut at = 0;
        while at < bytes.len() {
            if self.tokenizer.is_ground() {
                let Some(escape) = memchr(ESC, &bytes[at..]) else {
                    break;
                };
                at += escape;
            }
            let byte = bytes[at];
            let was_in_string = self.tokenizer.is_in_string();
            let token = self.tokenizer.step(byte);
            match token {
                Token::CsiBegin => self.sequence = Sequence::default(),
                Token::CsiPart => self.sequence.add(byte),
                Token::CsiEnd if matches!(byte, b'b' | b'Z') && !self.sequence.is_special => {
                    self.make_up(at + 1 - counted);
                    counted = at + 1;
                    let most = self.most(byte, size);
                    if self.sequence.count > most {
                        on(&bytes[from..at]);
                        on(&[CAN]);
                        on(format!("\x1b[{most}{}", char::from(byte)).as_bytes());
                        from = at + 1;
                    }
                    if byte == b'b' {
                        let count = self.sequence.count.clamp(1, most);
                        self.repeats += count;
                        repeated += count;
                    }
                }
                // The sequence is broken, and this byte is outside of it.
                Token::Text | Token::Control if self.tokenizer.is_ground() => {
                    on(&bytes[from..at]);
                    on(&[CAN]);
                    from = at;
                }
                Token::End => {
                    on(&bytes[from..=at]);
                    on(&[CAN]);
                    from = at + 1;
                }
                Token::Part if was_in_string && self.tokenizer.is_in_string() => {
                    self.string += 1;
                    if self.string > STRING_LIMIT {
                        on(&bytes[from..at]);
                        from = at + 1;
                    }
                }
                Token::Part => self.string = 0,
                Token::Text | Token::Control | Token::CsiEnd | Token::EscapeEnd(_) => {}
            }
            at += 1;
        }
        on(&bytes[from..]);
        self.make_up(bytes.len() - counted);
        repeated
    }

    fn make_up(&mut self, bytes: usize) {
        self.repeats = self.repeats.saturating_sub(bytes * REPEATS_PER_BYTE);
    }

    /// Highest number that a control sequence with this last byte may have now.
    fn most(&self, last: u8, size: Size) -> usize {
        let (cols, rows) = (usize::from(size.cols), usize::from(size.rows));
        match last {
            b'b' => (cols * rows).saturating_sub(self.repeats).max(cols),
            _ => cols,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { cols: 20, rows: 5 };

    fn passed(parts: &[&[u8]]) -> Vec<u8> {
        let mut guard = Guard::default();
        let mut out = Vec::new();
        for part in parts {
            guard.pass(part, SIZE, |bytes| out.extend_from_slice(bytes));
        }
        // CAN alone has no effect.
        out.retain(|byte| *byte != CAN);
        out
    }

    #[test]
    fn ordinary_output_passes_unchanged_wherever_it_is_cut() {
        let text =
            b"a\x1b[1mb\x1b]0;title\x07c\x1b]2;t\x1b\\d\x1b\x1b]8;;\x1b\\-\x1b[19b\x1b[2Z\x1b[?9b";
        for cut in 0..text.len() {
            assert_eq!(passed(&[&text[..cut], &text[cut..]]), text);
        }
    }

    #[test]
    fn endless_string_is_cut_and_later_text_is_not() {
        let mut endless = b"\x1b]0;".to_vec();
        endless.extend(std::iter::repeat_n(b'x', 1 << 20));
        let out = passed(&[&endless[..7], &endless[7..], b"\x07after"]);
        assert!(out.len() < STRING_LIMIT + 32);
        assert!(out.ends_with(b"x\x07after"));
    }

    #[test]
    fn repeat_counts_are_limited_to_the_screen() {
        let text = b"a\x1b[65535b\x1b[\t70000;3b\x1b[999Z";
        for cut in 0..text.len() {
            let mut guard = Guard::default();
            let mut out = Vec::new();
            let mut repeated = 0;
            for part in [&text[..cut], &text[cut..]] {
                repeated += guard.pass(part, SIZE, |bytes| out.extend_from_slice(bytes));
            }
            assert!(repeated <= 2 * 100, "{repeated}");
            let out = String::from_utf8(out).unwrap();
            assert!(out.contains("65535\x18\x1b["), "{out:?}");
            assert!(out.contains("70000;3\x18\x1b["), "{out:?}");
            assert!(out.ends_with("999\x18\x1b[20Z"), "{out:?}");
        }
    }

    #[test]
    fn repeated_characters_are_limited_per_byte_of_output() {
        let size = Size {
            cols: 120,
            rows: 40,
        };
        let flood = b"a\x1b[65535b".repeat(10_000);
        let mut guard = Guard::default();
        let repeated = guard.pass(&flood, size, |_| {});
        let each = repeated / 10_000;
        assert!(
            each <= 120.max(9 * REPEATS_PER_BYTE),
            "{each} for each sequence"
        );
    }

    #[test]
    fn parser_leaves_broken_sequence_where_tokenizer_does() {
        for (broken, passed_on) in [
            (&b"\x1b[\xc3\xa9"[..], &b"\x1b[\x18\xc3\xa9"[..]),
            (b"\x1b[1\n2b", b"\x1b[1\x18\n2b"),
            (b"\x1b]0;t\nx", b"\x1b]0;t\x18\nx"),
            (b"\x1bPq~ x", b"\x1bPq~\x18 x"),
        ] {
            let mut out = Vec::new();
            Guard::default().pass(broken, SIZE, |bytes| out.extend_from_slice(bytes));
            assert_eq!(out, passed_on, "{broken:?}");
        }
    }
}
