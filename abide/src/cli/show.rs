//! Output formatting: tables, durations and colours for people, JSON for programs.

use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;

use abide_core::Millis;
use abide_output::printable::one_line;
use anstyle::{AnsiColor, Style};
use serde::Serialize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::error::EXIT_ABIDE_ERROR;
use crate::cli::terminal::size_of;

/// Prints a line to standard output. If the reader has closed the pipe, the program exits silently.
macro_rules! outln {
    ($($text:tt)*) => {
        $crate::cli::show::line(anstream::stdout(), format_args!($($text)*))
    };
}

/// Prints a line to standard error.
macro_rules! errln {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(anstream::stderr(), $($text)*);
    }};
}

pub(super) use {errln, outln};

/// Exit code after a broken pipe: 128 + `SIGPIPE`.
pub const BROKEN_PIPE: u8 = 141;

pub fn line(mut out: impl Write, text: std::fmt::Arguments<'_>) {
    match writeln!(out, "{text}") {
        Ok(()) => {}
        Err(fault) if fault.kind() == ErrorKind::BrokenPipe => {
            std::process::exit(BROKEN_PIPE.into());
        }
        Err(fault) => {
            errln!("abide: cannot write the output: {fault}");
            std::process::exit(EXIT_ABIDE_ERROR.into());
        }
    }
}

/// Style of headings.
pub const HEADING: Style = Style::new().bold();
/// Style of less important text.
pub const FAINT: Style = Style::new().dimmed();
/// Style of success.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Style of warnings.
pub const WARN: Style = AnsiColor::Yellow.on_default();
/// Style of errors.
pub const BAD: Style = AnsiColor::Red.on_default();

/// Prints a value as JSON, indented if standard output is a terminal.
pub fn json(value: &impl Serialize) {
    let value = serde_json::to_value(value).unwrap_or_default();
    if std::io::stdout().is_terminal() {
        outln!("{}", escape_controls(&format!("{value:#}")));
    } else {
        outln!("{value}");
    }
}

/// Prints the result of a command: as JSON for programs, else as a sentence for people.
pub fn result(as_json: bool, value: &impl Serialize, sentence: impl std::fmt::Display) {
    match as_json {
        true => json(value),
        false => outln!("{sentence}"),
    }
}

