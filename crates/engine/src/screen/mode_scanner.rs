//! Scanner for output that is too long to be emulated: picks out only sequences with a lasting effect (modes, the
//! alternate screen, full reset). Everything else has been scrolled away by later output.

use abide_output::tokenizer::{Token, Tokenizer};
use memchr::memchr;

/// Longest sequence that is examined.
const SEQUENCE: usize = 64;
const ESC: u8 = 0x1b;

/// Scanner of a stream that may be cut anywhere.
#[derive(Default)]
pub struct ModeScanner {
    tokenizer: Tokenizer,
    /// Sequence whose end has not arrived.
    incomplete_sequence: Vec<u8>,
}

impl ModeScanner {
    /// Passes on every lasting sequence in `bytes`.
    pub fn pass(&mut self, mut bytes: &[u8], mut on: impl FnMut(&[u8])) {
        while !bytes.is_empty() {
            if self.tokenizer.is_ground() {
                let Some(at) = memchr(ESC, bytes) else {
                    return;
                };
                bytes = &bytes[at..];
            }
            let byte = bytes[0];
            bytes = &bytes[1..];
            if byte == ESC {
                self.incomplete_sequence.clear();
            }
            let token = self.tokenizer.step(byte);
            if token != Token::Control && self.incomplete_sequence.len() < SEQUENCE {
                self.incomplete_sequence.push(byte);
            }
            let lasts = match token {
                Token::CsiEnd => is_private_mode(&self.incomplete_sequence),
                // Full reset, and the two keypad modes.
                Token::EscapeEnd(0) => matches!(byte, b'c' | b'=' | b'>'),
                _ => false,
            };
            if lasts {
                on(&self.incomplete_sequence);
            }
        }
    }
}

/// True if a control sequence sets or resets private modes.
fn is_private_mode(sequence: &[u8]) -> bool {
    let numbers = match sequence {
        [ESC, b'[', b'?', numbers @ .., b'h' | b'l'] => numbers,
        _ => return false,
    };
    numbers.iter().all(|b| matches!(b, b'0'..=b'9' | b';'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasting_sequences_are_found_wherever_the_stream_is_cut() {
        let stream = b"x\x1b[31my\x1b[?1049h\x1b[2Jzz\x1b\x1b[?2004;1h\x1b=\x1b]0;t\x07\x1b[?6nq\x1b[?2\r5l\x1bP\x0cc";
        let wanted = b"\x1b[?1049h\x1b[?2004;1h\x1b=\x1b[?25l";
        for cut in 0..=stream.len() {
            let mut mode_scanner = ModeScanner::default();
            let mut out = Vec::new();
            mode_scanner.pass(&stream[..cut], |found| out.extend_from_slice(found));
            mode_scanner.pass(&stream[cut..], |found| out.extend_from_slice(found));
            assert_eq!(out, wanted, "cut at {cut}");
        }
    }
}
