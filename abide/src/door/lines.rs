//! The lines of a log that somebody has not read yet, page by page.
//!
//! A cursor says how far they have come. It is a text that can be kept and passed again: a byte
//! offset, and where the two streams of a command without a terminal lie across each other, where
//! each one's unfinished line begins. Reading changes nothing, so any number of readers can.

use std::fmt;
use std::io;
use std::str::FromStr;

use abide_output::digest::rows;
use abide_output::tokenizer as sequence;
use memchr::memchr;

use crate::world::log::{Log, Piece, Stream};

/// A line of more raw bytes than this is handed out in parts.
const LINE_LIMIT: usize = 64 << 10;
/// Most characters of one line that are shown.
const LINE_CHARS: usize = 4_000;
/// Bytes of text after which a page is full, however few its lines are.
const PAGE_LIMIT: usize = 128 << 10;

/// How far a reader has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    at: u64,
    streams: [Begin; 3],
}

/// Where the line begins that a stream is in the middle of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Begin {
    /// Its first byte that has not been handed out, where that is before the cursor.
    from: Option<u64>,
    /// Its begin has been handed out, since nothing followed it for a while.
    taken: bool,
}

/// A text that is not a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotACursor;

const LETTERS: [(u8, Stream); 3] = [
    (b'o', Stream::Stdout),
    (b'e', Stream::Stderr),
    (b'p', Stream::Pty),
];

impl Cursor {
    /// The cursor at a byte offset.
    pub fn at(offset: u64) -> Self {
        Cursor {
            at: offset,
            ..Cursor::default()
        }
    }

    /// The offset up to which the log has been looked at.
    pub fn offset(&self) -> u64 {
        self.at
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
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, NotACursor> {
        let (at, mut rest) = number(text).ok_or(NotACursor)?;
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
        rest.is_empty().then_some(cursor).ok_or(NotACursor)
    }
}

/// Splits a number of at most nineteen digits off the front.
fn number(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take(19).take_while(u8::is_ascii_digit).count();
    Some((text[..digits].parse().ok()?, &text[digits..]))
}

/// What to do with a line that has no end yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// Leave it until it has one.
    Leave,
    /// Hand out what there is of it, such as a prompt.
    Take,
}

/// Lines that had not been read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// As a person would have seen them, with the stream before each where there are two.
    pub lines: Vec<String>,
    /// Where to go on.
    pub cursor: Cursor,
    /// The page is full: there is more.
    pub full: bool,
    /// Something is there that [`Open::Take`] would hand out.
    pub open: bool,
    /// How far the log was looked at.
    pub seen: u64,
    /// When the last of that came (wall time in milliseconds).
    pub last_at: u64,
    /// Bytes before its end are not in the log.
    pub lossy: bool,
}

/// What there was of unfinished lines where a page ended. Whoever follows a log reads on there again and
/// again, and must not look for their begins in all that another stream has brought since.
#[derive(Default)]
pub struct Begun {
    at: Cursor,
    lines: [Unfinished; 3],
}

/// Reads on from a cursor, up to `most` lines, in the log of a session that has written at least `known` bytes.
/// What is not in the log up to there is told as missing.
pub fn read(
    log: &Log,
    known: u64,
    from: Cursor,
    most: usize,
    open: Open,
    begun: &mut Begun,
) -> io::Result<Page> {
    let mut reader = Reader::new(from, most);
    if begun.at == from {
        reader.unfinished = begun.lines.clone();
    } else {
        reader.recall(log)?;
    }
    let mut pieces = log.pieces(from.at, None).known_to(known);
    while !reader.is_full()
        && let Some(piece) = pieces.next_within(usize::MAX)?
    {
        match piece {
            Piece::Chunk(chunk) => {
                reader.chunk(chunk.offset, chunk.stream, &chunk.bytes);
                reader.last_at = chunk.at_wall_ms;
                reader.lossy |= chunk.dropped > 0;
            }
            Piece::Gap { from, to } => reader.gap(from, to),
        }
    }
    let (page, lines) = reader.finish(open);
    // A look at what is unfinished is only taken beside the way.
    if open == Open::Leave {
        let at = page.cursor;
        *begun = Begun { at, lines };
    }
    Ok(page)
}

/// Reads a line that nobody has written.
pub fn rehearse() -> Page {
    let mut reader = Reader::new(Cursor::default(), 1);
    reader.chunk(0, Stream::Pty, b"a line\r\n");
    reader.finish(Open::Leave).0
}

struct Reader {
    at: u64,
    most: usize,
    lines: Vec<String>,
    text: usize,
    last_at: u64,
    lossy: bool,
    unfinished: [Unfinished; 3],
}

