//! Lines of an output that is too long, as the signals see them.

use super::entry::Entry;
use super::fold::{Folded, Line};
use super::line_shape::{HashKeyMap, hash};
use super::signals::levels::{self, Finding, Importance};
use super::signals::verdicts;

/// Line with what the signals need to know about it.
pub struct ViewLine<'a> {
    /// Index of its entry.
    pub at: usize,
    pub line: &'a Line,
    /// Text without the gutter, such as `==123==` or `#`, and without indentation.
    pub text: &'a str,
    /// Width of the indentation behind the gutter.
    pub indent: usize,
    /// Number of lines that it stands for.
    pub count: u64,
    /// Number of lines that begin with the same words.
    pub often: u32,
    pub finding: Option<Finding>,
}

impl ViewLine<'_> {
    pub fn is_blank(&self) -> bool {
        self.text.is_empty()
    }

    /// Text without what is put before each line, but with indentation and gutter.
    pub fn body(&self) -> &str {
        &self.line.text[prefix_len(&self.line.text)..]
    }

    /// Returns whether it is one of many that begin alike, so that it says little.
    pub fn is_usual(&self) -> bool {
        self.often >= USUAL
    }
}

/// Number of similar lines from which on a line is usual.
const USUAL: u32 = 8;
/// Key of the begin of all lines of a hex dump.
const HEX_DUMP: u64 = 7;
/// Number of digits of an address, and of bytes, that make a line of a hex dump.
const ADDRESS_DIGITS: usize = 6;
const HEX_DUMP_BYTES: usize = 8;
/// Part of the lines that may begin with a place in a file: with more, these are no findings.
const PLACES_PART: usize = 5;
/// Number of entries for remembered findings.
const CACHE: usize = 4_096;

/// Findings by shape of the line, so that a repeated line is matched once.
#[derive(Default)]
pub struct FindingCache(Vec<(u64, Option<Finding>)>);

impl FindingCache {
    pub fn get(&mut self, line: &Line) -> Option<Finding> {
        if self.0.is_empty() {
            self.0.resize(CACHE, (0, None));
        }
        let key = line.shape.without_numbers ^ line.shape.number_classes.rotate_left(17);
        let slot = &mut self.0[usize::try_from(key % CACHE as u64).unwrap_or(0)];
        if slot.0 != key {
            let prefix = prefix_len(&line.text);
            let found = levels::classify(&line.text[prefix..]);
            let in_line = |found: Finding| Finding {
                at: prefix + found.at,
                ..found
            };
            *slot = (key, found.map(in_line));
        }
        slot.1
    }
}

/// Returns whether a line can belong to an excerpt of a source file below `--> file:12:3`, such as `12 | text`. Words of
/// the source are no findings.
fn is_excerpt(text: &str) -> bool {
    let behind = text.trim_start_matches(|c: char| c.is_ascii_digit());
    behind.trim_start().starts_with('|') || text.starts_with("...")
}

/// All lines among these entries.
pub fn view<'a>(entries: &'a [Entry], cache: &mut FindingCache) -> Vec<ViewLine<'a>> {
    let mut lines: Vec<ViewLine<'a>> = Vec::with_capacity(entries.len());
    let mut begins: HashKeyMap<u32> = HashKeyMap::default();
    let mut keys = Vec::with_capacity(entries.len());
    let mut in_excerpt = false;
    for (at, entry) in entries.iter().enumerate() {
        let line = match &entry.what {
            Folded::Line(line) => line,
            Folded::Note {
                period,
                lines: more,
                ..
            } => {
                let from = lines.len().saturating_sub(*period);
                let cycles = more / *period as u64;
                for repeated in &mut lines[from..] {
                    repeated.count += cycles;
                }
                for key in &keys[from..] {
                    let often = begins.entry(*key).or_default();
                    *often = often.saturating_add(u32::try_from(cycles).unwrap_or(u32::MAX));
                }
                continue;
            }
            Folded::Gap(_) => continue,
        };
        let (text, indent) = without_gutter(&line.text);
        in_excerpt = text.starts_with("--> ") || (in_excerpt && is_excerpt(text));
        let key = match is_hex_dump(text) {
            true => HEX_DUMP,
            false => begin_key(text, indent),
        };
        let often = begins.entry(key).or_default();
        *often = often.saturating_add(u32::try_from(line.count).unwrap_or(u32::MAX));
        keys.push(key);
        lines.push(ViewLine {
            at,
            line,
            text,
            indent,
            count: line.count,
            often: 0,
            finding: match in_excerpt && text.starts_with(|c: char| c.is_ascii_digit()) {
                true => None,
                false => cache.get(line),
            },
        });
    }
    for (line, key) in lines.iter_mut().zip(keys) {
        line.often = begins[&key];
    }
    forget_usual_places(&mut lines);
    for at in verdicts::usual(&lines) {
        soften(&mut lines[at]);
    }
    lines
}

