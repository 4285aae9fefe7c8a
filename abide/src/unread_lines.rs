//! Unread lines of a session: reads its log for [`LineReader`], page after page.

use std::io;

use abide_output::lines::{Chunk, LineReader, MAX_LINE_BYTES, ResumeState, Stream};
pub use abide_output::lines::{Cursor, MAX_PAGE_BYTES, Page, PartialLine};

use abide_session::log::{self, Log, Piece, Pieces};

/// Unread lines of one log.
pub struct UnreadLines {
    log: Log,
    /// Partial lines at the end of the last page.
    begun: ResumeState,
    /// Log behind the last page, with its files open.
    rest: Option<Pieces>,
}

impl UnreadLines {
    /// Lines of this log.
    pub fn new(log: Log) -> Self {
        UnreadLines {
            log,
            begun: ResumeState::default(),
            rest: None,
        }
    }

    /// Reads up to `max_lines` lines from a cursor on, of a session that has written at least `known` bytes. Bytes
    /// before `known` that are not in the log are reported as missing.
    pub fn read(
        &mut self,
        known: u64,
        from: Cursor,
        max_lines: usize,
        partial: PartialLine,
    ) -> io::Result<Page> {
        let mut reader = match self.begun.reader(from, max_lines) {
            Some(reader) => reader,
            None => restored(&self.log, from, max_lines)?,
        };
        let mut pieces = self.pieces(from.offset()).up_to(known);
        while !reader.is_full()
            && let Some(piece) = pieces.next_within(usize::MAX)?
        {
            push(&mut reader, &piece, u64::MAX);
        }
        self.rest = Some(pieces);
        let (page, next) = reader.finish(partial);
        // A page with partial lines does not advance the state: the next page continues where this one began.
        if partial == PartialLine::Hold {
            self.begun = next;
        }
        Ok(page)
    }

    /// Opens the files that will hold the bytes from an offset on, so that a page is read without delay when they arrive.
    pub fn expect_bytes_at(&mut self, offset: u64) {
        let mut pieces = self.pieces(offset).up_to(u64::MAX);
        // A fault is reported by the page that is read then.
        let _ = pieces.open_files();
        self.rest = Some(pieces);
    }

    fn pieces(&mut self, from: u64) -> Pieces {
        let open = self.rest.take().filter(|rest| rest.at() == from);
        open.unwrap_or_else(|| self.log.pieces(from, None))
    }
}

/// Bytes at the end of a part of a log that decide whether its last lines are complete.
const END_BYTES: u64 = 8 << 10;

/// Cursor of a reader that was given everything from a cursor up to an offset, lines without a newline included.
pub fn cursor_at(log: &Log, from: Cursor, end: u64) -> io::Result<Cursor> {
    let near = end.saturating_sub(END_BYTES);
    let from = if from.offset() < near {
        Cursor::at(near)
    } else {
        from
    };
    let mut reader = restored(log, from, usize::MAX)?;
    let mut pieces = log.pieces(from.offset(), None).up_to(end);
    while pieces.at() < end
        && let Some(piece) = pieces.next_within(usize::MAX)?
    {
        push(&mut reader, &piece, end);
    }
    Ok(reader.finish(PartialLine::Emit).0.cursor)
}

/// Gives a reader the part of a piece before `end`.
fn push(reader: &mut LineReader, piece: &Piece, end: u64) {
    match piece {
        Piece::Chunk(chunk) => {
            let most = usize::try_from(end.saturating_sub(chunk.offset)).unwrap_or(usize::MAX);
            reader.push(&Chunk {
                offset: chunk.offset,
                stream: stream(chunk.stream),
                bytes: &chunk.bytes[..most.min(chunk.bytes.len())],
                received_at_ms: chunk.at_wall_ms,
                follows_gap: chunk.dropped > 0,
            });
        }
        Piece::Gap { from, to } => reader.gap(*from, *to),
    }
}

/// Reader that is restored with the partial lines before its cursor.
fn restored(log: &Log, from: Cursor, max_lines: usize) -> io::Result<LineReader> {
    let mut reader = LineReader::new(from, max_lines);
    for (of, start) in reader.line_starts() {
        let mut pieces = log.pieces(start, Some(log_stream(of)));
        while let Some(piece) = pieces.next_within(MAX_LINE_BYTES)? {
            if let Piece::Chunk(chunk) = piece
                && !reader.restore(of, chunk.offset, &chunk.bytes)
            {
                break;
            }
        }
    }
    Ok(reader)
}

fn stream(stream: log::Stream) -> Stream {
    match stream {
        log::Stream::Stdout => Stream::Stdout,
        log::Stream::Stderr => Stream::Stderr,
        log::Stream::Pty => Stream::Pty,
    }
}

