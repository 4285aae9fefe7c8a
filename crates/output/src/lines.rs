//! Unread lines of a log, page by page.
//!
//! A [`Cursor`] is the position of a reader in a log. Its text form can be stored and parsed again: a
//! byte offset and, for each stream whose incomplete line began before that offset, the offset of the
//! begin. A log without a terminal has two streams, whose lines can interrupt each other.
//!
//! [`LineReader`] does no I/O: its caller reads the log and passes the bytes. Reading changes nothing
//! in the log, so any number of readers can work at the same time.

use std::fmt;
use std::str::FromStr;

use memchr::memchr;

use crate::digest::rendered_rows;
use crate::tokenizer;

/// A line with more bytes than this is returned in parts.
pub const MAX_LINE_BYTES: usize = 64 << 10;
/// Maximum number of characters shown of one line.
const MAX_LINE_CHARS: usize = 4_000;
/// Bytes of text after which a page is full, even if it has few lines.
pub const MAX_PAGE_BYTES: usize = 128 << 10;

/// Source of bytes in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A pseudo-terminal, which merges both.
    Pty,
}

/// Position of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    at: u64,
    streams: [LineStart; 3],
}

/// Begin of the line that a stream is in the middle of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LineStart {
    /// Offset of the first byte that was not returned yet, if it lies before the cursor.
    from: Option<u64>,
    /// The begin of the line was returned already, because nothing followed it for a while.
    taken: bool,
}

/// Error of parsing a text that is not a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidCursor;

impl fmt::Display for InvalidCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a cursor")
    }
}

impl std::error::Error for InvalidCursor {}

const LETTERS: [(u8, Stream); 3] = [
    (b'o', Stream::Stdout),
    (b'e', Stream::Stderr),
    (b'p', Stream::Pty),
];

impl Cursor {
    /// Cursor at a byte offset.
    pub fn at(offset: u64) -> Self {
        Cursor {
            at: offset,
            ..Cursor::default()
        }
    }

    /// Offset up to which the log was read.
    pub fn offset(&self) -> u64 {
        self.at
    }

    /// Streams with bytes before the cursor that were not returned, and the offset of the first of them.
    pub fn line_starts(&self) -> impl Iterator<Item = (Stream, u64)> + use<> {
        let starts = self.streams.into_iter().zip(LETTERS);
        starts.filter_map(|(start, (_, stream))| Some((stream, start.from?)))
    }

    /// True if the last line of a stream was returned before its end, such as a prompt.
    pub fn is_within_line(&self) -> bool {
        self.streams.iter().any(|start| start.taken)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.at)?;
        for (begin, (letter, _)) in self.streams.iter().zip(LETTERS) {
            let letter = if begin.taken {
                letter.to_ascii_uppercase()
            } else {
                letter
            };
            match begin.from {
                Some(from) => write!(f, "{}{from}", letter as char)?,
                None if begin.taken => write!(f, "{}", letter as char)?,
                None => {}
            }
        }
        Ok(())
    }
}

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let (at, mut rest) = number(text).ok_or(InvalidCursor)?;
        let mut cursor = Cursor::at(at);
        for (begin, (letter, _)) in cursor.streams.iter_mut().zip(LETTERS) {
            let Some(&first) = rest.as_bytes().first() else {
                break;
            };
            if first.to_ascii_lowercase() != letter {
                continue;
            }
            rest = &rest[1..];
            begin.taken = first.is_ascii_uppercase();
            if let Some((from, after)) = number(rest) {
                begin.from = Some(from).filter(|from| *from <= at);
                rest = after;
            }
        }
        rest.is_empty().then_some(cursor).ok_or(InvalidCursor)
    }
}

/// Splits a number of at most nineteen digits off the front.
fn number(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take(19).take_while(u8::is_ascii_digit).count();
    Some((text[..digits].parse().ok()?, &text[digits..]))
}

/// Treatment of a line that has no newline yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartialLine {
    /// Keep it until its newline comes.
    Hold,
    /// Return what there is of it, such as a prompt.
    Emit,
}

/// Lines that the reader had not seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Lines as a terminal shows them. Without a terminal each begins with its stream, `[stdout] `
    /// or `[stderr] `.
    pub lines: Vec<String>,
    /// Position behind these lines.
    pub cursor: Cursor,
    /// The page is full, so there may be more.
    pub full: bool,
    /// There is text that [`PartialLine::Emit`] would return.
    pub open: bool,
    /// Offset up to which the log was read.
    pub seen: u64,
    /// Time of the last chunk, as [`Chunk::received_at_ms`] has it.
    pub last_at: u64,
    /// Bytes are missing from the log in or before this page.
    pub lossy: bool,
}

