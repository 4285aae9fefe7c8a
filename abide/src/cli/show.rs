//! Tables, ages and colour for people; JSON for programs.

use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;

use abide_core::Millis;
use anstyle::{AnsiColor, Style};
use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::trouble::OWN;
use crate::cli::terminal::size_of;

/// Prints a line. A reader that has gone away ends the program without a word, as it ends others.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::cli::show::line(anstream::stdout(), format_args!($($text)*))
    };
}

/// The same, for what is not the result.
macro_rules! complain {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(anstream::stderr(), $($text)*);
    }};
}

pub(super) use {complain, say};

/// What a program exits with whose reader has gone away.
pub const BROKEN_PIPE: u8 = 141;

pub fn line(mut out: impl Write, text: std::fmt::Arguments<'_>) {
    match writeln!(out, "{text}") {
        Ok(()) => {}
        Err(fault) if fault.kind() == ErrorKind::BrokenPipe => {
            std::process::exit(BROKEN_PIPE.into());
        }
        Err(fault) => {
            complain!("abide: cannot write the output: {fault}");
            std::process::exit(OWN.into());
        }
    }
}

/// Headings.
pub const HEADING: Style = Style::new().bold();
/// What matters less.
pub const FAINT: Style = Style::new().dimmed();
/// What went well.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// What wants care.
pub const CARE: Style = AnsiColor::Yellow.on_default();
/// What did not.
pub const BAD: Style = AnsiColor::Red.on_default();

/// One JSON value; spread over lines where a person reads it.
pub fn json(value: &Value) {
    if std::io::stdout().is_terminal() {
        say!("{}", spelled(&format!("{value:#}")));
    } else {
        say!("{value}");
    }
}

/// JSON with those controls spelled out that it lets stand, and that a terminal would obey.
fn spelled(json: &str) -> String {
    let spell = |c: char| match c {
        '\u{7f}'..='\u{9f}' => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    match json.contains(|c| matches!(c, '\u{7f}'..='\u{9f}')) {
        true => json.chars().map(spell).collect(),
        false => json.to_owned(),
    }
}

/// A row of a table: its cells, each with a colour.
pub type Row = Vec<(String, Style)>;

/// Prints a table that fits the terminal: the last column takes what is left, and is cut there.
pub fn table(head: &[&str], rows: &[Row]) {
    let heading = head
        .iter()
        .map(|name| ((*name).to_owned(), HEADING))
        .collect();
    let width = |row: &Row, column: usize| row.get(column).map_or(0, |cell| columns(&cell.0));
    let all: Vec<&Row> = std::iter::once(&heading).chain(rows).collect();
    let widths: Vec<usize> = (0..head.len())
        .map(|column| all.iter().map(|row| width(row, column)).max().unwrap_or(0))
        .collect();
    let room = room();
    for row in &all {
        let mut line = String::new();
        let mut used = 0;
        for (column, (text, style)) in row.iter().enumerate() {
            let last = column + 1 == row.len();
            let text = match room {
                Some(room) if last => cut(text, room.saturating_sub(used).max(8)),
                _ => text.clone(),
            };
            line.push_str(&format!("{style}{text}{style:#}"));
            if !last {
                let pad = widths[column] - columns(&text) + 2;
                line.push_str(&" ".repeat(pad));
                used += widths[column] + 2;
            }
        }
        say!("{line}");
    }
}

/// How wide the terminal is; nothing is cut where there is none.
pub fn room() -> Option<usize> {
    let stdout = std::io::stdout();
    stdout
        .is_terminal()
        .then(|| size_of(stdout.as_fd()).0.into())
}

/// How wide a text is on a terminal.
fn columns(text: &str) -> usize {
    text.width()
}

/// Characters that are looked at for each column.
const MARKS_PER_COLUMN: usize = 8;

/// The text, shortened at its end to so many columns.
pub fn cut(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    let room = most.saturating_sub(1);
    let mut short = String::new();
    // Signs may be wider together than one by one, so the whole is measured. There may also be many
    // that take no room at all.
    for c in text.chars().take(MARKS_PER_COLUMN * most) {
        short.push(c);
        if columns(&short) > room {
            short.pop();
            break;
        }
    }
    short.push('…');
    short
}

/// The text in lines that fit beside so many columns; where there is no terminal, one line. A word that
/// is longer than a line, such as a path, goes on in the next.
pub fn wrapped(text: &str, beside: usize) -> Vec<String> {
    match room() {
        Some(room) => in_lines(text, room.saturating_sub(beside).max(20)),
        None => vec![text.to_owned()],
    }
}

fn in_lines(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let wide = columns(word);
        if used > 0 && used + 1 + wide <= room {
            push(&mut lines, " ");
            used += 1;
        } else if used > 0 {
            lines.push(String::new());
            used = 0;
        }
        for c in word.chars() {
            let wide = c.width().unwrap_or(0);
            if used + wide > room {
                lines.push(String::new());
                used = 0;
            }
            push(&mut lines, c.encode_utf8(&mut [0; 4]));
            used += wide;
        }
    }
    lines
}

fn push(lines: &mut [String], text: &str) {
    if let Some(last) = lines.last_mut() {
        last.push_str(text);
    }
}

/// How long ago a moment was, in its two largest units.
pub fn ago(now_ms: u64, then_ms: u64) -> String {
    short(Millis(now_ms.saturating_sub(then_ms)))
}

/// A duration in its two largest units, in whole seconds.
pub fn short(span: Millis) -> String {
    let whole = Millis(span.0 / 1_000 * 1_000).to_string();
    let ends: Vec<usize> = whole
        .match_indices(char::is_alphabetic)
        .map(|(at, _)| at)
        .collect();
    match ends.get(1) {
        Some(end) => whole[..=*end].to_owned(),
        None => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_at_most_two_units() {
        assert_eq!(short(Millis(450)), "0s");
        assert_eq!(short(Millis(61_500)), "1m1s");
        assert_eq!(short(Millis(90_061_000)), "1d1h");
    }

    #[test]
    fn json_says_the_same_and_steers_no_terminal() {
        let value = serde_json::json!({"a": "\u{9b}6n\u{9d}0;t\u{7}\u{7f}é\u{a0}"});
        let shown = spelled(&format!("{value:#}"));
        assert!(
            !shown.contains(|c: char| c.is_control() && c != '\n'),
            "{shown:?}"
        );
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
    }

    #[test]
    fn lines_end_between_words_and_long_words_go_on() {
        assert_eq!(in_lines("a bc def", 4), ["a bc", "def"]);
        assert_eq!(
            in_lines("to /a/long/path x", 6),
            ["to", "/a/lon", "g/path", "x"]
        );
        assert_eq!(in_lines("日本語", 5), ["日本", "語"]);
        assert_eq!(in_lines("", 5), [""]);
    }

    #[test]
    fn text_is_cut_at_a_character() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüß", 3), "äö…");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        // A sign and what makes a picture of it are wider together.
        let signs = "⚠\u{fe0f}".repeat(5);
        assert_eq!(cut(&signs, 6), "⚠\u{fe0f}⚠\u{fe0f}⚠…");
    }
}