/// A line that has the usual verdict of all lines only mentions a failure.
fn soften(line: &mut ViewLine<'_>) {
    if let Some(finding) = &mut line.finding
        && finding.importance != Importance::Summary
    {
        finding.importance = finding.importance.min(Importance::Mention);
    }
}

/// A log in which many lines begin with the place in the source that wrote them has no findings of that kind.
fn forget_usual_places(lines: &mut [ViewLine<'_>]) {
    let has_place = |line: &ViewLine<'_>| {
        line.finding
            .is_some_and(|finding| finding.importance == Importance::Place)
    };
    let places = lines.iter().filter(|line| has_place(line)).count();
    if places * PLACES_PART > lines.len() {
        for line in lines.iter_mut().filter(|line| has_place(line)) {
            line.finding = None;
        }
    }
}

/// Returns whether a line shows bytes behind their address, as `xxd`, `hexdump -C` and `od` write them.
pub fn is_hex_dump(text: &str) -> bool {
    hex_dump_text(text).is_some()
}

/// Text behind the bytes of a line of a hex dump: the same bytes as characters, if the tool shows them.
pub fn hex_dump_text(text: &str) -> Option<&str> {
    let is_hex = |word: &str| word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (address, mut rest) = text.split_once(' ')?;
    let address = address.strip_suffix(':').unwrap_or(address);
    if address.len() < ADDRESS_DIGITS || !is_hex(address) {
        return None;
    }
    let mut bytes = 0;
    loop {
        let from = rest.trim_start_matches(' ');
        let word = from.split(' ').next().unwrap_or(from);
        // Two blanks or more end the bytes, but for the one in the middle of `hexdump -C`.
        let is_end = bytes > HEX_DUMP_BYTES && rest.len() - from.len() > 1;
        if is_end || !matches!(word.len(), 2 | 4 | 8) || !is_hex(word) {
            break;
        }
        bytes += word.len() / 2;
        rest = &from[word.len()..];
    }
    (bytes >= HEX_DUMP_BYTES).then(|| rest.trim())
}

/// Text and indentation of a line without its gutter: a column of marks that some tools put before all lines of a
/// report.
pub fn without_gutter(line: &str) -> (&str, usize) {
    let text = line[prefix_len(line)..].trim_end();
    let start = text.trim_start();
    let indent = text.len() - start.len();
    let bytes = start.as_bytes();
    let gutter = match bytes {
        [b'=', b'=', ..] => {
            let digits = bytes[2..].iter().take_while(|b| b.is_ascii_digit()).count();
            match bytes.get(2 + digits..4 + digits) {
                Some(b"==") if digits > 0 => 4 + digits,
                _ => 0,
            }
        }
        [b'#' | b'|' | b';'] => 1,
        [b'#' | b'|' | b';', b' ', ..] => 1,
        [0xE2, 0x94, 0x82, ..] => '│'.len_utf8(),
        _ => 0,
    };
    let rest = &start[gutter..];
    let inner = rest.trim_start();
    if is_counter(inner) {
        return (inner, 0);
    }
    (inner, indent + rest.len() - inner.len())
}

