//! Search in a whole log by a regular expression, in one pass and in constant memory.
//!
//! Lines are matched without escape sequences. A block that contains none is searched as it is, which makes this
//! about as fast as grep.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use abide_output::tokenizer;
use memchr::{memchr, memchr_iter, memrchr};
use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look};

use abide_session::log::{Log, Piece};

/// Bytes searched at once. A longer line is searched in parts.
const BLOCK_SIZE: usize = 256 << 10;
/// Maximum memory of a compiled pattern.
const PATTERN_SIZE: usize = 1 << 20;
/// Maximum depth of nesting in a pattern.
const PATTERN_DEPTH: u32 = 64;
/// Longest pattern, in bytes.
const PATTERN_LENGTH: usize = 4 << 10;
/// Maximum bytes of a line in the result, around its match.
const MAX_LINE_BYTES: usize = 1_000;

#[derive(Clone, Debug)]
pub struct Pattern {
    regex: Regex,
    /// True if it could match across lines, so it is applied to one line at a time.
    by_line: bool,
}

/// Pattern that cannot be used, as a sentence that says where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadPattern(String);

impl Pattern {
    pub fn new(pattern: &str) -> Result<Self, BadPattern> {
        if pattern.len() > PATTERN_LENGTH {
            return Err(BadPattern(format!(
                "it is {} bytes long and at most {PATTERN_LENGTH} are allowed",
                pattern.len()
            )));
        }
        let parsed = ParserBuilder::new()
            .multi_line(true)
            .crlf(true)
            .utf8(false)
            .nest_limit(PATTERN_DEPTH)
            .build()
            .parse(pattern)
            .map_err(|e| BadPattern(reason(pattern, &e)))?;
        let ends = parsed.properties().look_set();
        let by_line =
            ends.contains(Look::Start) || ends.contains(Look::End) || spans_lines(&parsed);
        let regex = RegexBuilder::new(pattern)
            .multi_line(true)
            .crlf(true)
            .size_limit(PATTERN_SIZE)
            .dfa_size_limit(PATTERN_SIZE)
            .nest_limit(PATTERN_DEPTH)
            .build()
            .map_err(|_| {
                BadPattern(format!(
                    "it takes more than {PATTERN_SIZE} bytes when compiled"
                ))
            })?;
        Ok(Pattern { regex, by_line })
    }

    /// True if a text contains a match.
    pub fn matches(&self, text: &[u8]) -> bool {
        self.regex.is_match(text)
    }

    /// Places of the matches in a text that are not empty.
    pub fn ranges<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = Range<usize>> + 'a {
        let found = self.regex.find_iter(text).map(|found| found.range());
        found.filter(|range| !range.is_empty())
    }
}

/// Fault of a pattern and its position, as a sentence.
fn reason(pattern: &str, error: &regex_syntax::Error) -> String {
    let (fault, at) = match error {
        regex_syntax::Error::Parse(fault) => (fault.kind().to_string(), fault.span().start),
        regex_syntax::Error::Translate(fault) => (fault.kind().to_string(), fault.span().start),
        _ => return "it is not a regular expression".into(),
    };
    let place = pattern[..at.offset].chars().count() + 1;
    format!("{fault}, at character {place}")
}

/// True if any part of a pattern matches a newline.
fn spans_lines(part: &Hir) -> bool {
    match part.kind() {
        HirKind::Empty | HirKind::Look(_) => false,
        HirKind::Literal(literal) => literal.0.contains(&b'\n'),
        HirKind::Class(Class::Unicode(class)) => class
            .iter()
            .any(|range| (range.start()..=range.end()).contains(&'\n')),
        HirKind::Class(Class::Bytes(class)) => class
            .iter()
            .any(|range| (range.start()..=range.end()).contains(&b'\n')),
        HirKind::Repetition(repetition) => spans_lines(&repetition.sub),
        HirKind::Capture(capture) => spans_lines(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().any(spans_lines),
    }
}

/// Search request.
#[derive(Clone, Debug)]
pub struct Search {
    pub pattern: Pattern,
    /// Lines of context before and after each match.
    pub context: usize,
    /// Maximum of matching lines in the result; further ones are counted.
    pub max_lines: usize,
    /// Byte offset at which the search begins: lines that begin before it are only counted. Offsets stay valid when
    /// the quota drops a part of the log, which numbers of lines do not.
    pub from: u64,
    /// Fold matching lines in a row that show the same text, if no context is wanted.
    pub fold_equal: bool,
}

/// Line that matches, or is context of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Line number, from one.
    pub number: u64,
    pub matches: bool,
    /// Bytes without escape sequences; of a long line the part around the match.
    pub text: Vec<u8>,
    /// Bytes left out before and after.
    pub cut: (usize, usize),
    /// Number of the last of the next matching lines that show the same text, and how many they are. See
    /// [`Search::fold_equal`].
    pub equal: Option<(u64, u64)>,
}

