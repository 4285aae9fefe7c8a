//! Text from a command on one line of somebody's screen.

/// The text with everything spelled out that could end the line, move the cursor or hide what stands
/// there. Nothing is left out, so whoever reads it sees exactly what it is.
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
                c if c.is_control() || hides(c) => line.extend(c.escape_unicode()),
                c => line.push(c),
            }
            line
        })
}

/// The same for text that may have lines and tabs.
pub fn visible(text: &str) -> String {
    let spelled = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || hides(c);
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

/// Characters that reorder or hide their neighbours.
pub fn hides(c: char) -> bool {
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