/// Number of bytes for people, such as `1.5 MiB`.
pub fn bytes(count: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut amount = count as f64 / 1_024.0;
    let mut unit = 0;
    while amount >= 1_024.0 && unit + 1 < units.len() {
        amount /= 1_024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", units[unit])
}

/// JSON in which DEL and the C1 control characters are escaped: JSON allows them, but a terminal would
/// interpret them.
fn escape_controls(json: &str) -> String {
    let escape = |c: char| match c {
        '\u{7f}'..='\u{9f}' => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    match json.contains(|c| matches!(c, '\u{7f}'..='\u{9f}')) {
        true => json.chars().map(escape).collect(),
        false => json.to_owned(),
    }
}

/// Row of a table: cells with their styles.
pub type Row = Vec<(String, Style)>;

/// Prints a table that fits the terminal: the last column gets the remaining width and is truncated.
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
    let room = terminal_width();
    for row in &all {
        let mut line = String::new();
        let mut used = 0;
        for (column, (text, style)) in row.iter().enumerate() {
            let last = column + 1 == row.len();
            let text = match room {
                Some(room) if last => truncate(text, room.saturating_sub(used).max(8)),
                _ => text.clone(),
            };
            line.push_str(&format!("{style}{text}{style:#}"));
            if !last {
                let pad = widths[column] - columns(&text) + 2;
                line.push_str(&" ".repeat(pad));
                used += widths[column] + 2;
            }
        }
        outln!("{line}");
    }
}

/// Width of the terminal; `None` if standard output is not a terminal, and then nothing is truncated.
pub fn terminal_width() -> Option<usize> {
    let stdout = std::io::stdout();
    stdout
        .is_terminal()
        .then(|| size_of(stdout.as_fd()).0.into())
}

/// First line of a text for a row of a table, and the number of lines after it: `make all +2 lines`.
pub fn first_line(text: &str) -> String {
    let text = text.trim();
    let mut lines = text.lines();
    let line = one_line(lines.next().unwrap_or_default());
    match lines.count() {
        0 => line,
        1 => format!("{line} +1 line"),
        more => format!("{line} +{more} lines"),
    }
}

/// Width of a text on a terminal, in columns.
fn columns(text: &str) -> usize {
    text.width()
}

/// Number of characters that are examined per column.
const CHARS_PER_COLUMN: usize = 8;

/// Text truncated to at most `most` columns, with an ellipsis.
pub fn truncate(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    let room = most.saturating_sub(1);
    let mut short = String::new();
    // Characters may be wider together than alone, so the whole prefix is measured. There may also be
    // many characters of width zero, so their number is limited.
    for c in text.chars().take(CHARS_PER_COLUMN * most) {
        short.push(c);
        if columns(&short) > room {
            short.pop();
            break;
        }
    }
    short.push('…');
    short
}

/// Width up to which a text is easy to read.
const TEXT_WIDTH: usize = 100;

/// Text wrapped to the width that is left beside `beside` columns; one line without a terminal. A word
/// that is longer than a line, such as a path, is split.
pub fn wrapped(text: &str, beside: usize) -> Vec<String> {
    match terminal_width().map(|width| width.min(TEXT_WIDTH)) {
        Some(room) => wrap(text, room.saturating_sub(beside).max(20)),
        None => vec![text.to_owned()],
    }
}

fn wrap(text: &str, room: usize) -> Vec<String> {
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

/// Time between two moments, in its two largest units.
pub fn ago(now_ms: u64, then_ms: u64) -> String {
    short(Millis(now_ms.saturating_sub(then_ms)))
}

/// Duration in its two largest units, in whole seconds.
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
    fn durations_have_at_most_two_units() {
        assert_eq!(short(Millis(450)), "0s");
        assert_eq!(short(Millis(61_500)), "1m1s");
        assert_eq!(short(Millis(90_061_000)), "1d1h");
    }

    #[test]
    fn first_line_counts_the_lines_after_it() {
        assert_eq!(first_line("make all"), "make all");
        assert_eq!(first_line("\n  make\n"), "make");
        assert_eq!(first_line("a\r\nb\n"), "a +1 line");
        assert_eq!(first_line("a\u{1b}[2J\nb\nc"), "a\\u{1b}[2J +2 lines");
        assert_eq!(first_line(""), "");
    }

    #[test]
    fn sizes_have_a_unit() {
        assert_eq!(bytes(512), "0.5 KiB");
        assert_eq!(bytes(512 << 20), "512.0 MiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
    }

    #[test]
    fn escaped_json_has_the_same_value_without_control_characters() {
        let value = serde_json::json!({"a": "\u{9b}6n\u{9d}0;t\u{7}\u{7f}é\u{a0}"});
        let shown = escape_controls(&format!("{value:#}"));
        assert!(
            !shown.contains(|c: char| c.is_control() && c != '\n'),
            "{shown:?}"
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&shown).unwrap(),
            value
        );
    }

    #[test]
    fn text_wraps_between_words_and_long_words_are_split() {
        assert_eq!(wrap("a bc def", 4), ["a bc", "def"]);
        assert_eq!(
            wrap("to /a/long/path x", 6),
            ["to", "/a/lon", "g/path", "x"]
        );
        assert_eq!(wrap("日本語", 5), ["日本", "語"]);
        assert_eq!(wrap("", 5), [""]);
    }

    #[test]
    fn text_is_truncated_at_a_character() {
        assert_eq!(truncate("äöü", 3), "äöü");
        assert_eq!(truncate("äöüß", 3), "äö…");
        assert_eq!(truncate("日本語", 5), "日本…");
        assert_eq!(truncate("日本語", 4), "日…");
        // A character and its variation selector are wider together.
        let signs = "⚠\u{fe0f}".repeat(5);
        assert_eq!(truncate(&signs, 6), "⚠\u{fe0f}⚠\u{fe0f}⚠…");
    }
}
