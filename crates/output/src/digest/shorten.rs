//! Shortening of a text that is too long: head, important lines and tail.
//!
//! The text is not cut at the limit. Some lines of its begin, some of its end and the important lines between them are
//! kept. Lines are held until the end, because importance depends on what the others are like. When they are more than
//! [`HOLD_BYTES`], those that would not be shown now are dropped; then again whenever they have doubled, because a high
//! limit keeps most of them.

use std::collections::BTreeMap;

use super::MAX_CHARS;
use super::compose::Composition;
use super::density::{Density, Repetition};
use super::entry::{Amount, Entry};
use super::fold::{FoldSink, Folded, HIDING_END};
use super::select::{Budget, Counts, Selector};
use super::signals::blocks;
use super::view::{self, FindingCache, ViewLine};

/// Limit for which the numbers of lines below are meant. They grow with a higher limit.
const SCALE_CHARS: usize = 10_000;
const HEAD_LINES: usize = 20;
const TAIL_LINES: usize = 60;
const HEAD_LINES_MIN: usize = 4;
const TAIL_LINES_MIN: usize = 6;
const HEAD_PERCENT: usize = 12;
const TAIL_PERCENT: usize = 36;
/// Head and tail end at so many lines in a row that are like many others.
const COMMON_RUN: usize = 3;
/// Number of lines within which the tail may be moved to the start of a block.
const BLOCK_START_WITHIN: usize = 6;
/// A line that is too long for the rest of the head is truncated to fit, if at least this many characters
/// are left.
const BEGIN_CHARS: usize = 200;
/// Bytes of lines that are held before some are dropped for the first time.
const HOLD_BYTES: usize = 2 << 20;
/// Important lines that are held when others are dropped, as a multiple of the limit.
const KEEP_TIMES: usize = 4;
/// Length in percent of the limit, with repetitions folded, up to which repetitive output fills the limit.
const FILL_PERCENT: usize = 110;
/// The same if most lines differ in more than numbers.
const FILL_NAMES_PERCENT: usize = 140;
/// The same for a hex dump.
const FILL_BYTES_PERCENT: usize = 400;
/// Characters of the limit that stay unused for each one over that length. Without it, one more line of output could
/// take away most of the text.
const FILL_LESS_TIMES: usize = 8;
/// Room for the advice how to see the lines that a note hides.
const ADVICE_CHARS: usize = 50;
/// The `max_chars` in that advice is a multiple of this.
const ADVISED_STEP: u64 = 10_000;

/// Lines of the text, as many as may be shown.
pub struct Shortener {
    limit: usize,
    hint: String,
    /// All lines at first. When they are too many, those that are certainly not shown are dropped now and then.
    entries: Vec<Entry>,
    /// Number of characters and of bytes of these.
    chars: usize,
    held: usize,
    /// Number of characters of all lines, with the dropped ones.
    total_chars: usize,
    /// Number of bytes from which lines are dropped.
    prune_at: usize,
    crowded: bool,
    density: Density,
    findings: FindingCache,
    /// Lines that were dropped, and what was found in them.
    dropped: Amount,
    counts: Counts,
    /// Lines before the next one were left out.
    hole: bool,
    /// Lines were hidden by a note.
    hides_lines: bool,
}

impl Shortener {
    pub fn new(limit: usize, hint: &str) -> Self {
        Shortener {
            limit,
            hint: hint.to_owned(),
            entries: Vec::new(),
            chars: 0,
            held: 0,
            total_chars: 0,
            prune_at: HOLD_BYTES,
            crowded: false,
            density: Density::default(),
            findings: FindingCache::default(),
            dropped: Amount::default(),
            counts: Counts::default(),
            hole: false,
            hides_lines: false,
        }
    }

