//! Repetitions among lines become one line, or two, with a count.
//!
//! - Equal lines in a row: one line and ` [×1203]`. Blank lines: two are left alone, more are
//!   counted.
//! - Lines in a row that differ in their numbers only: the first, `[… 98 more like this, other
//!   numbers …]`, the last. How many it takes is decided by [`FoldRule`], so that `seq 100`, tables
//!   and listings stay whole.
//! - A cycle of up to eight lines, three times or more: once with its count, or the first and the
//!   last where numbers differ.

use std::collections::VecDeque;
use std::fmt;

use super::importance;
use super::line_shape::{FoldRule, LINES_NEEDED_MAX, LineShape};
use super::row::Omission;

/// The longest cycle that is seen as one, in lines.
pub const PERIOD_MAX: usize = 8;
/// Times a cycle of several lines must come.
const CYCLES_NEEDED: usize = 3;
/// Lines that wait to be seen as the begin of a repetition.
const PENDING_MAX: usize = if LINES_NEEDED_MAX > PERIOD_MAX * CYCLES_NEEDED {
    LINES_NEEDED_MAX
} else {
    PERIOD_MAX * CYCLES_NEEDED
};
/// Longer lines are not part of a cycle, so that few of them are held.
const LONG_LINE: usize = 2_048;

/// Where a line is in the stream, as `grep -n` would say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number {
    /// How many gaps came before it; behind one, lines are counted from there.
    pub gaps: u32,
    pub line: u64,
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.gaps {
            0 => write!(f, "{}", self.line),
            1 => write!(f, "gap+{}", self.line),
            gaps => write!(f, "gap{gaps}+{}", self.line),
        }
    }
}

/// A line, or several equal ones in a row.
#[derive(Clone, Debug)]
pub struct Line {
    pub number: Number,
    pub text: String,
    pub omission: Option<Omission>,
    pub count: u64,
    pub shape: LineShape,
}

/// What is left of the lines.
#[derive(Clone, Debug)]
pub enum Folded {
    Line(Line),
    /// Stands between the first and the last of a repetition.
    Note {
        text: String,
        /// How many lines before it are those that are repeated.
        period: usize,
        lines: u64,
        bytes: u64,
    },
    /// Bytes are missing here.
    Gap(String),
}

pub trait Out {
    fn folded(&mut self, folded: Folded);
    /// Is there more than will be shown? Then repetitions are seen more readily.
    fn is_crowded(&self) -> bool;
}

#[derive(Default)]
pub struct Fold {
    open: Option<Open>,
    pending: VecDeque<Line>,
    /// For each period, how many of the last lines are equal to the one a period before.
    equal: [usize; PERIOD_MAX],
    alike: [usize; PERIOD_MAX],
    run: Option<Run>,
}

/// Equal lines, of which more may come.
struct Open {
    number: Number,
    text: String,
    omission: Option<Omission>,
    count: u64,
}

struct Run {
    first: Vec<Line>,
    last: Vec<Line>,
    next: Vec<Line>,
    cycles: u64,
    lines: u64,
    bytes: u64,
    exact: bool,
}

impl Fold {
    pub fn line(
        &mut self,
        number: Number,
        text: &str,
        omission: Option<Omission>,
        out: &mut impl Out,
    ) {
        if let Some(open) = &mut self.open
            && open.text == text
            && open.omission == omission
        {
            open.count += 1;
            return;
        }
        let mut fresh = Open {
            number,
            text: String::new(),
            omission,
            count: 1,
        };
        fresh.text.push_str(text);
        if let Some(open) = self.open.replace(fresh) {
            self.take(open, out);
        }
    }

    /// All that was held back is let go.
    pub fn flush(&mut self, out: &mut impl Out) {
        if let Some(open) = self.open.take() {
            self.take(open, out);
        }
        self.close_run(out);
        self.release(out);
    }

    /// Open line, if a repetition of single lines that differ in numbers is being counted.
    pub fn open_line_of_repetition(&self) -> Option<&str> {
        let run = self.run.as_ref()?;
        let open = self.open.as_ref()?;
        (run.first.len() == 1 && !run.exact && open.omission.is_none()).then_some(&open.text)
    }

    /// Returns whether this line continues that repetition.
    pub fn continues_repetition(&self, text: &str) -> bool {
        let line = Line {
            number: Number::default(),
            text: text.to_owned(),
            omission: None,
            count: 1,
            shape: LineShape::of(text),
        };
        let run = self.run.as_ref();
        line.shape.fold_rule != FoldRule::Never && run.is_some_and(|run| run.continues_with(&line))
    }

    /// Counts lines of that repetition that took the fast path.
    pub fn pass(&mut self, lines: u64, bytes: u64) {
        if let Some(run) = &mut self.run {
            run.cycles += lines;
            run.lines += lines;
            run.bytes += bytes;
        }
    }

    fn take(&mut self, open: Open, out: &mut impl Out) {
        let line = Line {
            shape: LineShape::of(&open.text),
            number: open.number,
            text: open.text,
            omission: open.omission,
            count: open.count,
        };
        self.push(line, out);
    }

    fn push(&mut self, line: Line, out: &mut impl Out) {
        if let Some(run) = &mut self.run {
            if run.continues_with(&line) {
                run.add(line);
                return;
            }
            for line in self.close_run(out) {
                self.wait(line, out);
            }
        }
        self.wait(line, out);
    }

