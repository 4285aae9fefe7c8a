//! What is looked for in a file, in a session's output, in the body of an answer. People and models
//! think of it line by line, as `grep` does: `^` and `$` are a line's begin and end, however lines end.

use regex::bytes::{Regex, RegexBuilder};

/// How large a pattern may become.
const SIZE: usize = 1 << 20;
/// A match is looked for in what came since the last look and so much before it.
pub(super) const OVERLAP: usize = 4 << 10;

/// Reads a pattern.
pub fn pattern(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text)
        .multi_line(true)
        .crlf(true)
        .size_limit(SIZE)
        .build()
}

/// The end of a text that comes bit by bit, for as far as a match may still begin in it.
#[derive(Default)]
pub(super) struct Window {
    text: Vec<u8>,
    /// What lies before the window is not its first line's begin: one byte more than is looked at.
    cut: bool,
}

impl Window {
    /// One that begins with the last byte of what is no longer looked at.
    pub fn cut() -> Self {
        Window {
            text: Vec::new(),
            cut: true,
        }
    }

    /// Where more is put.
    pub fn end(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// The first match.
    pub fn find(&self, pattern: &Regex) -> Option<String> {
        let from = usize::from(self.cut).min(self.text.len());
        let found = pattern.find_at(&self.text, from)?;
        Some(String::from_utf8_lossy(found.as_bytes()).into_owned())
    }

    /// Lets go of what no match can begin in any more.
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
    fn lines_begin_and_end_where_people_see_it() {
        for (text, words, found) in [
            ("a\nready\nb\n", "^ready$", Some("ready")),
            ("a\r\nready\r\nb\r\n", "^ready$", Some("ready")),
            ("not ready yet\n", "^ready$", None),
            ("got it\r\n", "got .*", Some("got it")),
            ("one\ntwo", "(?s)one.two", Some("one\ntwo")),
            ("one\ntwo", r"\Atwo", None),
        ] {
            let pattern = pattern(words).expect("a pattern");
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
    fn a_window_makes_no_new_begin() {
        let pattern = pattern("^b").expect("a pattern");
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