    /// Text of an output of so many bytes.
    pub fn finish(mut self, bytes: u64) -> (String, Amount, bool) {
        if !self.crowded {
            let mut lines: Vec<_> = self.entries.iter().map(|e| e.text(usize::MAX)).collect();
            if let Some(note) = self.entries.iter().position(hides_lines) {
                let end = lines[note].len() - HIDING_END.len();
                lines[note].insert_str(end, &advice(bytes, self.limit));
            }
            return (lines.join("\n"), Amount::default(), false);
        }
        let entries = std::mem::take(&mut self.entries);
        let lines = view::view(&entries, &mut self.findings);
        let (head, tail) = self.ends(&entries, &lines);
        let mut text = Composition {
            entries: &entries,
            limit: self.limit,
            head,
            head_lines: head,
            tail,
            head_room: self.head_room(),
            tail_room: self.tail_room(),
            quotes: BTreeMap::new(),
            is_selected: false,
            dropped: self.dropped,
            hint: &self.hint,
        };
        let room = self.limit.saturating_sub(text.size());
        let selector = Selector::new(&lines);
        text.quotes = selector.select(head..tail, self.budget(room), &self.counts);
        text.is_selected = true;
        text.add_gaps();
        text.fill(self.fill_chars());
        text.compose()
    }

    fn budget(&self, all: usize) -> Budget {
        let share = |percent: usize| self.limit * percent / 100;
        Budget {
            all,
            further: share(16),
            summaries: share(6),
            outliers: share(14),
            warnings: share(30),
            mentions: share(16),
            unlike: share(6),
            samples: match self.density.repetition() {
                Repetition::Dense => 0,
                _ => share(12),
            },
        }
    }

    /// Number of characters up to which the text is filled. Output that is only somewhat over the limit is left out only
    /// as far as it is over, because lines of one kind can still be data. The longer repetitive output is, the less of
    /// the rest of the limit is used.
    fn fill_chars(&self) -> usize {
        let percent = match self.density.repetition() {
            Repetition::Dense => return self.limit,
            Repetition::Passed => return 0,
            Repetition::Bytes => FILL_BYTES_PERCENT,
            Repetition::Names => FILL_NAMES_PERCENT,
            Repetition::Log => FILL_PERCENT,
        };
        let over = self.total_chars.saturating_sub(self.limit * percent / 100);
        self.limit
            .saturating_sub(over.saturating_mul(FILL_LESS_TIMES))
    }

    fn head_room(&self) -> usize {
        self.limit * HEAD_PERCENT / 100
    }

    fn tail_room(&self) -> usize {
        self.limit * TAIL_PERCENT / 100
    }

    /// Number of lines, scaled with a higher limit.
    fn scaled(&self, lines: usize) -> usize {
        lines * self.limit.max(SCALE_CHARS) / SCALE_CHARS
    }

