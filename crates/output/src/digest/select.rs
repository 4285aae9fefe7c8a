//! Selection of the important lines of an output that is too long.
//!
//! Findings are grouped: those of a group are equal except for numbers, quoted names and paths. The first of each
//! group gets space before a second one of another, so that a thousand errors of one kind do not displace one of
//! another kind. With a finding come the lines of its block.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::entry::{Amount, Shown};
use super::fold::{Line, LineNumber};
use super::line_shape::{Fnv1a, HashKeyMap, hash};
use super::row::output_bytes;
use super::signals::levels::{Finding, Importance};
use super::signals::{amounts, blocks, rarity, traces};
use super::truncate;
use super::view::ViewLine;

/// Maximum number of findings kept of one group.
const EXAMPLES_MAX: usize = 12;
/// Maximum number of these that differ only in numbers.
const SAME_SHAPE_MAX: usize = 3;
/// Maximum number of characters shown of a line.
const LINE_CHARS: usize = 500;
/// Maximum number of characters shown of the first line of a kind.
const SAMPLE_CHARS: usize = 160;
/// Maximum number of lines that are shown below a warning.
const WARNING_BELOW: usize = 2;
/// Maximum number of groups whose counts are remembered.
const COUNTS_MAX: usize = 4_096;

/// In place of the first words of a rare stack.
const STACK: u64 = 3;
/// In place of the first words of a readable line of a hex dump.
const READABLE: u64 = 4 << 32;
/// In place of the first words of an unusual line.
const UNUSUAL: u64 = 1;
/// In place of the first words of a line that is unlike all others.
const UNLIKE: u64 = 5 << 32;
/// In place of the first words of the first line of a kind.
const SAMPLE: u64 = 2;

/// Number of characters for each kind of finding.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    pub all: usize,
    /// For all but the first of each group of errors.
    pub further: usize,
    pub summaries: usize,
    pub outliers: usize,
    pub warnings: usize,
    pub mentions: usize,
    pub unlike: usize,
    pub samples: usize,
}

/// Number of findings of each group among lines that are no longer held, and the last of them.
pub struct Counts {
    groups: HashKeyMap<(u64, LineNumber)>,
    /// No line was left out without having been counted.
    pub are_exact: bool,
}

impl Default for Counts {
    fn default() -> Self {
        Counts {
            groups: HashKeyMap::default(),
            are_exact: true,
        }
    }
}

impl Counts {
    fn add(&mut self, key: u64, count: u64, number: LineNumber) {
        if self.groups.len() < COUNTS_MAX || self.groups.contains_key(&key) {
            let known = self.groups.entry(key).or_insert((0, number));
            *known = (known.0 + count, known.1.max(number));
        }
    }
}

/// Line of the part that is left out, once, whatever its count, with the text at byte offset `at` visible.
fn quote(line: &Line, at: usize, max_chars: usize) -> Shown {
    let text = line.text.trim_end();
    let cut = truncate::around(text, at, max_chars);
    let omission = line.omission.unwrap_or_default().output_bytes;
    let left_out = output_bytes(text) - cut.bytes + omission;
    let bytes = (line.bytes() / line.count.max(1)).saturating_sub(left_out);
    Shown {
        text: format!("{}: {}", line.number, cut.text),
        shows: Amount { lines: 1, bytes },
    }
}

/// Findings that are equal except for numbers, quoted names and paths.
struct Group {
    key: u64,
    importance: Importance,
    /// Number of earlier groups with the same first words.
    rank: usize,
    count: u64,
    last: LineNumber,
    /// Indices of lines.
    examples: Vec<usize>,
}

/// Findings of all lines, and what belongs to them.
pub struct Selector<'a> {
    lines: &'a [ViewLine<'a>],
    groups: Vec<Group>,
    by_key: HashKeyMap<usize>,
    ranks: HashKeyMap<usize>,
    /// Other lines of a trace, by its main line.
    traces: HashMap<usize, Vec<usize>>,
}

