//! Where an escape sequence ends, for those who only want to step over one. What it means is not
//! known here.

use memchr::memchr;

const ESC: u8 = 0x1b;
/// The longest begin of a sequence that is worth waiting for.
const UNFINISHED_LIMIT: usize = 512;

/// The length of the sequence at the start of `bytes`, which begin with an escape. `None`: its end is
/// not among them. A sequence that breaks off ends before the byte that broke it.
pub fn length(bytes: &[u8]) -> Option<usize> {
    match *bytes.get(1)? {
        b'[' => control(bytes),
        b']' => string(bytes, true),
        b'P' | b'X' | b'^' | b'_' => string(bytes, false),
        0x20..=0x2f => {
            let rest = &bytes[2..];
            let at = rest.iter().position(|b| !matches!(b, 0x20..=0x2f))?;
            Some(2 + at + usize::from(matches!(rest[at], 0x30..=0x7e)))
        }
        0x30..=0x7e => Some(2),
        _ => Some(1),
    }
}

fn control(bytes: &[u8]) -> Option<usize> {
    let rest = &bytes[2..];
    let at = rest.iter().position(|b| !matches!(b, 0x20..=0x3f))?;
    Some(2 + at + usize::from(matches!(rest[at], 0x40..=0x7e)))
}

/// A string for the terminal. A newline ends one that was never closed, so that no output is
/// swallowed for good.
fn string(bytes: &[u8], bell_ends: bool) -> Option<usize> {
    for (at, &byte) in bytes.iter().enumerate().skip(2) {
        match byte {
            0x07 if bell_ends => return Some(at + 1),
            0x18 | 0x1a => return Some(at + 1),
            b'\n' => return Some(at),
            ESC => {
                return match bytes.get(at + 1)? {
                    b'\\' => Some(at + 2),
                    _ => Some(at),
                };
            }
            0x9c if bytes[at - 1] == 0xc2 => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// How many bytes at the end begin a sequence or a character that is not finished yet.
pub fn unfinished(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(UNFINISHED_LIMIT)..];
    let mut rest = tail;
    while let Some(at) = memchr(ESC, rest) {
        rest = &rest[at..];
        match length(rest) {
            Some(length) => rest = &rest[length..],
            None => return rest.len(),
        }
    }
    unfinished_character(rest)
}

fn unfinished_character(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    for (at, byte) in bytes[from..].iter().enumerate() {
        let wanted = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => continue,
        };
        let have = bytes.len() - from - at;
        if have < wanted && bytes[from + at + 1..].iter().all(|b| b & 0xc0 == 0x80) {
            return have;
        }
    }
    0
}

/// Appends `bytes` without their escape sequences.
pub fn strip(mut bytes: &[u8], out: &mut Vec<u8>) {
    while let Some(at) = memchr(ESC, bytes) {
        out.extend_from_slice(&bytes[..at]);
        bytes = &bytes[at..];
        let length = length(bytes).unwrap_or(bytes.len());
        bytes = &bytes[length..];
    }
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_sequence_ends_where_it_should() {
        for (sequence, rest) in [
            ("\x1b[31m", "x"),
            ("\x1b[?25;1$p", "x"),
            ("\x1b]0;title\x07", "x"),
            ("\x1b]8;;http://a\x1b\\", "x"),
            ("\x1bP1$r0m\x1b\\", "x"),
            ("\x1b(0", "x"),
            ("\x1b7", "x"),
            ("\x1b", "\x1b[m"),
            ("\x1b[31", "\nx"),
            ("\x1b]0;never closed", "\nx"),
            ("\x1b[12", "\x1b[m"),
        ] {
            let text = format!("{sequence}{rest}");
            assert_eq!(length(text.as_bytes()), Some(sequence.len()), "{text:?}");
        }
    }

    #[test]
    fn what_is_not_finished_is_told_at_every_cut() {
        for whole in [
            "\x1b[38;5;1m",
            "\x1b]2;t\x07",
            "\u{20ac}",
            "\u{1f980}",
            "\x1b(B",
        ] {
            for cut in 1..whole.len() {
                let begun = [b"abc", &whole.as_bytes()[..cut]].concat();
                assert_eq!(unfinished(&begun), cut, "{whole:?} cut at {cut}");
            }
            assert_eq!(unfinished(whole.as_bytes()), 0, "{whole:?}");
        }
        assert_eq!(unfinished(b"caf\xe9 "), 0);
    }

    #[test]
    fn stripping_leaves_the_text() {
        let mut out = Vec::new();
        strip(
            b"\x1b[1;31merror\x1b[0m: \x1b]8;;x\x1b\\link\x1b]8;;\x1b\\ \x1b[",
            &mut out,
        );
        assert_eq!(out, b"error: link ");
    }
}
