//! Names of things. Ids read well and are safe in a URL and a path; a string that is not exactly of
//! the minted form never becomes an id, so none can ever point outside its folder.

use alloc::sync::Arc;
use core::fmt;
use core::str::FromStr;

/// Letters an id's suffix is made of: no vowels to spell words with, nothing to mistake for another.
pub const ALPHABET: &[u8; 32] = b"0123456789bcdfghjkmnpqrstvwxyzae";
/// How many of them a suffix has.
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

/// An idempotency key: the same key from the same agent never starts a second command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub Arc<str>);
