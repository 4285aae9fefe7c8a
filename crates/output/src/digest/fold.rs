//! Folding of repeated lines into one line, or two, with a count.
//!
//! - Equal lines in a row: one line and ` [×1203]`. Two blank lines stay, more are counted.
//! - Lines in a row that differ only in numbers: the first, `[… 98 more with other numbers …]`, the last. In output
//!   that fits the limit, only if the numbers count. `seq 100`, tables and listings stay whole. Short
//!   repetitions stay whole too, and a line with an outlier ends a repetition. One whose outlier is an amount begins the
//!   rest of it.
//! - A cycle of up to eight lines, three times or more: once with its count, or the first and the last if
//!   numbers differ.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::fmt;

use super::columns::{self, Columns, Numbers};
use super::line_shape::LineShape;
use super::repeat_fast_path::Bounds;
use super::row::{Omission, output_bytes};
use super::signals::levels;

/// Maximum number of lines of a cycle.
pub const PERIOD_MAX: usize = 8;
/// Minimum number of times that a cycle of several lines must come.
const CYCLES_MIN: usize = 3;
/// Number of lines with other numbers in a row from which on they are folded.
const LINES_TO_FOLD: usize = columns::LINES_BEFORE_FAR as usize;
/// Maximum number of amounts far from the others that keep lines from being the first of a repetition, and the number of
/// lines after which only one does. So amounts that are frequent do not.
const FAR_AT_BEGIN: usize = 3;
const DELAY_MAX: usize = 4 * LINES_TO_FOLD;
/// Lines that are held because they may begin a repetition.
const PENDING_MAX: usize = PERIOD_MAX * CYCLES_MIN;
/// Minimum number of bytes between the first and the last line of a repetition with other numbers. Fewer are shown:
/// a note would save little and could hide what the reader wants.
const HIDDEN_MIN: u64 = 200;
/// The same in output that fits the limit, if the numbers count. Others are shown, as long as there is room.
const HIDDEN_MIN_COUNTING: u64 = 1_000;
/// End of a note that hides lines.
pub const HIDING_END: &str = " …]";
/// Longer lines are not part of a cycle, which bounds the memory.
const LONG_LINE: usize = 2_048;

/// Number of a line in the stream, as `grep -n` counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LineNumber {
    /// Number of gaps before the line. Lines are counted from the last gap.
    pub gaps: u32,
    /// Number of the line, from one.
    pub line: u64,
}

impl fmt::Display for LineNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.gaps {
            0 => write!(f, "{}", self.line),
            1 => write!(f, "gap+{}", self.line),
            gaps => write!(f, "gap{gaps}+{}", self.line),
        }
    }
}

/// Line, or several equal ones in a row.
#[derive(Clone, Debug)]
pub struct Line {
    pub number: LineNumber,
    pub text: String,
    pub omission: Option<Omission>,
    pub count: u64,
    pub shape: LineShape,
    /// Numbers of the line, once they were needed.
    numbers: OnceCell<Box<Numbers>>,
}

/// Result of folding.
#[derive(Clone, Debug)]
pub enum Folded {
    Line(Line),
    /// Note between the first and the last of a repetition.
    Note {
        text: String,
        /// Number of lines before the note that are repeated.
        period: usize,
        lines: u64,
        bytes: u64,
    },
    /// Note that bytes are missing here.
    Gap(String),
}

/// Receiver of folded lines.
pub trait FoldSink {
    fn folded(&mut self, folded: Folded);
    /// Number of characters that still fit the limit.
    fn room(&self) -> usize;
}

/// Folds a stream of lines.
#[derive(Default)]
pub struct Fold {
    open: Option<EqualLines>,
    pending: VecDeque<Line>,
    /// For each period, the number of last lines that equal the one a period before.
    equal: [usize; PERIOD_MAX],
    alike: [usize; PERIOD_MAX],
    /// Number of lines in a row that began no repetition only because of an outlier.
    delay: usize,
    repetition: Option<Repetition>,
}

/// Equal lines in a row, of which more may come.
struct EqualLines {
    number: LineNumber,
    text: String,
    omission: Option<Omission>,
    count: u64,
}

struct Repetition {
    first: Vec<Line>,
    last: Vec<Line>,
    next: Vec<Line>,
    cycles: u64,
    lines: u64,
    bytes: u64,
    exact: bool,
    /// Lines between `first` and `last`, until they are so many that a note replaces them.
    between: Vec<Line>,
    hides_lines: bool,
    /// Numbers of each line of the cycle.
    columns: Vec<Columns>,
}

