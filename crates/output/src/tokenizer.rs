//! Tokenizer for terminal output: which bytes are text, which are control characters, and which belong
//! to an escape sequence. The meaning of a sequence is not known here.
//!
//! [`Tokenizer`] is the state machine of the VT500 for ECMA-48 sequences in UTF-8 text: a control
//! character in the middle of a sequence is executed at once and the sequence continues, CAN and SUB end
//! any sequence, ESC begins another one. Two rules keep a broken sequence from hiding output: a newline
//! ends it, and so does a byte beyond ASCII, which is text.
//!
//! Everything in abide that looks for escape sequences in output uses this state machine, so that no
//! two readers disagree on what is text.

use memchr::memchr;

const ESC: u8 = 0x1b;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;
const DEL: u8 = 0x7f;
/// Bytes at the end of a text in which an incomplete sequence is looked for.
const MAX_INCOMPLETE: usize = 512;
/// Longest parameters that [`sgr_len`] looks at.
const MAX_SGR: usize = 32;
/// Maximum length of a sixel image. Bytes behind it are text.
const MAX_IMAGE: u32 = 4 << 20;

/// Role of one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// Text: a printable byte, a tab, or a byte beyond ASCII.
    Text,
    /// Control character (C0 or DEL) that takes effect now, inside or outside a sequence.
    Control,
    /// Part of a sequence without a token of its own.
    Part,
    /// Last byte of the introducer of a control sequence (CSI).
    CsiBegin,
    /// Parameter or intermediate byte of a control sequence.
    CsiPart,
    /// Last byte of a control sequence.
    CsiEnd,
    /// Last byte of an escape sequence, with its first intermediate byte (0: none).
    EscapeEnd(u8),
    /// Last byte of a string (OSC, DCS, APC, PM, SOS), or the byte that cancels a sequence.
    End,
}

/// State machine that gives each byte of a stream its [`Token`]. It starts outside any sequence.
///
/// ```
/// use abide_output::tokenizer::{Token, Tokenizer};
///
/// let mut tokenizer = Tokenizer::default();
/// let text: Vec<u8> = b"\x1b[1mbold\x1b[0m"
///     .iter()
///     .copied()
///     .filter(|byte| tokenizer.step(*byte) == Token::Text)
///     .collect();
/// assert_eq!(text, b"bold");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Tokenizer {
    state: State,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Ground,
    Escape,
    /// `ESC (` and similar, with the intermediate byte.
    Intermediate(u8),
    Csi,
    /// OSC, DCS, APC, PM or SOS, up to its terminator.
    String(StringState),
    /// ESC within such a string: its end, or the begin of another sequence.
    StringEscape,
}

/// String (OSC, DCS, APC, PM or SOS) that is being read.
#[derive(Clone, Copy, Debug)]
struct StringState {
    kind: StringKind,
    length: u32,
    last: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StringKind {
    /// Ends with BEL too.
    Osc,
    /// DCS, up to its final letter. `plain`: only numbers so far.
    DcsHead {
        plain: bool,
    },
    /// DCS with a sixel image. It may have newlines, and ends at a byte that is no sixel data.
    Image,
    Other,
}

impl StringKind {
    /// Kind after one more byte.
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (StringKind::DcsHead { plain: true }, b'q') => StringKind::Image,
            (StringKind::DcsHead { .. }, 0x40..) => StringKind::Other,
            (StringKind::DcsHead { plain }, byte) => StringKind::DcsHead {
                plain: plain && matches!(byte, b'0'..=b'9' | b';'),
            },
            (kind, _) => kind,
        }
    }

    /// Returns whether this byte shows that the terminator of the string is missing.
    fn is_broken_by(self, byte: u8) -> bool {
        let paints = |byte| matches!(byte, b'?'..=b'~' | b'!'..=b'$' | b'-' | b'0'..=b'9' | b';');
        match self {
            StringKind::Image => !paints(byte) && !matches!(byte, b'\n' | b'\r' | 0xc2),
            _ => byte == b'\n',
        }
    }
}

impl Tokenizer {
    /// Returns whether the next byte is outside any sequence.
    pub fn is_ground(&self) -> bool {
        matches!(self.state, State::Ground)
    }

    /// Returns whether the next byte is inside a string (OSC, DCS, APC, PM or SOS).
    pub fn is_in_string(&self) -> bool {
        matches!(self.state, State::String(_))
    }

    /// Token of the next byte.
    pub fn step(&mut self, byte: u8) -> Token {
        match self.state {
            State::Ground => self.ground(byte),
            State::String(text) => self.string(text, byte),
            State::StringEscape if byte == b'\\' => self.go(State::Ground, Token::End),
            State::Escape | State::StringEscape | State::Intermediate(_) | State::Csi => {
                self.within(byte)
            }
        }
    }

