//! Lines of a session's log by their numbers, and the numbers of lines that match a pattern, for log views.

use std::io;

use abide_api::{LogLine, LogLines, LogMatches, LogRange, LogStream};
use abide_core::Millis;
use abide_output::mask::Mask;
use axum::extract::{Path, State as Shared};
use memchr::{memchr, memrchr};
use schemars::JsonSchema;
use serde::Deserialize;

use super::body::{JsonResponse, Query};
use super::line_index::LineIndex;
use super::line_text::{self, utf16_range};
use super::log_stream::session_log;
use super::pagination;
use super::problem::Problem;
use super::requester::Requester;
use super::state::State;
use abide_engine::clock::SystemClock;
use abide_engine::search::{self, Pattern};
use abide_session::log::{Log, Piece, Stream};

/// Longest line that is sent whole, in bytes. Of a longer one half as much of its begin and of its end is sent.
const LINE_LIMIT: usize = 16 << 10;
/// Bytes of lines after which a page ends.
const PAGE_LIMIT: usize = 1 << 20;
/// Matches that are marked in one line.
const MATCH_LIMIT: usize = 100;
/// Line numbers in one page of matches.
const MATCHED_LINES: usize = 10_000;
/// Time limit of a search. The page then ends early with a cursor for the rest.
const TIME_LIMIT: Millis = Millis::from_secs(5);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinesQuery {
    /// Number of the first line, from 1.
    #[serde(default)]
    from: u64,
    /// Maximum number of lines, 1 to 1000.
    #[serde(default, deserialize_with = "pagination::count")]
    #[schemars(with = "Option<usize>")]
    limit: Option<usize>,
    /// Regular expression whose matches are marked.
    pattern: Option<String>,
}

