//! Keeps what matters of the lines that are left out, in bounded room.
//!
//! Lines are gathered in groups: equal but for numbers, quoted names and paths. Of each group the
//! first lines and the last are kept. Room is given to errors before all else, and to the first
//! of each group before a second: a thousand errors of one kind do not push out the one of another.

use std::collections::VecDeque;

use super::cut;
use super::fold::{Line, Number, PERIOD_MAX};
use super::importance::{self, Finding, Importance};
use super::kind::{Fingerprint, hash};

const GROUPS_MAX: usize = 256;
/// Lines kept of one group, the last of them being the newest.
const EXAMPLES_MAX: usize = 8;
/// Of these, how many may differ in nothing but numbers.
const SAME_SHAPE_MAX: usize = 3;
/// Characters kept of a line that matters.
const LINE_CHARS: usize = 300;
/// How many lines behind an error its place is looked for.
const FOLLOW_LINES: u8 = 4;
/// How many values below it: what was wanted, and what there was.
const VALUES: u8 = 2;
/// A longer traceback is not one.
const TRACEBACK_LINES: u16 = 300;
const MEMORY: usize = 1_024;

#[derive(Default)]
pub struct Gather {
    groups: Vec<Group>,
    /// What lines of a shape were found to be, so that each shape is read once.
    memory: Vec<(u64, Option<Finding>)>,
    following: Option<Following>,
    /// The groups of the lines that were seen last, where they have one.
    latest: VecDeque<Option<u64>>,
    traceback: Option<Traceback>,
    /// Lines that matter of which nothing is kept, for want of room.
    pub forgotten: u64,
}

struct Group {
    likeness: u64,
    lead: u64,
    importance: Importance,
    /// How many groups with the same first words were there before.
    rank: usize,
    count: u64,
    last: Number,
    examples: Vec<Example>,
}

struct Example {
    shape: u64,
    lines: Vec<Quote>,
}

/// A line as it is shown.
struct Quote {
    number: Number,
    text: String,
    /// How many of its bytes that shows.
    bytes: u64,
}

/// The example that the next lines may belong to.
struct Following {
    likeness: u64,
    lines: u8,
    announced: bool,
    /// Its place has not been seen yet.
    place: bool,
    /// How many values may follow.
    values: u8,
}

struct Traceback {
    lines: u16,
    place: Option<Quote>,
}

/// A line that is shown although it lies in the part left out.
#[derive(Debug)]
pub struct Kept {
    pub number: Number,
    pub text: String,
    pub lines: u64,
    pub bytes: u64,
}

/// Characters there are for the lines that matter.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub all: usize,
    /// For each group but the first of its words, and each line but the first of its group.
    pub further: usize,
    pub summaries: usize,
    pub mentions: usize,
    pub warnings: usize,
}

impl Gather {
    /// Sees a line of the part left out.
    pub fn see(&mut self, line: &Line) {
        self.read(line, true);
    }

    /// Sees a line that is shown anyway, for what it says about the next ones.
    pub fn pass(&mut self, line: &Line) {
        self.read(line, false);
    }