/// Length of what some programs put before each line of another one: a time, with or without the host and the program
/// (`2026-01-01T12:00:00.5Z `, `[12:00:00] `, `Jan  1 12:00:00 host app[7]: `), the name of a process (`web-1  | `) or of
/// a task (`shop:build: `, `[build:web] `), or the number of a step and its seconds (`#12 0.345 `).
pub fn prefix_len(line: &str) -> usize {
    let until = |is_part: fn(&u8) -> bool, from: usize| {
        let rest = line.as_bytes()[from..].iter();
        from + rest.take_while(|byte| is_part(byte)).count()
    };
    let bytes = line.as_bytes();
    let ends_with_space = |at: usize| match bytes.get(at) {
        Some(b' ') => at + 1,
        None => at,
        Some(_) => 0,
    };
    if let Some(time) = time_len(bytes) {
        return ends_with_space(time);
    }
    if let [b'A'..=b'Z', b'a'..=b'z', b'a'..=b'z', b' ', ..] = bytes
        && let Some(time) = clock_len(&bytes[7.min(bytes.len())..])
        && until(|b| b.is_ascii_digit() || *b == b' ', 4) >= 7
    {
        // The host, and the program with a colon.
        let host = until(|b| *b != b' ', (8 + time).min(bytes.len()));
        let program = until(|b| *b != b' ', (host + 1).min(bytes.len()));
        return match bytes[..program].last() {
            Some(b':') => ends_with_space(program),
            _ => ends_with_space(7 + time),
        };
    }
    if bytes.first() == Some(&b'#') {
        let step = until(u8::is_ascii_digit, 1);
        let seconds = until(u8::is_ascii_digit, (step + 1).min(bytes.len()));
        let end = until(u8::is_ascii_digit, (seconds + 1).min(bytes.len()));
        let is_step = step > 1 && bytes.get(step) == Some(&b' ');
        let is_timed = seconds > step + 1 && bytes.get(seconds) == Some(&b'.') && end > seconds + 1;
        return if is_step && is_timed {
            ends_with_space(end)
        } else {
            0
        };
    }
    if bytes.first() == Some(&b'[') {
        let is_of_name =
            |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.:/".contains(b);
        let end = until(is_of_name, 1);
        let is_task = bytes[1..end].contains(&b':') && bytes[1].is_ascii_lowercase();
        return match bytes.get(end) {
            Some(b']') if is_task => ends_with_space(end + 1),
            _ => 0,
        };
    }
    let name = until(|b| b.is_ascii_alphanumeric() || b"-_.@/".contains(b), 0);
    let is_named = bytes.first().is_some_and(u8::is_ascii_alphabetic);
    let is_numbered = is_named && bytes[name - 1].is_ascii_digit();
    let bar = until(|b| *b == b' ', name);
    if is_numbered && bar > name && bytes.get(bar) == Some(&b'|') {
        return ends_with_space(bar + 1);
    }
    if name > 0 && bytes.get(name) == Some(&b':') {
        let task = until(u8::is_ascii_lowercase, name + 1);
        if task > name + 1 && bytes.get(task) == Some(&b':') {
            return ends_with_space(task + 1);
        }
    }
    0
}

/// Length of a time at the begin of a line, with or without a date and brackets.
fn time_len(bytes: &[u8]) -> Option<usize> {
    let open = usize::from(bytes.first() == Some(&b'['));
    let inner = &bytes[open..];
    let is_digit = |at: usize| inner.get(at).is_some_and(u8::is_ascii_digit);
    if !is_digit(0) || !is_digit(1) {
        return None;
    }
    let date = match inner.get(..11) {
        Some(
            [
                _,
                _,
                _,
                _,
                b'-' | b'/',
                _,
                _,
                b'-' | b'/',
                _,
                _,
                b'T' | b' ',
            ],
        ) => 11,
        _ => 0,
    };
    let mut end = open + date + clock_len(&inner[date..])?;
    let is_zone = |byte: &&u8| byte.is_ascii_digit() || b"+-:Z".contains(byte);
    end += bytes[end..].iter().take_while(is_zone).count();
    match (open, bytes.get(end)) {
        (0, _) => Some(end),
        (_, Some(b']')) => Some(end + 1),
        _ => None,
    }
}

