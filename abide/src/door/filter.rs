//! What a session's program may do to a person's own terminal: paint on it. What it may not, unless
//! asked for: give it a title, fill its clipboard, change its colours, print. What it never may:
//! ask it something, since the session itself answers that, and nobody wants two answers.

use memchr::memchr2;

use crate::world::sequence;

const ESC: u8 = 0x1b;
/// Asks a terminal to identify itself.
const ENQ: u8 = 0x05;
/// A sequence that is longer than this and still not finished is left out.
const LONGEST: usize = 64 << 10;

/// Lets painting through, wherever the stream is cut.
pub struct Filter {
    unfiltered: bool,
    held: Vec<u8>,
}

impl Filter {
    pub fn new(unfiltered: bool) -> Self {
        Filter {
            unfiltered,
            held: Vec::new(),
        }
    }

    /// What of the stream may be written to the terminal.
    pub fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let mut out = Vec::with_capacity(all.len());
        let mut rest = &all[..];
        while let Some(at) = memchr2(ESC, ENQ, rest) {
            out.extend_from_slice(&rest[..at]);
            rest = &rest[at..];
            if rest[0] == ENQ {
                rest = &rest[1..];
                continue;
            }
            let Some(length) = sequence::length(rest) else {
                if rest.len() <= LONGEST {
                    self.held = rest.to_vec();
                }
                return out;
            };
            let (found, after) = rest.split_at(length);
            if self.may_pass(found) {
                out.extend_from_slice(found);
            }
            rest = after;
        }
        out.extend_from_slice(rest);
        out
    }

    fn may_pass(&self, found: &[u8]) -> bool {
        match found.get(1) {
            Some(b'[') => self.control(found),
            Some(b']') => self.command(found),
            // Strings of other kinds carry pictures, settings and queries.
            Some(b'P' | b'X' | b'^' | b'_') => self.unfiltered && !is_query_string(found),
            // Identify yourself.
            Some(b'Z') => false,
            Some(_) => true,
            None => false,
        }
    }

    fn control(&self, found: &[u8]) -> bool {
        let marker = found.get(2).copied().unwrap_or(0);
        match found.last() {
            // Device attributes and status, modes, terminal parameters, what the keyboard reports.
            Some(b'c' | b'n' | b'x') => false,
            Some(b'p') => !found.contains(&b'$'),
            Some(b'q') => marker != b'>',
            Some(b'u') => marker != b'?',
            Some(b'w') => !found.contains(&b'$') && !found.contains(&b'\''),
            // Windows: moves, sizes, reports, titles.
            Some(b't') => false,
            // Printing.
            Some(b'i') => self.unfiltered,
            _ => true,
        }
    }

    fn command(&self, found: &[u8]) -> bool {
        let text = &found[2..];
        let asks = text.windows(2).any(|pair| pair == b";?");
        let link = text.starts_with(b"8;");
        link || (self.unfiltered && !asks)
    }
}

/// Queries in strings begin with `$q` (settings) or `+q` (capabilities).
fn is_query_string(found: &[u8]) -> bool {
    found.get(1) == Some(&b'P') && matches!(found.get(2..4), Some(b"$q" | b"+q"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(unfiltered: bool, text: &str) -> String {
        let whole = Filter::new(unfiltered).pass(text.as_bytes());
        for cut in 0..text.len() {
            let mut filter = Filter::new(unfiltered);
            let mut parts = filter.pass(&text.as_bytes()[..cut]);
            parts.extend(filter.pass(&text.as_bytes()[cut..]));
            assert_eq!(parts, whole, "{text:?} cut at {cut}");
        }
        String::from_utf8(whole).unwrap()
    }

    #[test]
    fn painting_passes() {
        let painting = "a\x1b[1;31mb\x1b[2J\x1b[3;4H\x1b(0lqk\x1b(B\x1b[?25l\x1b[?1049h\x1b7\x1b8é\u{1f980}\r\n\x1b[2 q";
        assert_eq!(passed(false, painting), painting);
        let link = "\x1b]8;;http://a\x1b\\text\x1b]8;;\x1b\\";
        assert_eq!(passed(false, link), link);
    }

    #[test]
    fn what_reprograms_a_terminal_passes_only_when_asked_for() {
        for hostile in [
            "\x1b]0;title\x07",
            "\x1b]52;c;aGk=\x07",
            "\x1b]4;1;rgb:00/00/00\x1b\\",
            "\x1b]1337;File=:x\x07",
            "\x1bPq#0\x1b\\",
            "\x1b_Gf=32;x\x1b\\",
            "\x1b[5i",
        ] {
            assert_eq!(passed(false, &format!("a{hostile}b")), "ab", "{hostile:?}");
            let all = format!("a{hostile}b");
            assert_eq!(passed(true, &all), all, "{hostile:?}");
        }
    }

    #[test]
    fn queries_never_pass() {
        for query in [
            "\x1b[c",
            "\x1b[>c",
            "\x1b[=c",
            "\x1b[6n",
            "\x1b[?6n",
            "\x1b[?2004$p",
            "\x1b[>q",
            "\x1b[?u",
            "\x1b[14t",
            "\x1b[21t",
            "\x1b]11;?\x07",
            "\x1b]52;c;?\x07",
            "\x1bP$qm\x1b\\",
            "\x1bP+q544e\x1b\\",
            "\x1bZ",
            "\x05",
        ] {
            for unfiltered in [false, true] {
                let shown = passed(unfiltered, &format!("a{query}b"));
                assert_eq!(shown, "ab", "{query:?}");
            }
        }
    }
}
