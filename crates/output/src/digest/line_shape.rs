//! Shape of a line: the line without its numbers.
//!
//! Two lines with the same [`LineShape`] differ only in numbers, hexadecimal ids, UUIDs and times. The
//! shape also says how much of the line those are: if the numbers are its content (a table, a list of
//! hashes), lines of the same shape are not repetitions of each other.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Longer lines are compared as a whole.
const SHAPE_MAX: usize = 2_048;

/// Hashes of a line, and whether its numbers are its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineShape {
    /// Hash of the whole line.
    pub exact: u64,
    /// Hash of the line without its numbers.
    pub without_numbers: u64,
    /// Hash of the class of each number: zero, HTTP status of an error, other. In a line about errors,
    /// `0 errors` and `3 errors` are different.
    pub number_classes: u64,
    /// The numbers are the content of the line, so it repeats no other.
    pub is_data: bool,
}

impl LineShape {
    /// Shape of a line.
    pub fn of(line: &str) -> LineShape {
        let exact = hash(line.as_bytes());
        if line.len() > SHAPE_MAX {
            return LineShape {
                exact,
                without_numbers: exact,
                number_classes: 0,
                is_data: true,
            };
        }
        let mut scanner = ShapeScanner::default();
        scanner.scan(line.as_bytes());
        let is_data = scanner.is_data(line);
        LineShape {
            exact,
            without_numbers: scanner.shape.0,
            number_classes: scanner.number_classes.0,
            is_data,
        }
    }
}

/// FNV-1a hash.
pub struct Fnv1a(pub u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Fnv1a(0xCBF2_9CE4_8422_2325)
    }
}

impl Fnv1a {
    #[inline]
    pub fn add(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
    }

