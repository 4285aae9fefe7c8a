//! When are two lines the same, but for their numbers?
//!
//! A [`Kind`] is a fingerprint of a line with every number, hexadecimal id, UUID and time taken
//! out. It also says how much of the line those were: where the numbers are the substance (a
//! table, a list of hashes), lines are not repetitions of each other.

/// Lines longer than this are only compared as they are.
const KIND_MAX: usize = 2_048;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The line as it is.
    pub exact: u64,
    /// The line without its numbers.
    pub shape: u64,
    /// Whether its numbers are zero, or look like a status of failure. Where a line speaks of
    /// errors, `0 errors` and `3 errors` are two things.
    pub figures: u64,
    pub repeats: Repeats,
}

/// How many lines of one shape in a row are a repetition?
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Repeats {
    /// A time of day or a percentage is in it.
    Readily,
    /// Mostly words.
    Soon,
    /// Words and numbers in balance.
    Late,
    /// The numbers are what it says.
    Never,
}

impl Repeats {
    /// Lines in a row that are folded. Where the output is too long anyway, numbers count less.
    pub fn needed(self, crowded: bool) -> Option<usize> {
        match (self, crowded) {
            (Repeats::Readily, _) => Some(4),
            (Repeats::Soon, false) => Some(8),
            (Repeats::Late, false) => Some(24),
            (Repeats::Soon | Repeats::Late, true) => Some(4),
            (Repeats::Never, _) => None,
        }
    }
}

/// The largest answer of [`Repeats::needed`].
pub const NEEDED_MAX: usize = 24;

impl Kind {
    pub fn of(line: &str) -> Kind {
        let exact = hash(line.as_bytes());
        if line.len() > KIND_MAX {
            return Kind {
                exact,
                shape: exact,
                figures: 0,
                repeats: Repeats::Never,
            };
        }
        let mut skeleton = Skeleton::default();
        skeleton.read(line.as_bytes());
        let repeats = skeleton.repeats(line);
        Kind {
            exact,
            shape: skeleton.shape.0,
            figures: skeleton.figures.0,
            repeats,
        }
    }
}

/// FNV-1a, over bytes.
pub struct Fingerprint(pub u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Fingerprint(0xCBF2_9CE4_8422_2325)
    }
}

impl Fingerprint {
    #[inline]
    pub fn add(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
    }

    #[inline]
    fn add_word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// A fingerprint of eight bytes at a time.
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

/// By which the letters of a word are weighed.
const WORD: u64 = 0x5851_F42D_4C95_7F2D;

const LETTER: u8 = 1;
const HEX_LETTER: u8 = 2;
const DIGIT: u8 = 4;

/// What a byte is in a token; 0 where it is in none.
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
struct Skeleton {
    shape: Fingerprint,
    figures: Fingerprint,
    letters: usize,
    /// Characters of numbers that are not times.
    digits: usize,
    clock: bool,
    percent: bool,
    words: usize,
}

impl Skeleton {
    fn read(&mut self, bytes: &[u8]) {
        let mut at = 0;
        let mut before = 0;
        while at < bytes.len() {
            let byte = bytes[at];
            if CLASS[usize::from(byte)] != 0 {
                at = self.token(bytes, at);
                before = 0;
                continue;
            }
            // Padding and bars vary with the numbers, so a run of one sign is that sign.
            if byte != before || byte >= 0x80 {
                self.shape.add(byte);
            }
            self.letters += usize::from(byte >= 0xC0);
            before = byte;
            at += 1;
        }
    }

    /// A stretch of letters and digits. Returns its end.
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
            word = word.wrapping_mul(WORD).wrapping_add(bytes[end].into());
            digits += usize::from(class >> 2);
            seen |= class;
            end += 1;
        }
        let hex = seen & LETTER == 0;
        let token = &bytes[start..end];
        if digits == token.len() {
            return self.digits(bytes, start, end);
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

    /// A number with its points, commas and colons: `12`, `3.5`, `12:00:01`, `2024-05-01`.
    fn digits(&mut self, bytes: &[u8], start: usize, mut end: usize) -> usize {
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
            self.clock = true;
            self.shape.add(b'0');
            // `T` between date and time, and `Z`, are read as letters of the shape.
            return end;
        }
        self.percent |= bytes.get(end) == Some(&b'%');
        self.number(&bytes[start..end], end - start);
        end
    }

    fn number(&mut self, digits: &[u8], length: usize) {
        self.shape.add(b'0');
        self.digits += length;
        let figure = match digits {
            b"0" => b'0',
            // What was asked for wrongly is one thing, what could not be done another.
            [b'4', _, _] => b'4',
            [b'5', _, _] => b'5',
            _ => b'1',
        };
        self.figures.add(figure);
    }

    fn repeats(&self, line: &str) -> Repeats {
        if self.letters < 3 || self.words == 0 || is_listing(line) {
            return Repeats::Never;
        }
        if self.clock || self.percent {
            return Repeats::Readily;
        }
        if !line.trim().contains([' ', '\t']) || self.digits > 2 * self.letters {
            return Repeats::Never;
        }
        if self.letters >= 2 * self.digits {
            Repeats::Soon
        } else {
            Repeats::Late
        }
    }
}

/// A line of `ls -l`: what differs in it is what was asked for.
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
