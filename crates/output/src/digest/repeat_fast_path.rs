//! Fast path for floods of lines that differ only in digits: such lines are compared, not decoded.
//!
//! While a repetition of single lines is being counted, another one of them only changes two sums, and
//! only the last of all is ever shown. A line that equals the line before it, except for digits, is
//! therefore skipped. The newest lines are held as bytes, as many as the screen and the fold would still
//! hold. When something else comes they are decoded, so that the result is the same with and without
//! the fast path.

use std::ops::Range;

use super::columns::Interval;
use super::fold::Fold;
use super::row::output_bytes;
use super::screen::Screen;
use super::signals::levels;

/// Lines that the fold holds in addition to those on the screen: the open one, the last of the
/// repetition, and the one before it, which may be merged with an equal earlier one.
const HELD_BY_FOLD: usize = 4;

/// Repetition whose lines are being skipped.
pub struct RepeatFastPath {
    /// One line of the repetition, with its newline.
    line: Vec<u8>,
    /// Bytes that are allowed in place of those of `line`.
    allowed: Allowed,
    /// Bytes that each line counts for; `\r\n` counts as one.
    counted: u64,
    /// Newest lines, and behind them the begin of the next one.
    held: Vec<u8>,
    /// Length of that begin.
    begun: usize,
    /// Number of lines that must be held.
    keep: usize,
}

/// Result of [`RepeatFastPath::take`].
pub struct Passed {
    /// Number of bytes taken.
    pub used: usize,
    /// Number of lines that were skipped for good.
    pub lines: u64,
    /// Bytes that these lines count for.
    pub bytes: u64,
    /// The repetition has ended.
    pub over: bool,
}

impl RepeatFastPath {
    /// Fast path, if screen and fold hold lines of one repetition only and `bytes` begin with another one.
    pub fn begin(screen: &Screen, fold: &Fold, bytes: &[u8]) -> Option<RepeatFastPath> {
        let open = fold.open_line_of_repetition()?;
        let mut rows = screen.full_of_lines()?;
        let text = rows.next_back()??;
        let newline: &[u8] = match bytes.get(text.len()..)? {
            [b'\n', ..] => b"\n",
            [b'\r', b'\n', ..] => b"\r\n",
            _ => return None,
        };
        let plain = text.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        if !plain || !fold.continues_repetition(text) {
            return None;
        }
        let mut allowed = variable(text);
        fold.bounds(text)
            .into_iter()
            .for_each(|bounds| allowed.bound(bounds));
        let is_like_it =
            |other: &str| other.len() == text.len() && allowed.allows(other.as_bytes());
        if !is_like_it(open) || !rows.all(|row| row.is_some_and(is_like_it)) {
            return None;
        }
        allowed.extend(newline);
        Some(RepeatFastPath {
            line: [text.as_bytes(), newline].concat(),
            allowed,
            counted: output_bytes(text) + 1,
            held: Vec::new(),
            begun: 0,
            keep: screen.height() + HELD_BY_FOLD,
        })
    }

    /// Takes the lines at the start of `bytes` that belong to the repetition.
    pub fn take(&mut self, bytes: &[u8]) -> Passed {
        let width = self.line.len();
        let mut used = 0;
        if self.begun > 0 {
            used = bytes.len().min(width - self.begun);
            self.held.extend_from_slice(&bytes[..used]);
            self.begun += used;
            if self.begun < width {
                return self.passed(used, 0, false);
            }
            let (before, line) = self.held.split_at(self.held.len() - width);
            let before = before.last_chunk_of(width).unwrap_or(&self.line);
            if !self.is_next(before, line) {
                return self.passed(used, 0, true);
            }
            self.begun = 0;
        }
        let whole = self.whole_lines(&bytes[used..]);
        let taken = whole * width;
        let lines = self.hold(&bytes[used..used + taken]);
        used += taken;
        if bytes.len() - used >= width {
            return self.passed(used, lines, true);
        }
        self.begun = bytes.len() - used;
        self.held.extend_from_slice(&bytes[used..]);
        self.passed(bytes.len(), lines, false)
    }

    /// Bytes that have to be decoded now.
    pub fn into_held(self) -> Vec<u8> {
        self.held
    }

    fn passed(&self, used: usize, lines: u64, over: bool) -> Passed {
        Passed {
            used,
            lines,
            bytes: lines * self.counted,
            over,
        }
    }

    /// Number of lines at the start of `bytes` that belong to the repetition and differ from the one before.
    fn whole_lines(&self, bytes: &[u8]) -> usize {
        let width = self.line.len();
        let mut before = self.held.last_chunk_of(width).unwrap_or(&self.line);
        let mut lines = 0;
        for line in bytes.chunks_exact(width) {
            if !self.is_next(before, line) {
                break;
            }
            before = line;
            lines += 1;
        }
        lines
    }

    /// Equal lines in a row are merged by the fold, not here.
    fn is_next(&self, before: &[u8], line: &[u8]) -> bool {
        self.allowed.allows(line) && line != before
    }

    /// Holds the newest lines. Returns the number of lines that are no longer held.
    fn hold(&mut self, lines: &[u8]) -> u64 {
        let width = self.line.len();
        let most = self.keep * width;
        let before = self.held.len();
        let superfluous = (before + lines.len()).saturating_sub(most);
        self.held.drain(..superfluous.min(before));
        self.held
            .extend_from_slice(&lines[superfluous.saturating_sub(before)..]);
        (superfluous / width) as u64
    }
}

trait LastChunk {
    /// Last `length` bytes, if there are that many.
    fn last_chunk_of(&self, length: usize) -> Option<&[u8]>;
}

