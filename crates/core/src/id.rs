//! Names of things. Ids read well and are safe in a URL and a path; a string that is not exactly of
//! the minted form never becomes an id, so none can ever point outside its folder.

use alloc::sync::Arc;
use core::fmt;
use core::str::FromStr;

/// Letters an id's suffix is made of: no vowels to spell words with, nothing to mistake for another.
pub const ALPHABET: &[u8; 32] = b"0123456789bcdfghjkmnpqrstvwxyzae";
/// Number of characters in a suffix.
pub const SUFFIX_LEN: usize = 8;

/// The random part of an id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Suffix([u8; SUFFIX_LEN]);

impl Suffix {
    /// Makes a suffix of forty random bits; the world brings the bits.
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

    /// The bits it was made of.
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

/// A string that is not an id of the kind asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnId;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Suffix);

        impl $name {
            /// Makes an id of random bits that the world brings.
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
    /// Names a session.
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
    /// Names a question.
    QuestionId, "question_"
);

id!(
    /// Names a timer.
    TimerId, "timer_"
);
id!(
    /// Names a message to an agent.
    MessageId, "message_"
);

/// Turns numbers into ids and back, one to one.
///
/// ```
/// use abide_core::{TimerId, id::Shuffle};
/// let shuffle = Shuffle { key: 42 };
/// let id = TimerId::from_bits(shuffle.mix(7));
/// assert_eq!(shuffle.sort(id.0.bits()), 7);
/// ```
///
/// Numbers count up, which keeps keys in the order of
/// time and makes every id unique without a look at all the others; ids do not show the count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shuffle {
    /// Chosen once for a database and kept with it.
    pub key: u64,
}

/// Bits of a number that becomes an id.
pub const NUMBER_BITS: u32 = 40;

impl Shuffle {
    const HALF: u32 = NUMBER_BITS / 2;
    const MASK: u64 = (1 << Self::HALF) - 1;
    const ROUNDS: u64 = 4;

    /// The one for messages, so that the seventh of them is not called like the seventh timer.
    pub const fn for_messages(self) -> Self {
        Shuffle { key: !self.key }
    }

    /// The bits of the id that a number below 2^40 has.
    pub fn mix(self, number: u64) -> u64 {
        let (mut left, mut right) = (number >> Self::HALF & Self::MASK, number & Self::MASK);
        for round in 0..Self::ROUNDS {
            (left, right) = (right, left ^ self.round(round, right));
        }
        left << Self::HALF | right
    }

    /// The number behind the bits of an id.
    pub fn sort(self, bits: u64) -> u64 {
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

/// One call that is being answered. It lives as long as the call, never longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// Who owns sessions, timers and messages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Agent(pub Arc<str>);

impl Default for Agent {
    fn default() -> Self {
        Agent("default".into())
    }
}

/// One conversation of an agent: its client's own id for it, else its connection. Messages belong to
/// the conversation that made what they are about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Conversation(pub Arc<str>);

/// An idempotency key: the same key from the same agent never starts a second command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub Arc<str>);
