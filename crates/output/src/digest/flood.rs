//! Scan of very long output for lines that may matter; all others are counted, not decoded.
//!
//! The first megabytes of an output are decoded and compared line by line. Of what follows, a line is decoded only if it
//! contains a keyword of `signals::keyword_scan` in a context that did not come often before, together with the lines
//! around it. So the time for a long output hardly depends on what is in it. When that is more than a small part of the
//! output, only strong forms of errors are searched for, until the part is small again. The end of the output is held as bytes and
//! decoded when it is known to be the end.
//!
//! Each line is judged by itself and by the lines before it, so that the result does not depend on how the stream is
//! cut.

use super::signals::keyword_scan::{self, STRONG_COUNT};
use crate::tokenizer::sgr_len;

/// Number of bytes that are decoded before a scan begins.
pub const SCAN_AFTER: u64 = 2 << 20;
/// Number of lines that are decoded before and after a line with a keyword.
const LINES_BEFORE: usize = 2;
const LINES_AFTER: usize = 10;
/// Slots for contexts of keywords, and the number of lines with one context that are decoded.
const CONTEXTS: usize = 1 << 14;
const SAME_CONTEXT_MAX: u8 = 6;
/// Bytes of a context on either side of a keyword.
const CONTEXT_BYTES: usize = 10;
/// Number of lines with one strong form of an error that are decoded.
const SAME_FORM_MAX: u8 = 48;
/// Bytes that are decoded at most, beside those that are kept of the end: a constant, and a part of all.
const DECODE_MIN: u64 = 512 << 10;
const DECODE_PART: u64 = 200;
/// A longer line is decoded. No piece of a stream is longer than this.
const LONG_LINE: usize = super::CHUNK_BYTES;

/// Receiver of the lines.
pub trait FloodSink {
    /// Takes bytes that are decoded.
    fn decode(&mut self, bytes: &[u8]);
    /// Counts lines that are left out. `bytes` is their number without escape sequences.
    fn skip(&mut self, lines: u64, bytes: u64);
}

/// State of a scan.
pub struct Flood {
    /// Begin of a line without its end.
    begun: Vec<u8>,
    /// A long line is being decoded.
    in_long_line: bool,
    /// Newest lines that are neither decoded nor skipped yet.
    newest: Vec<u8>,
    /// Number of bytes of these that are needed if the output ends.
    keep: usize,
    /// Number of next lines that are decoded.
    after: usize,
    contexts: Vec<u8>,
    /// Number of lines that were decoded because of each strong form.
    strong: [u8; STRONG_COUNT],
    scanned: u64,
    decoded: u64,
}

impl Flood {
    /// Scan that decodes the last `keep` bytes of the output.
    pub fn new(keep: usize) -> Self {
        Flood {
            begun: Vec::new(),
            in_long_line: false,
            newest: Vec::new(),
            keep,
            after: 0,
            contexts: vec![0; CONTEXTS],
            strong: [0; STRONG_COUNT],
            scanned: 0,
            decoded: 0,
        }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, mut bytes: &[u8], sink: &mut impl FloodSink) {
        if self.in_long_line || !self.begun.is_empty() {
            let end = memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
            let (line, rest) = bytes.split_at(end);
            let is_complete = line.ends_with(b"\n");
            bytes = rest;
            if self.in_long_line {
                sink.decode(line);
                self.in_long_line = !is_complete;
            } else {
                self.begun.extend_from_slice(line);
                if self.begun.len() > LONG_LINE {
                    self.skip_all_but(LINES_BEFORE, sink);
                    sink.decode(&std::mem::take(&mut self.begun));
                    self.in_long_line = !is_complete;
                } else if is_complete {
                    let line = std::mem::take(&mut self.begun);
                    self.lines(&line, sink);
                }
            }
        }
        let end = memchr::memrchr(b'\n', bytes).map_or(0, |at| at + 1);
        self.lines(&bytes[..end], sink);
        self.begun.extend_from_slice(&bytes[end..]);
    }

    /// Decodes the end of the output.
    pub fn finish(mut self, sink: &mut impl FloodSink) {
        let from = self.newest.len().saturating_sub(self.keep);
        let from = memchr::memchr(b'\n', &self.newest[from..]).map_or(0, |at| from + at + 1);
        let from = if self.newest.len() <= self.keep {
            0
        } else {
            from
        };
        let newest = std::mem::take(&mut self.newest);
        count_skipped(&newest[..from], sink);
        sink.decode(&newest[from..]);
        sink.decode(&self.begun);
    }

    /// Takes complete lines.
    fn lines(&mut self, block: &[u8], sink: &mut impl FloodSink) {
        let mut at = 0;
        while at < block.len() {
            if self.after > 0 {
                let end = line_end(block, at);
                self.decode(&block[at..end], sink);
                self.after -= 1;
                at = end;
                continue;
            }
            let Some(found) = self.next_line_that_matters(block, at) else {
                self.hold(&block[at..], sink);
                return;
            };
            self.hold(&block[at..found], sink);
            self.skip_all_but(LINES_BEFORE, sink);
            let end = line_end(block, found);
            self.decode(&block[found..end], sink);
            self.after = LINES_AFTER;
            at = end;
        }
    }

