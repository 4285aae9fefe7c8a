//! Shortening of a text that is too long: head, important lines and tail.
//!
//! The text is not cut at the limit. Some lines of its begin, some of its end and the important lines between them are
//! kept. Lines are held until the end, because importance depends on what the others are like. When they are more than
//! [`HOLD_BYTES`], those that would not be shown now are dropped; then again whenever they have doubled, because a high
//! limit keeps most of them.

use std::collections::BTreeMap;

use super::MAX_CHARS;
use super::compose::{BEGIN_CHARS, Composition, hint_clause};
use super::density::Kinds;
use super::entry::{Amount, Entry};
use super::fold::{Fold, FoldSink, Folded, HIDING_END};
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
/// Bytes of lines that are held before some are dropped for the first time.
const HOLD_BYTES: usize = 2 << 20;
/// Important lines that are held when others are dropped, as a multiple of the limit.
const KEEP_TIMES: usize = 4;
/// Characters of the limit that stay unused for each one over that length. Without it, one more line of output could
/// take away most of the text.
const FILL_LESS_TIMES: usize = 8;
/// Room for the advice how to see the lines that a note hides, unless it is the hint.
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
    /// Number of bytes of the output up to now.
    output_bytes: usize,
    /// Number of bytes from which lines are dropped.
    prune_at: usize,
    /// The output is longer than the limit, so that lines with other numbers are folded, from the first one on.
    is_long: bool,
    kinds: Kinds,
    findings: FindingCache,
    /// Lines that were dropped, and what was found in them.
    dropped: Amount,
    counts: Counts,
    /// Number of bytes that were not read.
    unread: u64,
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
            output_bytes: 0,
            prune_at: HOLD_BYTES,
            is_long: false,
            kinds: Kinds::default(),
            findings: FindingCache::default(),
            dropped: Amount::default(),
            counts: Counts::default(),
            unread: 0,
            hole: false,
            hides_lines: false,
        }
    }

    /// Text of an output of so many bytes.
    pub fn finish(mut self, bytes: u64) -> (String, Amount, bool) {
        if !self.is_crowded() {
            let mut lines: Vec<_> = self.entries.iter().map(|e| e.text(usize::MAX)).collect();
            if let Some(note) = self.entries.iter().position(hides_lines) {
                let end = lines[note].len() - HIDING_END.len();
                lines[note].insert_str(end, &advice(bytes, self.limit, &self.hint));
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
            unread: self.unread,
            hint: &self.hint,
        };
        let room = self.limit.saturating_sub(text.size());
        let selector = Selector::new(&lines);
        text.quotes = selector.select(head..tail, self.budget(room), &self.counts);
        text.is_selected = true;
        text.add_gaps();
        let percents = self.kinds.fill_percents(&entries).into_iter();
        let max_chars: Vec<usize> = percents.map(|percent| self.fill_chars(percent)).collect();
        text.fill(&max_chars);
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
            samples: share(5),
        }
    }

    /// Number of characters up to which the text is filled with a line: the limit, or less for a repetition. Output that is
    /// only somewhat over the limit is left out only as far as it is over, because lines of one kind can still be data. The
    /// longer it is, the less of the rest of the limit is used.
    fn fill_chars(&self, percent: Option<usize>) -> usize {
        let length = match percent {
            None => return self.limit,
            Some(0) => return 0,
            Some(percent) => self.limit * percent / 100,
        };
        let over = self.total_chars.saturating_sub(length);
        self.limit
            .saturating_sub(over.saturating_mul(FILL_LESS_TIMES))
    }

    /// Returns whether there is more than will be shown.
    pub fn is_crowded(&self) -> bool {
        // The last line has no newline.
        self.chars > self.limit + 1 || self.dropped != Amount::default()
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
            if entry.after_hole
                || (entry.chars > left && left < BEGIN_CHARS)
                || (run > COMMON_RUN && head >= HEAD_LINES_MIN)
            {
                break;
            }
            chars += entry.chars.min(left);
            head += 1;
        }
        let hole = entries.iter().rposition(|entry| entry.after_hole);
        let first = hole.map_or(head, |hole| hole.max(head));
        let mut tail = entries.len();
        let (mut chars, mut run) = (0, 0);
        while tail > first && entries.len() - tail < self.scaled(TAIL_LINES) {
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
        (head, start_of_block(lines, first, tail, entries.len()))
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
        let percents = self.kinds.fill_percents(&entries);
        for ((entry, keep), percent) in entries.iter().zip(&mut keep).zip(percents) {
            if percent.is_none() {
                *keep |= sum < self.limit;
                sum += entry.chars;
            }
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

    /// Counts bytes that are left out without having been read, so that nobody knows how many lines they are.
    pub fn skip_unread(&mut self, bytes: u64) {
        self.skip(0, bytes);
        self.unread += bytes;
    }

    /// Folds the lines that were held as long as they fitted the limit.
    fn fold_again(&mut self) {
        let entries = std::mem::take(&mut self.entries);
        (self.chars, self.held, self.total_chars) = (0, 0, 0);
        self.kinds = Kinds::default();
        self.hides_lines = false;
        let mut fold = Fold::default();
        for entry in entries {
            if entry.after_hole {
                fold.flush(self);
                self.hole = true;
            }
            match entry.what {
                Folded::Line(line) => fold.push(line, self),
                other => {
                    fold.flush(self);
                    self.folded(other);
                }
            }
        }
        fold.flush(self);
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
fn advice(bytes: u64, limit: usize, hint: &str) -> String {
    if bytes <= limit as u64 {
        return "; raw: true shows all".into();
    }
    match bytes.next_multiple_of(ADVISED_STEP) {
        most if most <= MAX_CHARS as u64 => {
            format!("; raw: true with max_output: {most} shows all")
        }
        _ if hint.is_empty() => "; the log has all".into(),
        _ => hint_clause(hint),
    }
}

/// Start of the tail, moved to the start of a block that is near, but not before `min`.
fn start_of_block(lines: &[ViewLine<'_>], min: usize, tail: usize, end: usize) -> usize {
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
        let mut before = before.take_while(|at| lines[*at].at >= min);
        before.find(is_start)
    };
    let start = later.filter(is_enough).or_else(earlier);
    // With the ruled title directly above it.
    let title = start.and_then(|start| start.checked_sub(1));
    let title = title.filter(|at| lines[*at].at >= min && blocks::has_ruled_title(lines[*at].text));
    title.or(start).map_or(tail, |start| lines[start].at)
}

impl FoldSink for Shortener {
    fn folded(&mut self, what: Folded) {
        let kind = self.kinds.add(&what);
        let mut entry = Entry::new(what, kind);
        entry.after_hole = std::mem::take(&mut self.hole);
        self.total_chars = self.total_chars.saturating_add(entry.chars);
        let bytes = usize::try_from(entry.stands_for().bytes).unwrap_or(usize::MAX);
        self.output_bytes = self.output_bytes.saturating_add(bytes);
        if hides_lines(&entry) && !std::mem::replace(&mut self.hides_lines, true) {
            self.chars += ADVICE_CHARS.max(hint_clause(&self.hint).len());
        }
        self.hold(entry);
        if !self.is_long && self.room() == 0 {
            self.is_long = true;
            self.fold_again();
        }
        if self.held > self.prune_at {
            self.prune();
        }
    }

    fn room(&self) -> usize {
        (self.limit + 1).saturating_sub(self.output_bytes)
    }
}
