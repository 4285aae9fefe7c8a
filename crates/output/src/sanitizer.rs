//! Plain text from command output, for printing on a person's terminal.
//!
//! Escape sequences are removed and control characters replaced, so that output which a command once
//! wrote cannot reprogram the terminal on which it is read later.

use crate::printable::{BYTE_ORDER_MARK, is_misleading};
use crate::tokenizer::{Token, Tokenizer};

/// Makes plain text of a stream of bytes, which may be cut anywhere.
///
/// ```
/// use abide_output::sanitizer::Sanitizer;
///
/// let mut sanitizer = Sanitizer::default();
/// assert_eq!(sanitizer.clean(b"\x1b[31mred\x1b[0m\x07\r\n"), "red\u{fffd}\n");
/// ```
#[derive(Default)]
pub struct Sanitizer {
    tokenizer: Tokenizer,
    /// Begin of a UTF-8 character without its rest.
    incomplete: Vec<u8>,
    after_return: bool,
    /// The current line has a character.
    in_line: bool,
}

impl Sanitizer {
    /// Text of the next bytes.
    pub fn clean(&mut self, bytes: &[u8]) -> String {
        for byte in bytes {
            if matches!(self.tokenizer.step(*byte), Token::Text | Token::Control) {
                self.incomplete.push(*byte);
            }
        }
        let whole = std::mem::take(&mut self.incomplete);
        let mut text = String::with_capacity(whole.len());
        let mut rest = &whole[..];
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    self.push(&mut text, valid);
                    return text;
                }
                Err(fault) => {
                    let (valid, after) = rest.split_at(fault.valid_up_to());
                    self.push(&mut text, &String::from_utf8_lossy(valid));
                    match fault.error_len() {
                        None => {
                            self.incomplete = after.to_vec();
                            return text;
                        }
                        Some(bad) => {
                            text.push(char::REPLACEMENT_CHARACTER);
                            self.in_line = true;
                            rest = &after[bad..];
                        }
                    }
                }
            }
        }
    }

    fn push(&mut self, text: &mut String, valid: &str) {
        for c in valid.chars() {
            let returned = std::mem::replace(&mut self.after_return, c == '\r');
            let in_line = std::mem::replace(&mut self.in_line, !matches!(c, '\r' | '\n'));
            match c {
                BYTE_ORDER_MARK if !in_line => self.in_line = false,
                '\n' if returned => {}
                // A carriage return overwrites the line on a terminal; here it begins a new line.
                '\r' | '\n' => text.push('\n'),
                '\t' => text.push(c),
                c if c.is_control() || is_misleading(c) => text.push(char::REPLACEMENT_CHARACTER),
                c => text.push(c),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(pieces: &[&[u8]]) -> String {
        let mut sanitizer = Sanitizer::default();
        pieces.iter().map(|piece| sanitizer.clean(piece)).collect()
    }

    #[test]
    fn plain_text_is_unchanged() {
        assert_eq!(clean(&["a\tb\nü€😀\n".as_bytes()]), "a\tb\nü€😀\n");
    }

    #[test]
    fn no_control_passes_wherever_the_stream_is_cut() {
        let hostile: &[&[u8]] = &[
            b"\x1b[31mred\x1b[0m",
            b"\x1b]52;c;aGk=\x07",
            b"\x1b]0;title\x1b\\",
            b"\x1bP$q\"p\x1b\\",
            b"\x07\x08\x0b\x0c\x7f",
            "\u{9b}31m".as_bytes(),
            b"\x9b31m",
            "\u{202e}abc".as_bytes(),
            b"\x1b[2J\x1b[H",
            b"\x1b[\t\x1b[2J",
            b"\x1b",
        ];
        for bytes in hostile {
            for cut in 0..bytes.len() {
                let text = clean(&[&bytes[..cut], &bytes[cut..]]);
                let bad =
                    |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || is_misleading(c);
                assert!(!text.contains(bad), "{bytes:?} cut at {cut}: {text:?}");
            }
        }
    }

    #[test]
    fn misleading_characters_are_replaced_and_joiners_stay() {
        for c in "\u{61c}\u{200b}\u{202e}\u{2028}\u{2060}\u{feff}\u{e0041}".chars() {
            assert_eq!(clean(&[format!("a{c}b").as_bytes()]), "a\u{fffd}b");
        }
        let family = "👩\u{200d}👧";
        assert_eq!(clean(&[family.as_bytes()]), family);
    }

    #[test]
    fn byte_order_mark_is_left_out_at_the_start_of_a_line_only() {
        assert_eq!(
            clean(&["\u{feff}a\n\u{feff}b\u{feff}".as_bytes()]),
            "a\nb\u{fffd}"
        );
        assert_eq!(clean(&[b"\xff\xef", b"\xbb\xbf"]), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn character_cut_in_two_is_one_character() {
        let bytes = "€😀".as_bytes();
        for cut in 0..bytes.len() {
            assert_eq!(clean(&[&bytes[..cut], &bytes[cut..]]), "€😀");
        }
    }

    #[test]
    fn carriage_return_and_newline_are_one_newline() {
        assert_eq!(clean(&[b"10%\r20%\r\ndone\n"]), "10%\n20%\ndone\n");
        assert_eq!(clean(&[b"a\r", b"\nb"]), "a\nb");
    }
}
