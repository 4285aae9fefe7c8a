//! Digest of output for a language model: the text that a terminal would show, no longer than needed.
//!
//! A stream of bytes passes four stages, each with bounded memory:
//!
//! ```text
//! bytes ─ decoder ─► text, operations ─ screen ─► lines ─ fold ─► fewer lines ─ shorten ─► text
//! ```
//!
//! - `decoder`, `csi`: UTF-8 and escape sequences. Everything that could reprogram a terminal or hide text
//!   ends here.
//! - `screen`, `row`: the last rows, which can still be overwritten.
//! - `fold`, `line_shape`, `columns`: repetitions, exact or except for numbers, without outliers.
//!   `repeat_fast_path` skips the earlier stages for floods of them.
//! - `shorten`, `view`, `density`: lines of a text that is too long, held in bounded memory until it is
//!   known what is important among them. `signals` finds that (its table is the place to start),
//!   `select` spends the limit on it, `compose`, `entry` and `truncate` write the text.
//! - `flood`: output beyond the first megabytes is scanned, and decoded only where it may matter.
//!
//! The result depends only on the bytes, not on how they are cut into chunks. The text has no newline at
//! its end. If it has no escape sequences and no repetitions and is short enough, all other characters are
//! unchanged.

mod columns;
mod compose;
mod csi;
mod decoder;
mod density;
mod entry;
mod flood;
mod fold;
mod line_counter;
mod line_shape;
mod raw;
mod rendered_rows;
mod repeat_fast_path;
mod row;
mod screen;
mod select;
mod shorten;
mod signals;
mod truncate;
mod view;

pub use compose::line_count;
pub use rendered_rows::rendered_rows;

use decoder::Decoder;
use flood::{Flood, FloodSink, SCAN_AFTER};
use fold::{Fold, FoldSink as _, Folded, LineNumber};
use raw::RawText;
use repeat_fast_path::RepeatFastPath;
use row::Omission;
use screen::{LineSink, Painter, Screen};
use shorten::Shortener;

/// Default of [`Limits::max_chars`].
pub const DEFAULT_CHARS: usize = 10_000;
/// Largest [`Limits::max_chars`].
pub const MAX_CHARS: usize = 1_000_000;
/// Default of [`Limits::rows`], for output of unknown terminals.
pub const DEFAULT_ROWS: u16 = 64;
const MAX_ROWS: u16 = 200;
/// Bytes that are decoded at once, which bounds the memory for one chunk.
const CHUNK_BYTES: usize = 64 << 10;
/// Number of bytes that are decoded before the fast path is tried again.
const TRY_AFTER: usize = 16 << 10;

/// Options of a digest.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum number of characters in the text, at most [`MAX_CHARS`].
    pub max_chars: usize,
    /// Leave the bytes as they are: no folding, no removal of escape sequences. They are only shortened,
    /// and U+FFFD replaces what is not UTF-8.
    pub raw: bool,
    /// Advice for the reader of a shortened text: where the omitted part is. A clause that follows
    /// `left out; `, without a period. Empty: none.
    pub omitted_hint: String,
    /// Height of the terminal that the program wrote to.
    pub rows: u16,
    /// Number of lines before the stream, of this and of other streams, if it is the rest of an output. Numbers of
    /// lines count them.
    pub lines_before: u64,
    /// Skip the earlier stages for lines that repeat except for numbers. The text is the same without it.
    pub repeat_fast_path: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_chars: DEFAULT_CHARS,
            raw: false,
            omitted_hint: String::new(),
            rows: DEFAULT_ROWS,
            lines_before: 0,
            repeat_fast_path: true,
        }
    }
}

/// Bytes that are not passed to a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// Missing from the log.
    Dropped(u64),
    /// In the log, but not read.
    Unread(u64),
}

/// Result of a digest. The default is that of an empty stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digested {
    /// Text without a newline at its end.
    pub text: String,
    /// Number of lines in the bytes that were read.
    pub lines_total: u64,
    /// Number of bytes of the stream, including those in gaps.
    pub bytes_total: u64,
    /// Number of lines that are not in the text because it was too long. Folded lines do not count.
    pub lines_left_out: u64,
    /// Number of bytes of these lines, without escape sequences, and of bytes in gaps.
    pub bytes_left_out: u64,
    /// `lines_left_out` is too low, because a part of the log was not read.
    pub uncounted: bool,
    /// Something was left out.
    pub shortened: bool,
}

/// Makes a [`Digested`] text of a stream of bytes, which may be cut anywhere.
///
/// ```
/// use abide_output::digest::{Digest, Limits};
///
/// let mut digest = Digest::new(&Limits::default());
/// for number in 0..100 {
///     digest.push(format!("\x1b[32mok\x1b[0m case {number}\n").as_bytes());
/// }
/// let digested = digest.finish();
/// assert_eq!(
///     digested.text,
///     "ok case 0\n[… 98 more with other numbers; raw: true shows all …]\nok case 99"
/// );
/// assert_eq!(digested.lines_total, 100);
/// ```
pub struct Digest {
    mode: Mode,
    bytes: u64,
    gap_bytes: u64,
    newlines: u64,
    ends_open: bool,
    uncounted: bool,
}