    fn go(&mut self, state: State, token: Token) -> Token {
        self.state = state;
        token
    }

    fn ground(&mut self, byte: u8) -> Token {
        match byte {
            ESC => self.go(State::Escape, Token::Part),
            b'\t' => Token::Text,
            0..0x20 | DEL => Token::Control,
            _ => Token::Text,
        }
    }

    /// Token of a byte after ESC or within a control sequence.
    fn within(&mut self, byte: u8) -> Token {
        match byte {
            ESC => self.go(State::Escape, Token::Part),
            CAN | SUB => self.go(State::Ground, Token::End),
            b'\n' => self.go(State::Ground, Token::Control),
            0..0x20 => {
                if matches!(self.state, State::StringEscape) {
                    self.state = State::Escape;
                }
                Token::Control
            }
            DEL => Token::Part,
            0x80.. => self.go(State::Ground, Token::Text),
            0x20..DEL => match self.state {
                State::Csi if byte < 0x40 => Token::CsiPart,
                State::Csi => self.go(State::Ground, Token::CsiEnd),
                State::Intermediate(_) if byte < 0x30 => Token::Part,
                State::Intermediate(first) => self.go(State::Ground, Token::EscapeEnd(first)),
                _ => self.escape(byte),
            },
        }
    }

    /// Token of a printable byte right after ESC.
    fn escape(&mut self, byte: u8) -> Token {
        let string = |kind| {
            State::String(StringState {
                kind,
                length: 0,
                last: 0,
            })
        };
        match byte {
            b'[' => self.go(State::Csi, Token::CsiBegin),
            b']' => self.go(string(StringKind::Osc), Token::Part),
            b'P' => self.go(string(StringKind::DcsHead { plain: true }), Token::Part),
            b'X' | b'^' | b'_' => self.go(string(StringKind::Other), Token::Part),
            0x20..0x30 => self.go(State::Intermediate(byte), Token::Part),
            _ => self.go(State::Ground, Token::EscapeEnd(0)),
        }
    }

    fn string(&mut self, mut text: StringState, byte: u8) -> Token {
        let before = std::mem::replace(&mut text.last, byte);
        text.length = text.length.saturating_add(1);
        match byte {
            0x07 if text.kind == StringKind::Osc => self.go(State::Ground, Token::End),
            ESC => self.go(State::StringEscape, Token::Part),
            CAN | SUB => self.go(State::Ground, Token::End),
            // ST as a C1 control: the second byte of U+009C. A title may contain U+009C, too. It then
            // ends early, which shows too much rather than too little.
            0x9c if before == 0xc2 => self.go(State::Ground, Token::End),
            byte if text.kind.is_broken_by(byte) => {
                self.state = State::Ground;
                self.ground(byte)
            }
            _ if text.kind == StringKind::Image && text.length >= MAX_IMAGE => {
                self.go(State::Ground, Token::End)
            }
            byte => {
                text.kind = text.kind.after(byte);
                self.go(State::String(text), Token::Part)
            }
        }
    }
}

/// Length of the escape sequence at the start of `bytes`, which begin with ESC. `None` if it is not
/// complete. A broken sequence ends before the byte that broke it, at the latest at the newline.
pub fn escape_len(bytes: &[u8]) -> Option<usize> {
    let mut tokenizer = Tokenizer::default();
    for (at, &byte) in bytes.iter().enumerate() {
        let was = tokenizer;
        let token = tokenizer.step(byte);
        // ESC within a string, and this byte shows that it was not its terminator.
        if matches!(was.state, State::StringEscape) && byte != b'\\' {
            return Some(at - 1);
        }
        let another = byte == ESC && at > 0 && !was.is_in_string();
        if byte == b'\n' || another {
            return Some(at);
        }
        if tokenizer.is_ground() {
            let broken = matches!(token, Token::Text | Token::Control);
            return Some(at + usize::from(!broken));
        }
    }
    None
}

/// Length of the sequence at the start of `bytes` if it only sets colours or text attributes (SGR) and
/// is short. Most sequences are of this kind, and this is faster than [`Tokenizer::step`] for each byte.
pub(crate) fn sgr_len(bytes: &[u8]) -> Option<usize> {
    let rest = bytes.strip_prefix(b"\x1b[")?;
    let end = rest
        .iter()
        .take(MAX_SGR)
        .position(|byte| !matches!(byte, b'0'..=b'9' | b';' | b':'))?;
    (rest[end] == b'm').then_some(end + 3)
}