    /// Start of the next line that is decoded.
    fn next_line_that_matters(&mut self, block: &[u8], from: usize) -> Option<usize> {
        let start_of =
            |at: usize| memchr::memrchr(b'\n', &block[from..at]).map_or(from, |n| from + n + 1);
        // Until enough was skipped, only strong forms are searched for.
        let skip = self.bytes_until_decoding().min((block.len() - from) as u64);
        if let Some(at) = self.next_strong(block, from, from + skip as usize) {
            self.scanned += (at - from) as u64;
            return Some(start_of(at));
        }
        self.scanned += skip;
        let from = from + skip as usize;
        let begun_at = self.scanned;
        let special = next_special(block, from);
        for word in keyword_scan::keywords(&block[from..]) {
            let (start, end) = (from + word.start, from + word.end);
            if let Some(at) = special.filter(|at| *at < start) {
                self.scanned = begun_at + (at - from) as u64;
                return Some(start_of(at));
            }
            self.scanned = begun_at + word.start as u64;
            if self.is_fresh(block, start, end) {
                return Some(start_of(start));
            }
        }
        self.scanned = begun_at + (block.len() - from) as u64;
        special.map(start_of)
    }

    /// Position of the next strong form that did not come often before.
    fn next_strong(&mut self, block: &[u8], from: usize, to: usize) -> Option<usize> {
        for (form, range) in keyword_scan::strong_forms(&block[from..to]) {
            let (start, end) = (from + range.start, from + range.end);
            let start = start + usize::from(block[start] == b'\n');
            if self.strong[form] < SAME_FORM_MAX && self.is_fresh(block, start, end) {
                self.strong[form] += 1;
                return Some(end);
            }
        }
        None
    }

    /// Returns whether a keyword stands in a context that did not come often before.
    fn is_fresh(&mut self, block: &[u8], start: usize, end: usize) -> bool {
        let before = &block[start.saturating_sub(CONTEXT_BYTES)..start];
        let before = &before[memchr::memrchr(b'\n', before).map_or(0, |at| at + 1)..];
        let after = &block[end..(end + CONTEXT_BYTES).min(block.len())];
        let after = &after[..memchr::memchr(b'\n', after).unwrap_or(after.len())];
        let mut hash = 0u32;
        for byte in before.iter().chain(&block[start..end]).chain(after) {
            let byte = if byte.is_ascii_digit() { b'0' } else { *byte };
            hash = (hash ^ u32::from(byte))
                .wrapping_mul(0x0100_0193)
                .rotate_left(5);
        }
        let slot = &mut self.contexts[(hash.wrapping_mul(0x9E37_79B1) >> 18) as usize % CONTEXTS];
        let is_fresh = *slot < SAME_CONTEXT_MAX;
        *slot += u8::from(is_fresh);
        is_fresh
    }

    /// Number of bytes that are skipped before a line may be decoded again.
    fn bytes_until_decoding(&self) -> u64 {
        let over = self.decoded.saturating_sub(DECODE_MIN + self.keep as u64);
        (over * DECODE_PART).saturating_sub(self.scanned)
    }

    fn decode(&mut self, lines: &[u8], sink: &mut impl FloodSink) {
        self.decoded += lines.len() as u64;
        self.scanned += lines.len() as u64;
        sink.decode(lines);
    }

    /// Holds lines, and skips those before them that will not be needed.
    fn hold(&mut self, lines: &[u8], sink: &mut impl FloodSink) {
        if lines.len() > self.keep {
            count_skipped(&std::mem::take(&mut self.newest), sink);
            let from = lines.len() - self.keep;
            let from = memchr::memrchr(b'\n', &lines[..from]).map_or(0, |at| at + 1);
            count_skipped(&lines[..from], sink);
            self.newest.extend_from_slice(&lines[from..]);
            return;
        }
        self.newest.extend_from_slice(lines);
        if self.newest.len() > 4 * self.keep {
            let from = self.newest.len() - self.keep;
            let from = memchr::memrchr(b'\n', &self.newest[..from]).map_or(0, |at| at + 1);
            count_skipped(&self.newest[..from], sink);
            self.newest.drain(..from);
        }
    }

    /// Decodes the newest lines that are held and skips the others.
    fn skip_all_but(&mut self, lines: usize, sink: &mut impl FloodSink) {
        let newest = std::mem::take(&mut self.newest);
        let mut from = newest.len();
        for _ in 0..lines {
            let before = from.saturating_sub(1);
            from = memchr::memrchr(b'\n', &newest[..before]).map_or(0, |at| at + 1);
        }
        count_skipped(&newest[..from], sink);
        self.decode(&newest[from..], sink);
        self.newest = newest;
        self.newest.clear();
    }
}

fn line_end(block: &[u8], at: usize) -> usize {
    memchr::memchr(b'\n', &block[at..]).map_or(block.len(), |end| at + end + 1)
}

/// Position of the next byte that can overwrite text: an escape sequence other than of colours, a backspace, or a
/// carriage return within a line.
fn next_special(block: &[u8], from: usize) -> Option<usize> {
    for at in memchr::memchr3_iter(0x1b, 0x08, b'\r', &block[from..]) {
        let at = from + at;
        let is_harmless = match block[at] {
            b'\r' => block.get(at + 1) == Some(&b'\n'),
            0x1b => sgr_len(&block[at..]).is_some(),
            _ => false,
        };
        if !is_harmless {
            return Some(at);
        }
    }
    None
}

fn count_skipped(lines: &[u8], sink: &mut impl FloodSink) {
    if lines.is_empty() {
        return;
    }
    let mut bytes = lines.len();
    for at in memchr::memchr2_iter(0x1b, b'\r', lines) {
        bytes -= match lines[at] {
            b'\r' => 1,
            _ => sgr_len(&lines[at..]).unwrap_or(0),
        };
    }
    let newlines = memchr::memchr_iter(b'\n', lines).count() as u64;
    sink.skip(newlines, bytes as u64);
}
