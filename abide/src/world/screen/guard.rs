//! Keeps the strings that a program sends to its terminal short. The parser keeps the whole of a
//! title or a colour until its end comes; one that never ends must not fill the memory.

use memchr::memchr;

/// Longest string (its begin included) that is passed on; the rest of it is left out.
const STRING_LIMIT: usize = 4 << 10;

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;

/// Watches for operating system commands (`ESC ]`), the only strings that the parser keeps.
#[derive(Default)]
pub struct Guard {
    state: State,
}

#[derive(Clone, Copy, Default)]
enum State {
    #[default]
    Outside,
    /// Right after an escape.
    Escape,
    /// Within a string of which this much has been passed on.
    Within(usize),
}

impl Guard {
    /// Hands on what is harmless, in order.
    pub fn pass(&mut self, mut bytes: &[u8], mut on: impl FnMut(&[u8])) {
        while !bytes.is_empty() {
            let used = match self.state {
                State::Outside => {
                    let end = memchr(ESC, bytes).map_or(bytes.len(), |at| at + 1);
                    if bytes[end - 1] == ESC {
                        self.state = State::Escape;
                    }
                    on(&bytes[..end]);
                    end
                }
                State::Escape => {
                    self.state = match bytes[0] {
                        b']' => State::Within(0),
                        ESC => State::Escape,
                        _ => State::Outside,
                    };
                    on(&bytes[..1]);
                    1
                }
                State::Within(passed) => self.within(passed, bytes, &mut on),
            };
            bytes = &bytes[used..];
        }
    }

    fn within(&mut self, passed: usize, bytes: &[u8], on: &mut impl FnMut(&[u8])) -> usize {
        let end = bytes
            .iter()
            .position(|b| matches!(*b, ESC | BEL | CAN | SUB));
        let length = end.unwrap_or(bytes.len());
        let kept = length.min(STRING_LIMIT.saturating_sub(passed));
        on(&bytes[..kept]);
        let Some(end) = end else {
            self.state = State::Within(passed + kept);
            return length;
        };
        on(&bytes[end..=end]);
        self.state = match bytes[end] {
            ESC => State::Escape,
            _ => State::Outside,
        };
        end + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(parts: &[&[u8]]) -> Vec<u8> {
        let mut guard = Guard::default();
        let mut out = Vec::new();
        for part in parts {
            guard.pass(part, |bytes| out.extend_from_slice(bytes));
        }
        out
    }

    #[test]
    fn ordinary_output_passes_unchanged_however_it_is_cut() {
        let text = b"a\x1b[1mb\x1b]0;title\x07c\x1b]2;t\x1b\\d\x1b\x1b]8;;\x1b\\";
        for cut in 0..text.len() {
            assert_eq!(passed(&[&text[..cut], &text[cut..]]), text);
        }
    }

    #[test]
    fn a_string_without_end_is_cut_and_what_follows_it_is_not() {
        let mut endless = b"\x1b]0;".to_vec();
        endless.extend(std::iter::repeat_n(b'x', 1 << 20));
        let out = passed(&[&endless[..7], &endless[7..], b"\x07after"]);
        assert!(out.len() < STRING_LIMIT + 32);
        assert!(out.ends_with(b"x\x07after"));
    }
}