impl Line {
    /// Returns whether another line shows the same.
    fn shows_same(&self, other: &Line) -> bool {
        self.text == other.text && self.cut == other.cut
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchResult {
    pub lines: Vec<Line>,
    /// Number of matching lines, including those that are not in the result.
    pub matches: u64,
    /// Number of lines in the log.
    pub total: u64,
    /// Bytes of the log that were searched.
    pub searched: u64,
    /// [`Search::from`] of a search for what follows the lines in the result.
    pub next: u64,
    /// Bytes missing from the log.
    pub missing: u64,
    /// True if it was stopped before the end of the log.
    pub stopped: bool,
}

/// Searches a log until its end or until `stop` returns true.
pub fn search(
    log: &Log,
    search: &Search,
    mut stop: impl FnMut() -> bool,
) -> io::Result<SearchResult> {
    let mut searcher = Searcher::new(search);
    let mut pieces = log.pieces(0, None);
    while let Some(piece) = pieces.next_within(usize::MAX)? {
        match piece {
            Piece::Chunk(chunk) => {
                if searcher.feed(&chunk.bytes) && stop() {
                    searcher.result.stopped = true;
                    break;
                }
            }
            Piece::Gap { from, to } => searcher.gap(to - from),
        }
    }
    Ok(searcher.finish())
}

/// Part of a line that comes next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Begin of a line.
    First,
    /// More of a line that does not match so far.
    More,
    /// More of a line that matches.
    Found,
}

/// Search over the chunks of a log.
pub struct Searcher<'a> {
    search: &'a Search,
    buffer: Vec<u8>,
    clean: Vec<u8>,
    result: SearchResult,
    /// Offset in the log of the start of the buffer.
    offset: u64,
    /// Number of the line at the start of the buffer, and the offset of its begin.
    number: u64,
    line_begin: u64,
    /// Part of that line: it may have begun in an earlier block.
    part: Part,
    /// Lines before the current one, in case it or the next ones match.
    before: VecDeque<Line>,
    /// Lines of context still to be added after a match.
    after: usize,
    /// Number of matching lines in the result, and of those that are folded into the one before.
    shown: u64,
    folded: u64,
    /// Number of the last matching line in the result.
    last_shown: u64,
}

impl<'a> Searcher<'a> {
    /// Search that has read nothing.
    pub fn new(search: &'a Search) -> Self {
        Searcher {
            search,
            buffer: Vec::with_capacity(BLOCK_SIZE),
            clean: Vec::new(),
            result: SearchResult::default(),
            offset: 0,
            number: 1,
            line_begin: 0,
            part: Part::First,
            before: VecDeque::new(),
            after: 0,
            shown: 0,
            folded: 0,
            last_shown: 0,
        }
    }

    /// Adds a chunk of the log. Returns true if a block was searched.
    pub fn feed(&mut self, bytes: &[u8]) -> bool {
        let bytes = self.count_before_from(bytes);
        self.result.searched += bytes.len() as u64;
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() < BLOCK_SIZE {
            return false;
        }
        let end = memrchr(b'\n', &self.buffer).map_or(self.buffer.len(), |at| at + 1);
        self.block(end);
        true
    }

    /// Marks missing bytes: what came before is a line of its own.
    pub fn gap(&mut self, bytes: u64) {
        self.result.missing += bytes;
        let end = self.offset + self.buffer.len() as u64 + bytes;
        if !self.buffer.is_empty() {
            if !self.buffer.ends_with(b"\n") {
                self.buffer.push(b'\n');
            }
            self.block(self.buffer.len());
        } else if self.part != Part::First {
            self.number += 1;
            self.part = Part::First;
        }
        (self.offset, self.line_begin) = (end, end);
    }