/// Stream of a log, by its name for readers of lines.
pub fn log_stream(stream: Stream) -> log::Stream {
    match stream {
        Stream::Stdout => log::Stream::Stdout,
        Stream::Stderr => log::Stream::Stderr,
        Stream::Pty => log::Stream::Pty,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::Stream::{Stderr, Stdout};
    use std::io::Write;
    use std::os::fd::AsFd;

    use abide_session::log as keeper;

    fn writer(folder: &std::path::Path, quota: u64) -> keeper::LogWriter {
        let directory = std::fs::File::open(folder).unwrap();
        let directory = std::rc::Rc::new(std::os::fd::OwnedFd::from(directory));
        keeper::LogWriter::new(directory, quota)
    }

    fn append(log: &mut keeper::LogWriter, stream: log::Stream, text: &str) {
        let (from, mut to) = std::io::pipe().unwrap();
        to.write_all(text.as_bytes()).unwrap();
        let taken = log.take(from.as_fd(), stream, text.len());
        assert_eq!(taken, keeper::OutputRead::Bytes(text.len() as u64));
    }

    fn written(folder: &std::path::Path, chunks: &[(log::Stream, &str)]) -> Log {
        let mut log = writer(folder, 1 << 30);
        for (stream, text) in chunks {
            append(&mut log, *stream, text);
        }
        Log::open(folder)
    }

    #[test]
    fn partial_line_is_reread_from_the_log_only_without_state() {
        use std::os::unix::fs::FileExt;
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(folder.path(), 1 << 30);
        append(&mut writer, Stdout, "begun ");
        append(&mut writer, Stderr, "one\n");
        let log = Log::open(folder.path());
        let hold = PartialLine::Hold;
        let mut lines = UnreadLines::new(log.clone());
        let first = lines.read(10, Cursor::default(), 10, hold).unwrap();
        assert_eq!(first.lines, ["[stderr] one"]);
        // The log has other bytes at the beginning of the line.
        let data = folder.path().join("log").join(format!("{:016x}", 0));
        let data = std::fs::File::options().write(true).open(data).unwrap();
        data.write_all_at(b"other ", 0).unwrap();
        append(&mut writer, Stdout, "ended\n");
        let known = log.end().unwrap();
        for partial in [PartialLine::Emit, hold] {
            let rest = lines.read(known, first.cursor, 10, partial).unwrap();
            assert_eq!(rest.lines, ["[stdout] begun ended"]);
        }
        let mut without_state = UnreadLines::new(log);
        let reread = without_state.read(known, first.cursor, 10, hold).unwrap();
        assert_eq!(reread.lines, ["[stdout] other ended"]);
    }

    #[test]
    fn reader_that_continues_sees_every_line_that_is_appended() {
        let folder = tempfile::tempdir().unwrap();
        // Its segments are small.
        let mut writer = writer(folder.path(), 64 << 10);
        let log = Log::open(folder.path());
        let (mut lines, mut cursor) = (UnreadLines::new(log.clone()), Cursor::default());
        let mut next = |expected: &[String]| {
            let known = log.end().unwrap();
            let page = lines.read(known, cursor, 10, PartialLine::Hold).unwrap();
            assert_eq!(page.lines, expected);
            cursor = page.cursor;
            lines.expect_bytes_at(known);
        };
        next(&[]);
        // Chunks of one stream that arrive in the same millisecond share an index entry, which grows.
        for number in 0..100 {
            let stream = if number % 7 == 0 { Stderr } else { Stdout };
            let line = number.to_string().repeat(200);
            append(&mut writer, stream, &format!("{line}\n"));
            let name = if stream == Stderr { "stderr" } else { "stdout" };
            next(&[format!("[{name}] {line}")]);
            next(&[]);
        }
        let files = std::fs::read_dir(folder.path().join("log")).unwrap();
        assert!(files.count() > 6, "the log has several segments");
    }

    #[test]
    fn reader_of_everything_up_to_an_offset_continues_within_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let chunks = [
            (Stdout, "one\nbeg"),
            (Stderr, "err\n"),
            (Stdout, "un\nmore \u{e9}\n"),
        ];
        let log = written(folder.path(), &chunks);
        let from_start = |end| cursor_at(&log, Cursor::default(), end).unwrap();
        for (end, cursor) in [(4, "4"), (7, "7O"), (11, "11O"), (13, "13O"), (14, "14")] {
            assert_eq!(from_start(end).to_string(), cursor, "{end}");
        }
        // The first byte of a character is returned together with its second.
        assert_eq!(from_start(20).to_string(), "20O19");
        let known = log.end().unwrap();
        let rest = |from| {
            let mut lines = UnreadLines::new(log.clone());
            lines
                .read(known, from, 10, PartialLine::Emit)
                .unwrap()
                .lines
        };
        assert_eq!(
            rest(from_start(7)),
            ["[stderr] err", "[stdout] un", "[stdout] more \u{e9}"]
        );
        assert_eq!(rest(from_start(13)), ["[stdout] more \u{e9}"]);
        assert_eq!(rest(from_start(20)), ["[stdout] \u{e9}"]);
        assert_eq!(
            cursor_at(&log, from_start(13), 14).unwrap().to_string(),
            "14"
        );
    }

    /// The keeper has counted bytes that could not be written to disk, or the log was removed.
    #[test]
    fn counted_bytes_that_are_not_in_the_log_are_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let log = written(folder.path(), &[(Stdout, "one\n")]);
        let hold = PartialLine::Hold;
        let mut lines = UnreadLines::new(log);
        let page = lines.read(10, Cursor::default(), 10, hold).unwrap();
        let missing = "[… 6 bytes are missing from the log …]";
        assert_eq!(page.lines, ["[stdout] one", missing]);
        assert_eq!(
            (page.seen, page.cursor.offset(), page.lossy),
            (10, 10, true)
        );
        let next = lines.read(10, page.cursor, 10, hold).unwrap();
        assert!(next.lines.is_empty(), "{:?}", next.lines);
        std::fs::remove_dir_all(folder.path().join("log")).unwrap();
        for (known, expected) in [
            (0, vec![]),
            (4, vec!["[… 4 bytes are missing from the log …]"]),
        ] {
            let mut lines = UnreadLines::new(Log::open(folder.path()));
            let page = lines.read(known, Cursor::default(), 10, PartialLine::Emit);
            assert_eq!(page.unwrap().lines, expected);
        }
    }
}
