//! Ids of sessions, questions, timers and messages. An id is safe in a URL and in a path: a string in any other form
//! is rejected, so no id can name a path outside its folder.

use alloc::format;
use alloc::sync::Arc;
use core::fmt;
use core::str::FromStr;

/// Characters of a suffix: digits and lower-case letters without i, l, o and u, which are easily misread.
pub const ALPHABET: &[u8; 32] = b"0123456789bcdfghjkmnpqrstvwxyzae";
/// Number of characters in a suffix.
pub const SUFFIX_LEN: usize = 8;

/// The random part of an id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Suffix([u8; SUFFIX_LEN]);

impl Suffix {
    /// Suffix made of the lower forty bits; the caller supplies random bits.
    pub fn from_bits(bits: u64) -> Self {
        let mut out = [0; SUFFIX_LEN];
        for (i, slot) in out.iter_mut().enumerate() {
            *slot = ALPHABET[(bits >> (5 * i)) as usize & 31];
        }
        Suffix(out)
    }

    /// The suffix as text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Bits that the suffix was made of.
    pub fn bits(&self) -> u64 {
        let digit = |letter: u8| ALPHABET.iter().position(|known| *known == letter);
        let digits = self.0.iter().rev();
        digits.fold(0, |bits, letter| {
            bits << 5 | digit(*letter).unwrap_or(0) as u64
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; SUFFIX_LEN] = text.as_bytes().try_into().ok()?;
        bytes
            .iter()
            .all(|b| ALPHABET.contains(b))
            .then_some(Suffix(bytes))
    }
}

/// Error for a string that is not an id of the expected kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnId;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Suffix);

        impl $name {
            /// Makes an id of random bits that the caller supplies.
            pub fn from_bits(bits: u64) -> Self {
                $name(Suffix::from_bits(bits))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0.as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = NotAnId;
            fn from_str(text: &str) -> Result<Self, NotAnId> {
                text.strip_prefix($prefix).and_then(Suffix::parse).map($name).ok_or(NotAnId)
            }
        }
    };
}

id!(
    /// Id of a session.
    ///
    /// ```
    /// use abide_core::SessionId;
    /// let id: SessionId = "session_k3v9x2bc".parse().unwrap();
    /// assert_eq!(id.to_string(), "session_k3v9x2bc");
    /// assert!("session_../../etc".parse::<SessionId>().is_err());
    /// ```
    SessionId, "session_"
);
id!(
    /// Id of a question.
    QuestionId, "question_"
);

id!(
    /// Id of a timer.
    TimerId, "timer_"
);
id!(
    /// Id of a message to an agent.
    MessageId, "message_"
);

/// Turns numbers into ids and back, one to one.
///
/// ```
/// use abide_core::{TimerId, id::IdPermutation};
/// let id_permutation = IdPermutation { key: 42 };
/// let id = TimerId::from_bits(id_permutation.to_bits(7));
/// assert_eq!(id_permutation.to_number(id.0.bits()), 7);
/// ```
///
/// Numbers count up, so keys are in the order of time and every id is unique without a lookup; the ids do not reveal
/// the count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdPermutation {
    /// Random key, chosen once per database and stored in it.
    pub key: u64,
}

/// Number of bits of a number that becomes an id.
pub const NUMBER_BITS: u32 = 40;

impl IdPermutation {
    const HALF: u32 = NUMBER_BITS / 2;
    const MASK: u64 = (1 << Self::HALF) - 1;
    const ROUNDS: u64 = 4;

    /// Permutation for messages, so that a message and a timer of the same number have different suffixes.
    pub const fn for_messages(self) -> Self {
        IdPermutation { key: !self.key }
    }

    /// Bits of the id of a number, which must be below 2^40.
    pub fn to_bits(self, number: u64) -> u64 {
        let (mut left, mut right) = (number >> Self::HALF & Self::MASK, number & Self::MASK);
        for round in 0..Self::ROUNDS {
            (left, right) = (right, left ^ self.round(round, right));
        }
        left << Self::HALF | right
    }

    /// Number of an id, given its bits.
    pub fn to_number(self, bits: u64) -> u64 {
        let (mut left, mut right) = (bits >> Self::HALF & Self::MASK, bits & Self::MASK);
        for round in (0..Self::ROUNDS).rev() {
            (left, right) = (right ^ self.round(round, left), left);
        }
        left << Self::HALF | right
    }

    fn round(self, round: u64, half: u64) -> u64 {
        let mut bits = self.key.rotate_left(round as u32 * 16) ^ half ^ round << 60;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) & Self::MASK
    }
}

/// Id of one call until it is answered. It is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// Name of the agent that owns sessions, timers and messages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Agent(pub Arc<str>);

/// Name of an agent that gives none.
const UNNAMED: &str = "default";

impl Default for Agent {
    fn default() -> Self {
        Agent(UNNAMED.into())
    }
}

impl Agent {
    /// Agent that gives no name on this machine of a fleet, where names are valid on every machine.
    pub fn default_on(machine: &str) -> Self {
        Agent(format!("{UNNAMED}@{machine}").into())
    }

    /// Agent of a stored session. `self` is the agent without a name here; a session that it started before this
    /// machine joined or left a fleet has its former name.
    pub fn of_stored(&self, name: &str) -> Self {
        match name == UNNAMED || *self.0 == *settings_name(name) {
            true => self.clone(),
            false => Agent(name.into()),
        }
    }
}

/// Name by which settings mean an agent: one without a name is `default` on every machine.
pub fn settings_name(agent: &str) -> &str {
    match agent.split_once('@') {
        Some((UNNAMED, _)) => UNNAMED,
        _ => agent,
    }
}

/// Id of one conversation of an agent: the client's own id for it, or else its connection. A message belongs to the
/// conversation that created its subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Conversation(pub Arc<str>);

/// Idempotency key: the same key from the same agent never starts a second command. That of a call that starts a command
/// has a fingerprint of the arguments of the call behind its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub Arc<str>);

/// Character between the name and the fingerprint of a key.
const FINGERPRINT: char = '\n';
/// Hexadecimal digits of a fingerprint.
const FINGERPRINT_DIGITS: usize = 16;

impl Key {
    /// The key with this fingerprint.
    pub fn with_fingerprint(&self, fingerprint: u64) -> Key {
        Key(alloc::format!("{}{FINGERPRINT}{fingerprint:016x}", self.0).into())
    }

    /// The key without a fingerprint.
    pub fn name(&self) -> Key {
        match self.parts() {
            (name, Some(_)) => Key(name.into()),
            (_, None) => self.clone(),
        }
    }

    /// True if a call with this key may repeat one that had the other key: the names are equal, and so are the
    /// fingerprints if both have one.
    pub fn may_repeat(&self, other: &Key) -> bool {
        let ((name, own), (other_name, other)) = (self.parts(), other.parts());
        name == other_name && own.zip(other).is_none_or(|(own, other)| own == other)
    }

    /// True if a call with this key and command repeats one that had one of these keys and that command.
    pub fn repeats(&self, keys: &[Key], first: &str, command: &str) -> bool {
        first == command && keys.iter().any(|key| self.may_repeat(key))
    }

    fn parts(&self) -> (&str, Option<&str>) {
        let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        match self.0.rsplit_once(FINGERPRINT) {
            Some((name, digits))
                if digits.len() == FINGERPRINT_DIGITS && digits.bytes().all(is_digit) =>
            {
                (name, Some(digits))
            }
            _ => (&self.0, None),
        }
    }
}
