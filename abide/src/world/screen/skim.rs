//! A quick look over output that is too much to be emulated: only what stays in force is picked out
//! (modes, the alternate screen, a full reset). Everything it painted has been scrolled away by the
//! output after it.

use memchr::memchr;

/// Longest sequence that is looked at.
const SEQUENCE: usize = 64;
const ESC: u8 = 0x1b;

/// Picks the lasting sequences out of a stream, wherever its chunks are cut.
#[derive(Default)]
pub struct Skim {
    /// The begin of a sequence whose end has not come yet.
    held: Vec<u8>,
}

impl Skim {
    /// Hands on every lasting sequence in `bytes`.
    pub fn pass(&mut self, bytes: &[u8], mut on: impl FnMut(&[u8])) {
        let mut bytes = bytes;
        while !self.held.is_empty() && !bytes.is_empty() {
            self.held.push(bytes[0]);
            bytes = &bytes[1..];
            match length(&self.held) {
                Found::Unfinished => {}
                Found::Lasting(_) => {
                    on(&self.held);
                    self.held.clear();
                }
                // Whatever it was, the byte that broke it may begin another.
                Found::Passing if self.held.ends_with(&[ESC]) => {
                    self.held.clear();
                    self.held.push(ESC);
                }
                Found::Passing => self.held.clear(),
            }
        }
        while let Some(at) = memchr(ESC, bytes) {
            bytes = &bytes[at..];
            match length(bytes) {
                Found::Lasting(end) => {
                    on(&bytes[..end]);
                    bytes = &bytes[end..];
                }
                Found::Passing => bytes = &bytes[1..],
                Found::Unfinished => {
                    self.held.extend_from_slice(bytes);
                    return;
                }
            }
        }
    }
}

enum Found {
    /// It stays in force and is this long.
    Lasting(usize),
    /// It does not.
    Passing,
    /// Its end is not here yet.
    Unfinished,
}

/// Looks at a sequence that begins with an escape.
fn length(bytes: &[u8]) -> Found {
    match bytes.get(1) {
        None => Found::Unfinished,
        // Full reset, and the two forms of the keypad.
        Some(b'c' | b'=' | b'>') => Found::Lasting(2),
        Some(b'[') => match bytes.get(2) {
            None => Found::Unfinished,
            Some(b'?') => private_mode(bytes),
            Some(_) => Found::Passing,
        },
        Some(_) => Found::Passing,
    }
}

fn private_mode(bytes: &[u8]) -> Found {
    let rest = &bytes[3..bytes.len().min(SEQUENCE)];
    match rest.iter().position(|b| !matches!(b, b'0'..=b'9' | b';')) {
        Some(at) if matches!(rest[at], b'h' | b'l') => Found::Lasting(3 + at + 1),
        None if bytes.len() < SEQUENCE => Found::Unfinished,
        Some(_) | None => Found::Passing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lasts_is_picked_out_wherever_the_stream_is_cut() {
        let stream = b"x\x1b[31my\x1b[?1049h\x1b[2Jzz\x1b\x1b[?2004;1h\x1b=\x1b]0;t\x07\x1b[?6nq";
        let wanted = b"\x1b[?1049h\x1b[?2004;1h\x1b=";
        for cut in 0..=stream.len() {
            let mut skim = Skim::default();
            let mut out = Vec::new();
            skim.pass(&stream[..cut], |found| out.extend_from_slice(found));
            skim.pass(&stream[cut..], |found| out.extend_from_slice(found));
            assert_eq!(out, wanted, "cut at {cut}");
        }
    }
}