impl LastChunk for [u8] {
    fn last_chunk_of(&self, length: usize) -> Option<&[u8]> {
        self.get(self.len().checked_sub(length)?..)
    }
}

/// Bounds of a number in a line of fixed length, as text.
#[derive(Debug, PartialEq, Eq)]
pub struct Bounds {
    pub start: usize,
    pub low: Vec<u8>,
    pub high: Vec<u8>,
}

impl Bounds {
    /// Bounds of the numbers that are in an interval and have as many digits and decimals as `number`.
    pub fn within(interval: Interval, number: &[u8], start: usize) -> Self {
        let digits = number.iter().filter(|byte| byte.is_ascii_digit()).count();
        let decimals = number.iter().rev().position(|byte| *byte == b'.');
        let scale = 10_f64.powi(i32::try_from(decimals.unwrap_or(0)).unwrap_or(0));
        let largest = 10_u64.pow(u32::try_from(digits).unwrap_or(0)) - 1;
        // The product may be rounded away from the interval.
        let low = ((interval.min * scale).ceil().max(0.) as u64).min(largest);
        let low = low + u64::from(low as f64 / scale < interval.min);
        let high = ((interval.max * scale).floor().max(0.) as u64).min(largest);
        let high = high.saturating_sub(u64::from(high as f64 / scale > interval.max));
        let text = |value: u64| {
            let mut value = format!("{value:0digits$}").into_bytes();
            for (at, byte) in number.iter().enumerate() {
                if !byte.is_ascii_digit() {
                    value.insert(at, *byte);
                }
            }
            value
        };
        Bounds {
            start,
            low: text(low),
            high: text(high),
        }
    }

    /// Returns whether the number of a line is in them.
    fn contain(&self, line: &[u8]) -> bool {
        let number = &line[self.start..self.start + self.low.len()];
        let is_between = self.low[0] < number[0] && number[0] < self.high[0];
        is_between || (*self.low <= *number && *number <= *self.high)
    }
}

/// Bytes that are allowed at each place of a line: those from `low` on, as many as `count`.
#[derive(Default)]
struct Allowed {
    low: Vec<u8>,
    count: Vec<u8>,
    /// Bounds of numbers. They have the length that the numbers have in the line.
    bounds: Vec<Bounds>,
}

impl Allowed {
    /// Allows these bytes only.
    fn extend(&mut self, bytes: &[u8]) {
        self.low.extend_from_slice(bytes);
        self.count.resize(self.low.len(), 1);
    }

    /// Allows any digit at these places.
    fn free(&mut self, places: Range<usize>) {
        self.low[places.clone()].fill(b'0');
        self.count[places].fill(10);
    }

    /// Allows no numbers outside these bounds.
    fn bound(&mut self, mut bounds: Bounds) {
        let digits = bounds.low.iter().zip(&bounds.high).zip(bounds.start..);
        for ((low, high), at) in digits {
            if self.count[at] > 1 && low <= high {
                self.low[at] = *low;
                self.count[at] = high - low + 1;
            }
            if low != high {
                // The digits behind this one matter only beside its own bounds.
                let before = at - bounds.start;
                bounds.start = at;
                bounds.low.drain(..before);
                bounds.high.drain(..before);
                self.bounds.push(bounds);
                return;
            }
        }
    }

    fn allows(&self, line: &[u8]) -> bool {
        !differs(line, self) && self.bounds.iter().all(|bounds| bounds.contain(line))
    }
}

/// Bytes allowed in lines like this one: any digit where that does not change the shape of the line.
fn variable(text: &str) -> Allowed {
    let bytes = text.as_bytes();
    let outcome = levels::mentions_outcome(text);
    let mut allowed = Allowed::default();
    allowed.extend(bytes);
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes[at..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let end = at + digits;
        // `0x` begins an id. If a line mentions an outcome, zero and HTTP status codes are told apart,
        // so numbers of one or three digits (such as those of `4.5`) must stay.
        let fixed = bytes.get(end) == Some(&b'x') || (outcome && matches!(digits, 1 | 3));
        if !fixed {
            allowed.free(at..end);
        }
        at = end + 1;
    }
    allowed
}

/// Number of bytes that are compared at once.
const WIDE: usize = 16;

/// Returns whether a line has a byte that is not allowed. Without branches and in blocks of fixed size, so that the
/// compiler vectorizes it.
fn differs(line: &[u8], allowed: &Allowed) -> bool {
    let mut bad = [0; WIDE];
    let (lines, lows, counts) = (
        line.as_chunks::<WIDE>().0,
        allowed.low.as_chunks::<WIDE>().0,
        allowed.count.as_chunks::<WIDE>().0,
    );
    for ((line, low), count) in lines.iter().zip(lows).zip(counts) {
        mark(&mut bad, line, low, count);
    }
    // The last piece may overlap the one before.
    match (
        line.last_chunk(),
        allowed.low.last_chunk(),
        allowed.count.last_chunk(),
    ) {
        (Some(line), Some(low), Some(count)) => mark(&mut bad, line, low, count),
        _ => mark(
            &mut bad,
            &padded(line, 0),
            &padded(&allowed.low, 0),
            &padded(&allowed.count, 1),
        ),
    }
    bad != [0; WIDE]
}

#[inline]
fn mark(bad: &mut [u8; WIDE], line: &[u8; WIDE], low: &[u8; WIDE], count: &[u8; WIDE]) {
    for at in 0..WIDE {
        bad[at] |= u8::from(line[at].wrapping_sub(low[at]) >= count[at]);
    }
}

fn padded(bytes: &[u8], with: u8) -> [u8; WIDE] {
    let mut wide = [with; WIDE];
    wide[..bytes.len()].copy_from_slice(bytes);
    wide
}