/// Bytes of one stream that lie together in a log.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// Offset of the first byte in the log.
    pub offset: u64,
    /// Source of the bytes.
    pub stream: Stream,
    /// The bytes.
    pub bytes: &'a [u8],
    /// Time at which they came, in milliseconds since any epoch.
    pub received_at_ms: u64,
    /// Bytes before this chunk are missing.
    pub follows_gap: bool,
}

/// Incomplete lines at the end of a page. A reader that follows a log continues with them and need not
/// look for their begins again in everything that another stream has written since.
#[derive(Clone, Debug, Default)]
pub struct ResumeState {
    at: Cursor,
    lines: [Incomplete; 3],
}

impl ResumeState {
    /// Reader that continues at `from`, if that is the end of the page which left this state.
    pub fn reader(&self, from: Cursor, max_lines: usize) -> Option<LineReader> {
        (self.at == from).then(|| LineReader {
            incomplete: self.lines.clone(),
            ..LineReader::new(from, max_lines)
        })
    }
}

/// Makes a [`Page`] of the bytes of a log.
///
/// ```
/// use abide_output::lines::{Chunk, Cursor, LineReader, PartialLine, Stream};
///
/// let log = b"one\r\ntwo\r\n$ ";
/// let page = |from: Cursor, partial| {
///     let mut reader = LineReader::new(from, 100);
///     let offset = from.offset();
///     reader.push(&Chunk {
///         offset,
///         stream: Stream::Pty,
///         bytes: &log[offset as usize..],
///         received_at_ms: 0,
///         follows_gap: false,
///     });
///     reader.finish(partial).0
/// };
/// let first = page(Cursor::default(), PartialLine::Hold);
/// assert_eq!(first.lines, ["one", "two"]);
/// assert_eq!(first.cursor.to_string(), "10");
/// assert!(first.open, "the prompt is not part of the page");
/// assert_eq!(page(first.cursor, PartialLine::Emit).lines, ["$ "]);
/// ```
#[derive(Debug)]
pub struct LineReader {
    from: Cursor,
    at: u64,
    max_lines: usize,
    lines: Vec<String>,
    text_bytes: usize,
    last_at: u64,
    lossy: bool,
    incomplete: [Incomplete; 3],
}

/// Line whose newline has not come.
#[derive(Clone, Debug, Default)]
struct Incomplete {
    bytes: Vec<u8>,
    /// Parts of the line in the log: index in `bytes` and offset of the first byte of each.
    parts: Vec<(usize, u64)>,
    taken: bool,
}

impl Incomplete {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.parts.is_empty() && !self.taken
    }

    fn add(&mut self, offset: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.parts.push((self.bytes.len(), offset));
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Offset in the log of the byte at `index`.
    fn offset(&self, index: usize) -> Option<u64> {
        let part = self.parts.iter().rev().find(|(first, _)| *first <= index)?;
        Some(part.1 + (index - part.0) as u64)
    }

    /// Removes the first `length` bytes and returns them.
    fn take(&mut self, length: usize) -> Vec<u8> {
        let rest = self.bytes.split_off(length);
        let parts = std::mem::take(&mut self.parts);
        for (at, (first, offset)) in parts.iter().enumerate() {
            let end = parts.get(at + 1).map_or(length + rest.len(), |next| next.0);
            if end > length {
                let skipped = length.saturating_sub(*first);
                self.parts
                    .push((first.saturating_sub(length), offset + skipped as u64));
            }
        }
        std::mem::replace(&mut self.bytes, rest)
    }
}

impl LineReader {
    /// Reader at a cursor for at most `max_lines` lines (a few more if one line has several rows).
    /// Before it gets new bytes, it needs those of [`LineReader::line_starts`].
    pub fn new(from: Cursor, max_lines: usize) -> Self {
        LineReader {
            from,
            at: from.at,
            max_lines,
            lines: Vec::new(),
            text_bytes: 0,
            last_at: 0,
            lossy: false,
            incomplete: from.streams.map(|start| Incomplete {
                taken: start.taken,
                ..Incomplete::default()
            }),
        }
    }

    /// Streams with an incomplete line that began before the cursor, and the offset of its begin. The
    /// caller passes the bytes of that stream from there on to [`LineReader::restore`].
    pub fn line_starts(&self) -> impl Iterator<Item = (Stream, u64)> + use<> {
        self.from.line_starts()
    }