/// A line whose end has not come.
#[derive(Clone, Default)]
struct Unfinished {
    bytes: Vec<u8>,
    /// Where its parts lie in the log: the index of the first byte of each, and its offset.
    parts: Vec<(usize, u64)>,
    taken: bool,
}

impl Unfinished {
    fn is_nothing(&self) -> bool {
        self.bytes.is_empty() && self.parts.is_empty() && !self.taken
    }

    fn add(&mut self, offset: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.parts.push((self.bytes.len(), offset));
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// The offset of a byte of it.
    fn offset(&self, index: usize) -> Option<u64> {
        let part = self.parts.iter().rev().find(|(first, _)| *first <= index)?;
        Some(part.1 + (index - part.0) as u64)
    }

    /// Takes the first `length` bytes out.
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

impl Reader {
    fn new(from: Cursor, most: usize) -> Self {
        Reader {
            at: from.at,
            most,
            lines: Vec::new(),
            text: 0,
            last_at: 0,
            lossy: false,
            unfinished: from.streams.map(|begin| Unfinished {
                taken: begin.taken,
                parts: begin.from.map(|from| (0, from)).into_iter().collect(),
                bytes: Vec::new(),
            }),
        }
    }

    /// Reads again what was there of unfinished lines before the cursor.
    fn recall(&mut self, log: &Log) -> io::Result<()> {
        for (slot, (_, stream)) in LETTERS.iter().enumerate() {
            let Some((_, from)) = self.unfinished[slot].parts.pop() else {
                continue;
            };
            let mut pieces = log.pieces(from, Some(*stream));
            while self.unfinished[slot].bytes.len() < LINE_LIMIT
                && let Some(piece) = pieces.next_within(LINE_LIMIT)?
            {
                let Piece::Chunk(chunk) = piece else {
                    continue;
                };
                if chunk.offset >= self.at {
                    break;
                }
                let most = usize::try_from(self.at - chunk.offset).unwrap_or(usize::MAX);
                let known = &chunk.bytes[..chunk.bytes.len().min(most)];
                self.unfinished[slot].add(chunk.offset, known);
            }
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.lines.len() >= self.most || self.text >= PAGE_LIMIT
    }

    fn chunk(&mut self, offset: u64, stream: Stream, bytes: &[u8]) {
        let slot = slot(stream);
        let mut used = 0;
        while used < bytes.len() && !self.is_full() {
            let rest = &bytes[used..];
            let room = LINE_LIMIT - self.unfinished[slot].bytes.len().min(LINE_LIMIT - 1);
            let here = &rest[..rest.len().min(room)];
            let newline = memchr(b'\n', here);
            let length = newline.unwrap_or(here.len());
            if newline.is_some() && self.unfinished[slot].is_nothing() {
                self.push(slot, &rest[..length], true);
                used += length + 1;
                continue;
            }
            self.unfinished[slot].add(offset + used as u64, &rest[..length]);
            used += length + usize::from(newline.is_some());
            if newline.is_some() {
                self.line(slot);
            } else if self.unfinished[slot].bytes.len() >= LINE_LIMIT {
                self.part(slot);
            }
        }
        self.at = offset + used as u64;
    }

    /// A line has come to its end.
    fn line(&mut self, slot: usize) {
        let line = std::mem::take(&mut self.unfinished[slot]);
        let blank = line.bytes.iter().all(|byte| *byte == b'\r');
        // All of it has been handed out, but for its end.
        if line.taken && blank {
            return;
        }
        self.push(slot, &line.bytes, true);
    }

    /// Hands out what there is of a line, but for a sequence or character that is not complete.
    fn part(&mut self, slot: usize) {
        let line = &mut self.unfinished[slot];
        let length = line.bytes.len() - sequence::unfinished(&line.bytes);
        if length == 0 {
            return;
        }
        let bytes = line.take(length);
        line.taken = true;
        self.push(slot, &bytes, false);
    }

    fn push(&mut self, slot: usize, raw: &[u8], ended: bool) {
        let prefix = match LETTERS[slot].1 {
            Stream::Stdout => "[stdout] ",
            Stream::Stderr => "[stderr] ",
            Stream::Pty => "",
        };
        let mut rows = rows(raw, LINE_CHARS);
        if slot == self::slot(Stream::Pty) {
            // On a terminal nobody sees spaces at the end, but for those before the cursor.
            let whole = rows.len() - usize::from(!ended && !rows.is_empty());
            for row in &mut rows[..whole] {
                row.truncate(row.trim_end_matches(' ').len());
            }
        }
        for row in rows {
            self.text += prefix.len() + row.len() + 1;
            self.lines.push(match prefix {
                "" => row,
                _ => format!("{prefix}{row}"),
            });
        }
    }

    fn gap(&mut self, from: u64, to: u64) {
        for slot in 0..self.unfinished.len() {
            if !self.unfinished[slot].bytes.is_empty() {
                self.line(slot);
            }
            self.unfinished[slot] = Unfinished::default();
        }
        let bytes = to - from;
        self.lines
            .push(format!("[… {bytes} bytes are missing from the log …]"));
        self.lossy = true;
        self.at = to;
    }

    fn finish(mut self, open: Open) -> (Page, [Unfinished; 3]) {
        let full = self.is_full();
        if open == Open::Take && !full {
            for slot in 0..self.unfinished.len() {
                self.part(slot);
            }
        }
        let open = self
            .unfinished
            .iter()
            .any(|line| sequence::unfinished(&line.bytes) < line.bytes.len());
        let mut cursor = Cursor::at(self.at);
        for (begin, line) in cursor.streams.iter_mut().zip(&self.unfinished) {
            begin.taken = line.taken;
            begin.from = line.offset(0).filter(|_| !line.bytes.is_empty());
        }
        // With a terminal there is one stream only, so its line can simply be read again.
        let pty = slot(Stream::Pty);
        if let Some(from) = cursor.streams[pty].from.take() {
            cursor.at = from;
            self.unfinished[pty].bytes.clear();
            self.unfinished[pty].parts.clear();
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
        (page, self.unfinished)
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
    use std::io::Write;
    use std::os::fd::AsFd;

    use crate::keeper::log as keeper;

    /// One page of all there is, for a reader that remembers nothing.
    fn read(log: &Log, from: Cursor, most: usize, open: Open) -> io::Result<Page> {
        super::read(log, log.end()?, from, most, open, &mut nothing())
    }

    fn nothing() -> Begun {
        Begun {
            at: Cursor::at(u64::MAX),
            ..Begun::default()
        }
    }

    /// Reads everything that is in `chunks`, `most` lines at a time, through cursors that have been
    /// texts in between.
    fn pages(chunks: &[(Stream, &str)], most: usize, open: Open) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let log = written(folder.path(), chunks);
        let mut cursor = Cursor::default();
        let mut lines = Vec::new();
        let mut begun = Begun::default();
        loop {
            let page = read(&log, cursor, most, open).unwrap();
            let end = log.end().unwrap();
            let on = super::read(&log, end, cursor, most, open, &mut begun);
            assert_eq!(on.unwrap(), page, "whoever reads on reads the same");
            let next: Cursor = page.cursor.to_string().parse().unwrap();
            assert_eq!(next, page.cursor);
            if page.lines.is_empty() && next == cursor {
                return lines;
            }
            lines.extend(page.lines);
            cursor = next;
        }
    }

    fn written(folder: &std::path::Path, chunks: &[(Stream, &str)]) -> Log {
        let place = std::fs::File::open(folder).unwrap();
        let place = std::rc::Rc::new(std::os::fd::OwnedFd::from(place));
        let mut log = keeper::Log::new(place, 1 << 30);
        for (stream, text) in chunks {
            for part in text.as_bytes().chunks(16 << 10) {
                let (from, mut to) = std::io::pipe().unwrap();
                to.write_all(part).unwrap();
                let taken = log.take(from.as_fd(), *stream, part.len());
                assert_eq!(taken, keeper::Taken::Bytes(part.len() as u64));
            }
        }
        Log::open(folder)
    }

    #[test]
    fn lines_come_page_by_page_and_once() {
        let log = [(Pty, "one\r\ntw"), (Pty, "o\r\nthree\r\n$ ")];
        for most in 1..6 {
            assert_eq!(pages(&log, most, Open::Leave), ["one", "two", "three"]);
            assert_eq!(pages(&log, most, Open::Take), ["one", "two", "three", "$ "]);
        }
    }

    #[test]
    fn spaces_that_nobody_sees_on_a_terminal_are_left_out() {
        let painted = "one   \r\ntext\x1b[2;1H~      \x1b[3;1H~    \x1b[4;1H> ";
        let lines = pages(&[(Pty, painted)], 100, Open::Take);
        assert_eq!(lines, ["one", "text", "~", "~", "> "]);
        let piped = pages(&[(Stdout, "one   \n> ")], 100, Open::Take);
        assert_eq!(piped, ["[stdout] one   ", "[stdout] > "]);
    }

    #[test]
    fn streams_that_interrupt_each_other_keep_their_lines() {
        let log = [
            (Stdout, "ab"),
            (Stderr, "err"),
            (Stdout, "cd\nnext\n"),
            (Stderr, "or\n"),
            (Stdout, "open"),
        ];
        for most in 1..6 {
            let wanted = ["[stdout] abcd", "[stdout] next", "[stderr] error"];
            assert_eq!(pages(&log, most, Open::Leave), wanted);
        }
    }

    #[test]
    fn whoever_reads_on_does_not_read_again() {
        use std::os::unix::fs::FileExt;
        let folder = tempfile::tempdir().unwrap();
        let log = written(folder.path(), &[(Stdout, "begun "), (Stderr, "one\n")]);
        let mut begun = Begun::default();
        let mut on = |log: &Log, from, open| {
            let page = super::read(log, log.end().unwrap(), from, 10, open, &mut begun);
            page.unwrap()
        };
        let first = on(&log, Cursor::default(), Open::Leave);
        assert_eq!(first.lines, ["[stderr] one"]);
        // The same begin, and other bytes where it was.
        let folder = tempfile::tempdir().unwrap();
        let chunks = [(Stdout, "begun "), (Stderr, "one\n"), (Stdout, "ended\n")];
        let log = written(folder.path(), &chunks);
        let data = folder.path().join("log").join(format!("{:016x}", 0));
        let data = std::fs::File::options().write(true).open(data).unwrap();
        data.write_all_at(b"other ", 0).unwrap();
        for open in [Open::Take, Open::Leave] {
            let rest = on(&log, first.cursor, open);
            assert_eq!(rest.lines, ["[stdout] begun ended"]);
        }
        let anew = read(&log, first.cursor, 10, Open::Leave).unwrap();
        assert_eq!(anew.lines, ["[stdout] other ended"]);
    }

    #[test]
    fn a_prompt_is_handed_out_once_and_its_line_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let log = written(folder.path(), &[(Pty, "name? ")]);
        let first = read(&log, Cursor::default(), 10, Open::Leave).unwrap();
        assert!(first.lines.is_empty() && first.open);
        let prompt = read(&log, Cursor::default(), 10, Open::Take).unwrap();
        assert_eq!((prompt.lines, prompt.open), (vec!["name? ".into()], false));
        for (more, wanted) in [
            ("\r\nhi\r\n", vec!["hi"]),
            ("Ann\r\nhi\r\n", vec!["Ann", "hi"]),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let log = written(folder.path(), &[(Pty, "name? "), (Pty, more)]);
            let page = read(&log, prompt.cursor, 10, Open::Take).unwrap();
            assert_eq!(page.lines, wanted);
        }
    }

    #[test]
    fn a_character_or_sequence_is_not_torn_apart() {
        let text = "é€🦀\x1b[31mred\x1b]0;t\x07.";
        for cut in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            let chunks = [(Pty, &text[..cut]), (Pty, &text[cut..])];
            let folder = tempfile::tempdir().unwrap();
            let log = written(folder.path(), &chunks[..1]);
            let first = read(&log, Cursor::default(), 9, Open::Take).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let log = written(folder.path(), &chunks);
            let rest = read(&log, first.cursor, 9, Open::Take).unwrap();
            let all = [first.lines, rest.lines].concat().concat();
            assert_eq!(all, "é€🦀red.", "cut at {cut}");
        }
    }

    #[test]
    fn a_line_without_end_is_handed_out_in_bounded_parts() {
        let long = "x".repeat(300 << 10);
        let parts = pages(&[(Pty, &long)], 100, Open::Take);
        assert!(parts.len() >= 4);
        assert!(parts.iter().all(|part| part.chars().count() <= LINE_CHARS));
    }

    /// The keeper has counted bytes that the disk refused, or the log was removed.
    #[test]
    fn bytes_that_were_counted_and_are_not_there_are_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let log = written(folder.path(), &[(Stdout, "one\n")]);
        let mut begun = Begun::default();
        let mut on = |from, known| super::read(&log, known, from, 10, Open::Leave, &mut begun);
        let page = on(Cursor::default(), 10).unwrap();
        let missing = "[… 6 bytes are missing from the log …]";
        assert_eq!(page.lines, ["[stdout] one", missing]);
        assert_eq!(
            (page.seen, page.cursor.offset(), page.lossy),
            (10, 10, true)
        );
        let next = on(page.cursor, 10).unwrap();
        assert!(next.lines.is_empty(), "{:?}", next.lines);
        std::fs::remove_dir_all(folder.path().join("log")).unwrap();
        let gone = read(&Log::open(folder.path()), Cursor::default(), 10, Open::Take).unwrap();
        assert!(gone.lines.is_empty());
        let gone = super::read(
            &Log::open(folder.path()),
            4,
            Cursor::default(),
            10,
            Open::Take,
            &mut nothing(),
        );
        assert_eq!(
            gone.unwrap().lines,
            ["[… 4 bytes are missing from the log …]"]
        );
    }

    #[test]
    fn a_text_that_is_no_cursor_is_none() {
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