impl<'a> Selector<'a> {
    pub fn new(lines: &'a [ViewLine<'a>]) -> Self {
        let mut selector = Selector {
            lines,
            groups: Vec::new(),
            by_key: HashKeyMap::default(),
            ranks: HashKeyMap::default(),
            traces: HashMap::new(),
        };
        let traces = traces::traces(lines);
        let mut at = 0;
        for trace in traces.failures {
            selector.findings(at..trace.range.start);
            let error = Finding {
                importance: Importance::Error,
                at: 0,
            };
            selector.add(trace.main, lines[trace.main].finding.unwrap_or(error));
            let mut with = trace.with;
            with.extend(blocks::step(lines, trace.range.start));
            selector.traces.insert(trace.main, with);
            at = trace.range.end.max(at);
        }
        selector.findings(at..lines.len());
        for stack in traces.rare {
            let key = lines[stack.range.end - 1].line.shape.without_numbers;
            selector.add_to(stack.main, key, STACK, Importance::Outlier);
            selector.traces.entry(stack.main).or_insert(stack.with);
        }
        let outliers = rarity::outliers(lines).into_iter();
        for (at, key) in outliers.chain(amounts::outliers(lines)) {
            let error = |finding: Finding| finding.importance == Importance::Error;
            if !lines[at].finding.is_some_and(error) {
                selector.add_to(at, key, 0, Importance::Outlier);
            }
        }
        for at in rarity::readable(lines) {
            selector.add_to(at, READABLE ^ at as u64, READABLE, Importance::Outlier);
        }
        for at in rarity::unusual(lines) {
            let key = lines[at].line.shape.without_numbers;
            selector.add_to(at, key, UNUSUAL, Importance::Mention);
        }
        for at in rarity::unlike(lines) {
            let key = lines[at].line.shape.without_numbers;
            selector.add_to(at, key ^ UNLIKE, UNLIKE, Importance::Unlike);
        }
        for at in rarity::kinds(lines) {
            let key = lines[at].line.shape.without_numbers;
            selector.add_to(at, key ^ SAMPLE, SAMPLE, Importance::Sample);
        }
        selector
    }

    fn findings(&mut self, range: Range<usize>) {
        for at in range {
            if let Some(finding) = self.lines[at].finding {
                self.add(at, finding);
            }
        }
    }

    fn add(&mut self, at: usize, finding: Finding) {
        let (key, first_words) = group_key(&self.lines[at].line.text, finding);
        self.add_to(at, key, first_words, finding.importance);
    }

    fn add_to(&mut self, at: usize, key: u64, first_words: u64, importance: Importance) {
        let line = &self.lines[at];
        let group = *self.by_key.entry(key).or_insert_with(|| {
            let rank = self
                .ranks
                .entry(first_words ^ importance as u64)
                .or_default();
            self.groups.push(Group {
                key,
                importance,
                rank: *rank,
                count: 0,
                last: line.line.number,
                examples: Vec::new(),
            });
            *rank += 1;
            self.groups.len() - 1
        });
        let group = &mut self.groups[group];
        group.count += line.count;
        group.last = line.line.number;
        let shape = |at: &usize| self.lines[*at].line.shape.without_numbers;
        let same = group
            .examples
            .iter()
            .filter(|known| shape(known) == shape(&at));
        let same = same.count();
        if same >= SAME_SHAPE_MAX {
            // The newest of many such lines replaces the one before it.
            if let Some(last) = group
                .examples
                .iter()
                .rposition(|known| shape(known) == shape(&at))
            {
                group.examples.remove(last);
                group.examples.push(at);
            }
        } else if group.examples.len() < EXAMPLES_MAX {
            group.examples.push(at);
        }
    }

    /// Remembers the findings of lines that will not be held any longer.
    pub fn forget(&self, counts: &mut Counts, is_dropped: impl Fn(usize) -> bool) {
        for line in self.lines.iter().filter(|line| is_dropped(line.at)) {
            if let Some(finding) = line.finding {
                let (key, _) = group_key(&line.line.text, finding);
                counts.add(key, line.count, line.line.number);
            }
        }
    }

    /// Lines to show among the entries of `range`, by index of the entry. The others are shown anyway.
    pub fn select(
        &self,
        range: Range<usize>,
        mut room: Budget,
        counts: &Counts,
    ) -> BTreeMap<usize, Shown> {
        let mut picked = BTreeMap::new();
        for (order, _, at, group) in self.candidates() {
            let mut unbounded = usize::MAX;
            let quota = match (group.importance, order) {
                (Importance::Error, 0) => &mut unbounded,
                (Importance::Error, _) => &mut room.further,
                (Importance::Summary, _) => &mut room.summaries,
                (Importance::Outlier, _) => &mut room.outliers,
                (Importance::Warning, 3) => &mut room.warnings,
                (Importance::Warning | Importance::Mention | Importance::Place, _) => {
                    &mut room.mentions
                }
                (Importance::Unlike, _) => &mut room.unlike,
                (Importance::Sample, _) => &mut room.samples,
            };
            let max_chars = match group.importance {
                Importance::Unlike | Importance::Sample => SAMPLE_CHARS,
                _ => LINE_CHARS,
            };
            let most = room.all.min(*quota);
            let is_first = group.examples.first() == Some(&at);
            let is_shown = !range.contains(&self.lines[at].at);
            let suffix = match is_first && !is_shown {
                true => group.suffix(counts),
                false => String::new(),
            };
            let size = |quotes: &[(usize, Shown)]| -> usize {
                quotes.iter().map(|(_, quote)| quote.size()).sum()
            };
            let mut quotes = self.quotes(at, &[at], &suffix, &range, &picked, max_chars);
            if size(&quotes) > most {
                continue;
            }
            let block = self.block(at, group.importance);
            let with_block = self.quotes(at, &block, &suffix, &range, &picked, max_chars);
            if size(&with_block) <= most {
                quotes = with_block;
            }
            let size = size(&quotes);
            *quota -= size;
            room.all -= size;
            picked.extend(quotes);
        }
        picked
    }

    /// Examples of all groups, the most important first: class, round, line and group.
    fn candidates(&self) -> Vec<(u8, usize, usize, &Group)> {
        let mut candidates = Vec::new();
        for group in &self.groups {
            for (round, at) in group.examples.iter().enumerate() {
                let round = group.rank + round;
                let order = match (group.importance, round) {
                    (Importance::Error, 0) => 0,
                    (Importance::Summary, _) => 1,
                    (Importance::Outlier, 0) => 2,
                    (Importance::Warning, 0) => 3,
                    (Importance::Error, _) => 4,
                    (Importance::Mention | Importance::Place, _) => 5,
                    (Importance::Outlier | Importance::Warning, _) => 6,
                    (Importance::Unlike, _) => 7,
                    (Importance::Sample, _) => 8,
                };
                candidates.push((order, round, *at, group));
            }
        }
        candidates.sort_by_key(|(order, round, at, _)| (*order, *round, *at));
        candidates
    }

    /// Lines of a finding.
    fn block(&self, at: usize, importance: Importance) -> Vec<usize> {
        let mut block = vec![at];
        if let Some(with) = self.traces.get(&at) {
            block.extend(with);
            if self.lines[at].indent > 0 {
                block.extend(blocks::above(self.lines, at));
            }
            block.sort_unstable();
            block.dedup();
            return block;
        }
        if rarity::json_pair(self.lines[at].text).is_some() {
            block.extend(blocks::siblings(self.lines, at));
        } else if !matches!(
            importance,
            Importance::Summary | Importance::Unlike | Importance::Sample
        ) {
            block.extend(blocks::above(self.lines, at));
            block.extend(blocks::place(self.lines, at));
        }
        match importance {
            Importance::Outlier | Importance::Mention
                if self.lines[at].indent == 0 && self.lines[at].finding.is_none() =>
            {
                block.extend(blocks::record(self.lines, at));
            }
            Importance::Sample => block.extend(blocks::place_above(self.lines, at)),
            Importance::Error => {
                block.extend(blocks::below(self.lines, at));
                block.extend(blocks::step(self.lines, at));
            }
            Importance::Warning => {
                block.extend(blocks::below(self.lines, at).iter().take(WARNING_BELOW));
            }
            _ => {}
        }
        block.sort_unstable();
        block.dedup();
        block
    }

    /// Lines of a block that are not shown yet.
    fn quotes(
        &self,
        main: usize,
        block: &[usize],
        suffix: &str,
        range: &Range<usize>,
        picked: &BTreeMap<usize, Shown>,
        max_chars: usize,
    ) -> Vec<(usize, Shown)> {
        let lines = block.iter().map(|at| (*at, &self.lines[*at]));
        let fresh =
            lines.filter(|(_, line)| range.contains(&line.at) && !picked.contains_key(&line.at));
        fresh
            .map(|(at, line)| {
                let offset = line.finding.map_or(0, |finding| finding.at);
                let mut quote = quote(line.line, offset, max_chars);
                if at == main {
                    quote.text.push_str(suffix);
                }
                (line.at, quote)
            })
            .collect()
    }
}

