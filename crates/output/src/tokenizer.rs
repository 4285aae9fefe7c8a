//! The grammar of what a program writes to a terminal: which bytes are text, which are control
//! characters, and which belong to an escape sequence. What a sequence means is not known here.
//!
//! It is the state machine of the VT500 for ECMA-48 sequences in UTF-8 text: a control character in
//! the middle of a sequence is obeyed at once and the sequence goes on, CAN and SUB end any sequence,
//! ESC begins another. Two rules keep a broken sequence from hiding output: a newline ends it, and so
//! does a byte beyond ASCII, which is text. Everything in abide that looks for escape sequences uses
//! this machine, so that no reader takes for text what another one takes for a sequence.

use memchr::memchr;

const ESC: u8 = 0x1b;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;
const DEL: u8 = 0x7f;
/// The longest begin of a sequence that is worth waiting for.
const UNFINISHED_LIMIT: usize = 512;
/// The longest image that is taken for one; what follows is text.
const IMAGE_LIMIT: u32 = 4 << 20;

/// How a byte is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// Text: a printable byte, a tab, or a byte beyond ASCII.
    Text,
    /// A control character (C0 or DEL) to be obeyed now, in or outside a sequence.
    Control,
    /// Part of a sequence.
    Part,
    /// Begins a control sequence (CSI).
    CsiBegin,
    /// A parameter or intermediate byte of a control sequence.
    CsiPart,
    /// The last byte of a control sequence.
    CsiEnd,
    /// The last byte of an escape sequence, with the first byte between it and the escape (0: none).
    EscapeEnd(u8),
    /// Ends a sequence without a meaning: the end of a string, or a cancelled sequence.
    End,
}

/// A position in the grammar. Starts outside any sequence.
#[derive(Clone, Copy, Debug, Default)]
pub struct Grammar {
    state: State,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Ground,
    Escape,
    /// `ESC (` and its like, with that byte.
    Intermediate(u8),
    Csi,
    /// OSC, DCS, APC, PM or SOS, up to its terminator.
    Text(Text),
    /// An escape within such a string: its end, or the begin of another sequence.
    TextEscape,
}

/// A string for the terminal.
#[derive(Clone, Copy, Debug)]
struct Text {
    kind: Kind,
    length: u32,
    last: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Ends with BEL too.
    Osc,
    /// DCS, up to the letter that says what it is. `plain`: there were only numbers so far.
    DcsHead {
        plain: bool,
    },
    /// A DCS that paints. It may go over many lines; a byte that paints nothing shows that it is none.
    Image,
    Other,
}

impl Kind {
    /// The kind with one more byte known.
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Kind::DcsHead { plain: true }, b'q') => Kind::Image,
            (Kind::DcsHead { .. }, 0x40..) => Kind::Other,
            (Kind::DcsHead { plain }, byte) => Kind::DcsHead {
                plain: plain && matches!(byte, b'0'..=b'9' | b';'),
            },
            (kind, _) => kind,
        }
    }

    /// Whether this byte shows that the string was never ended.
    fn is_broken_by(self, byte: u8) -> bool {
        let paints = |byte| matches!(byte, b'?'..=b'~' | b'!'..=b'$' | b'-' | b'0'..=b'9' | b';');
        match self {
            Kind::Image => !paints(byte) && !matches!(byte, b'\n' | b'\r' | 0xc2),
            _ => byte == b'\n',
        }
    }
}

impl Grammar {
    /// Whether it is outside any sequence.
    pub fn is_ground(&self) -> bool {
        matches!(self.state, State::Ground)
    }

    /// Whether it is inside a string (OSC, DCS, APC, PM or SOS).
    pub fn is_in_string(&self) -> bool {
        matches!(self.state, State::Text(_))
    }

