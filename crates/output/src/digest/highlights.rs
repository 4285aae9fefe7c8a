//! Important lines of the part that is left out, in bounded memory.
//!
//! Lines are grouped: those of a group are equal except for numbers, quoted names and paths. The first
//! lines and the last one of each group are kept. Errors get space first, and the first line of each group
//! before a second one of another: a thousand errors of one kind do not displace one of another kind.

use std::collections::VecDeque;

use super::fold::{Line, LineNumber, PERIOD_MAX};
use super::importance::{self, Finding, Importance};
use super::line_shape::{Fnv1a, hash};
use super::truncate;

const GROUPS_MAX: usize = 256;
/// Maximum number of lines kept of one group; the last of them is the newest.
const EXAMPLES_MAX: usize = 8;
/// Maximum number of these that differ only in numbers.
const SAME_SHAPE_MAX: usize = 3;
/// Maximum number of characters kept of a line.
const LINE_CHARS: usize = 300;
/// Number of lines behind an error in which its location is looked for.
const LOCATION_WITHIN: u8 = 4;
/// Number of values below a failed test: expected and actual.
const VALUES_MAX: u8 = 2;
/// Maximum number of lines of a traceback.
const TRACEBACK_MAX: u16 = 300;
const CLASSIFIED: usize = 1_024;

#[derive(Default)]
pub struct Highlights {
    groups: Vec<Group>,
    /// Cache of findings by shape of the line.
    classified: Vec<(u64, Option<Finding>)>,
    following: Option<Following>,
    /// Groups of the last lines, if they have one.
    latest: VecDeque<Option<u64>>,
    traceback: Option<Traceback>,
    /// Number of important lines of which nothing is kept, because there were too many groups.
    pub dropped: u64,
}

struct Group {
    group_key: u64,
    first_words: u64,
    importance: Importance,
    /// Number of earlier groups with the same first words.
    rank: usize,
    count: u64,
    last: LineNumber,
    examples: Vec<Example>,
}

struct Example {
    shape: u64,
    lines: Vec<Quote>,
}

/// Line as it is shown.
struct Quote {
    number: LineNumber,
    text: String,
    /// Number of its bytes that are shown.
    bytes: u64,
}

/// Example to which the next lines may belong.
struct Following {
    group_key: u64,
    lines: u8,
    announced: bool,
    /// The location of the error was not seen yet.
    location: bool,
    /// Number of values that may follow.
    values: u8,
}

struct Traceback {
    lines: u16,
    location: Option<Quote>,
}

/// Line that is shown although it is in the part that is left out.
#[derive(Debug)]
pub struct Highlight {
    pub number: LineNumber,
    /// Number of its last line.
    pub last: LineNumber,
    pub text: String,
    pub lines: u64,
    pub bytes: u64,
}

/// Number of characters for highlights.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    pub all: usize,
    /// For all groups but the first with the same first words, and all lines but the first of a group.
    pub further: usize,
    pub summaries: usize,
    pub mentions: usize,
    pub warnings: usize,
}

impl Highlights {
    /// Adds a line of the part that is left out.
    pub fn add(&mut self, line: &Line) {
        self.read(line, true);
    }

    /// Notes a line that is shown anyway, because the next ones may belong to it.
    pub fn note(&mut self, line: &Line) {
        self.read(line, false);
    }

    /// Counts folded lines that repeat the last `period` lines.
    pub fn repeat(&mut self, period: usize, lines: u64) {
        let repeated = self.latest.iter().rev().take(period).flatten();
        for group_key in repeated {
            let group = self.groups.iter_mut().find(|g| g.group_key == *group_key);
            if let Some(group) = group {
                group.count += lines / period as u64;
            }
        }
    }

    fn read(&mut self, line: &Line, keep: bool) {
        if self.latest.len() == PERIOD_MAX {
            self.latest.pop_front();
        }
        self.latest.push_back(None);
        if self.in_traceback(line, keep) || self.belongs_to_last(line) {
            return;
        }
        if importance::opens_traceback(&line.text) {
            self.traceback = Some(Traceback {
                lines: 0,
                location: None,
            });
            return;
        }
        if let Some(finding) = self.classify(line) {
            if keep {
                self.keep(line, finding, None);
            }
        } else if let Some(following) = &mut self.following {
            following.lines = following.lines.saturating_sub(1);
            if following.lines == 0 {
                self.following = None;
            }
        }
    }