impl Fold {
    pub fn line(
        &mut self,
        number: LineNumber,
        text: &str,
        omission: Option<Omission>,
        out: &mut impl FoldSink,
    ) {
        if let Some(open) = &mut self.open
            && open.text == text
            && open.omission == omission
        {
            open.count += 1;
            return;
        }
        let mut fresh = EqualLines {
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

    /// Emits everything that is held.
    pub fn flush(&mut self, out: &mut impl FoldSink) {
        if let Some(open) = self.open.take() {
            self.take(open, out);
        }
        let rest = self.end_repetition(out);
        self.emit_pending(out);
        rest.into_iter()
            .for_each(|line| out.folded(Folded::Line(line)));
    }

    /// Open line, if a repetition of single lines that differ in numbers is being counted and none of them is held.
    pub fn open_line_of_repetition(&self) -> Option<&str> {
        let repetition = self.repetition.as_ref()?;
        let open = self.open.as_ref()?;
        let has_learned = repetition.columns.first().is_some_and(Columns::has_learned);
        let is_counted = repetition.first.len() == 1 && repetition.hides_lines && has_learned;
        (is_counted && !repetition.exact && open.omission.is_none()).then_some(&open.text)
    }

    /// Bounds of the numbers of `text` in lines of that repetition.
    pub fn bounds(&self, text: &str) -> Vec<Bounds> {
        let repetition = self.repetition.as_ref();
        let columns = repetition.and_then(|repetition| repetition.columns.first());
        columns.map_or_else(Vec::new, |columns| columns.bounds(text))
    }

    /// Returns whether this line continues that repetition.
    pub fn continues_repetition(&self, text: &str) -> bool {
        let line = Line {
            number: LineNumber::default(),
            text: text.to_owned(),
            omission: None,
            count: 1,
            shape: LineShape::of(text),
            numbers: OnceCell::new(),
        };
        let repetition = self.repetition.as_ref();
        !line.shape.is_data && repetition.is_some_and(|repetition| repetition.continues_with(&line))
    }

    /// Counts lines of that repetition that took the fast path.
    pub fn skip_lines(&mut self, lines: u64, bytes: u64) {
        if let Some(repetition) = &mut self.repetition {
            repetition.cycles += lines;
            repetition.lines += lines;
            repetition.bytes += bytes;
            repetition.columns[0].add_alike(lines);
        }
    }

    fn take(&mut self, open: EqualLines, out: &mut impl FoldSink) {
        let line = Line {
            shape: LineShape::of(&open.text),
            number: open.number,
            text: open.text,
            omission: open.omission,
            count: open.count,
            numbers: OnceCell::new(),
        };
        self.push(line, out);
    }

    /// Takes a line, or several equal ones.
    pub fn push(&mut self, line: Line, out: &mut impl FoldSink) {
        if let Some(repetition) = &mut self.repetition {
            if repetition.continues_with(&line) {
                repetition.add(line, out.room());
                return;
            }
            if repetition.is_interrupted_by(&line) {
                self.begin_rest(line, out);
                return;
            }
            for line in self.end_repetition(out) {
                self.hold(line, out);
            }
        }
        self.hold(line, out);
    }

    /// Ends the repetition and begins its rest with a line.
    fn begin_rest(&mut self, line: Line, out: &mut impl FoldSink) {
        if let Some(mut repetition) = self.repetition.take() {
            let mut columns = std::mem::take(&mut repetition.columns);
            repetition.emit(out);
            columns[0].add_far(line.numbers());
            self.repetition = Some(Repetition::begin(vec![line], columns, false));
        }
    }

    /// Ends the repetition and returns the lines of its incomplete cycle.
    fn end_repetition(&mut self, out: &mut impl FoldSink) -> Vec<Line> {
        let Some(repetition) = self.repetition.take() else {
            return Vec::new();
        };
        let rest = repetition.emit(out);
        (self.equal, self.alike) = ([0; PERIOD_MAX], [0; PERIOD_MAX]);
        rest
    }

    fn hold(&mut self, line: Line, out: &mut impl FoldSink) {
        if line.text.len() > LONG_LINE {
            self.emit_pending(out);
            out.folded(Folded::Line(line));
            return;
        }
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
        if let Some((period, lines, exact)) = self.find_repetition() {
            self.start_repetition(period, lines, exact, out);
        } else if self.pending.len() > PENDING_MAX
            && let Some(line) = self.pending.pop_front()
        {
            out.folded(Folded::Line(line));
        }
    }

    /// Shortest repetition that ends here: its period, its lines, and whether it is exact.
    fn find_repetition(&mut self) -> Option<(usize, usize, bool)> {
        for period in 1..=PERIOD_MAX.min(self.pending.len()) {
            let (equal, alike) = (self.equal[period - 1], self.alike[period - 1]);
            let lines = period * CYCLES_MIN;
            if period > 1 && equal + period >= lines {
                return Some((period, lines, true));
            }
            if alike == 0 {
                continue;
            }
            let mut cycle = self.pending.iter().rev().take(period);
            if cycle.all(|line| line.shape.is_data) {
                continue;
            }
            let lines = LINES_TO_FOLD.next_multiple_of(period).max(lines);
            if lines <= self.pending.len() && alike + period >= lines {
                // A longer period would only hide the outlier.
                let has_outlier = self.has_outlier(period, lines);
                self.delay = if has_outlier { self.delay + 1 } else { 0 };
                return (!has_outlier).then_some((period, lines, false));
            }
        }
        self.delay = 0;
        None
    }

    /// Returns whether one of the last lines, which would begin a repetition, has an outlier.
    fn has_outlier(&self, period: usize, lines: usize) -> bool {
        let first = self.pending.len() - lines;
        let far_max = if self.delay < DELAY_MAX {
            FAR_AT_BEGIN
        } else {
            1
        };
        (0..period).any(|at| {
            let lines = self.pending.iter().skip(first + at).step_by(period);
            columns::any_outlier(lines.map(Line::numbers), far_max)
        })
    }

    fn start_repetition(
        &mut self,
        period: usize,
        lines: usize,
        exact: bool,
        out: &mut impl FoldSink,
    ) {
        let mut cycles = self.pending.split_off(self.pending.len() - lines);
        self.emit_pending(out);
        let first: Vec<Line> = cycles.drain(..period).collect();
        let columns = first.iter().map(|line| {
            let mut columns = Columns::default();
            columns.add(line.numbers());
            columns
        });
        let columns = columns.collect();
        let mut repetition = Repetition::begin(first, columns, exact);
        for line in cycles {
            repetition.add(line, out.room());
        }
        self.repetition = Some(repetition);
    }

    fn emit_pending(&mut self, out: &mut impl FoldSink) {
        for line in self.pending.drain(..) {
            out.folded(Folded::Line(line));
        }
        (self.equal, self.alike) = ([0; PERIOD_MAX], [0; PERIOD_MAX]);
    }
}

impl Repetition {
    fn begin(first: Vec<Line>, columns: Vec<Columns>, exact: bool) -> Self {
        Repetition {
            columns,
            between: Vec::new(),
            hides_lines: false,
            first,
            last: Vec::new(),
            next: Vec::new(),
            cycles: 1,
            lines: 0,
            bytes: 0,
            exact,
        }
    }

    fn continues_with(&self, line: &Line) -> bool {
        let expected = &self.first[self.next.len()];
        if self.exact {
            is_equal(expected, line)
        } else {
            self.is_like_others(line) && !self.columns[self.next.len()].is_far(line.numbers())
        }
    }

    fn is_like_others(&self, line: &Line) -> bool {
        let at = self.next.len();
        is_alike(&self.first[at], line) && !self.columns[at].has_outlier(line.numbers())
    }

    /// Returns whether a line is one more of single lines, but with an amount far from theirs.
    fn is_interrupted_by(&self, line: &Line) -> bool {
        let is_single = self.first.len() == 1 && !self.exact;
        is_single && self.is_like_others(line) && self.columns[0].is_far(line.numbers())
    }

    fn add(&mut self, line: Line, room: usize) {
        if !self.exact {
            self.columns[self.next.len()].add(line.numbers());
        }
        self.next.push(line);
        if self.next.len() == self.first.len() {
            self.cycles += 1;
            let between = std::mem::replace(&mut self.last, std::mem::take(&mut self.next));
            self.lines += between.iter().map(|line| line.count).sum::<u64>();
            self.bytes += between.iter().map(Line::bytes).sum::<u64>();
            self.hides_lines |= self.exact || self.hides_enough(room);
            match self.hides_lines {
                true => self.between.clear(),
                false => self.between.extend(between),
            }
        }
    }

    /// Returns whether a note instead of the lines between the first and the last saves much.
    fn hides_enough(&self, room: usize) -> bool {
        self.bytes >= HIDDEN_MIN.max(room as u64)
            || (self.bytes >= HIDDEN_MIN_COUNTING && self.columns.iter().all(Columns::only_count))
    }

    fn emit(self, out: &mut impl FoldSink) -> Vec<Line> {
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
        if !self.hides_lines {
            let shown = self.between.into_iter().chain(self.last);
            shown.for_each(|line| out.folded(Folded::Line(line)));
            return self.next;
        }
        let text = if period == 1 {
            format!("[… {} more with other numbers{HIDING_END}", self.lines)
        } else {
            let times = self.cycles - 2;
            format!("[… these {period} lines {times} more times with other numbers{HIDING_END}")
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
    fn numbers(&self) -> &Numbers {
        self.numbers
            .get_or_init(|| Box::new(Numbers::of(&self.text)))
    }

    /// Number of bytes of the output that this line stands for, including newlines.
    pub fn bytes(&self) -> u64 {
        let omission = self.omission.unwrap_or_default().output_bytes;
        (output_bytes(&self.text) + omission + 1) * self.count
    }
}

fn is_equal(a: &Line, b: &Line) -> bool {
    a.shape.exact == b.shape.exact && a.count == b.count && a.omission == b.omission
}

fn is_alike(a: &Line, b: &Line) -> bool {
    if a.shape.without_numbers != b.shape.without_numbers {
        return false;
    }
    if a.shape.is_data && b.shape.is_data {
        return a.text == b.text;
    }
    a.shape.number_classes == b.shape.number_classes || !levels::mentions_outcome(&b.text)
}