    /// Ends the run and gives back the lines of its unfinished cycle.
    fn close_run(&mut self, out: &mut impl Out) -> Vec<Line> {
        let Some(run) = self.run.take() else {
            return Vec::new();
        };
        let rest = run.tell(out);
        (self.equal, self.alike) = ([0; PERIOD_MAX], [0; PERIOD_MAX]);
        rest
    }

    fn wait(&mut self, line: Line, out: &mut impl Out) {
        if line.text.len() > LONG_LINE {
            self.release(out);
            out.folded(Folded::Line(line));
            return;
        }
        let crowded = out.is_crowded();
        for period in 1..=PERIOD_MAX {
            let before = self.pending.len().checked_sub(period);
            let (equal, alike) = match before.map(|at| &self.pending[at]) {
                Some(before) => (is_equal(before, &line), is_alike(before, &line)),
                None => (false, false),
            };
            let at = period - 1;
            self.equal[at] = if equal { self.equal[at] + 1 } else { 0 };
            self.alike[at] = if alike { self.alike[at] + 1 } else { 0 };
        }
        self.pending.push_back(line);
        if let Some((period, lines, exact)) = self.repetition(crowded) {
            self.start_run(period, lines, exact, out);
        } else if self.pending.len() > PENDING_MAX
            && let Some(line) = self.pending.pop_front()
        {
            out.folded(Folded::Line(line));
        }
    }

    /// The shortest repetition that ends here: its period, its lines, and whether it is exact.
    fn repetition(&self, crowded: bool) -> Option<(usize, usize, bool)> {
        for period in 1..=PERIOD_MAX.min(self.pending.len()) {
            let (equal, alike) = (self.equal[period - 1], self.alike[period - 1]);
            let lines = period * CYCLES_NEEDED;
            if period > 1 && equal + period >= lines {
                return Some((period, lines, true));
            }
            if alike == 0 {
                continue;
            }
            let cycle = self.pending.iter().rev().take(period);
            let lines_needed = cycle.filter_map(|line| line.shape.fold_rule.lines_needed(crowded));
            let Some(lines_needed) = lines_needed.max() else {
                continue;
            };
            let lines = if period == 1 {
                lines_needed
            } else {
                lines_needed.next_multiple_of(period).max(lines)
            };
            if lines <= self.pending.len() && alike + period >= lines {
                return Some((period, lines, false));
            }
        }
        None
    }

    fn start_run(&mut self, period: usize, lines: usize, exact: bool, out: &mut impl Out) {
        let mut cycles = self.pending.split_off(self.pending.len() - lines);
        self.release(out);
        let mut run = Run {
            first: cycles.drain(..period).collect(),
            last: Vec::new(),
            next: Vec::new(),
            cycles: 1,
            lines: 0,
            bytes: 0,
            exact,
        };
        for line in cycles {
            run.add(line);
        }
        self.run = Some(run);
    }

    fn release(&mut self, out: &mut impl Out) {
        for line in self.pending.drain(..) {
            out.folded(Folded::Line(line));
        }
        (self.equal, self.alike) = ([0; PERIOD_MAX], [0; PERIOD_MAX]);
    }
}

impl Run {
    fn continues_with(&self, line: &Line) -> bool {
        let expected = &self.first[self.next.len()];
        if self.exact {
            is_equal(expected, line)
        } else {
            is_alike(expected, line)
        }
    }

    fn add(&mut self, line: Line) {
        self.next.push(line);
        if self.next.len() == self.first.len() {
            self.cycles += 1;
            let between = std::mem::replace(&mut self.last, std::mem::take(&mut self.next));
            self.lines += between.iter().map(|line| line.count).sum::<u64>();
            self.bytes += between.iter().map(Line::bytes).sum::<u64>();
        }
    }

    fn tell(self, out: &mut impl Out) -> Vec<Line> {
        let period = self.first.len();
        for line in self.first {
            out.folded(Folded::Line(line));
        }
        if self.exact {
            let last = self.last.iter();
            out.folded(Folded::Note {
                text: format!("[these {period} lines ×{}]", self.cycles),
                period,
                lines: self.lines + last.clone().map(|line| line.count).sum::<u64>(),
                bytes: self.bytes + last.map(Line::bytes).sum::<u64>(),
            });
            return self.next;
        }
        let text = if period == 1 {
            format!("[… {} more like this, other numbers …]", self.lines)
        } else {
            let times = self.cycles - 2;
            format!("[… these {period} lines {times} more times, other numbers …]")
        };
        out.folded(Folded::Note {
            text,
            period,
            lines: self.lines,
            bytes: self.bytes,
        });
        for line in self.last {
            out.folded(Folded::Line(line));
        }
        self.next
    }
}

impl Line {
    /// Bytes of text that this stands for, newlines included.
    pub fn bytes(&self) -> u64 {
        let omission = self.omission.map_or(0, |omission| omission.bytes);
        (self.text.len() as u64 + omission + 1) * self.count
    }
}

fn is_equal(a: &Line, b: &Line) -> bool {
    a.shape.exact == b.shape.exact && a.count == b.count && a.omission == b.omission
}

fn is_alike(a: &Line, b: &Line) -> bool {
    if a.shape.without_numbers != b.shape.without_numbers {
        return false;
    }
    if a.shape.fold_rule == FoldRule::Never && b.shape.fold_rule == FoldRule::Never {
        return a.text == b.text;
    }
    a.shape.figures == b.shape.figures || !importance::mentions_outcome(&b.text)
}