    /// Handles a line of a traceback: frames up to the line with the exception. Returns whether it was one.
    fn in_traceback(&mut self, line: &Line, keep: bool) -> bool {
        let Some(traceback) = &mut self.traceback else {
            return false;
        };
        traceback.lines += 1;
        let inner = line.text.is_empty() || line.text.starts_with([' ', '\t']);
        if inner && traceback.lines < TRACEBACK_MAX {
            if line.text.trim_start().starts_with("File \"") {
                traceback.location = Some(Quote::new(line, 0));
            }
            return true;
        }
        let location = self
            .traceback
            .take()
            .and_then(|traceback| traceback.location);
        if keep && !inner {
            let finding = Finding {
                importance: Importance::Error,
                at: 0,
            };
            self.keep(line, finding, location);
            return true;
        }
        false
    }

    /// Handles the location or a value that belongs to the last error. Returns whether it was one.
    fn belongs_to_last(&mut self, line: &Line) -> bool {
        let Some(following) = &mut self.following else {
            return false;
        };
        let is_location = following.location && importance::is_location(&line.text);
        if following.announced {
            // The location was in the line before.
            (following.announced, following.location) = (false, false);
        } else if is_location && importance::classify(&line.text).is_none() {
            following.location = false;
        } else if following.values > 0 && importance::is_value(&line.text) {
            following.values -= 1;
        } else {
            return false;
        }
        let group_key = following.group_key;
        let group = self.groups.iter_mut().find(|g| g.group_key == group_key);
        if let Some(example) = group.and_then(|group| group.examples.last_mut()) {
            example.lines.push(Quote::new(line, 0));
        }
        true
    }

    fn classify(&mut self, line: &Line) -> Option<Finding> {
        if self.classified.is_empty() {
            self.classified.resize(CLASSIFIED, (0, None));
        }
        let key = line.shape.without_numbers ^ line.shape.figures.rotate_left(17);
        let slot = &mut self.classified[usize::try_from(key % CLASSIFIED as u64).unwrap_or(0)];
        if slot.0 != key {
            *slot = (key, importance::classify(&line.text));
        }
        slot.1
    }

    fn keep(&mut self, line: &Line, finding: Finding, location: Option<Quote>) {
        let (group_key, first_words) = group_key(&line.text, finding);
        let found = self.groups.iter().position(|g| g.group_key == group_key);
        let Some(at) = found.or_else(|| self.make_room(group_key, first_words, finding.importance))
        else {
            self.dropped += line.count;
            self.following = None;
            return;
        };
        if let Some(latest) = self.latest.back_mut() {
            *latest = Some(group_key);
        }
        let group = &mut self.groups[at];
        group.count += line.count;
        group.last = line.number;
        let shape = line.shape.without_numbers;
        let same = group.examples.iter().filter(|e| e.shape == shape).count();
        let room = group.examples.len() < EXAMPLES_MAX;
        if group.examples.is_empty()
            || (finding.importance == Importance::Error && (room || same == 0))
        {
            if same >= SAME_SHAPE_MAX {
                // The newest of many such lines replaces the one before it.
                if let Some(at) = group.examples.iter().rposition(|e| e.shape == shape) {
                    group.examples.remove(at);
                }
            } else if !room {
                group.examples.pop();
            }
            let mut lines = vec![Quote::new(line, finding.at)];
            lines.extend(location);
            lines.sort_by_key(|quote| quote.number);
            group.examples.push(Example { shape, lines });
            self.following = Some(Following {
                group_key,
                lines: LOCATION_WITHIN,
                announced: importance::announces_message(&line.text),
                location: true,
                values: VALUES_MAX,
            });
        } else {
            self.following = None;
        }
    }