/// Reads lines by their numbers.
pub async fn lines(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
    Query(query): Query<LinesQuery>,
) -> Result<JsonResponse<LogLines>, Problem> {
    let limit = pagination::limit(query.limit)?;
    let pattern = query.pattern.as_deref().map(parse_pattern).transpose()?;
    let view = requester.session(&state, &id)?;
    let index = state.line_indexes.of(view.id);
    let mask = Mask::of(state.handle.secrets(view.id));
    let read = tokio::task::spawn_blocking(move || {
        let log = session_log(&view);
        // A panic in an earlier update leaves an index that is at most behind.
        let mut index = index.lock().unwrap_or_else(|broken| broken.into_inner());
        index.update(&log)?;
        let lines = read_lines(&log, &index, query.from.max(1), limit)?;
        Ok::<_, io::Error>(LogLines {
            lines: lines
                .into_iter()
                .map(|line| line.shown(&mask, pattern.as_ref()))
                .collect(),
            total: index.total(),
            dropped: index.dropped(),
        })
    });
    Ok(JsonResponse(read.await??))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MatchesQuery {
    /// Regular expression.
    pattern: String,
    /// Place at which the search continues: `next` of the previous page.
    #[serde(default)]
    after: u64,
}

/// Finds the lines that match a pattern.
pub async fn matches(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
    Query(query): Query<MatchesQuery>,
) -> Result<JsonResponse<LogMatches>, Problem> {
    let pattern = parse_pattern(&query.pattern)?;
    let view = requester.session(&state, &id)?;
    let found = tokio::task::spawn_blocking(move || {
        let end = SystemClock.mono() + TIME_LIMIT;
        let search = search::Search {
            pattern,
            context: 0,
            max_lines: MATCHED_LINES,
            from: query.after,
            fold_equal: false,
        };
        search::search(&session_log(&view), &search, || SystemClock.mono() >= end)
    });
    let found = found.await??;
    let lines: Vec<u64> = found.lines.iter().map(|line| line.number).collect();
    let more = found.matches > lines.len() as u64;
    let next = (more || found.stopped).then_some(found.next);
    Ok(JsonResponse(LogMatches {
        lines,
        total: found.matches,
        next,
        stopped: found.stopped,
    }))
}

fn parse_pattern(pattern: &str) -> Result<Pattern, Problem> {
    Pattern::new(pattern).map_err(|bad| Problem::bad_input(format!("`pattern` is invalid: {bad}")))
}

/// Line as it is in the log.
#[derive(Debug, PartialEq, Eq)]
struct RawLine {
    number: u64,
    at: u64,
    stream: LogStream,
    bytes: Vec<u8>,
    cut: u64,
    missing: u64,
}

impl RawLine {
    /// Limits the line to [`LINE_LIMIT`]. A progress bar writes one long line, of which a terminal shows what follows
    /// the last carriage return: the updates before it are dropped. Any other line is cut in its middle.
    fn shorten(&mut self) {
        if self.bytes.len() <= LINE_LIMIT {
            return;
        }
        let text_end = self.bytes.iter().rposition(|byte| *byte != b'\r');
        let overwritten = memrchr(b'\r', &self.bytes[..text_end.unwrap_or(0)]);
        if let Some(last) = overwritten {
            self.bytes.drain(..=last);
            self.cut = 0;
        }
        if let Some(excess) = self.bytes.len().checked_sub(LINE_LIMIT) {
            self.bytes.drain(LINE_LIMIT / 2..LINE_LIMIT / 2 + excess);
            self.cut += excess as u64;
        }
    }

    /// Writes into the line how much is left out in its middle. The parts of a character that was cut are left out too.
    fn note_cut(&mut self) {
        if self.cut == 0 {
            return;
        }
        let is_inside = |byte: &u8| byte & 0xc0 == 0x80;
        let (begin, end) = self.bytes.split_at(LINE_LIMIT / 2);
        let begin = match str::from_utf8(begin) {
            Err(fault) if fault.error_len().is_none() => fault.valid_up_to(),
            _ => begin.len(),
        };
        let inside = end.iter().take(3).take_while(|byte| is_inside(byte));
        let end = LINE_LIMIT / 2 + inside.count();
        self.cut += (end - begin) as u64;
        let note = format!("[… {} bytes left out …]", self.cut);
        self.bytes.splice(begin..end, note.into_bytes());
    }

    fn shown(self, mask: &Mask, pattern: Option<&Pattern>) -> LogLine {
        let (plain, styles) = line_text::render(&self.bytes);
        let text = mask.apply(plain.clone());
        let ranges = pattern
            .into_iter()
            .flat_map(|pattern| pattern.ranges(text.as_bytes()));
        let matches = ranges
            .take(MATCH_LIMIT)
            .map(|range| utf16_range(&text, range))
            .map(|(start, end)| LogRange { start, end })
            .collect();
        LogLine {
            number: self.number,
            at: self.at,
            stream: self.stream,
            cut: (self.cut > 0).then_some(self.cut),
            missing: (self.missing > 0).then_some(self.missing),
            // Places in a text that was masked are others.
            styles: if text == plain { styles } else { Vec::new() },
            matches,
            text,
        }
    }
}

/// Lines of a log from the line `from` on, which the index must cover.
fn read_lines(log: &Log, index: &LineIndex, from: u64, limit: usize) -> io::Result<Vec<RawLine>> {
    if from > index.total() {
        return Ok(Vec::new());
    }
    let mark = index.mark_before(from);
    let mut lines = LineReader::new(mark.line, from, limit);
    let mut pieces = log.pieces(mark.offset, None);
    while !lines.is_full()
        && let Some(piece) = pieces.next_within(usize::MAX)?
    {
        match piece {
            Piece::Gap { from, to } => lines.gap(to - from),
            Piece::Chunk(chunk) => lines.feed(&chunk.bytes, chunk.at_wall_ms, chunk.stream),
        }
    }
    Ok(lines.finish())
}

/// Splits chunks of a log into lines, from the line `from` on.
struct LineReader {
    number: u64,
    from: u64,
    limit: usize,
    size: usize,
    done: Vec<RawLine>,
    /// Line that has begun.
    open: Option<RawLine>,
    missing: u64,
}

impl LineReader {
    fn new(number: u64, from: u64, limit: usize) -> Self {
        LineReader {
            number,
            from,
            limit,
            size: 0,
            done: Vec::new(),
            open: None,
            missing: 0,
        }
    }

    fn is_full(&self) -> bool {
        self.done.len() >= self.limit || self.size >= PAGE_LIMIT
    }

    fn feed(&mut self, mut bytes: &[u8], at: u64, stream: Stream) {
        while !bytes.is_empty() && !self.is_full() {
            let end = memchr(b'\n', bytes);
            let part = &bytes[..end.unwrap_or(bytes.len())];
            self.add(part, at, stream);
            bytes = &bytes[end.map_or(bytes.len(), |end| end + 1)..];
            if end.is_some() {
                self.end_line();
            }
        }
    }

    fn add(&mut self, part: &[u8], at: u64, stream: Stream) {
        let stream = match stream {
            Stream::Stdout => LogStream::Stdout,
            Stream::Stderr => LogStream::Stderr,
            Stream::Pty => LogStream::Pty,
        };
        let wanted = self.number >= self.from;
        let line = self.open.get_or_insert_with(|| RawLine {
            number: self.number,
            at,
            stream,
            bytes: Vec::new(),
            cut: 0,
            missing: std::mem::take(&mut self.missing),
        });
        if line.stream != stream && !part.is_empty() {
            line.stream = LogStream::Both;
        }
        if wanted {
            line.bytes.extend_from_slice(part);
            // Not at every byte above the limit, because each time many are moved.
            if line.bytes.len() > 2 * LINE_LIMIT {
                line.shorten();
            }
        }
    }

    fn end_line(&mut self) {
        let line = self.open.take();
        self.number += 1;
        if let Some(mut line) = line.filter(|line| line.number >= self.from) {
            line.shorten();
            line.note_cut();
            self.size += line.bytes.len();
            self.done.push(line);
        }
    }

    fn gap(&mut self, bytes: u64) {
        if self.open.is_some() {
            self.end_line();
        }
        self.missing += bytes;
    }

    fn finish(mut self) -> Vec<RawLine> {
        if self.open.is_some() && !self.is_full() {
            self.end_line();
        }
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[RawLine]) -> Vec<(u64, String)> {
        let text = |line: &RawLine| String::from_utf8_lossy(&line.bytes).into_owned();
        lines.iter().map(|line| (line.number, text(line))).collect()
    }

    #[test]
    fn lines_are_split_across_chunks_and_numbered() {
        let mut reader = LineReader::new(5, 6, 2);
        reader.feed(b"five\nsi", 1, Stream::Stdout);
        reader.feed(b"x\n\nei", 2, Stream::Stdout);
        let lines = reader.finish();
        assert_eq!(texts(&lines), [(6, "six".into()), (7, String::new())]);
        assert_eq!((lines[0].at, lines[1].at), (1, 2));
    }

    #[test]
    fn line_of_two_streams_says_both() {
        let mut reader = LineReader::new(1, 1, 10);
        reader.feed(b"a", 1, Stream::Stdout);
        reader.feed(b"b\n", 2, Stream::Stderr);
        reader.feed(b"c", 3, Stream::Stderr);
        let lines = reader.finish();
        let streams: Vec<_> = lines.iter().map(|line| line.stream).collect();
        assert_eq!(streams, [LogStream::Both, LogStream::Stderr]);
    }

    #[test]
    fn gap_ends_a_line_and_is_counted_before_the_next() {
        let mut reader = LineReader::new(1, 1, 10);
        reader.feed(b"a", 1, Stream::Stdout);
        reader.gap(7);
        reader.feed(b"b", 2, Stream::Stdout);
        let lines = reader.finish();
        assert_eq!(texts(&lines), [(1, "a".into()), (2, "b".into())]);
        assert_eq!((lines[0].missing, lines[1].missing), (0, 7));
    }

    /// Line that was written in these parts.
    fn line_of(parts: impl IntoIterator<Item = String>) -> LogLine {
        let mut reader = LineReader::new(1, 1, 10);
        for part in parts {
            reader.feed(part.as_bytes(), 1, Stream::Stdout);
        }
        let mut lines = reader.finish();
        assert_eq!(lines.len(), 1);
        lines.remove(0).shown(&Mask::default(), None)
    }

    #[test]
    fn long_line_is_cut_in_its_middle_and_the_rest_counted() {
        let half = LINE_LIMIT / 2;
        for middle in [3, LINE_LIMIT, 9 * LINE_LIMIT + 1] {
            let parts = ["b".repeat(half), "m".repeat(middle), "e".repeat(half)];
            let line = line_of(parts.clone());
            let note = format!("[… {middle} bytes left out …]");
            assert_eq!(
                line.text,
                [&parts[0], &note, &parts[2]].map(String::as_str).concat()
            );
            assert_eq!(line.cut, Some(middle as u64));
        }
        let whole = "x".repeat(LINE_LIMIT);
        let line = line_of([whole.clone()]);
        assert_eq!((line.text, line.cut), (whole, None));
    }

    #[test]
    fn long_line_is_cut_between_characters() {
        let line = line_of([format!("a{}", "€".repeat(LINE_LIMIT))]);
        let (begin, rest) = line.text.split_once("[… ").expect("a note");
        let (count, end) = rest.split_once(" bytes left out …]").expect("a note");
        assert!(!line.text.contains('\u{fffd}'), "{count}");
        let kept = begin.len() + end.len();
        assert_eq!(line.cut, Some((1 + 3 * LINE_LIMIT - kept) as u64));
    }

    #[test]
    fn progress_bar_shows_its_last_update_however_many_there_were() {
        for count in [1_000, 10_000] {
            let before = |n| format!("\rdownloading {n} of {count}");
            let after = |n| format!("downloading {n} of {count}\r");
            for line in [
                line_of((1..=count).map(before)),
                line_of((1..=count).map(after)),
                line_of(std::iter::once("x".repeat(9 * LINE_LIMIT)).chain((1..=count).map(before))),
            ] {
                assert_eq!(line.text, format!("downloading {count} of {count}"));
                assert_eq!(line.cut, None);
            }
        }
    }
}
