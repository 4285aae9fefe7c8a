//! The quick way over a flood: lines that differ in their numbers only are compared, not read.
//!
//! While a repetition of single lines is being counted, one more of them changes two sums, and only
//! the last of all is ever shown. So where a line has the bytes of the line before it, but for digits,
//! it is passed over. The newest lines are held as they came, as many as the usual way still has in
//! hand; when something else comes they go that way, and nothing tells the difference.

use super::fold::Fold;
use super::importance;
use super::screen::Screen;

/// Lines that the fold has in hand beside those on the screen: the open one, the last of the
/// repetition, and the one before it, which may be counted together with an equal one from before.
const IN_HAND: usize = 4;

/// A repetition that is passed over.
pub struct Glide {
    /// One of its lines, with its newline.
    line: Vec<u8>,
    /// All ones where its digit may be another.
    free: Vec<u8>,
    /// Bytes of its text that count: the newline as one, however it is written.
    counted: u64,
    /// The newest lines as they came, and behind them the begin of the next.
    held: Vec<u8>,
    /// The length of that begin.
    begun: usize,
    /// Lines that must be held.
    keep: usize,
}

/// What was done with some bytes.
pub struct Passed {
    /// How many were taken.
    pub used: usize,
    /// Lines that have become mere numbers.
    pub lines: u64,
    /// The bytes that these count for.
    pub bytes: u64,
    /// Whether the rest is something else.
    pub over: bool,
}

impl Glide {
    /// Where everything in hand is one repetition, and `bytes` begin with another line of it.
    pub fn begin(screen: &Screen, fold: &Fold, bytes: &[u8]) -> Option<Glide> {
        let open = fold.open_in_repetition()?;
        let mut rows = screen.full_of_lines()?;
        let text = rows.next_back()??;
        let newline: &[u8] = match bytes.get(text.len()..)? {
            [b'\n', ..] => b"\n",
            [b'\r', b'\n', ..] => b"\r\n",
            _ => return None,
        };
        let plain = text.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        if !plain || !fold.counts(text) {
            return None;
        }
        let mut free = variable(text);
        let is_like_it = |other: &str| {
            other.len() == text.len() && !differs(other.as_bytes(), text.as_bytes(), &free)
        };
        if !is_like_it(open) || !rows.all(|row| row.is_some_and(is_like_it)) {
            return None;
        }
        free.resize(text.len() + newline.len(), 0);
        Some(Glide {
            line: [text.as_bytes(), newline].concat(),
            free,
            counted: text.len() as u64 + 1,
            held: Vec::new(),
            begun: 0,
            keep: screen.height() + IN_HAND,
        })
    }

    /// Takes the lines of the repetition that come first.
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

    /// What has to go the usual way now.
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

    /// How many lines of the repetition come first, each of them other than the one before.
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

    /// Equal lines in a row are counted together, which is not done here.
    fn is_next(&self, before: &[u8], line: &[u8]) -> bool {
        !differs(line, &self.line, &self.free) && line != before
    }

    /// Holds the newest lines; how many others that makes superfluous is returned.
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
    /// The last bytes, where there are as many.
    fn last_chunk_of(&self, length: usize) -> Option<&[u8]>;
}

impl LastChunk for [u8] {
    fn last_chunk_of(&self, length: usize) -> Option<&[u8]> {
        self.get(self.len().checked_sub(length)?..)
    }
}

/// All ones where the digit of a line can be another one without the line being of another kind.
fn variable(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let told = importance::mentions_outcome(text);
    let mut free = vec![0; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes[at..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let end = at + digits;
        // `0x` begins an id. And where a line tells how something went, nought and what looks like
        // a status are told apart: numbers of one figure or of three, as `4.5` is, too.
        let fixed = bytes.get(end) == Some(&b'x') || (told && matches!(digits, 1 | 3));
        if !fixed {
            free[at..end].fill(0xFF);
        }
        at = end + 1;
    }
    free
}

/// Bytes that are compared at once.
const WIDE: usize = 16;

/// Whether a line has other bytes than another one of its length, but for digits where it may. Without
/// branches and in pieces of one size, so that the compiler makes it look at a whole piece at once.
fn differs(line: &[u8], other: &[u8], free: &[u8]) -> bool {
    let mut bad = [0; WIDE];
    let (lines, others, frees) = (
        line.as_chunks::<WIDE>().0,
        other.as_chunks::<WIDE>().0,
        free.as_chunks::<WIDE>().0,
    );
    for ((line, other), free) in lines.iter().zip(others).zip(frees) {
        mark(&mut bad, line, other, free);
    }
    // The last piece may overlap the one before.
    match (line.last_chunk(), other.last_chunk(), free.last_chunk()) {
        (Some(line), Some(other), Some(free)) => mark(&mut bad, line, other, free),
        _ => mark(&mut bad, &padded(line), &padded(other), &padded(free)),
    }
    bad != [0; WIDE]
}

#[inline]
fn mark(bad: &mut [u8; WIDE], line: &[u8; WIDE], other: &[u8; WIDE], free: &[u8; WIDE]) {
    for at in 0..WIDE {
        let digit = u8::from(line[at].wrapping_sub(b'0') < 10).wrapping_neg();
        bad[at] |= (line[at] ^ other[at]) & !(free[at] & digit);
    }
}

fn padded(bytes: &[u8]) -> [u8; WIDE] {
    let mut wide = [0; WIDE];
    wide[..bytes.len()].copy_from_slice(bytes);
    wide
}