    /// Takes the next byte.
    pub fn step(&mut self, byte: u8) -> Token {
        match self.state {
            State::Ground => self.ground(byte),
            State::Text(text) => self.string(text, byte),
            State::TextEscape if byte == b'\\' => self.go(State::Ground, Token::End),
            State::Escape | State::TextEscape | State::Intermediate(_) | State::Csi => {
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

    /// A byte after an escape or within a control sequence.
    fn within(&mut self, byte: u8) -> Token {
        match byte {
            ESC => self.go(State::Escape, Token::Part),
            CAN | SUB => self.go(State::Ground, Token::End),
            b'\n' => self.go(State::Ground, Token::Control),
            0..0x20 => {
                if matches!(self.state, State::TextEscape) {
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

    /// A printable byte right after an escape.
    fn escape(&mut self, byte: u8) -> Token {
        let string = |kind| {
            State::Text(Text {
                kind,
                length: 0,
                last: 0,
            })
        };
        match byte {
            b'[' => self.go(State::Csi, Token::CsiBegin),
            b']' => self.go(string(Kind::Osc), Token::Part),
            b'P' => self.go(string(Kind::DcsHead { plain: true }), Token::Part),
            b'X' | b'^' | b'_' => self.go(string(Kind::Other), Token::Part),
            0x20..0x30 => self.go(State::Intermediate(byte), Token::Part),
            _ => self.go(State::Ground, Token::EscapeEnd(0)),
        }
    }

    fn string(&mut self, mut text: Text, byte: u8) -> Token {
        let before = std::mem::replace(&mut text.last, byte);
        text.length = text.length.saturating_add(1);
        match byte {
            0x07 if text.kind == Kind::Osc => self.go(State::Ground, Token::End),
            ESC => self.go(State::TextEscape, Token::Part),
            CAN | SUB => self.go(State::Ground, Token::End),
            // ST as a C1 control: the second byte of U+009C. A text may hold that byte, too, but then
            // ends a little early, which shows more rather than less.
            0x9c if before == 0xc2 => self.go(State::Ground, Token::End),
            byte if text.kind.is_broken_by(byte) => {
                self.state = State::Ground;
                self.ground(byte)
            }
            _ if text.kind == Kind::Image && text.length >= IMAGE_LIMIT => {
                self.go(State::Ground, Token::End)
            }
            byte => {
                text.kind = text.kind.after(byte);
                self.go(State::Text(text), Token::Part)
            }
        }
    }
}

/// The length of the sequence at the start of `bytes`, which begin with an escape. `None`: its end is
/// not among them. A sequence that breaks off ends before the byte that broke it, and none goes on
/// into the next line.
pub fn length(bytes: &[u8]) -> Option<usize> {
    let mut grammar = Grammar::default();
    for (at, &byte) in bytes.iter().enumerate() {
        let was = grammar;
        let token = grammar.step(byte);
        // An escape ended a string, and this byte shows that it did not close it.
        if matches!(was.state, State::TextEscape) && byte != b'\\' {
            return Some(at - 1);
        }
        let another = byte == ESC && at > 0 && !was.is_in_string();
        if byte == b'\n' || another {
            return Some(at);
        }
        if grammar.is_ground() {
            let broken = matches!(token, Token::Text | Token::Control);
            return Some(at + usize::from(!broken));
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
        let mut grammar = Grammar::default();
        let mut used = at;
        while used < bytes.len() {
            let byte = bytes[used];
            // Lines are told apart whatever is in them.
            let line_ends = byte == b'\n';
            if matches!(grammar.step(byte), Token::Text | Token::Control) || line_ends {
                out.push(byte);
            }
            used += 1;
            if grammar.is_ground() || line_ends {
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
        for (bytes, text) in [
            (&b"a\x1b[\t2Jb"[..], &b"a\tb"[..]),
            (b"a\x1b]0;t\nb", b"a\nb"),
            (b"a\x1bPq~\n~\x1b\\b", b"a\n~b"),
            (b"a\x1b[1\xc3\xa9\x1b", b"a\xc3\xa9"),
            (b"\x1b\x1b\x1b[mx", b"x"),
        ] {
            out.clear();
            strip(bytes, &mut out);
            assert_eq!(out, text, "{bytes:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn stripped_bytes_hold_no_escape_and_every_newline(
            bytes in prop::collection::vec(prop_oneof![
                3 => Just(ESC),
                3 => prop::sample::select(b"[]P_\\(q;1mJ".to_vec()),
                3 => prop::sample::select(b"\t\r\n\x07\x18\xc2\x9c".to_vec()),
                1 => any::<u8>(),
            ], 0..80),
        ) {
            let mut out = Vec::new();
            strip(&bytes, &mut out);
            prop_assert!(!out.contains(&ESC));
            let newlines = |bytes: &[u8]| bytes.iter().filter(|b| **b == b'\n').count();
            prop_assert_eq!(newlines(&out), newlines(&bytes));
        }
    }
}