    /// Takes bytes of a stream from before the cursor. Returns whether it needs more of them.
    pub fn restore(&mut self, stream: Stream, offset: u64, bytes: &[u8]) -> bool {
        if offset >= self.at {
            return false;
        }
        let most = usize::try_from(self.at - offset).unwrap_or(usize::MAX);
        let line = &mut self.incomplete[slot(stream)];
        line.add(offset, &bytes[..bytes.len().min(most)]);
        line.bytes.len() < MAX_LINE_BYTES
    }

    /// Returns whether the page is full. Bytes behind this point are not taken.
    pub fn is_full(&self) -> bool {
        self.lines.len() >= self.max_lines || self.text_bytes >= MAX_PAGE_BYTES
    }

    /// Takes the next bytes of the log, until the page is full.
    pub fn push(&mut self, chunk: &Chunk<'_>) {
        self.last_at = chunk.received_at_ms;
        self.lossy |= chunk.follows_gap;
        let (slot, bytes) = (slot(chunk.stream), chunk.bytes);
        let mut used = 0;
        while used < bytes.len() && !self.is_full() {
            let rest = &bytes[used..];
            let room = MAX_LINE_BYTES - self.incomplete[slot].bytes.len().min(MAX_LINE_BYTES - 1);
            let here = &rest[..rest.len().min(room)];
            let newline = memchr(b'\n', here);
            let length = newline.unwrap_or(here.len());
            if newline.is_some() && self.incomplete[slot].is_empty() {
                self.push_rows(slot, &rest[..length], true);
                used += length + 1;
                continue;
            }
            self.incomplete[slot].add(chunk.offset + used as u64, &rest[..length]);
            used += length + usize::from(newline.is_some());
            if newline.is_some() {
                self.end_line(slot);
            } else if self.incomplete[slot].bytes.len() >= MAX_LINE_BYTES {
                self.emit_part(slot);
            }
        }
        self.at = chunk.offset + used as u64;
    }

    /// Handles the newline of a line.
    fn end_line(&mut self, slot: usize) {
        let line = std::mem::take(&mut self.incomplete[slot]);
        let blank = line.bytes.iter().all(|byte| *byte == b'\r');
        // All of the line was returned already.
        if line.taken && blank {
            return;
        }
        self.push_rows(slot, &line.bytes, true);
    }

    /// Returns what there is of a line, without an incomplete escape sequence or character at its end.
    fn emit_part(&mut self, slot: usize) {
        let line = &mut self.incomplete[slot];
        let length = line.bytes.len() - tokenizer::incomplete_suffix_len(&line.bytes);
        if length == 0 {
            return;
        }
        let bytes = line.take(length);
        line.taken = true;
        self.push_rows(slot, &bytes, false);
    }

    fn push_rows(&mut self, slot: usize, raw: &[u8], ended: bool) {
        let prefix = match LETTERS[slot].1 {
            Stream::Stdout => "[stdout] ",
            Stream::Stderr => "[stderr] ",
            Stream::Pty => "",
        };
        let mut rows = rendered_rows(raw, MAX_LINE_CHARS);
        if slot == self::slot(Stream::Pty) {
            // Trailing spaces are invisible on a terminal, except those before its cursor.
            let whole = rows.len() - usize::from(!ended && !rows.is_empty());
            for row in &mut rows[..whole] {
                row.truncate(row.trim_end_matches(' ').len());
            }
        }
        for row in rows {
            self.text_bytes += prefix.len() + row.len() + 1;
            self.lines.push(match prefix {
                "" => row,
                _ => format!("{prefix}{row}"),
            });
        }
    }

    /// The bytes from `from` to `to` are missing from the log.
    pub fn gap(&mut self, from: u64, to: u64) {
        for slot in 0..self.incomplete.len() {
            if !self.incomplete[slot].bytes.is_empty() {
                self.end_line(slot);
            }
            self.incomplete[slot] = Incomplete::default();
        }
        let bytes = to - from;
        self.lines
            .push(format!("[… {bytes} bytes are missing from the log …]"));
        self.lossy = true;
        self.at = to;
    }

    /// The page, and the state with which the next reader can continue behind it. The state is of use
    /// only with [`PartialLine::Hold`].
    pub fn finish(mut self, partial: PartialLine) -> (Page, ResumeState) {
        let full = self.is_full();
        if partial == PartialLine::Emit && !full {
            for slot in 0..self.incomplete.len() {
                self.emit_part(slot);
            }
        }
        let open = self
            .incomplete
            .iter()
            .any(|line| tokenizer::incomplete_suffix_len(&line.bytes) < line.bytes.len());
        let mut cursor = Cursor::at(self.at);
        for (begin, line) in cursor.streams.iter_mut().zip(&self.incomplete) {
            begin.taken = line.taken;
            begin.from = line.offset(0).filter(|_| !line.bytes.is_empty());
        }
        // A terminal is the only stream of its log, so its incomplete line can be read again.
        let pty = slot(Stream::Pty);
        if let Some(from) = cursor.streams[pty].from.take() {
            cursor.at = from;
            self.incomplete[pty].bytes.clear();
            self.incomplete[pty].parts.clear();
        }
        let page = Page {
            lines: self.lines,
            cursor,
            full,
            open,
            seen: self.at,
            last_at: self.last_at,
            lossy: self.lossy,
        };
        let lines = self.incomplete;
        (page, ResumeState { at: cursor, lines })
    }
}

