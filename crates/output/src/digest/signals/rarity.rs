//! Values that differ from those of all similar lines: the one pending item in a table, the one status in an access
//! log, the one level in a structured log.
//!
//! Similar lines have the same number of words, which are their columns. Words behind a short word and the values of
//! keys (`key=value`, JSON) are columns of all lines. A column says something if nearly all lines agree on few values.
//!
//! Beside values, kinds of lines: those that begin like no other, and the first line of each kind.

use std::cmp::Reverse;

use crate::digest::line_shape::{Fnv1a, HashKeyMap, hash};
use crate::digest::view::{ViewLine, hex_dump_text};

use super::blocks::is_accompanying;
use super::traces::is_frame;
use super::verdicts;

/// Words of a line that are columns.
const COLUMNS_PER_LINE: usize = 12;
/// A column with more values than this says nothing.
const VALUES_MAX: usize = 8;
/// Lines that a column must have.
const LINES_MIN: u32 = 12;
/// Cells between the borders of a drawn table that make a line its row.
const CELLS_MIN: usize = 3;
/// Longest word that has a column for the words behind it: `is`, `be`, `status`.
const SHORT_WORD: usize = 6;
/// Longest key of a line that is a key and its value.
const KEY_BYTES_MAX: usize = 32;
/// Maximum number of columns.
const COLUMNS_MAX: usize = 2_048;
/// Longer lines are not looked at beyond this.
const BYTES_MAX: usize = 600;

/// Words of a line that make its kind, and the length of the longest of them.
const WORDS_PER_KIND: usize = 10;
const WORD_BYTES_MAX: usize = 24;
/// Lines that a word must have to be a part of a kind, and that a kind must have to be frequent.
const KIND_LINES: u64 = 3;
/// Words of a line that are looked at to find out whether it is unlike all others; those that it must have alone, at least
/// and in percent of those that are not in every third line; and the part of all lines that may be so.
const UNLIKE_WORDS: usize = 24;
const UNLIKE_WORDS_MIN: usize = 2;
const UNLIKE_PERCENT: usize = 60;
const UNLIKE_EVERYWHERE_PART: usize = 3;
const UNLIKE_PART: usize = 25;
/// Bytes of a line and number of its records from which on it is searched for a record that differs.
const RECORDS_BYTES: usize = 2_000;
const RECORDS_MIN: usize = 12;
/// Letters in a row that make a word in a hex dump, and the part of its lines that may have one: in a dump of text they
/// say nothing.
const READABLE_LETTERS: usize = 6;
const READABLE_PART: usize = 20;
/// Number of rare kinds before the next frequent one.
const RARE_PER_FREQUENT: usize = 3;

/// Values of a column and the number of lines with each.
#[derive(Clone, Copy, Default)]
struct Column {
    values: [(u64, u32); VALUES_MAX],
    /// Number of values; one more than fit if there are too many.
    count: u8,
    lines: u32,
}

impl Column {
    fn values(&self) -> &[(u64, u32)] {
        &self.values[..usize::from(self.count).min(VALUES_MAX)]
    }

    fn has_too_many(&self) -> bool {
        usize::from(self.count) > VALUES_MAX
    }

    fn add(&mut self, value: u64, lines: u32) {
        if self.has_too_many() {
            return;
        }
        self.lines = self.lines.saturating_add(lines);
        let count = usize::from(self.count);
        let known = self.values[..count]
            .iter_mut()
            .find(|(known, _)| *known == value);
        if let Some((_, known)) = known {
            *known = known.saturating_add(lines);
            return;
        }
        self.count += 1;
        if let Some(fresh) = self.values.get_mut(count) {
            *fresh = (value, lines);
        }
    }

    /// Number of lines with this value, if that is few and nearly all others agree on one value, or very few and the
    /// others agree on some.
    fn rare(&self, value: u64) -> Option<u32> {
        if self.has_too_many() || self.lines < LINES_MIN || self.count < 2 {
            return None;
        }
        let of_all =
            |lines: u32, percent: u64| u64::from(lines) * 100 >= u64::from(self.lines) * percent;
        let counts = self.values().iter().map(|(_, lines)| *lines);
        let most = counts.clone().max()?;
        let common: u32 = counts.filter(|lines| of_all(*lines, 5)).sum();
        let (_, lines) = self.values().iter().find(|(known, _)| *known == value)?;
        let few = *lines <= 1 || !of_all(*lines, 4);
        let very_few =
            (of_all(common, 97) && !of_all(*lines, 2)) || (of_all(common, 95) && *lines == 1);
        ((of_all(most, 80) && few && *lines < most) || very_few).then_some(*lines)
    }
}

