//! Fast search for keywords in long output: an automaton of all keywords reads every byte, this reads every second
//! group of three bytes and asks the automaton only where a keyword may begin.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Anchored, Input, StartKind};

use super::patterns::{KEYWORD_LIST, STRONG, STRONG_FORMS};

/// Number of bits of a hash of three bytes.
const HASH_BITS: u32 = 16;

/// Keywords, and the groups of three bytes that begin at their first or second byte, or one byte before them.
struct KeywordScan {
    groups: Box<[u64]>,
    automaton: AhoCorasick,
}

static SCAN: LazyLock<KeywordScan> = LazyLock::new(KeywordScan::new);

/// Byte ranges of keywords that do not overlap.
pub fn keywords(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let scan = &*SCAN;
    let (mut at, mut from) = (0, 0);
    std::iter::from_fn(move || {
        while at < bytes.len() {
            // The last bytes are few, so each of them may begin a keyword.
            let may_begin = match bytes[at..].first_chunk() {
                Some(next) => scan.has_group(*next),
                None => true,
            };
            if may_begin {
                let first = at.saturating_sub(1).max(from);
                let mut starts = first..(at + 2).min(bytes.len());
                if let Some(word) = starts.find_map(|start| scan.keyword_at(bytes, start)) {
                    (at, from) = (word.end, word.end);
                    return Some(word);
                }
            }
            at += 2;
        }
        None
    })
}

/// Number of forms that [`strong_forms`] finds.
pub const STRONG_COUNT: usize = STRONG_FORMS.len();

/// Strong forms of errors in bytes that begin with a line: the number of each form, and its range.
pub fn strong_forms(bytes: &[u8]) -> impl Iterator<Item = (usize, Range<usize>)> {
    let begins = |form: &&str| {
        form.strip_prefix('\n')
            .is_some_and(|form| bytes.starts_with(form.as_bytes()))
    };
    let first = STRONG_FORMS.iter().position(begins);
    let first = first.map(|form| (form, 0..STRONG_FORMS[form].len() - 1));
    let others = STRONG.find_iter(bytes);
    first
        .into_iter()
        .chain(others.map(|found| (found.pattern().as_usize(), found.range())))
}

impl KeywordScan {
    #[expect(
        clippy::expect_used,
        reason = "the keywords are constants, and a test builds them"
    )]
    fn new() -> Self {
        let automaton = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .start_kind(StartKind::Anchored)
            .build(KEYWORD_LIST)
            .expect("keywords build");
        let mut scan = KeywordScan {
            groups: vec![0; 1 << (HASH_BITS - 6)].into(),
            automaton,
        };
        for word in KEYWORD_LIST {
            let any = 0..=u8::MAX;
            match *word.as_bytes() {
                [a, b, c, d, ..] => scan.add([[a, b, c], [b, c, d]]),
                // Any byte can stand before or after a short keyword.
                [a, b, c] => {
                    scan.add([[a, b, c]]);
                    scan.add(any.map(|next| [b, c, next]));
                }
                [a, b] => scan.add(any.flat_map(|any| [[any, a, b], [a, b, any]])),
                [_] | [] => unreachable!("a keyword has two bytes or more"),
            }
        }
        scan
    }

    fn add(&mut self, groups: impl IntoIterator<Item = [u8; 3]>) {
        for [a, b, c] in groups {
            let hash = hash([a, b, c, 0]);
            self.groups[hash / 64] |= 1 << (hash % 64);
        }
    }

    /// Returns whether a keyword may begin at the first of these bytes, or one byte before or after it.
    fn has_group(&self, bytes: [u8; 4]) -> bool {
        let hash = hash(bytes);
        self.groups[hash / 64] & (1 << (hash % 64)) != 0
    }

    fn keyword_at(&self, bytes: &[u8], start: usize) -> Option<Range<usize>> {
        let input = Input::new(bytes).range(start..).anchored(Anchored::Yes);
        self.automaton.find(input).map(|word| word.range())
    }
}

/// Hash of three bytes that is the same for small and capital letters.
fn hash(bytes: [u8; 4]) -> usize {
    let folded = (u32::from_le_bytes(bytes) | 0x20_20_20) & 0xFF_FF_FF;
    (folded.wrapping_mul(0x9E37_79B1) >> (32 - HASH_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::super::patterns::KEYWORDS;
    use super::*;

    #[test]
    fn keyword_is_found_at_every_position() {
        for word in KEYWORD_LIST {
            for word in [(*word).to_owned(), word.to_ascii_uppercase()] {
                for before in 0..9 {
                    for after in 0..5 {
                        let text = "_".repeat(before) + &word + &"_".repeat(after);
                        let found = keywords(text.as_bytes()).next();
                        // A keyword may be a part of another.
                        let found = found.is_some_and(|found| found.start >= before);
                        assert!(found, "{text:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn lines_with_keywords_are_those_that_the_automaton_finds() {
        let mut seed = 1_u32;
        let mut random = |below: u32| {
            seed = seed.wrapping_mul(0x0019_660D).wrapping_add(0x3C6E_F35F);
            (seed >> 8) % below
        };
        let mut text = Vec::new();
        for _ in 0..20_000 {
            let word = KEYWORD_LIST[random(KEYWORD_LIST.len() as u32) as usize].as_bytes();
            // Most of these are broken keywords.
            let cut = random(word.len() as u32 + 2) as usize;
            text.extend_from_slice(&word[cut.min(word.len())..]);
            text.push(b"etao \n:"[random(7) as usize]);
        }
        let mut found = 0;
        for line in text.split(|byte| *byte == b'\n') {
            let expected = KEYWORDS.is_match(line);
            assert_eq!(keywords(line).next().is_some(), expected, "{line:?}");
            found += u32::from(expected);
        }
        assert!(found > 100);
    }
}