/// Kind of digest.
enum Mode {
    Raw(RawText),
    Text(Box<Pipeline>),
}

/// Stages of a digest.
struct Pipeline {
    decoder: Decoder,
    screen: Screen,
    lines: LineStage,
    fast_path: Option<RepeatFastPath>,
    use_fast_path: bool,
    flood: Option<Flood>,
    /// Number of bytes before a scan may begin.
    until_flood: u64,
    /// Number of bytes at the end of a scan that are decoded.
    flood_keep: usize,
}

/// Stages behind the screen.
struct LineStage {
    fold: Fold,
    shortener: Shortener,
    gaps: u32,
    /// Number of newlines before the last gap.
    base: u64,
}

impl LineSink for LineStage {
    fn line(&mut self, newlines: u64, text: &str, omission: Option<Omission>) {
        let number = LineNumber {
            gaps: self.gaps,
            line: newlines - self.base + 1,
        };
        self.fold.line(number, text, omission, &mut self.shortener);
    }
}

impl Digest {
    /// Digest of an empty stream.
    pub fn new(limits: &Limits) -> Self {
        let max_chars = limits.max_chars.clamp(1, MAX_CHARS);
        let mode = if limits.raw {
            Mode::Raw(RawText::new(max_chars, &limits.omitted_hint))
        } else {
            let room = 4 * max_chars.max(1_024);
            let rows = limits.rows.clamp(2, MAX_ROWS).into();
            Mode::Text(Box::new(Pipeline {
                decoder: Decoder::default(),
                screen: Screen::new(rows, room, limits.lines_before),
                lines: LineStage {
                    fold: Fold::default(),
                    shortener: Shortener::new(max_chars, &limits.omitted_hint),
                    gaps: 0,
                    base: 0,
                },
                fast_path: None,
                use_fast_path: limits.repeat_fast_path,
                flood: None,
                until_flood: SCAN_AFTER,
                flood_keep: room,
            }))
        };
        Digest {
            mode,
            bytes: 0,
            gap_bytes: 0,
            newlines: 0,
            ends_open: false,
            uncounted: false,
        }
    }

    /// Takes the next bytes. Returns the number of newlines in them.
    pub fn push(&mut self, bytes: &[u8]) -> u64 {
        let Some(last) = bytes.last() else {
            return 0;
        };
        self.bytes += bytes.len() as u64;
        let newlines = memchr::memchr_iter(b'\n', bytes).count() as u64;
        self.newlines += newlines;
        self.ends_open = *last != b'\n';
        match &mut self.mode {
            Mode::Raw(raw) => raw.push(bytes),
            Mode::Text(pipeline) => bytes
                .chunks(CHUNK_BYTES)
                .for_each(|piece| pipeline.push(piece)),
        }
        newlines
    }

    /// Notes that another stream of the same output has these newlines here, so that numbers of lines are those of the
    /// whole output. A line within which they come has the number of its end.
    pub fn other_lines(&mut self, newlines: u64) {
        if let Mode::Text(pipeline) = &mut self.mode {
            pipeline.screen.note_other_lines(self.newlines, newlines);
        }
    }

    /// Notes that bytes are missing here. Those that were not read count among what is left out.
    pub fn gap(&mut self, gap: Gap) {
        match (gap, &mut self.mode) {
            (Gap::Dropped(bytes), mode) => {
                self.gap_bytes += bytes;
                let text = format!("[… {bytes} bytes from here on are missing from the log …]");
                match mode {
                    Mode::Raw(raw) => raw.push(format!("\n{text}\n").as_bytes()),
                    Mode::Text(pipeline) => {
                        pipeline.begin_part(|out| out.folded(Folded::Gap(text)));
                    }
                }
            }
            (Gap::Unread(bytes), mode) => {
                self.bytes += bytes;
                self.uncounted = true;
                match mode {
                    Mode::Raw(raw) => raw.skip_unread(bytes),
                    Mode::Text(pipeline) => pipeline.begin_part(|out| out.skip_unread(bytes)),
                }
            }
        }
    }

    /// Text of all bytes.
    pub fn finish(self) -> Digested {
        let (text, left_out, shortened) = match self.mode {
            Mode::Raw(raw) => raw.finish(),
            Mode::Text(pipeline) => pipeline.finish(self.bytes + self.gap_bytes),
        };
        Digested {
            text,
            lines_total: self.newlines + u64::from(self.ends_open),
            bytes_total: self.bytes + self.gap_bytes,
            lines_left_out: left_out.lines,
            bytes_left_out: left_out.bytes + self.gap_bytes,
            uncounted: self.uncounted,
            shortened: shortened || self.gap_bytes > 0,
        }
    }
}

