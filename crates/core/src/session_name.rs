//! Name of a session, given by a person or an agent, that can be typed instead of its id.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

/// Most characters of a name.
const MAX_NAME: usize = 64;

/// Word that stands for the newest session, timer or question on the command line.
pub const LAST: &str = "last";

/// Name of a session. Several sessions may have the same name; the newest of them is meant by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionName(Arc<str>);

/// Text that is not a name, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidName(String);

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for InvalidName {}

impl SessionName {
    /// Reads a name: one word that a shell does not change and that cannot be mistaken for an id or an option.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
        let begins_well = text.chars().next().is_some_and(char::is_alphanumeric);
        let count = text.chars().count();
        if !begins_well || count > MAX_NAME || !text.chars().all(plain) {
            return Err(InvalidName(format!(
                "a name has 1 to {MAX_NAME} letters, digits, '-', '_' or '.', and begins with a letter or digit; got {text:?}"
            )));
        }
        let kinds = ["session_", "timer_", "question_", "message_"];
        if text == LAST || kinds.iter().any(|kind| text.starts_with(kind)) {
            return Err(InvalidName(format!(
                "a name must not be '{LAST}' or begin like an id; got {text:?}"
            )));
        }
        Ok(SessionName(text.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_one_word_that_is_no_id() {
        for name in ["build", "dev-server", "a.b_c", "Übung", "7"] {
            assert_eq!(SessionName::parse(name).unwrap().as_str(), name);
        }
        let long = "x".repeat(MAX_NAME + 1);
        for text in [
            "",
            "-x",
            ".x",
            "a b",
            "a/b",
            "a\u{1b}",
            "last",
            "session_1",
            "timer_x",
            &long,
        ] {
            assert!(SessionName::parse(text).is_err(), "{text:?}");
        }
    }
}
