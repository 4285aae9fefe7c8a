//! Patterns for files, output of sessions and bodies of answers. They match line by line, as with `grep`: `^` and `$`
//! are the begin and end of a line, with any line ending.

use std::ops::{Deref, Range};

use abide_output::mask::Mask;
use regex::bytes::{Regex, RegexBuilder};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Maximum size of a compiled pattern.
const SIZE: usize = 1 << 20;
/// Bytes before new text in which a match may begin.
pub(super) const OVERLAP: usize = 4 << 10;

/// Bytes of a line that are shown around a match.
const LINE_BYTES: usize = 500;

/// Compiled pattern, stored as its text: a condition whose pattern does not compile cannot be read.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    pub fn compile(text: &str) -> Result<Self, regex::Error> {
        let compiled = RegexBuilder::new(text)
            .multi_line(true)
            .crlf(true)
            .size_limit(SIZE)
            .build();
        compiled.map(Pattern)
    }
}

impl Deref for Pattern {
    type Target = Regex;

    fn deref(&self) -> &Regex {
        &self.0
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Pattern {}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Pattern::compile(&text).map_err(D::Error::custom)
    }
}

/// Text of a place, with its secrets masked. The surroundings tell of a secret that lies over an end of the place.
pub(super) fn masked(text: &[u8], place: Range<usize>, mask: &Mask) -> String {
    let from = place.start.saturating_sub(OVERLAP);
    let to = place.end.saturating_add(OVERLAP).min(text.len());
    let [before, found, after] = [from..place.start, place.start..place.end, place.end..to]
        .map(|part| String::from_utf8_lossy(&text[part]));
    let part = before.len()..before.len() + found.len();
    mask.apply_to_part(&format!("{before}{found}{after}"), part)
}

/// End of a growing text, as far back as a match may still begin.
#[derive(Default)]
pub(super) struct Window {
    text: Vec<u8>,
    /// True if text before the window was dropped: the first byte is only there to tell if a line begins after it.
    cut: bool,
}

impl Window {
    /// Window whose first byte is the last one of dropped text.
    pub fn cut() -> Self {
        Window {
            text: Vec::new(),
            cut: true,
        }
    }

    /// Buffer to append to.
    pub fn end(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Text of the first match, with tokens of known formats masked.
    pub fn find(&self, pattern: &Regex) -> Option<String> {
        let from = usize::from(self.cut).min(self.text.len());
        let found = pattern.find_at(&self.text, from)?;
        Some(masked(&self.text, found.range(), &Mask::default()))
    }

    /// Line of the first match, as far as it is there, with its secrets masked.
    pub fn find_line(&self, pattern: &Regex, mask: impl FnOnce() -> Mask) -> Option<String> {
        let from = usize::from(self.cut).min(self.text.len());
        let found = pattern.find_at(&self.text, from)?;
        let before = memchr::memrchr(b'\n', &self.text[..found.start()]);
        let begin = before.map_or(from, |newline| newline + 1).max(from);
        let after = memchr::memchr(b'\n', &self.text[found.end()..]);
        let end = after.map_or(self.text.len(), |newline| found.end() + newline);
        // A very long line is shown from the match on.
        let begin = if end - begin > LINE_BYTES {
            found.start()
        } else {
            begin
        };
        let end = end.min((begin + LINE_BYTES).max(found.end()));
        let line = masked(&self.text, begin..end, &mask());
        Some(line.trim_end_matches('\r').to_owned())
    }

    /// Drops text in which no match can begin any more.
    pub fn slide(&mut self) {
        let past = self.text.len().saturating_sub(OVERLAP + 1);
        self.cut |= past > 0;
        self.text.drain(..past);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_match_at_line_ends_with_and_without_carriage_return() {
        for (text, words, found) in [
            ("a\nready\nb\n", "^ready$", Some("ready")),
            ("a\r\nready\r\nb\r\n", "^ready$", Some("ready")),
            ("not ready yet\n", "^ready$", None),
            ("got it\r\n", "got .*", Some("got it")),
            ("one\ntwo", "(?s)one.two", Some("one\ntwo")),
            ("one\ntwo", r"\Atwo", None),
        ] {
            let pattern = Pattern::compile(words).expect("a pattern");
            let mut window = Window::default();
            window.end().extend_from_slice(text.as_bytes());
            assert_eq!(
                window.find(&pattern).as_deref(),
                found,
                "{words} in {text:?}"
            );
        }
    }

    #[test]
    fn line_of_a_match_is_found_as_far_as_it_is_there() {
        let pattern = Pattern::compile("READY").expect("a pattern");
        for (text, line) in [
            ("one\r\nserver READY on 3000\r\ntwo", "server READY on 3000"),
            ("server READY on", "server READY on"),
            ("READY\n", "READY"),
        ] {
            let mut window = Window::default();
            window.end().extend_from_slice(text.as_bytes());
            assert_eq!(
                window.find_line(&pattern, Mask::default).as_deref(),
                Some(line),
                "{text:?}"
            );
        }
        let mut window = Window::default();
        window.end().extend_from_slice(&[b'x'; 600]);
        window.end().extend_from_slice(b" READY now");
        let line = window.find_line(&pattern, Mask::default);
        assert_eq!(line.as_deref(), Some("READY now"));
    }

    #[test]
    fn token_that_a_match_cuts_is_masked() {
        let mut window = Window::default();
        let token = format!("ghp_{}", "aB3d".repeat(9));
        window
            .end()
            .extend_from_slice(format!("is {token}\n").as_bytes());
        for (words, shown) in [
            ("is .*", "is [masked:github_token]"),
            ("is ghp_.{20}", "is [masked:github_token]"),
            ("aB3d", "[masked:github_token]"),
        ] {
            let pattern = Pattern::compile(words).expect("a pattern");
            assert_eq!(window.find(&pattern).as_deref(), Some(shown), "{words}");
        }
        // The limit of a long line lies within the token.
        let mut window = Window::default();
        let filler = "x".repeat(LINE_BYTES - 20);
        let line = format!("READY {filler} {token}\n");
        window.end().extend_from_slice(line.as_bytes());
        let pattern = Pattern::compile("READY").expect("a pattern");
        assert_eq!(
            window.find_line(&pattern, Mask::default),
            Some(format!("READY {filler} [masked:github_token]"))
        );
    }

    #[test]
    fn sliding_window_adds_no_begin_of_line() {
        let pattern = Pattern::compile("^b").expect("a pattern");
        let mut window = Window::default();
        for _ in 0..4 {
            window.end().extend_from_slice(&[b'b'; OVERLAP]);
            assert!(window.find(&pattern).is_some() != window.cut);
            window.slide();
        }
        window.end().extend_from_slice(b"\nb");
        assert_eq!(window.find(&pattern).as_deref(), Some("b"));
    }
}
