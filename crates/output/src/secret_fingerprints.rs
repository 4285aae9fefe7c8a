//! Fingerprints of secrets: enough to find them again in a text, and not to tell them. So they may be
//! written down beside what a command wrote, and whoever reads that in years can still hide them.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A secret has at least as many bytes: what is shorter is a word of everyday text. So many are looked
/// at as one number.
pub const LEAST: usize = size_of::<u64>();
/// Secrets that are known of one session.
pub const MOST: usize = 1_024;
/// Bytes of a hash that are kept: no text hits upon them by chance.
const HASH: usize = 16;
/// Numbers with a bit for every hint that there can be.
const HINTS: usize = (1 << u16::BITS) / HINTS_A_WORD;
const HINTS_A_WORD: usize = u64::BITS as usize;

/// Random bytes that are hashed with each secret, so that equal secrets of two sessions look different.
pub type Salt = [u8; 16];

/// The fingerprints of the secrets that one session was given.
#[derive(Clone, Debug, Default)]
pub struct Prints {
    salt: Salt,
    /// The longest first: what is hidden is hidden whole.
    prints: Vec<Print>,
}

#[derive(Clone, Debug)]
struct Print {
    name: String,
    length: usize,
    /// A few bits of how it begins, so that hardly any place of a text has to be looked at closely.
    hint: u16,
    hash: [u8; HASH],
}

/// As they are written down.
#[derive(Serialize, Deserialize)]
struct Written {
    salt: String,
    /// Name, length, hint and hash.
    secrets: Vec<(String, usize, u16, String)>,
}

impl Prints {
    /// Those of secrets, each with its name. Whatever is shorter than [`LEAST`] is none. `salt` gives
    /// random bytes; it is called only if there is a secret.
    pub fn of<'a>(
        secrets: impl IntoIterator<Item = (&'a str, &'a str)>,
        salt: impl FnOnce() -> Salt,
    ) -> Self {
        let mut secrets = secrets
            .into_iter()
            .filter(|(_, secret)| secret.len() >= LEAST)
            .peekable();
        if secrets.peek().is_none() {
            return Prints::default();
        }
        let salt = salt();
        let print = |(name, secret): (&str, &str)| Print {
            name: name.to_owned(),
            length: secret.len(),
            hint: hint(&salt, first(secret.as_bytes())),
            hash: hash(&salt, secret.as_bytes()),
        };
        Prints::from_parts(salt, secrets.take(MOST).map(print).collect())
    }

    fn from_parts(salt: Salt, mut prints: Vec<Print>) -> Self {
        prints.sort_by_key(|print| std::cmp::Reverse(print.length));
        Prints { salt, prints }
    }

    /// Whether there is nothing to be found.
    pub fn is_empty(&self) -> bool {
        self.prints.is_empty()
    }

    /// To be written down; nothing where there are none.
    pub fn to_bytes(&self) -> Vec<u8> {
        if self.is_empty() {
            return Vec::new();
        }
        let written = |print: &Print| {
            let hash = hex(&print.hash);
            (print.name.clone(), print.length, print.hint, hash)
        };
        let written = Written {
            salt: hex(&self.salt),
            secrets: self.prints.iter().map(written).collect(),
        };
        serde_json::to_vec(&written).unwrap_or_default()
    }

    /// As they were written down. What cannot be read finds nothing.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let read = || {
            let written: Written = serde_json::from_slice(bytes).ok()?;
            let print = |(name, length, hint, hash): (String, usize, u16, String)| {
                let hash = bytes_of(&hash)?;
                (length >= LEAST).then_some(Print {
                    name,
                    length,
                    hint,
                    hash,
                })
            };
            let prints: Option<Vec<Print>> = written.secrets.into_iter().map(print).collect();
            Some(Prints::from_parts(bytes_of(&written.salt)?, prints?))
        };
        match bytes {
            [] => Prints::default(),
            _ => read().unwrap_or_default(),
        }
    }

    /// Where in a text secrets stand, from its begin to its end, and what they are called.
    pub fn find(&self, text: &str) -> Vec<(Range<usize>, &str)> {
        let mut found = Vec::new();
        if self.is_empty() {
            return found;
        }
        let hints = Hints::of(&self.prints);
        let bytes = text.as_bytes();
        let mut at = 0;
        while at + LEAST <= bytes.len() {
            match self.begins(&bytes[at..], &hints) {
                Some(print) if text.is_char_boundary(at + print.length) => {
                    found.push((at..at + print.length, print.name.as_str()));
                    at += print.length;
                }
                _ => at += 1,
            }
        }
        found
    }

    /// The longest secret that these bytes begin with.
    fn begins(&self, bytes: &[u8], hints: &Hints) -> Option<&Print> {
        let hint = hint(&self.salt, first(bytes));
        if !hints.hold(hint) {
            return None;
        }
        let alike = self.prints.iter().filter(|print| print.hint == hint);
        let mut fitting = alike.filter(|print| print.length <= bytes.len());
        fitting.find(|print| hash(&self.salt, &bytes[..print.length]) == print.hash)
    }
}