/// Lines with a rare value: their indices, and a hash of the value and its column.
pub fn outliers(lines: &[ViewLine<'_>]) -> Vec<(usize, u64)> {
    let mut columns: HashKeyMap<Column> = HashKeyMap::default();
    for line in lines {
        let count = u32::try_from(line.count).unwrap_or(u32::MAX);
        each_value(line, |column, value| {
            if let Some(known) = columns.get_mut(&column) {
                known.add(value, count);
            } else if columns.len() < COLUMNS_MAX {
                columns.entry(column).or_default().add(value, count);
            }
        });
    }
    columns.retain(|_, column| {
        column
            .values()
            .iter()
            .any(|(value, _)| column.rare(*value).is_some())
    });
    if columns.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let mut rarest: Option<(u32, u64)> = None;
        each_value(line, |column, value| {
            let rare = columns.get(&column).and_then(|column| column.rare(value));
            if let Some(lines) = rare
                && rarest.is_none_or(|(before, _)| lines < before)
            {
                rarest = Some((lines, column ^ value.rotate_left(7)));
            }
        });
        if let Some((_, key)) = rarest {
            found.push((at, key));
        }
    }
    found
}

/// Lines that begin like no other or like very few, if nearly all lines begin like many others.
pub fn unusual(lines: &[ViewLine<'_>]) -> Vec<usize> {
    let is_usual = |line: &&ViewLine<'_>| line.is_blank() || line.is_usual();
    let usual = lines.iter().filter(is_usual).count();
    let often = match usual * 100 / lines.len().max(1) {
        ..90 => return Vec::new(),
        90..97 => 2,
        97.. => 4,
    };
    let is_unusual =
        |line: &ViewLine<'_>| line.often <= often && line.finding.is_none() && !line.is_blank();
    let found = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| is_unusual(line));
    found.map(|(at, _)| at).collect()
}

/// Lines of a hex dump that show a word among bytes that are mostly no text.
pub fn readable(lines: &[ViewLine<'_>]) -> Vec<usize> {
    let mut dumped = 0;
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(text) = hex_dump_text(line.text) else {
            continue;
        };
        dumped += 1;
        let mut words = text.split(|c: char| !c.is_ascii_alphabetic());
        if words.any(|word| word.len() >= READABLE_LETTERS) {
            found.push(at);
        }
    }
    match found.len() * READABLE_PART < dumped {
        true => found,
        false => Vec::new(),
    }
}

