//! Salted fingerprints of secrets.
//!
//! A fingerprint is enough to find a secret in a text, but does not reveal it. So fingerprints can be
//! stored beside the output of a command, and the secrets can be masked whenever that output is read.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Minimum length of a secret. A shorter one could be a common word. The first bytes of a secret, this
/// many, are compared as one number.
pub const MIN_SECRET_BYTES: usize = size_of::<u64>();
/// Maximum number of secrets in a set.
pub const MAX_SECRETS: usize = 1_024;
/// Bytes of a hash that are stored: enough to rule out an accidental match.
const HASH_BYTES: usize = 16;
/// Words of a bit set with one bit for each possible hint.
const HINT_WORDS: usize = (1 << u16::BITS) / HINTS_PER_WORD;
const HINTS_PER_WORD: usize = u64::BITS as usize;

/// Random bytes that are hashed with each secret, so that equal secrets in two sets look different.
pub type Salt = [u8; 16];

/// Set of fingerprints.
///
/// ```
/// use abide_output::secret_fingerprints::SecretFingerprints;
///
/// let salt = || [7; 16]; // random bytes in practice
/// let known = SecretFingerprints::of([("API_KEY", "correct-horse")], salt);
/// let found = known.find("login correct-horse ok");
/// assert_eq!(found, [(6..19, "API_KEY")]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct SecretFingerprints {
    salt: Salt,
    /// Sorted by length, the longest first, so that the longest match wins.
    fingerprints: Vec<Fingerprint>,
}

#[derive(Clone, Debug)]
struct Fingerprint {
    name: String,
    length: usize,
    /// Short hash of the first bytes, so that few places of a text need the full hash.
    hint: u16,
    hash: [u8; HASH_BYTES],
}

/// Stored form.
#[derive(Serialize, Deserialize)]
struct Serialized {
    salt: String,
    /// Name, length, hint and hash.
    secrets: Vec<(String, usize, u16, String)>,
}

impl SecretFingerprints {
    /// Fingerprints of secrets, given as name and value. Values shorter than [`MIN_SECRET_BYTES`] are
    /// ignored. `salt` returns random bytes; it is called only if there is a secret.
    pub fn of<'a>(
        secrets: impl IntoIterator<Item = (&'a str, &'a str)>,
        salt: impl FnOnce() -> Salt,
    ) -> Self {
        let mut secrets = secrets
            .into_iter()
            .filter(|(_, secret)| secret.len() >= MIN_SECRET_BYTES)
            .peekable();
        if secrets.peek().is_none() {
            return SecretFingerprints::default();
        }
        let salt = salt();
        let fingerprint = |(name, secret): (&str, &str)| Fingerprint {
            name: name.to_owned(),
            length: secret.len(),
            hint: hint(&salt, first(secret.as_bytes())),
            hash: hash(&salt, secret.as_bytes()),
        };
        SecretFingerprints::from_parts(salt, secrets.take(MAX_SECRETS).map(fingerprint).collect())
    }

    fn from_parts(salt: Salt, mut fingerprints: Vec<Fingerprint>) -> Self {
        fingerprints.sort_by_key(|fingerprint| std::cmp::Reverse(fingerprint.length));
        SecretFingerprints { salt, fingerprints }
    }

    /// Returns whether the set has no fingerprint.
    pub fn is_empty(&self) -> bool {
        self.fingerprints.is_empty()
    }

    /// Stored form of the set; empty if the set is.
    pub fn to_bytes(&self) -> Vec<u8> {
        if self.is_empty() {
            return Vec::new();
        }
        let serialized = |fingerprint: &Fingerprint| {
            let hash = hex(&fingerprint.hash);
            (
                fingerprint.name.clone(),
                fingerprint.length,
                fingerprint.hint,
                hash,
            )
        };
        let serialized = Serialized {
            salt: hex(&self.salt),
            secrets: self.fingerprints.iter().map(serialized).collect(),
        };
        serde_json::to_vec(&serialized).unwrap_or_default()
    }

    /// Set from its stored form. Bytes that cannot be read make an empty set.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let read = || {
            let serialized: Serialized = serde_json::from_slice(bytes).ok()?;
            let fingerprint = |(name, length, hint, hash): (String, usize, u16, String)| {
                let hash = bytes_of(&hash)?;
                (length >= MIN_SECRET_BYTES).then_some(Fingerprint {
                    name,
                    length,
                    hint,
                    hash,
                })
            };
            let fingerprints: Option<Vec<Fingerprint>> =
                serialized.secrets.into_iter().map(fingerprint).collect();
            Some(SecretFingerprints::from_parts(
                bytes_of(&serialized.salt)?,
                fingerprints?,
            ))
        };
        match bytes {
            [] => SecretFingerprints::default(),
            _ => read().unwrap_or_default(),
        }
    }

    /// Byte ranges of the secrets in a text, in order, with their names.
    pub fn find(&self, text: &str) -> Vec<(Range<usize>, &str)> {
        let mut found = Vec::new();
        if self.is_empty() {
            return found;
        }
        let hints = HintSet::of(&self.fingerprints);
        let bytes = text.as_bytes();
        let mut at = 0;
        while at + MIN_SECRET_BYTES <= bytes.len() {
            match self.begins(&bytes[at..], &hints) {
                Some(fingerprint) if text.is_char_boundary(at + fingerprint.length) => {
                    found.push((at..at + fingerprint.length, fingerprint.name.as_str()));
                    at += fingerprint.length;
                }
                _ => at += 1,
            }
        }
        found
    }

    /// Offset of bytes at the end of output that may be the beginning of a secret. Fewer than [`MIN_SECRET_BYTES`] bytes
    /// do not show that.
    pub fn find_unfinished(&self, output: &[u8]) -> Option<usize> {
        let longest = self.fingerprints.first()?.length;
        let hints = HintSet::of(&self.fingerprints);
        let from = output.len().saturating_sub(longest - 1);
        let mut places = from..(output.len() + 1).saturating_sub(MIN_SECRET_BYTES);
        places.find(|at| {
            let hint = hint(&self.salt, first(&output[*at..]));
            let is_longer = |known: &Fingerprint| known.length > output.len() - at;
            let mut alike = self.fingerprints.iter().filter(|known| known.hint == hint);
            hints.contains(hint) && alike.any(is_longer)
        })
    }

    /// Longest secret at the start of `bytes`.
    fn begins(&self, bytes: &[u8], hints: &HintSet) -> Option<&Fingerprint> {
        let hint = hint(&self.salt, first(bytes));
        if !hints.contains(hint) {
            return None;
        }
        let alike = self
            .fingerprints
            .iter()
            .filter(|fingerprint| fingerprint.hint == hint);
        let mut fitting = alike.filter(|fingerprint| fingerprint.length <= bytes.len());
        fitting
            .find(|fingerprint| hash(&self.salt, &bytes[..fingerprint.length]) == fingerprint.hash)
    }
}

