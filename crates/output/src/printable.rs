//! Text of commands, made printable without losing information.
//!
//! Unlike [`Sanitizer`](crate::sanitizer::Sanitizer), which removes and replaces, these functions
//! escape: the reader sees exactly which characters there are.

/// Text on one line, with every character escaped that could end the line, move the cursor or hide
/// other text.
///
/// ```
/// assert_eq!(abide_output::printable::one_line("a\nb\u{1b}[2J"), "a\\nb\\u{1b}[2J");
/// ```
pub fn one_line(text: &str) -> String {
    escaped(text, is_invisible)
}

/// One line of a screen. Unlike in [`one_line`], joiners pass, because emoji and some scripts are misspelled without
/// them.
///
/// ```
/// assert_eq!(abide_output::printable::screen_line("👩\u{200d}👧\u{202e}"), "👩\u{200d}👧\\u{202e}");
/// ```
pub fn screen_line(text: &str) -> String {
    escaped(text, is_misleading)
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    text.chars()
        .fold(String::with_capacity(text.len()), |mut line, c| {
            match c {
                '\n' => line.push_str("\\n"),
                '\t' => line.push_str("\\t"),
                '\r' => line.push_str("\\r"),
                c if c.is_control() || is_escaped(c) => line.extend(c.escape_unicode()),
                c => line.push(c),
            }
            line
        })
}

/// Text with invisible and control characters escaped, except newlines and tabs.
///
/// ```
/// assert_eq!(abide_output::printable::visible("a\nb\u{1b}[2J"), "a\nb\\u{1b}[2J");
/// ```
pub fn visible(text: &str) -> String {
    by_parts(text, one_line)
}

/// Words of an agent or a person, with control characters escaped as in [`visible`]. Joiners pass as in [`screen_line`].
///
/// ```
/// assert_eq!(abide_output::printable::words("👩\u{200d}👧\n\u{1b}[2J"), "👩\u{200d}👧\n\\u{1b}[2J");
/// ```
pub fn words(text: &str) -> String {
    by_parts(text, screen_line)
}

/// Text whose parts between newlines and tabs are escaped.
fn by_parts(text: &str, escape: fn(&str) -> String) -> String {
    let parts = text.split_inclusive(['\n', '\t']);
    let escaped = parts.map(|part| {
        let words = part.trim_end_matches(['\n', '\t']);
        escape(words) + &part[words.len()..]
    });
    escaped.collect()
}

/// Returns whether a character is invisible or changes the order of the text around it.
pub fn is_invisible(c: char) -> bool {
    is_joiner(c) || is_misleading(c)
}

/// Begin of many text files. It says nothing there, so readers of output leave it out at the start of a line.
pub(crate) const BYTE_ORDER_MARK: char = '\u{feff}';

/// Returns whether a character must not pass from the output of a command to a reader: it reorders text, hides text or
/// ends a line. Joiners pass, because emoji and some scripts are misspelled without them.
pub(crate) fn is_misleading(c: char) -> bool {
    matches!(
        c,
        '\u{061c}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | BYTE_ORDER_MARK
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Zero-width joiner and non-joiner.
fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_of_a_command_are_escaped() {
        for c in "\u{61c}\u{200b}\u{200d}\u{202e}\u{2028}\u{2069}\u{feff}\u{e0041}".chars() {
            let escaped = format!("a{}b", c.escape_unicode());
            assert_eq!(one_line(&format!("a{c}b")), escaped);
            assert_eq!(visible(&format!("a{c}b")), escaped);
        }
    }
}