    #[inline]
    fn add_word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// Hash of eight bytes at a time.
pub fn hash(bytes: &[u8]) -> u64 {
    let mix = |sum: u64, word: u64| {
        let product = u128::from(sum ^ word) * u128::from(0x9E37_79B9_7F4A_7C15_u64);
        (product as u64) ^ ((product >> 64) as u64)
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = mix(0x51_7C_C1_B7_27_22_0A_95, bytes.len() as u64);
    for word in words {
        sum = mix(sum, u64::from_le_bytes(*word)).wrapping_add(0xA076_1D64_78BD_642F);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(sum, u64::from_le_bytes(last))
}

/// Map whose keys are hashes already.
pub type HashKeyMap<V> = HashMap<u64, V, BuildHasherDefault<KeyHasher>>;

/// Hasher of keys that are hashes.
#[derive(Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash(bytes);
    }

    fn write_u64(&mut self, key: u64) {
        // Maps use the highest bits too.
        self.0 = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// Factor of the polynomial hash of a word.
const WORD_FACTOR: u64 = 0x5851_F42D_4C95_7F2D;

const LETTER: u8 = 1;
const HEX_LETTER: u8 = 2;
const DIGIT: u8 = 4;

/// Class of a byte in a token; 0 if it is not part of one.
const CLASS: [u8; 256] = {
    let mut class = [0; 256];
    let mut byte = 0;
    while byte < 128 {
        class[byte] = match byte as u8 {
            b'0'..=b'9' => DIGIT,
            b'a'..=b'f' | b'A'..=b'F' => HEX_LETTER,
            b'g'..=b'z' | b'G'..=b'Z' => LETTER,
            _ => 0,
        };
        byte += 1;
    }
    class
};

#[derive(Default)]
struct ShapeScanner {
    shape: Fnv1a,
    number_classes: Fnv1a,
    letters: usize,
    /// Number of characters in numbers that are not times.
    number_chars: usize,
    has_time: bool,
    has_percentage: bool,
    words: usize,
}

impl ShapeScanner {
    fn scan(&mut self, bytes: &[u8]) {
        let mut at = 0;
        let mut before = 0;
        while at < bytes.len() {
            let byte = bytes[at];
            if CLASS[usize::from(byte)] != 0 {
                at = self.token(bytes, at);
                before = 0;
                continue;
            }
            // Padding and bars vary with the numbers, so a run of one character counts once.
            if byte != before || byte >= 0x80 {
                self.shape.add(byte);
            }
            self.letters += usize::from(byte >= 0xC0);
            before = byte;
            at += 1;
        }
    }

    /// Scans a token of letters and digits. Returns its end.
    fn token(&mut self, bytes: &[u8], start: usize) -> usize {
        if let Some(end) = uuid_end(bytes, start) {
            self.number(b"id", end - start);
            return end;
        }
        let mut end = start;
        let (mut digits, mut seen, mut word) = (0, 0, 0u64);
        while end < bytes.len() {
            let class = CLASS[usize::from(bytes[end])];
            if class == 0 {
                break;
            }
            word = word
                .wrapping_mul(WORD_FACTOR)
                .wrapping_add(bytes[end].into());
            digits += usize::from(class >> 2);
            seen |= class;
            end += 1;
        }
        let hex = seen & LETTER == 0;
        let token = &bytes[start..end];
        if digits == token.len() {
            return self.numeric_token(bytes, start, end);
        }
        if digits == 0 && !(hex && token.len() >= 8) {
            self.shape.add_word(word);
            self.letters += token.len();
            self.words += usize::from(token.len() >= 2);
            return end;
        }
        let prefixed = token.starts_with(b"0x");
        if prefixed || (hex && token.len() >= 4) {
            self.number(b"id", token.len());
            return end;
        }
        // Letters with digits in them: `worker12`, `5ms`.
        let mut at = 0;
        while at < token.len() {
            if token[at].is_ascii_digit() {
                let from = at;
                while at < token.len() && token[at].is_ascii_digit() {
                    at += 1;
                }
                self.number(&token[from..at], at - from);
            } else {
                self.shape.add(token[at]);
                self.letters += 1;
                at += 1;
            }
        }
        end
    }

    /// Scans a number with its points, commas and colons: `12`, `3.5`, `12:00:01`, `2024-05-01`.
    fn numeric_token(&mut self, bytes: &[u8], start: usize, mut end: usize) -> usize {
        let (mut colons, mut dashes) = (0, 0);
        let digit_at = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
        while end < bytes.len() && digit_at(end + 1) {
            match bytes[end] {
                b':' => colons += 1,
                b'-' if end - start == 4 || dashes > 0 => dashes += 1,
                b'.' | b',' => {}
                _ => break,
            }
            end += 1;
            while digit_at(end) {
                end += 1;
            }
        }
        if colons >= 2 || dashes >= 2 {
            self.has_time = true;
            self.shape.add(b'0');
            // `T` between date and time, and `Z`, are scanned as letters.
            return end;
        }
        self.has_percentage |= bytes.get(end) == Some(&b'%');
        self.number(&bytes[start..end], end - start);
        end
    }

    fn number(&mut self, digits: &[u8], length: usize) {
        self.shape.add(b'0');
        self.number_chars += length;
        let class = match digits {
            b"0" => b'0',
            // HTTP status codes: client error and server error.
            [b'4', _, _] => b'4',
            [b'5', _, _] => b'5',
            _ => b'1',
        };
        self.number_classes.add(class);
    }

    fn is_data(&self, line: &str) -> bool {
        let has_words = self.letters >= 3 && self.words > 0 && !is_listing(line);
        let has_space = line.trim().contains([' ', '\t']);
        let is_mostly_words = has_space && self.number_chars <= 2 * self.letters;
        !has_words || !(self.has_time || self.has_percentage || is_mostly_words)
    }
}

/// Returns whether a line is from `ls -l`, whose numbers are its content.
fn is_listing(line: &str) -> bool {
    let bytes = line.as_bytes();
    bytes.len() > 10
        && b"-dlbcps".contains(&bytes[0])
        && bytes[1..10].iter().all(|b| b"-rwxsStT".contains(b))
}

fn uuid_end(bytes: &[u8], start: usize) -> Option<usize> {
    if bytes.get(start + 8) != Some(&b'-') {
        return None;
    }
    let candidate = bytes.get(start..start + 36)?;
    let is_uuid = candidate.iter().enumerate().all(|(at, b)| match at {
        8 | 13 | 18 | 23 => *b == b'-',
        _ => b.is_ascii_hexdigit(),
    });
    is_uuid.then_some(start + 36)
}