/// Hints of all fingerprints of a set.
struct HintSet([u64; HINT_WORDS]);

impl HintSet {
    fn of(fingerprints: &[Fingerprint]) -> Self {
        let mut hints = [0; HINT_WORDS];
        for fingerprint in fingerprints {
            let (word, bit) = place(fingerprint.hint);
            hints[word] |= bit;
        }
        HintSet(hints)
    }

    fn contains(&self, hint: u16) -> bool {
        let (word, bit) = place(hint);
        self.0[word] & bit != 0
    }
}

/// Index of the word with the bit of a hint, and the bit.
fn place(hint: u16) -> (usize, u64) {
    (
        usize::from(hint) / HINTS_PER_WORD,
        1 << (usize::from(hint) % HINTS_PER_WORD),
    )
}

/// First bytes of a secret or a text as a number; 0 if there are too few.
fn first(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk::<MIN_SECRET_BYTES>()
        .map_or(0, |first| u64::from_le_bytes(*first))
}

fn hint(salt: &Salt, first: u64) -> u16 {
    let (shift, factor) = salt.split_at(salt.len() / 2);
    let [shift, factor] = [shift, factor].map(self::first);
    ((first ^ shift).wrapping_mul(factor | 1) >> (u64::BITS - u16::BITS)) as u16
}

fn hash(salt: &Salt, secret: &[u8]) -> [u8; HASH_BYTES] {
    let whole = Sha256::new().chain_update(salt).chain_update(secret);
    let whole: [u8; 32] = whole.finalize().into();
    std::array::from_fn(|at| whole[at])
}

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes from hexadecimal digits, if there are exactly that many.
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
    fn longest_secret_at_a_place_wins() {
        let fingerprints = SecretFingerprints::of(SECRETS, || [7; 16]);
        let text = "abcdefgabcdefgh-ijk schlüssel abcdefgh-ijklabcdefgh";
        let found: Vec<(&str, &str)> = fingerprints
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
    fn beginning_of_a_secret_is_found_at_the_end_only() {
        let fingerprints = SecretFingerprints::of(SECRETS, || [7; 16]);
        for (output, unfinished) in [
            ("", None),
            ("x abcdefg", None),
            ("x abcdefgh", Some(2)),
            ("x abcdefgh-ijk", Some(2)),
            ("x abcdefgh-ijkl", None),
            ("x abcdefgh, x", Some(2)),
            ("x abcdefgh and more", None),
            ("schl\u{fc}sse", Some(0)),
        ] {
            let found = fingerprints.find_unfinished(output.as_bytes());
            assert_eq!(found, unfinished, "{output}");
        }
    }

    #[test]
    fn stored_form_finds_the_same_and_does_not_contain_secrets() {
        let fingerprints = SecretFingerprints::of(SECRETS, || [7; 16]);
        let serialized = fingerprints.to_bytes();
        let text = String::from_utf8(serialized.clone()).unwrap();
        assert!(!SECRETS.iter().any(|(_, secret)| text.contains(secret)));
        let text = "x abcdefgh y schlüssel";
        let again = SecretFingerprints::from_bytes(&serialized);
        assert_eq!(again.find(text), fingerprints.find(text));
        assert_eq!(again.find(text).len(), 2);
        // Another salt gives another stored form.
        assert_ne!(
            SecretFingerprints::of(SECRETS, || [8; 16]).to_bytes(),
            serialized
        );
    }

    #[test]
    fn invalid_stored_form_finds_nothing() {
        for bytes in ["", "{}", "nonsense", r#"{"salt":"00","secrets":[]}"#] {
            let fingerprints = SecretFingerprints::from_bytes(bytes.as_bytes());
            assert!(fingerprints.is_empty());
            assert_eq!(fingerprints.find("abcdefgh"), []);
        }
        let short = SecretFingerprints::of([("SHORT", "abcdefg")], || {
            unreachable!("no secret, no salt")
        });
        assert!(short.to_bytes().is_empty());
    }
}