    /// End of the head and start of the tail. Both are short where the lines are like many others.
    fn ends(&self, entries: &[Entry], lines: &[ViewLine<'_>]) -> (usize, usize) {
        let mut usual = vec![false; entries.len()];
        for line in lines {
            usual[line.at] = line.is_usual();
        }
        let mut head = 0;
        let mut chars = 0;
        let mut run = 0;
        while head < entries.len().min(self.scaled(HEAD_LINES)) {
            let left = self.head_room().saturating_sub(chars);
            let entry = &entries[head];
            run = if usual[head] { run + 1 } else { 0 };
            if (entry.chars > left && left < BEGIN_CHARS)
                || (run > COMMON_RUN && head >= HEAD_LINES_MIN)
            {
                break;
            }
            chars += entry.chars.min(left);
            head += 1;
        }
        let mut tail = entries.len();
        let (mut chars, mut run) = (0, 0);
        while tail > head && entries.len() - tail < self.scaled(TAIL_LINES) {
            let entry = &entries[tail - 1];
            run = if usual[tail - 1] { run + 1 } else { 0 };
            let is_last = tail == entries.len();
            let count = entries.len() - tail;
            if (chars + entry.chars > self.tail_room() && !is_last)
                || (run > COMMON_RUN && count >= TAIL_LINES_MIN)
            {
                break;
            }
            chars += entry.chars;
            tail -= 1;
        }
        (head, start_of_block(lines, head, tail, entries.len()))
    }

    /// Drops lines that are certainly not shown, so that the memory stays bounded.
    fn prune(&mut self) {
        let entries = std::mem::take(&mut self.entries);
        let mut keep = vec![false; entries.len()];
        let mut sum = 0;
        for (entry, keep) in entries.iter().zip(&mut keep) {
            *keep = sum < self.limit;
            sum += entry.chars;
        }
        sum = 0;
        for (entry, keep) in entries.iter().zip(&mut keep).rev() {
            *keep |= sum < self.limit || matches!(entry.what, Folded::Gap(_));
            sum += entry.chars;
        }
        {
            let lines = view::view(&entries, &mut self.findings);
            let selector = Selector::new(&lines);
            let all = self.limit * KEEP_TIMES;
            let room = Budget {
                all,
                further: all,
                summaries: all / 8,
                outliers: all / 8,
                warnings: all / 4,
                mentions: all / 8,
                unlike: all / 16,
                samples: all / 16,
            };
            for at in selector
                .select(0..entries.len(), room, &Counts::default())
                .into_keys()
            {
                keep[at] = true;
            }
            selector.forget(&mut self.counts, |at| !keep[at]);
        }
        let mut hole = false;
        (self.held, self.chars) = (0, 0);
        for (mut entry, keep) in entries.into_iter().zip(keep) {
            if keep {
                entry.after_hole |= hole;
                hole = false;
                self.hold(entry);
            } else {
                hole = true;
                self.dropped.add(entry.stands_for());
            }
        }
        self.prune_at = HOLD_BYTES.max(2 * self.held);
    }

    /// Counts lines that are left out without having been decoded.
    pub fn skip(&mut self, lines: u64, bytes: u64) {
        self.dropped.add(Amount { lines, bytes });
        self.counts.are_exact = false;
        self.hole = true;
    }

    fn hold(&mut self, entry: Entry) {
        self.chars = self.chars.saturating_add(entry.chars);
        self.held += entry.memory();
        self.entries.push(entry);
    }
}

/// Returns whether an entry is a note that hides lines.
fn hides_lines(entry: &Entry) -> bool {
    matches!(&entry.what, Folded::Note { text, .. } if text.ends_with(HIDING_END))
}

/// Advice how to see all lines of an output of so many bytes, as the end of a sentence.
fn advice(bytes: u64, limit: usize) -> String {
    if bytes <= limit as u64 {
        return "; raw: true shows all".into();
    }
    match bytes.next_multiple_of(ADVISED_STEP) {
        most if most <= MAX_CHARS as u64 => {
            format!("; raw: true with max_output: {most} shows all")
        }
        _ => "; the log has all".into(),
    }
}

/// Start of the tail, moved to the start of a block that is near.
fn start_of_block(lines: &[ViewLine<'_>], head: usize, tail: usize, end: usize) -> usize {
    let Some(first) = lines.iter().position(|line| line.at >= tail) else {
        return tail;
    };
    let is_start = |at: &usize| {
        let line = &lines[*at];
        let before = at.checked_sub(1).map(|before| &lines[before]);
        line.indent == 0 || before.is_none_or(ViewLine::is_blank)
    };
    let is_enough = |at: &usize| end - lines[*at].at >= TAIL_LINES_MIN;
    let later = (first..lines.len()).take(BLOCK_START_WITHIN).find(is_start);
    let earlier = || {
        let before = (0..=first).rev().take(2 * BLOCK_START_WITHIN);
        let mut before = before.take_while(|at| lines[*at].at >= head);
        before.find(is_start)
    };
    let start = later.filter(is_enough).or_else(earlier);
    // With the ruled title directly above it.
    let title = start.and_then(|start| start.checked_sub(1));
    let title =
        title.filter(|at| lines[*at].at >= head && blocks::has_ruled_title(lines[*at].text));
    title.or(start).map_or(tail, |start| lines[start].at)
}

impl FoldSink for Shortener {
    fn folded(&mut self, what: Folded) {
        self.density.count(&what);
        let mut entry = Entry::new(what);
        entry.after_hole = std::mem::take(&mut self.hole);
        self.total_chars = self.total_chars.saturating_add(entry.chars);
        if hides_lines(&entry) && !std::mem::replace(&mut self.hides_lines, true) {
            self.chars += ADVICE_CHARS;
        }
        self.hold(entry);
        // The last line has no newline.
        self.crowded |= self.chars > self.limit + 1;
        if self.held > self.prune_at {
            self.prune();
        }
    }

    fn is_crowded(&self) -> bool {
        self.crowded
    }
}