/// Digest of bytes in memory.
///
/// ```
/// use abide_output::digest::{Limits, digest};
///
/// let progress = b" 10%\r 50%\r100%\ndone\n";
/// assert_eq!(digest(progress, &Limits::default()).text, "100%\ndone");
/// ```
pub fn digest(bytes: &[u8], limits: &Limits) -> Digested {
    let mut digest = Digest::new(limits);
    digest.push(bytes);
    digest.finish()
}

impl FloodSink for Pipeline {
    fn decode(&mut self, bytes: &[u8]) {
        Pipeline::decode(self, bytes);
    }

    fn skip(&mut self, lines: u64, bytes: u64) {
        self.flush_before_skip();
        self.screen.skip_lines(lines);
        self.lines.shortener.skip(lines, bytes);
    }
}

impl Pipeline {
    fn push(&mut self, bytes: &[u8]) {
        if let Some(mut flood) = self.flood.take() {
            flood.push(bytes, self);
            self.flood = Some(flood);
            return;
        }
        let until = usize::try_from(self.until_flood).unwrap_or(usize::MAX);
        let (before, rest) = bytes.split_at(until.min(bytes.len()));
        self.until_flood -= before.len() as u64;
        self.push_lines(before);
        if rest.is_empty() {
            return;
        }
        let line = memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
        let (line, rest) = rest.split_at(line);
        self.push_lines(line);
        if !line.ends_with(b"\n") {
            return;
        }
        self.leave_fast_path();
        let may_scan = self.decoder.is_idle() && self.screen.is_at_fresh_line();
        if may_scan && self.lines.shortener.is_crowded() {
            self.flush_before_skip();
            self.flood = Some(Flood::new(self.flood_keep));
        } else {
            self.until_flood = SCAN_AFTER;
        }
        self.push(rest);
    }

    /// Emits everything that is held, because lines behind it are skipped.
    fn flush_before_skip(&mut self) {
        let mut painter = Painter {
            screen: &mut self.screen,
            out: &mut self.lines,
        };
        self.decoder.cut(&mut painter);
        self.screen.flush_before_skip(&mut self.lines);
        self.lines.fold.flush(&mut self.lines.shortener);
    }

    fn push_lines(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if let Some(fast_path) = &mut self.fast_path {
                let passed = fast_path.take(bytes);
                self.screen.skip_lines(passed.lines);
                self.lines.fold.skip_lines(passed.lines, passed.bytes);
                bytes = &bytes[passed.used..];
                if passed.over {
                    self.leave_fast_path();
                }
            }
            let (some, rest) = bytes.split_at(bytes.len().min(TRY_AFTER));
            let fresh = memchr::memchr(b'\n', some).map_or(0, |at| at + 1);
            self.decode(&some[..fresh]);
            if self.use_fast_path && some.len() == TRY_AFTER && self.decoder.is_idle() {
                self.fast_path =
                    RepeatFastPath::begin(&self.screen, &self.lines.fold, &bytes[fresh..]);
            }
            if self.fast_path.is_some() {
                bytes = &bytes[fresh..];
            } else {
                self.decode(&some[fresh..]);
                bytes = rest;
            }
        }
    }

    /// Decodes what the fast path holds and leaves it.
    fn leave_fast_path(&mut self) {
        if let Some(fast_path) = self.fast_path.take() {
            self.decode(&fast_path.into_held());
        }
    }

    fn decode(&mut self, bytes: &[u8]) {
        let mut painter = Painter {
            screen: &mut self.screen,
            out: &mut self.lines,
        };
        self.decoder.feed(bytes, &mut painter);
    }

    /// Emits everything that is held. Later bytes cannot overwrite it.
    fn flush(&mut self) {
        if let Some(flood) = self.flood.take() {
            flood.finish(self);
            self.until_flood = 0;
        }
        self.leave_fast_path();
        let mut painter = Painter {
            screen: &mut self.screen,
            out: &mut self.lines,
        };
        self.decoder.cut(&mut painter);
        self.screen.flush(&mut self.lines);
        self.lines.fold.flush(&mut self.lines.shortener);
    }

    /// Ends the part before a gap, and notes the gap.
    fn begin_part(&mut self, note: impl FnOnce(&mut Shortener)) {
        self.flush();
        self.screen.reset();
        note(&mut self.lines.shortener);
        self.lines.gaps += 1;
        self.lines.base = self.screen.newlines();
    }

    fn finish(mut self, bytes: u64) -> (String, entry::Amount, bool) {
        self.flush();
        self.lines.shortener.finish(bytes)
    }
}