/// Number of bytes at the end that begin an escape sequence or a UTF-8 character without completing it.
pub fn incomplete_suffix_len(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(MAX_INCOMPLETE)..];
    let mut rest = tail;
    while let Some(at) = memchr(ESC, rest) {
        rest = &rest[at..];
        match escape_len(rest) {
            Some(length) => rest = &rest[length..],
            None => return rest.len(),
        }
    }
    incomplete_char_len(rest)
}

/// Number of bytes at the end that begin a UTF-8 character without completing it.
pub(crate) fn incomplete_char_len(bytes: &[u8]) -> usize {
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

/// Appends `bytes` to `out` without their escape sequences.
pub fn strip_escapes(mut bytes: &[u8], out: &mut Vec<u8>) {
    while let Some(at) = memchr(ESC, bytes) {
        out.extend_from_slice(&bytes[..at]);
        let mut tokenizer = Tokenizer::default();
        let mut used = at;
        while used < bytes.len() {
            let byte = bytes[used];
            // Newlines stay even within a sixel image.
            let line_ends = byte == b'\n';
            if matches!(tokenizer.step(byte), Token::Text | Token::Control) || line_ends {
                out.push(byte);
            }
            used += 1;
            if tokenizer.is_ground() || line_ends {
                break;
            }
        }
        bytes = &bytes[used..];
    }
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escape_len_of_each_kind_of_sequence() {
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
            ("\x1b]0;title", "\x1b7"),
            ("\x1b[1\t\r\x7f2m", "x"),
            ("\x1b\r7", "x"),
            ("\x1b[12\x18", "x"),
            ("\x1b]0;t\x1a", "x"),
            ("\x1b[12", "é"),
            ("\x1bPq#0~\x1b\\", "x"),
            ("\x1bPq#0~", " x"),
            ("\x1bPq#0~", "\n~x"),
            ("\x1b_a\u{9c}", "x"),
        ] {
            let text = format!("{sequence}{rest}");
            assert_eq!(
                escape_len(text.as_bytes()),
                Some(sequence.len()),
                "{text:?}"
            );
        }
    }

    #[test]
    fn incomplete_suffix_is_found_at_every_cut() {
        for whole in [
            "\x1b[38;5;1m",
            "\x1b]2;t\x07",
            "\u{20ac}",
            "\u{1f980}",
            "\x1b(B",
        ] {
            for cut in 1..whole.len() {
                let begun = [b"abc", &whole.as_bytes()[..cut]].concat();
                assert_eq!(incomplete_suffix_len(&begun), cut, "{whole:?} cut at {cut}");
            }
            assert_eq!(incomplete_suffix_len(whole.as_bytes()), 0, "{whole:?}");
        }
        assert_eq!(incomplete_suffix_len(b"caf\xe9 "), 0);
    }

    #[test]
    fn strip_escapes_leaves_the_text() {
        let mut out = Vec::new();
        strip_escapes(
            b"\x1b[1;31merror\x1b[0m: \x1b]8;;x\x1b\\link\x1b]8;;\x1b\\ \x1b[",
            &mut out,
        );
        assert_eq!(out, b"error: link ");
        for (bytes, text) in [
            (&b"a\x1b[\t2Jb"[..], &b"a\tb"[..]),
            (b"a\x1b]0;t\nb", b"a\nb"),
            (b"a\x1bPq~\n~\x1b\\b", b"a\n~b"),
            (b"a\x1b[1\xc3\xa9\x1b", b"a\xc3\xa9"),
            (b"\x1b\x1b\x1b[mx", b"x"),
        ] {
            out.clear();
            strip_escapes(bytes, &mut out);
            assert_eq!(out, text, "{bytes:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn stripped_bytes_have_no_escape_and_all_newlines(
            bytes in prop::collection::vec(prop_oneof![
                3 => Just(ESC),
                3 => prop::sample::select(b"[]P_\\(q;1mJ".to_vec()),
                3 => prop::sample::select(b"\t\r\n\x07\x18\xc2\x9c".to_vec()),
                1 => any::<u8>(),
            ], 0..80),
        ) {
            let mut out = Vec::new();
            strip_escapes(&bytes, &mut out);
            prop_assert!(!out.contains(&ESC));
            let newlines = |bytes: &[u8]| bytes.iter().filter(|b| **b == b'\n').count();
            prop_assert_eq!(newlines(&out), newlines(&bytes));
        }

        #[test]
        fn sgr_len_agrees_with_the_state_machine(parameters in "[0-9;:]{0,40}[m?A-]") {
            let bytes = format!("\x1b[{parameters}").into_bytes();
            if let Some(length) = sgr_len(&bytes) {
                prop_assert_eq!(escape_len(&bytes), Some(length));
                prop_assert_eq!(bytes[length - 1], b'm');
            } else {
                prop_assert!(bytes.last() != Some(&b'm') || parameters.len() > MAX_SGR);
            }
        }
    }
}