fn slot(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
        Stream::Pty => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Stream::{Pty, Stderr, Stdout};

    /// Log in memory.
    struct Log(Vec<(u64, Stream, Vec<u8>)>);

    impl Log {
        fn new(texts: &[(Stream, &str)]) -> Self {
            let mut offset = 0;
            let mut chunks = Vec::new();
            for (stream, text) in texts {
                for part in text.as_bytes().chunks(16 << 10) {
                    chunks.push((offset, *stream, part.to_vec()));
                    offset += part.len() as u64;
                }
            }
            Log(chunks)
        }

        /// Chunks from an offset on, the first of them cut there.
        fn from(&self, from: u64) -> impl Iterator<Item = (u64, Stream, &[u8])> {
            self.0.iter().filter_map(move |(offset, stream, bytes)| {
                let skip = usize::try_from(from.saturating_sub(*offset)).unwrap();
                let rest = bytes.get(skip..).filter(|rest| !rest.is_empty())?;
                Some((offset + skip as u64, *stream, rest))
            })
        }
    }

    /// Reads one page, with the begins of incomplete lines from the log.
    fn read(log: &Log, from: Cursor, max_lines: usize, partial: PartialLine) -> Page {
        let mut reader = LineReader::new(from, max_lines);
        for (stream, start) in reader.line_starts() {
            let mut chunks = log.from(start).filter(|(_, of, _)| *of == stream);
            chunks.all(|(offset, _, bytes)| reader.restore(stream, offset, bytes));
        }
        fill(&mut reader, log, from);
        reader.finish(partial).0
    }

    /// Reads one page, with the begins of incomplete lines from the page before.
    fn read_on(
        log: &Log,
        from: Cursor,
        max_lines: usize,
        partial: PartialLine,
        state: &mut ResumeState,
    ) -> Page {
        let Some(mut reader) = state.reader(from, max_lines) else {
            return read(log, from, max_lines, partial);
        };
        fill(&mut reader, log, from);
        let (page, next) = reader.finish(partial);
        if partial == PartialLine::Hold {
            *state = next;
        }
        page
    }

    fn fill(reader: &mut LineReader, log: &Log, from: Cursor) {
        for (offset, stream, bytes) in log.from(from.offset()) {
            if reader.is_full() {
                return;
            }
            reader.push(&Chunk {
                offset,
                stream,
                bytes,
                received_at_ms: 0,
                follows_gap: false,
            });
        }
    }

    /// Reads everything, `max_lines` lines at a time, with cursors that were text in between.
    fn pages(chunks: &[(Stream, &str)], max_lines: usize, partial: PartialLine) -> Vec<String> {
        let log = Log::new(chunks);
        let mut cursor = Cursor::default();
        let mut lines = Vec::new();
        let mut state = ResumeState::default();
        loop {
            let page = read(&log, cursor, max_lines, partial);
            let resumed = read_on(&log, cursor, max_lines, partial, &mut state);
            assert_eq!(resumed, page, "a resumed reader returns the same page");
            let next: Cursor = page.cursor.to_string().parse().unwrap();
            assert_eq!(next, page.cursor);
            if page.lines.is_empty() && next == cursor {
                return lines;
            }
            lines.extend(page.lines);
            cursor = next;
        }
    }

    #[test]
    fn each_line_is_returned_once_whatever_the_page_size() {
        let log = [(Pty, "one\r\ntw"), (Pty, "o\r\nthree\r\n$ ")];
        for most in 1..6 {
            assert_eq!(
                pages(&log, most, PartialLine::Hold),
                ["one", "two", "three"]
            );
            assert_eq!(
                pages(&log, most, PartialLine::Emit),
                ["one", "two", "three", "$ "]
            );
        }
    }

    #[test]
    fn trailing_spaces_of_terminal_rows_are_removed() {
        let painted = "one   \r\ntext\x1b[2;1H~      \x1b[3;1H~    \x1b[4;1H> ";
        let lines = pages(&[(Pty, painted)], 100, PartialLine::Emit);
        assert_eq!(lines, ["one", "text", "~", "~", "> "]);
        let piped = pages(&[(Stdout, "one   \n> ")], 100, PartialLine::Emit);
        assert_eq!(piped, ["[stdout] one   ", "[stdout] > "]);
    }

    #[test]
    fn interleaved_streams_keep_their_lines() {
        let log = [
            (Stdout, "ab"),
            (Stderr, "err"),
            (Stdout, "cd\nnext\n"),
            (Stderr, "or\n"),
            (Stdout, "open"),
        ];
        for most in 1..6 {
            let wanted = ["[stdout] abcd", "[stdout] next", "[stderr] error"];
            assert_eq!(pages(&log, most, PartialLine::Hold), wanted);
        }
    }

    #[test]
    fn resumed_reader_does_not_read_incomplete_lines_again() {
        let mut state = ResumeState::default();
        let log = Log::new(&[(Stdout, "begun "), (Stderr, "one\n")]);
        let first = read_on(&log, Cursor::default(), 10, PartialLine::Hold, &mut state);
        assert_eq!(first.lines, ["[stderr] one"]);
        // Other bytes in place of the begin.
        let log = Log::new(&[(Stdout, "other "), (Stderr, "one\n"), (Stdout, "ended\n")]);
        for partial in [PartialLine::Emit, PartialLine::Hold] {
            let rest = read_on(&log, first.cursor, 10, partial, &mut state);
            assert_eq!(rest.lines, ["[stdout] begun ended"]);
        }
        let without_state = read(&log, first.cursor, 10, PartialLine::Hold);
        assert_eq!(without_state.lines, ["[stdout] other ended"]);
    }

    #[test]
    fn prompt_is_returned_once_and_its_line_continues() {
        let log = Log::new(&[(Pty, "name? ")]);
        let first = read(&log, Cursor::default(), 10, PartialLine::Hold);
        assert!(first.lines.is_empty() && first.open);
        let prompt = read(&log, Cursor::default(), 10, PartialLine::Emit);
        assert_eq!((prompt.lines, prompt.open), (vec!["name? ".into()], false));
        for (more, wanted) in [
            ("\r\nhi\r\n", vec!["hi"]),
            ("Ann\r\nhi\r\n", vec!["Ann", "hi"]),
        ] {
            let log = Log::new(&[(Pty, "name? "), (Pty, more)]);
            let page = read(&log, prompt.cursor, 10, PartialLine::Emit);
            assert_eq!(page.lines, wanted);
        }
    }

    #[test]
    fn characters_and_escape_sequences_are_not_split() {
        let text = "é€🦀\x1b[31mred\x1b]0;t\x07.";
        for cut in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            let chunks = [(Pty, &text[..cut]), (Pty, &text[cut..])];
            let first = Log::new(&chunks[..1]);
            let first = read(&first, Cursor::default(), 9, PartialLine::Emit);
            let rest = read(&Log::new(&chunks), first.cursor, 9, PartialLine::Emit);
            let all = [first.lines, rest.lines].concat().concat();
            assert_eq!(all, "é€🦀red.", "cut at {cut}");
        }
    }

    #[test]
    fn line_without_newline_is_returned_in_bounded_parts() {
        let long = "x".repeat(300 << 10);
        let parts = pages(&[(Pty, &long)], 100, PartialLine::Emit);
        assert!(parts.len() >= 4);
        let chars = |part: &String| part.chars().count();
        assert!(parts.iter().all(|part| chars(part) <= MAX_LINE_CHARS));
    }

    #[test]
    fn gap_is_reported_and_ends_incomplete_lines() {
        let mut reader = LineReader::new(Cursor::default(), 10);
        let log = Log::new(&[(Stdout, "one\ntw")]);
        fill(&mut reader, &log, Cursor::default());
        reader.gap(6, 12);
        let (page, _) = reader.finish(PartialLine::Hold);
        let missing = "[… 6 bytes are missing from the log …]";
        assert_eq!(page.lines, ["[stdout] one", "[stdout] tw", missing]);
        assert_eq!((page.seen, page.cursor), (12, Cursor::at(12)));
        assert!(page.lossy);
    }

    #[test]
    fn invalid_cursors_are_rejected() {
        for text in [
            "",
            "x",
            "-1",
            "1.5",
            "12z",
            "99999999999999999999",
            "1o2o3",
            "../1",
            "1 ",
        ] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
        for text in ["0", "12", "12P", "12o3", "12O3E", "12oe5"] {
            let read: Option<Cursor> = text.parse().ok();
            assert!(read.is_some(), "{text}");
        }
    }
}