    /// So many lines were folded that repeat the last ones.
    pub fn more_of_the_same(&mut self, period: usize, lines: u64) {
        let repeated = self.latest.iter().rev().take(period).flatten();
        for likeness in repeated {
            let group = self.groups.iter_mut().find(|g| g.likeness == *likeness);
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
                place: None,
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

    /// The lines of a traceback are its frames, up to the one that says what went wrong.
    fn in_traceback(&mut self, line: &Line, keep: bool) -> bool {
        let Some(traceback) = &mut self.traceback else {
            return false;
        };
        traceback.lines += 1;
        let inner = line.text.is_empty() || line.text.starts_with([' ', '\t']);
        if inner && traceback.lines < TRACEBACK_LINES {
            if line.text.trim_start().starts_with("File \"") {
                traceback.place = Some(Quote::new(line, 0));
            }
            return true;
        }
        let place = self.traceback.take().and_then(|traceback| traceback.place);
        if keep && !inner {
            let finding = Finding {
                importance: Importance::Error,
                at: 0,
            };
            self.keep(line, finding, place);
            return true;
        }
        false
    }

    /// The place of an error stands on one of the next lines.
    fn belongs_to_last(&mut self, line: &Line) -> bool {
        let Some(following) = &mut self.following else {
            return false;
        };
        let is_location = following.place && importance::is_location(&line.text);
        if following.announced {
            // Its place was in the line before.
            (following.announced, following.place) = (false, false);
        } else if is_location && importance::classify(&line.text).is_none() {
            following.place = false;
        } else if following.values > 0 && importance::is_value(&line.text) {
            following.values -= 1;
        } else {
            return false;
        }
        let likeness = following.likeness;
        let group = self.groups.iter_mut().find(|g| g.likeness == likeness);
        if let Some(example) = group.and_then(|group| group.examples.last_mut()) {
            example.lines.push(Quote::new(line, 0));
        }
        true
    }

    fn classify(&mut self, line: &Line) -> Option<Finding> {
        if self.memory.is_empty() {
            self.memory.resize(MEMORY, (0, None));
        }
        let key = line.kind.shape ^ line.kind.figures.rotate_left(17);
        let slot = &mut self.memory[usize::try_from(key % MEMORY as u64).unwrap_or(0)];
        if slot.0 != key {
            *slot = (key, importance::classify(&line.text));
        }
        slot.1
    }

    fn keep(&mut self, line: &Line, finding: Finding, place: Option<Quote>) {
        let (likeness, lead) = likeness(&line.text, finding);
        let found = self.groups.iter().position(|g| g.likeness == likeness);
        let Some(at) = found.or_else(|| self.make_room(likeness, lead, finding.importance)) else {
            self.forgotten += line.count;
            self.following = None;
            return;
        };
        if let Some(latest) = self.latest.back_mut() {
            *latest = Some(likeness);
        }
        let group = &mut self.groups[at];
        group.count += line.count;
        group.last = line.number;
        let shape = line.kind.shape;
        let same = group.examples.iter().filter(|e| e.shape == shape).count();
        let room = group.examples.len() < EXAMPLES_MAX;
        if group.examples.is_empty()
            || (finding.importance == Importance::Error && (room || same == 0))
        {
            if same >= SAME_SHAPE_MAX {
                // Of many such lines the newest takes the place of the one before it.
                if let Some(at) = group.examples.iter().rposition(|e| e.shape == shape) {
                    group.examples.remove(at);
                }
            } else if !room {
                group.examples.pop();
            }
            let mut lines = vec![Quote::new(line, finding.at)];
            lines.extend(place);
            lines.sort_by_key(|quote| quote.number);
            group.examples.push(Example { shape, lines });
            self.following = Some(Following {
                likeness,
                lines: FOLLOW_LINES,
                announced: importance::announces_message(&line.text),
                place: true,
                values: VALUES,
            });
        } else {
            self.following = None;
        }
    }

    /// A place for a new group; of the least of those there are, where it is full.
    fn make_room(&mut self, likeness: u64, lead: u64, importance: Importance) -> Option<usize> {
        let alike = |g: &&Group| g.lead == lead && g.importance == importance;
        let group = Group {
            likeness,
            lead,
            importance,
            rank: self.groups.iter().filter(alike).count(),
            count: 0,
            last: Number::default(),
            examples: Vec::new(),
        };
        if self.groups.len() < GROUPS_MAX {
            self.groups.push(group);
            return Some(self.groups.len() - 1);
        }
        let least = |(_, g): &(usize, &Group)| (g.importance, std::cmp::Reverse(g.rank));
        let (at, victim) = self.groups.iter().enumerate().min_by_key(least)?;
        if (victim.importance, std::cmp::Reverse(victim.rank))
            >= (importance, std::cmp::Reverse(group.rank))
        {
            return None;
        }
        self.forgotten += victim.count;
        self.groups[at] = group;
        Some(at)
    }

    /// What is shown, in the order of the stream.
    pub fn pick(self, mut room: Room) -> Vec<Kept> {
        let mut offers = Vec::new();
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
                let kept = example.into_kept();
                offers.push((group.importance, group.rank + at, kept));
            }
        }
        offers.sort_by_key(|(importance, round, kept)| {
            (std::cmp::Reverse(*importance), *round, kept.number)
        });
        let mut picked = Vec::new();
        for (importance, round, kept) in offers {
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
            picked.push(kept);
        }
        picked.sort_by_key(|kept| kept.number);
        picked
    }
}

impl Example {
    fn into_kept(self) -> Kept {
        let number = self.lines.first().map(|quote| quote.number);
        let text: Vec<_> = self
            .lines
            .iter()
            .map(|Quote { number, text, .. }| format!("{number}: {text}"))
            .collect();
        Kept {
            number: number.unwrap_or_default(),
            text: text.join("\n"),
            lines: self.lines.len() as u64,
            bytes: self.lines.iter().map(|quote| quote.bytes).sum(),
        }
    }
}

impl Quote {
    /// A line once, however often it came, with what stands at a byte offset in it.
    fn new(line: &Line, at: usize) -> Self {
        let trimmed = line.text.trim();
        let cut = cut::around(trimmed, at, LINE_CHARS);
        let hole = line.hole.map_or(0, |hole| hole.bytes);
        let left_out = trimmed.len() as u64 - cut.bytes + hole;
        Quote {
            number: line.number,
            text: cut.text,
            bytes: (line.bytes() / line.count.max(1)).saturating_sub(left_out),
        }
    }
}

/// Fingerprints of a line that matters: of all of it but numbers, quoted names and paths; and of
/// the first words of what it says.
fn likeness(line: &str, finding: Finding) -> (u64, u64) {
    let mut all = Fingerprint::default();
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