    /// Index of a new group. If there are too many, it replaces the least important one.
    fn make_room(
        &mut self,
        group_key: u64,
        first_words: u64,
        importance: Importance,
    ) -> Option<usize> {
        let alike = |g: &&Group| g.first_words == first_words && g.importance == importance;
        let group = Group {
            group_key,
            first_words,
            importance,
            rank: self.groups.iter().filter(alike).count(),
            count: 0,
            last: LineNumber::default(),
            examples: Vec::new(),
        };
        if self.groups.len() < GROUPS_MAX {
            self.groups.push(group);
            return Some(self.groups.len() - 1);
        }
        let least = |(_, g): &(usize, &Group)| (g.importance, std::cmp::Reverse(g.rank));
        let (at, least_important) = self.groups.iter().enumerate().min_by_key(least)?;
        if (
            least_important.importance,
            std::cmp::Reverse(least_important.rank),
        ) >= (importance, std::cmp::Reverse(group.rank))
        {
            return None;
        }
        self.dropped += least_important.count;
        self.groups[at] = group;
        Some(at)
    }

    /// Lines to show, in the order of the stream.
    pub fn select(self, mut room: Budget) -> Vec<Highlight> {
        let mut candidates = Vec::new();
        for group in self.groups {
            let shown = group.examples.len() as u64;
            for (at, example) in group.examples.into_iter().enumerate() {
                let mut example = example;
                if at == 0
                    && group.count > shown
                    && let Some(first) = example.lines.first_mut()
                {
                    let often = format!(" [×{}, last at {}]", group.count, group.last);
                    first.text.push_str(&often);
                }
                let kept = example.into_highlight();
                candidates.push((group.importance, group.rank + at, kept));
            }
        }
        candidates.sort_by_key(|(importance, round, kept)| {
            (std::cmp::Reverse(*importance), *round, kept.number)
        });
        let mut selected = Vec::new();
        for (importance, round, kept) in candidates {
            let size = kept.text.chars().count() + 1;
            let mut unbounded = usize::MAX;
            let quota = match (importance, round) {
                (Importance::Error, 0) => &mut unbounded,
                (Importance::Error, _) => &mut room.further,
                (Importance::Summary, _) => &mut room.summaries,
                (Importance::Mention, _) => &mut room.mentions,
                (Importance::Warning, _) => &mut room.warnings,
            };
            if size > room.all || size > *quota {
                continue;
            }
            *quota -= size;
            room.all -= size;
            selected.push(kept);
        }
        selected.sort_by_key(|kept| kept.number);
        selected
    }
}

impl Example {
    fn into_highlight(self) -> Highlight {
        let number = self.lines.first().map(|quote| quote.number);
        let last = self.lines.last().map(|quote| quote.number);
        let text: Vec<_> = self
            .lines
            .iter()
            .map(|Quote { number, text, .. }| format!("{number}: {text}"))
            .collect();
        Highlight {
            number: number.unwrap_or_default(),
            last: last.unwrap_or_default(),
            text: text.join("\n"),
            lines: self.lines.len() as u64,
            bytes: self.lines.iter().map(|quote| quote.bytes).sum(),
        }
    }
}

impl Quote {
    /// Line once, whatever its count, with the text at byte offset `at` visible.
    fn new(line: &Line, at: usize) -> Self {
        let trimmed = line.text.trim();
        let cut = truncate::around(trimmed, at, LINE_CHARS);
        let omission = line.omission.map_or(0, |omission| omission.bytes);
        let left_out = trimmed.len() as u64 - cut.bytes + omission;
        Quote {
            number: line.number,
            text: cut.text,
            bytes: (line.bytes() / line.count.max(1)).saturating_sub(left_out),
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
                (None, '"' | '\'' | '`' | '‘') => {
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
    let said = &line[super::row::floor(line, finding.at)..];
    let words: Vec<_> = said
        .split(|c: char| !c.is_alphabetic())
        .filter(|word| word.len() > 1)
        .take(2)
        .collect();
    (
        all.0 ^ (finding.importance as u64),
        hash(words.join(" ").as_bytes()),
    )
}

fn closing(quote: char) -> char {
    match quote {
        '‘' => '’',
        quote => quote,
    }
}