impl Group {
    /// Count of the findings, if not all of them are shown.
    fn suffix(&self, counts: &Counts) -> String {
        let dropped = counts.groups.get(&self.key).copied();
        let (dropped, last_dropped) = dropped.unwrap_or_default();
        let count = self.count + dropped;
        if count <= self.examples.len() as u64 {
            return String::new();
        }
        match counts.are_exact {
            true => format!(" [×{count}, last at {}]", self.last.max(last_dropped)),
            false => format!(" [×{count} or more]"),
        }
    }
}

/// Hashes of an important line: of everything but numbers, quoted names and paths, and of the first words
/// of the finding.
fn group_key(line: &str, finding: Finding) -> (u64, u64) {
    let mut all = Fnv1a::default();
    let mut until = None;
    for word in line.split_whitespace().take(64) {
        if until.is_none() && word.contains(['/', '\\']) {
            all.add(b'/');
            continue;
        }
        let mut in_number = false;
        for c in word.chars() {
            let continues = std::mem::replace(&mut in_number, false);
            match (until, c) {
                (Some(close), c) if c == close || (close == '`' && c == '\'') => until = None,
                (Some(_), _) => {}
                (None, '"' | '\'' | '`' | '‘' | '»' | '“') => {
                    all.add(b'"');
                    until = Some(closing(c));
                }
                (None, '0'..='9') => {
                    in_number = true;
                    if !continues {
                        all.add(b'0');
                    }
                }
                (None, c) => c
                    .encode_utf8(&mut [0; 4])
                    .bytes()
                    .for_each(|byte| all.add(byte)),
            }
        }
        all.add(b' ');
    }
    let mut words = first_words(&line[super::row::floor(line, finding.at)..]);
    if words.len() < 2 {
        // A level at the end of the line.
        words = first_words(line);
    }
    let code = words.iter().find(|word| is_code(word)).copied();
    let code = code.or_else(|| rule_name(line)).unwrap_or_default();
    let kind = match code {
        "" => hash(words[..words.len().min(2)].join(" ").as_bytes()),
        code => hash(code.as_bytes()),
    };
    (
        all.0 ^ (finding.importance as u64) ^ hash(code.as_bytes()),
        kind,
    )
}

