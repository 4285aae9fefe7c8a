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
    text.chars()
        .fold(String::with_capacity(text.len()), |mut line, c| {
            match c {
                '\n' => line.push_str("\\n"),
                '\t' => line.push_str("\\t"),
                '\r' => line.push_str("\\r"),
                c if c.is_control() || is_invisible(c) => line.extend(c.escape_unicode()),
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
    let spelled = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || is_invisible(c);
    if !text.contains(spelled) {
        return text.to_owned();
    }
    let words = text.split_inclusive(spelled);
    words.fold(String::new(), |mut shown, word| {
        match word.chars().next_back().filter(|c| spelled(*c)) {
            Some(last) => {
                shown.push_str(&word[..word.len() - last.len_utf8()]);
                shown.push_str(&one_line(last.encode_utf8(&mut [0; 4])));
            }
            None => shown.push_str(word),
        }
        shown
    })
}

/// Returns whether a character is invisible or changes the order of the text around it.
pub fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}