/// First line of each kind of line without a finding, the most telling first: the rare kinds from the end, and among them
/// the frequent ones, which show what most of the output is about. The kind of a line is made of those of its words that
/// several lines have.
pub fn kinds(lines: &[ViewLine<'_>]) -> Vec<usize> {
    let mut frequency: HashKeyMap<u64> = HashKeyMap::default();
    for line in lines {
        for word in words(line) {
            *frequency.entry(word).or_default() += line.count;
        }
    }
    let mut kinds: Vec<(usize, u64)> = Vec::new();
    let mut known: HashKeyMap<usize> = HashKeyMap::default();
    for (at, line) in lines.iter().enumerate() {
        let is_plain = line.finding.is_none() && line.text.contains(char::is_alphanumeric);
        if !is_plain || is_frame(line) || is_accompanying(line) {
            continue;
        }
        let kind = words(line)
            .filter(|word| frequency[word] >= KIND_LINES)
            .fold(mix(6, line.indent as u64), mix);
        let kind = *known.entry(kind).or_insert_with(|| {
            kinds.push((at, 0));
            kinds.len() - 1
        });
        kinds[kind].1 += line.count;
    }
    let is_rare = |(_, count): &(usize, u64)| *count < KIND_LINES;
    let (mut rare, mut frequent): (Vec<_>, Vec<_>) = kinds.into_iter().partition(is_rare);
    rare.sort_by_key(|(at, count)| (*count, Reverse(*at)));
    frequent.sort_by_key(|(at, count)| (Reverse(*count), *at));
    let mut frequent = frequent.into_iter();
    let mut firsts = Vec::new();
    for some in rare.chunks(RARE_PER_FREQUENT) {
        firsts.extend(some);
        firsts.extend(frequent.next());
    }
    firsts.extend(frequent);
    firsts.into_iter().map(|(at, _)| at).collect()
}

/// Lines of words that no other line has, if there are few of them, the last first. Names say nothing here: the parts of a
/// list have names of their own too.
pub fn unlike(lines: &[ViewLine<'_>]) -> Vec<usize> {
    let mut frequency: HashKeyMap<u32> = HashKeyMap::default();
    let mut words = Vec::new();
    let mut ranges = Vec::with_capacity(lines.len());
    for line in lines {
        let from = words.len();
        words.extend(plain_words(line.text));
        ranges.push(from..words.len());
        for word in &words[from..] {
            *frequency.entry(*word).or_default() += 1;
        }
    }
    let everywhere = (lines.len() / UNLIKE_EVERYWHERE_PART).max(2) as u32;
    let is_unlike = |at: usize| {
        let frequencies = words[ranges[at].clone()].iter().map(|word| frequency[word]);
        let (mut own, mut all) = (0, 0);
        for lines in frequencies.filter(|lines| *lines < everywhere) {
            own += usize::from(lines == 1);
            all += 1;
        }
        own >= UNLIKE_WORDS_MIN && own * 100 >= all * UNLIKE_PERCENT
    };
    let is_plain = |line: &ViewLine<'_>| line.finding.is_none() && line.count == 1;
    let found = lines.iter().enumerate().rev();
    let found = found.filter(|(at, line)| is_plain(line) && is_unlike(*at));
    let found: Vec<usize> = found.map(|(at, _)| at).collect();
    match found.len() * UNLIKE_PART < lines.len() {
        true => found,
        false => Vec::new(),
    }
}

/// Hashes of the words of prose in a line: of letters only, without quotes, brackets, keys and punctuation around them.
fn plain_words(text: &str) -> impl Iterator<Item = u64> {
    let text = &text[..super::super::row::floor(text, BYTES_MAX)];
    let words = text.split_ascii_whitespace().filter_map(|word| {
        let value = word.trim_end_matches(|c: char| !c.is_alphanumeric());
        let value = value.rsplit(['"', '\'', '`', '=', '(', '[', '{']).next()?;
        let is_word = value.len() > 1 && value.chars().all(char::is_alphabetic);
        is_word.then(|| hash(value.as_bytes()))
    });
    words.take(UNLIKE_WORDS)
}

/// Hashes of the first words of a line that are words rather than data.
fn words(line: &ViewLine<'_>) -> impl Iterator<Item = u64> {
    let is_word = |word: &&str| {
        word.len() <= WORD_BYTES_MAX
            && !word
                .bytes()
                .any(|byte| byte.is_ascii_digit() || byte == b'/')
    };
    let words = line.text.split_ascii_whitespace().filter(is_word);
    words.take(WORDS_PER_KIND).map(|word| hash(word.as_bytes()))
}

/// Calls with each column of a line and its value.
fn each_value(line: &ViewLine<'_>, mut call: impl FnMut(u64, u64)) {
    let text = &line.text[..super::super::row::floor(line.text, BYTES_MAX)];
    if text.starts_with('{') {
        return json_values(text, call);
    }
    if let Some((key, value)) = json_pair(text) {
        return call(mix(4, hash(key.as_bytes())), hash(value.as_bytes()));
    }
    // The row of a drawn table.
    let is_border = |c: char| matches!(c, '|' | '│' | '┃');
    let cells = text.split(is_border).count();
    if cells >= CELLS_MIN {
        let row = mix(6, cells as u64);
        for (at, cell) in text.split(is_border).take(COLUMNS_PER_LINE).enumerate() {
            call(mix(row, at as u64), hash(cell.trim().as_bytes()));
            call(mix(row, 100 + at as u64), without_digits(cell.trim()));
        }
        return;
    }
    verdicts::each_value(text, &mut call);
    if let Some((key, value)) = pair(text) {
        call(mix(10, hash(key.as_bytes())), hash(value.as_bytes()));
    }
    let mut words: [&str; 32] = [""; 32];
    let mut count = 0;
    for word in text.split_ascii_whitespace().take(words.len()) {
        words[count] = word;
        count += 1;
    }
    if count == 0 {
        return;
    }
    let words = &words[..count];
    for pair in words.windows(2) {
        let is_short = pair[0].len() <= SHORT_WORD;
        if is_short && pair[0].bytes().all(|byte| byte.is_ascii_lowercase()) {
            call(mix(5, hash(pair[0].as_bytes())), hash(pair[1].as_bytes()));
        }
    }
    // A line that is a key and its value, as in YAML, perhaps behind a mark of a list, a tree or a difference.
    if let [mark @ .., key, value] = words
        && count <= 3
        && key.ends_with(':')
    {
        let mark = mark.first().copied().unwrap_or_default();
        call(mix(8, hash(key.as_bytes())), hash(mark.as_bytes()));
        call(mix(9, count as u64), without_digits(value));
        return call(mix(7, hash(key.as_bytes())), hash(value.as_bytes()));
    }
    // Rows of a table are alike in the number of words, whatever they begin with.
    let row = mix(2, count as u64);
    for (at, word) in words.iter().enumerate() {
        if let Some((key, value)) = word.split_once('=')
            && !key.is_empty()
        {
            call(mix(3, hash(key.as_bytes())), hash(value.as_bytes()));
            continue;
        }
        let verbatim = hash(word.as_bytes());
        if at < COLUMNS_PER_LINE {
            call(mix(row, at as u64), verbatim);
            call(mix(row, 100 + at as u64), without_digits(word));
        }
    }
}

/// Key and value of a line that is no more than that, such as `state    | PAID` or `Link detected: yes`. The value can be
/// empty.
fn pair(text: &str) -> Option<(&str, &str)> {
    let at = text.find(['|', '=', ':'])?;
    let (key, value) = (text[..at].trim_end(), &text[at + 1..]);
    let is_word = |byte: u8| byte.is_ascii_alphabetic() || b" _-".contains(&byte);
    let is_key = (2..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(is_word);
    let is_apart = value.is_empty() || value.starts_with(' ');
    (is_key && is_apart).then_some((key, value.trim()))
}

/// Key and value of a line of indented JSON, if the value is complete: `"code": "E1",`.
pub fn json_pair(text: &str) -> Option<(&str, &str)> {
    let (key, value) = text.strip_prefix('"')?.split_once("\": ")?;
    let value = value.trim_end_matches(',');
    (!value.ends_with(['{', '['])).then_some((key, value))
}

/// Values of the keys of an object on one line, at any depth.
fn json_values(text: &str, mut call: impl FnMut(u64, u64)) {
    let bytes = text.as_bytes();
    for colon in memchr::memchr_iter(b':', bytes) {
        if colon < 2 || bytes[colon - 1] != b'"' {
            continue;
        }
        let Some(open) = memchr::memrchr(b'"', &bytes[..colon - 1]) else {
            continue;
        };
        let value = &bytes[colon + 1..];
        let value = value.strip_prefix(b" ").unwrap_or(value);
        if matches!(value.first(), None | Some(b'{' | b'[')) {
            continue;
        }
        let end = value.iter().position(|b| matches!(b, b',' | b'}'));
        let value = &value[..end.unwrap_or(value.len())];
        call(mix(4, hash(&bytes[open..colon])), hash(value));
    }
}

/// Byte offset of the record in a long line of JSON that differs from all others: by a key or a value that nearly none
/// of them has.
pub fn odd_record(line: &str) -> Option<usize> {
    let begin = line.trim_start();
    if line.len() < RECORDS_BYTES || !begin.starts_with(['[', '{']) {
        return None;
    }
    let mut starts = vec![line.len() - begin.len()];
    for at in memchr::memchr_iter(b'{', line.as_bytes()) {
        if line[..at].trim_end().ends_with(',') && at > 0 {
            starts.push(at);
        }
    }
    let ends = starts.iter().skip(1).copied().chain([line.len()]);
    let records: Vec<_> = starts.iter().copied().zip(ends).collect();
    if records.len() < RECORDS_MIN {
        return None;
    }
    let mut columns: HashKeyMap<Column> = HashKeyMap::default();
    let mut keys: HashKeyMap<u32> = HashKeyMap::default();
    for (from, to) in &records {
        json_values(&line[*from..*to], |column, value| {
            if columns.len() < COLUMNS_MAX || columns.contains_key(&column) {
                columns.entry(column).or_default().add(value, 1);
                *keys.entry(column).or_default() += 1;
            }
        });
    }
    let few = u32::try_from(records.len() / RECORDS_MIN).unwrap_or(u32::MAX);
    let mut rarest: Option<(u32, usize)> = None;
    for (from, to) in &records[1..] {
        json_values(&line[*from..*to], |column, value| {
            let Some(known) = columns.get(&column) else {
                return;
            };
            let rare_key = keys.get(&column).copied().filter(|count| *count * 4 < few);
            if let Some(count) = known.rare(value).or(rare_key)
                && rarest.is_none_or(|(before, _)| count < before)
            {
                rarest = Some((count, *from));
            }
        });
    }
    rarest.map(|(_, from)| from)
}

/// Hash of a word in which each number counts as one digit.
fn without_digits(word: &str) -> u64 {
    let mut sum = Fnv1a::default();
    let mut before = 0;
    for byte in word.bytes() {
        let byte = if byte.is_ascii_digit() { b'0' } else { byte };
        if byte != b'0' || before != b'0' {
            sum.add(byte);
        }
        before = byte;
    }
    sum.0
}

fn mix(a: u64, b: u64) -> u64 {
    (a ^ b.wrapping_mul(0x9E37_79B9_7F4A_7C15))
        .rotate_left(29)
        .wrapping_mul(0xA076_1D64_78BD_642F)
}
