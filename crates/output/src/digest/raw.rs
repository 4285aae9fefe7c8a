//! Bytes without decoding, truncated in the middle if there are too many.

use std::collections::VecDeque;

use super::compose::{amount, hint_clause};
use super::entry::Amount;

/// Begin and end of a stream.
pub struct RawText {
    limit: usize,
    hint: String,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    bytes: u64,
    newlines: u64,
    /// Number of bytes behind the head that were not read.
    unread: u64,
}

impl RawText {
    pub fn new(limit: usize, hint: &str) -> Self {
        RawText {
            limit,
            hint: hint.to_owned(),
            head: Vec::new(),
            tail: VecDeque::new(),
            bytes: 0,
            newlines: 0,
            unread: 0,
        }
    }

    /// Maximum number of bytes that are needed of either end.
    fn room(&self) -> usize {
        self.limit * 4 + 4
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.newlines += memchr::memchr_iter(b'\n', bytes).count() as u64;
        let room = match self.unread {
            0 => self.room() - self.head.len(),
            _ => 0,
        };
        let (first, rest) = bytes.split_at(bytes.len().min(room));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.room())..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.room());
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// Counts bytes that are left out without having been read.
    pub fn skip_unread(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.unread += bytes;
    }

    pub fn finish(mut self) -> (String, Amount, bool) {
        let tail = self.tail.make_contiguous();
        if (self.head.len() + tail.len()) as u64 == self.bytes {
            let whole = [&self.head[..], tail].concat();
            let text = String::from_utf8_lossy(&whole);
            if text.chars().count() <= self.limit {
                return (text.into_owned(), Amount::default(), false);
            }
            let from = whole.len().saturating_sub(self.room());
            return self.shorten(&whole[from..]);
        }
        let tail = match self.unread {
            0 => [&self.head[..], tail].concat(),
            _ => tail.to_vec(),
        };
        let from = tail.len().saturating_sub(self.room());
        self.shorten(&tail[from..])
    }

    fn shorten(&self, tail: &[u8]) -> (String, Amount, bool) {
        let note_room = self.note(Amount {
            lines: self.newlines,
            bytes: self.bytes,
        });
        let room = self.limit.saturating_sub(note_room.chars().count());
        let head: String = lossy_chars(&self.head)
            .take(room / 3)
            .map(|c| c.0)
            .collect();
        let head_bytes: usize = lossy_chars(&self.head).take(room / 3).map(|c| c.1).sum();
        let starts = tail.iter().position(|b| b & 0xC0 != 0x80).unwrap_or(0);
        let tail = &tail[starts.min(3)..];
        let all = lossy_chars(tail).count();
        let skip = all.saturating_sub(room - room / 3);
        let end: String = lossy_chars(tail).skip(skip).map(|c| c.0).collect();
        let tail_bytes: usize = lossy_chars(tail).skip(skip).map(|c| c.1).sum();
        let shown = &tail[tail.len() - tail_bytes..];
        let newlines = |bytes: &[u8]| memchr::memchr_iter(b'\n', bytes).count() as u64;
        let left_out = Amount {
            lines: self.newlines - newlines(&self.head[..head_bytes]) - newlines(shown),
            bytes: self.bytes - (head_bytes + tail_bytes) as u64,
        };
        let text = format!("{head}{}{end}", self.note(left_out));
        (text.chars().take(self.limit).collect(), left_out, true)
    }

    fn note(&self, left_out: Amount) -> String {
        let (amount, hint) = (amount(left_out, self.unread), hint_clause(&self.hint));
        format!("\n[… {amount}{hint}.]\n")
    }
}

/// Characters of a text, and the number of bytes of each.
fn lossy_chars(bytes: &[u8]) -> impl Iterator<Item = (char, usize)> {
    bytes.utf8_chunks().flat_map(|chunk| {
        let valid = chunk.valid().chars().map(|c| (c, c.len_utf8()));
        let invalid = chunk.invalid().len();
        valid.chain((invalid > 0).then_some(('\u{FFFD}', invalid)))
    })
}