    /// Counts the lines before the offset at which the search begins. Returns the bytes behind it.
    fn count_before_from<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let before = self.search.from.saturating_sub(self.offset);
        if before == 0 || !self.buffer.is_empty() {
            return bytes;
        }
        let before = usize::try_from(before).map_or(bytes.len(), |before| before.min(bytes.len()));
        let (before, rest) = bytes.split_at(before);
        self.skip(before);
        self.pass(before);
        if self.part == Part::More {
            // A line that begins before that offset is not part of the result.
            self.part = Part::Found;
        }
        rest
    }

    /// Advances the offsets behind bytes that were searched.
    fn pass(&mut self, bytes: &[u8]) {
        if let Some(last) = memrchr(b'\n', bytes) {
            self.line_begin = self.offset + last as u64 + 1;
        }
        self.offset += bytes.len() as u64;
    }

    /// Marks the end of the log, and returns the result.
    pub fn finish(mut self) -> SearchResult {
        self.block(self.buffer.len());
        self.result.total = self.number - 1 + u64::from(self.part != Part::First);
        if self.result.matches == self.shown + self.folded {
            self.result.next = self.result.next.max(self.line_begin);
        }
        self.result
    }

    /// Searches the first `end` bytes of the buffer.
    fn block(&mut self, end: usize) {
        if end == 0 {
            return;
        }
        let raw = std::mem::take(&mut self.buffer);
        let mut clean = std::mem::take(&mut self.clean);
        let first = self.number;
        if memchr(0x1b, &raw[..end]).is_some() {
            clean.clear();
            tokenizer::strip_escapes(&raw[..end], &mut clean);
            self.lines(&clean);
        } else {
            self.lines(&raw[..end]);
        }
        self.clean = clean;
        if let Some(later) = self.last_shown.checked_sub(first) {
            let mut ends = memchr_iter(b'\n', &raw);
            let begin = match later.checked_sub(1) {
                None => self.line_begin,
                Some(skipped) => {
                    let end = ends.nth(usize::try_from(skipped).unwrap_or(usize::MAX));
                    self.offset + end.map_or(0, |end| end as u64 + 1)
                }
            };
            self.result.next = begin + 1;
        }
        self.pass(&raw[..end]);
        self.buffer = raw;
        self.buffer.drain(..end);
    }

    /// Goes from match to match; lines in between are only counted.
    fn lines(&mut self, block: &[u8]) {
        self.count_rest(block);
        let mut at = 0;
        while at < block.len() {
            let Some(found) = self.next_match(block, at) else {
                break;
            };
            let start = memrchr(b'\n', &block[at..found]).map_or(at, |newline| at + newline + 1);
            self.unmatched_lines(&block[at..start]);
            let end =
                memchr(b'\n', &block[start..]).map_or(block.len(), |length| start + length + 1);
            let line = &block[start..end];
            let text = without_end(line);
            if let Some(place) = self.search.pattern.regex.find(text) {
                self.matched(text, place.start());
                self.advance(line, Part::Found);
            } else {
                // The pattern matched only together with the text around the line.
                self.context_line(text);
                self.advance(line, Part::More);
            }
            at = end;
        }
        if at < block.len() {
            self.unmatched_lines(&block[at..]);
        }
    }

    /// Adds the rest of a line of which an earlier block was shown to the bytes that are left out behind that.
    fn count_rest(&mut self, block: &[u8]) {
        let end = memchr(b'\n', block).map_or(block.len(), |at| at + 1);
        let shown = self.result.lines.last_mut().into_iter();
        let shown = shown.chain(self.before.back_mut());
        for line in shown.filter(|line| self.part != Part::First && line.number == self.number) {
            line.cut.1 += without_end(&block[..end]).len();
        }
    }

    /// Position of the next match that may be one of a line.
    fn next_match(&self, block: &[u8], at: usize) -> Option<usize> {
        let regex = &self.search.pattern.regex;
        if self.search.pattern.by_line {
            let mut start = at;
            for end in memchr_iter(b'\n', &block[at..])
                .map(|end| at + end)
                .chain([block.len()])
            {
                if start < block.len() && regex.is_match(without_end(&block[start..end])) {
                    return Some(start);
                }
                start = end + 1;
            }
            return None;
        }
        let found = regex.find_at(block, at)?.start();
        // The empty rest after the last newline is no line.
        (found < block.len() || !block.ends_with(b"\n")).then_some(found.min(block.len() - 1))
    }

    fn matched(&mut self, text: &[u8], place: usize) {
        if self.part == Part::Found {
            return;
        }
        self.result.matches += 1;
        let mut line = shown(self.number, true, text, place);
        if self.part == Part::More {
            // The line begins in an earlier block.
            line.cut.0 += (self.offset - self.line_begin) as usize;
        }
        if self.search.fold_equal
            && self.search.context == 0
            && let Some(last) = self.result.lines.last_mut()
            && self.folded + self.shown + 1 == self.result.matches
            && last.shows_same(&line)
        {
            let (_, count) = last.equal.unwrap_or_default();
            last.equal = Some((self.number, count + 1));
            self.folded += 1;
            return;
        }
        if self.shown >= self.search.max_lines as u64 {
            self.before.clear();
            self.after = 0;
            return;
        }
        self.shown += 1;
        self.last_shown = self.number;
        self.result.lines.extend(self.before.drain(..));
        self.result.lines.push(line);
        self.after = self.search.context;
    }

    /// Adds a line that does not match but may be context.
    fn context_line(&mut self, text: &[u8]) {
        if self.part != Part::First || self.search.context == 0 {
            return;
        }
        if self.after > 0 {
            self.after -= 1;
            self.result.lines.push(shown(self.number, false, text, 0));
        } else {
            if self.before.len() == self.search.context {
                self.before.pop_front();
            }
            self.before.push_back(shown(self.number, false, text, 0));
        }
    }

    /// Handles lines that do not match. Only those that are context are split.
    fn unmatched_lines(&mut self, lines: &[u8]) {
        if self.search.context == 0 || self.result.matches > self.search.max_lines as u64 {
            self.skip(lines);
            return;
        }
        let mut rest = lines;
        while self.after > 0 && !rest.is_empty() {
            rest = self.first_unmatched(rest);
        }
        let mut kept = rest.len();
        for _ in 0..self.search.context {
            if kept == 0 {
                break;
            }
            kept = memrchr(b'\n', &rest[..kept - 1]).map_or(0, |at| at + 1);
        }
        self.skip(&rest[..kept]);
        let mut rest = &rest[kept..];
        while !rest.is_empty() {
            rest = self.first_unmatched(rest);
        }
    }

    /// Handles the first of these lines, and returns the others.
    fn first_unmatched<'b>(&mut self, lines: &'b [u8]) -> &'b [u8] {
        let end = memchr(b'\n', lines).map_or(lines.len(), |at| at + 1);
        let (line, rest) = lines.split_at(end);
        self.context_line(without_end(line));
        self.advance(line, Part::More);
        rest
    }

    fn skip(&mut self, lines: &[u8]) {
        if lines.is_empty() {
            return;
        }
        let newlines = memchr_iter(b'\n', lines).count() as u64;
        if newlines > 0 {
            self.number += newlines;
            self.part = Part::First;
        }
        if !lines.ends_with(b"\n") && self.part == Part::First {
            self.part = Part::More;
        }
    }

    /// Advances behind a line, or behind the part of it in this block.
    fn advance(&mut self, line: &[u8], part: Part) {
        if line.ends_with(b"\n") {
            self.number += 1;
            self.part = Part::First;
        } else if self.part != Part::Found {
            self.part = part;
        }
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Line for the result, shortened around the match.
fn shown(number: u64, matches: bool, text: &[u8], place: usize) -> Line {
    let (from, to) = if text.len() <= MAX_LINE_BYTES {
        (0, text.len())
    } else {
        let from = place.saturating_sub(MAX_LINE_BYTES / 4);
        let to = (from + MAX_LINE_BYTES).min(text.len());
        (
            char_start(text, to.saturating_sub(MAX_LINE_BYTES)),
            char_start(text, to),
        )
    };
    Line {
        number,
        matches,
        text: text[from..to].to_vec(),
        cut: (from, text.len() - to),
        equal: None,
    }
}

/// Start of the character at an offset.
fn char_start(text: &[u8], mut at: usize) -> usize {
    while at > 0 && at < text.len() && text[at] & 0xc0 == 0x80 {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests;