/// The hints that any fingerprint has.
struct Hints([u64; HINTS]);

impl Hints {
    fn of(prints: &[Print]) -> Self {
        let mut hints = [0; HINTS];
        for print in prints {
            let (word, bit) = place(print.hint);
            hints[word] |= bit;
        }
        Hints(hints)
    }

    fn hold(&self, hint: u16) -> bool {
        let (word, bit) = place(hint);
        self.0[word] & bit != 0
    }
}

/// The number of a hint's bit, and that bit in it.
fn place(hint: u16) -> (usize, u64) {
    (
        usize::from(hint) / HINTS_A_WORD,
        1 << (usize::from(hint) % HINTS_A_WORD),
    )
}

/// The first bytes of a text that has so many, as a number.
fn first(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk::<LEAST>()
        .map_or(0, |first| u64::from_le_bytes(*first))
}

fn hint(salt: &Salt, first: u64) -> u16 {
    let (shift, factor) = salt.split_at(salt.len() / 2);
    let [shift, factor] = [shift, factor].map(self::first);
    ((first ^ shift).wrapping_mul(factor | 1) >> (u64::BITS - u16::BITS)) as u16
}

fn hash(salt: &Salt, secret: &[u8]) -> [u8; HASH] {
    let whole = Sha256::new().chain_update(salt).chain_update(secret);
    let whole: [u8; 32] = whole.finalize().into();
    std::array::from_fn(|at| whole[at])
}

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes that digits stand for, where there are as many.
fn bytes_of<const N: usize>(digits: &str) -> Option<[u8; N]> {
    if digits.len() != 2 * N || !digits.is_ascii() {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRETS: [(&str, &str); 3] = [
        ("A", "abcdefgh"),
        ("B", "abcdefgh-ijkl"),
        ("C", "schlüssel"),
    ];

    #[test]
    fn secrets_are_found_the_longest_first() {
        let prints = Prints::of(SECRETS, || [7; 16]);
        let text = "abcdefgabcdefgh-ijk schlüssel abcdefgh-ijklabcdefgh";
        let found: Vec<(&str, &str)> = prints
            .find(text)
            .into_iter()
            .map(|(place, name)| (&text[place], name))
            .collect();
        let wanted = [
            ("abcdefgh", "A"),
            ("schlüssel", "C"),
            ("abcdefgh-ijkl", "B"),
            ("abcdefgh", "A"),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_is_written_down_finds_the_same_and_tells_nothing() {
        let prints = Prints::of(SECRETS, || [7; 16]);
        let written = prints.to_bytes();
        let text = String::from_utf8(written.clone()).unwrap();
        assert!(!SECRETS.iter().any(|(_, secret)| text.contains(secret)));
        let text = "x abcdefgh y schlüssel";
        let again = Prints::from_bytes(&written);
        assert_eq!(again.find(text), prints.find(text));
        assert_eq!(again.find(text).len(), 2);
        // With another salt the same secret is written differently.
        assert_ne!(Prints::of(SECRETS, || [8; 16]).to_bytes(), written);
    }

    #[test]
    fn what_is_no_fingerprint_finds_nothing() {
        for bytes in ["", "{}", "nonsense", r#"{"salt":"00","secrets":[]}"#] {
            let prints = Prints::from_bytes(bytes.as_bytes());
            assert!(prints.is_empty());
            assert_eq!(prints.find("abcdefgh"), []);
        }
        let short = Prints::of([("SHORT", "abcdefg")], || {
            unreachable!("no secret, no salt")
        });
        assert!(short.to_bytes().is_empty());
    }
}