/// First words of a text without paths and numbers.
fn first_words(text: &str) -> Vec<&str> {
    text.split_whitespace()
        .filter(|word| !word.contains(['/', '\\']))
        .flat_map(|word| word.split(|c: char| !c.is_alphanumeric()))
        .filter(|word| word.len() > 1 && word.contains(char::is_alphabetic))
        .take(3)
        .collect()
}

/// Name of a rule in brackets at the end of a line, such as `[unused-import]`.
fn rule_name(line: &str) -> Option<&str> {
    let (_, name) = line.trim_end().strip_suffix(']')?.rsplit_once('[')?;
    let is_name = name.len() > 2
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_:./".contains(&b));
    (is_name && name.contains(|c: char| c.is_ascii_alphabetic())).then_some(name)
}

/// Returns whether a word is the number of a kind of message, such as `E0308` or `TS2322`.
fn is_code(word: &str) -> bool {
    let letters = word.bytes().take_while(u8::is_ascii_uppercase).count();
    let digits = word.len() - letters;
    (1..=6).contains(&letters)
        && (3..=5).contains(&digits)
        && word.bytes().skip(letters).all(|byte| byte.is_ascii_digit())
}

fn closing(quote: char) -> char {
    match quote {
        '‘' => '’',
        '»' => '«',
        '“' => '”',
        quote => quote,
    }
}
