//! Text that is cut to a number of characters, with a count of what is left out.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

/// Text of at most `most` characters, followed by the number of further ones if there are any.
///
/// ```
/// assert_eq!(abide_core::shorten("make all", 8), "make all");
/// assert_eq!(abide_core::shorten("make all", 4), "make… (4 more characters)");
/// ```
pub fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => {
            let left = text[end..].chars().count();
            let noun = if left == 1 { "character" } else { "characters" };
            format!("{}… ({left} more {noun})", &text[..end])
        }
    }
}