/// Length of a time of day with its fraction: `12:00:00`, `12:00:00.123`.
fn clock_len(bytes: &[u8]) -> Option<usize> {
    let Some([a, b, b':', c, d, b':', e, f]) = bytes.get(..8) else {
        return None;
    };
    if ![a, b, c, d, e, f].into_iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = |from: usize| {
        bytes[from..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
    };
    match bytes.get(8) {
        Some(b'.' | b',') => Some(9 + digits(9).count()),
        _ => Some(8),
    }
}

/// Returns whether a line begins with a count such as `7/120`, which is aligned rather than indented.
pub fn is_counter(text: &str) -> bool {
    let is_number = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
    let count = text.trim_start_matches(|c: char| c.is_ascii_digit());
    is_number(text) && count.strip_prefix('/').is_some_and(is_number)
}

/// Key of the begin of a line: its first words, without numbers, quotes and paths.
pub fn begin_key(text: &str, indent: usize) -> u64 {
    let mut key = [0u8; 40];
    let mut length = 0;
    let mut add = |byte: u8| {
        if length < key.len() {
            key[length] = byte;
            length += 1;
        }
    };
    add(u8::try_from(indent.min(20)).unwrap_or(0));
    let mut words = 0;
    for word in text.split_ascii_whitespace() {
        let bytes = word.as_bytes();
        let is_data = bytes[0].is_ascii_digit() || bytes.iter().any(|b| matches!(b, b'/' | b'\\'));
        if is_data {
            add(b'/');
            continue;
        }
        let mut before = 0;
        for byte in bytes.iter().take(16) {
            let byte = if byte.is_ascii_digit() { b'0' } else { *byte };
            if byte != b'0' || before != b'0' {
                add(byte);
            }
            before = byte;
        }
        add(b' ');
        words += 1;
        if words == 2 {
            break;
        }
    }
    hash(&key[..length])
}

#[cfg(test)]
mod tests {
    use super::super::fold::{Fold, FoldSink, LineNumber};
    use super::*;

    #[derive(Default)]
    struct Entries(Vec<Entry>);

    impl FoldSink for Entries {
        fn folded(&mut self, what: Folded) {
            self.0.push(Entry::new(what, None));
        }

        fn room(&self) -> usize {
            0
        }
    }

    #[test]
    fn repeated_cycle_of_two_lines_counts_each_of_them_once_per_cycle() {
        let mut fold = Fold::default();
        let mut entries = Entries::default();
        for cycle in 0..100 {
            for (at, text) in ["compiling module", "linking program"].iter().enumerate() {
                let line = cycle * 2 + at as u64 + 1;
                let text = format!("{text} {cycle}");
                fold.line(LineNumber { gaps: 0, line }, &text, None, &mut entries);
            }
        }
        fold.flush(&mut entries);
        let is_note = |entry: &Entry| matches!(entry.what, Folded::Note { period: 2, .. });
        assert!(entries.0.iter().any(is_note));
        for line in view(&entries.0, &mut FindingCache::default()) {
            assert_eq!(line.often, 100, "{}", line.text);
        }
    }

    #[test]
    fn lines_of_hex_dumps_are_found_with_their_text() {
        for (line, text) in [
            (
                "00009c50: f83f b97d 4a33 6b65 726e 656c 2070 616e  .?.}J3kernel pan",
                ".?.}J3kernel pan",
            ),
            (
                "00000000  42 4f 4f 54 49 4d 47 01  76 65 72 73 69 6f 6e 3d  |BOOTIMG.version=|",
                "|BOOTIMG.version=|",
            ),
            ("01e240 53 54 41 4c 45 2d 4c 45 41 53 45 20 31 30 2e 34", ""),
        ] {
            assert_eq!(hex_dump_text(line), Some(text));
        }
        for line in [
            "2024 1999 2001 2003 2004 2005 2006",
            "123456 files in 12 folders",
            "deadbeef cafe",
        ] {
            assert_eq!(hex_dump_text(line), None, "{line}");
        }
    }

    #[test]
    fn gutter_does_not_count_as_text() {
        assert_eq!(without_gutter("==12==    at 0x1"), ("at 0x1", 4));
        assert_eq!(without_gutter("==12== "), ("", 0));
        assert_eq!(without_gutter("  │ Error"), ("Error", 3));
        assert_eq!(without_gutter("#   Failed"), ("Failed", 3));
        assert_eq!(without_gutter("    plain"), ("plain", 4));
        assert_eq!(without_gutter("2026-01-01T12:00:00.5Z   at f"), ("at f", 2));
        assert_eq!(
            without_gutter("[2026-01-01 12:00:00,5]   at f"),
            ("at f", 2)
        );
        assert_eq!(without_gutter("12:00:00   at f"), ("at f", 2));
        assert_eq!(
            without_gutter("Jan  1 12:00:00 host app[7]:   at f"),
            ("at f", 2)
        );
        assert_eq!(without_gutter("Jan 01 12:00:00 at f"), ("at f", 0));
        assert_eq!(without_gutter("12:00:00   │ at f"), ("at f", 3));
        assert_eq!(without_gutter("12:00 at f"), ("12:00 at f", 0));
        assert_eq!(without_gutter("Jan"), ("Jan", 0));
        assert_eq!(without_gutter("Jan 01 12:00:00"), ("", 0));
        assert_eq!(without_gutter("12:00:00"), ("", 0));
        assert_eq!(without_gutter("web-1  |   at f"), ("at f", 2));
        assert_eq!(without_gutter("shop:build:   at f"), ("at f", 2));
        assert_eq!(without_gutter("[build:web]   at f"), ("at f", 2));
        assert_eq!(without_gutter("[error] x"), ("[error] x", 0));
        assert_eq!(without_gutter("#12 0.345   at f"), ("at f", 2));
        assert_eq!(
            without_gutter("#12 /a.php(3): f()"),
            ("#12 /a.php(3): f()", 0)
        );
        assert_eq!(without_gutter("name | value"), ("name | value", 0));
        assert_eq!(without_gutter("598 | value"), ("598 | value", 0));
        assert_eq!(without_gutter("app.c:main: x"), ("x", 0));
        assert_eq!(without_gutter("#include"), ("#include", 0));
        assert_eq!(without_gutter("  7/120 adds"), ("7/120 adds", 0));
    }
}
