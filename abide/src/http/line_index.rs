//! Sparse index of the begins of lines in a log, so that any line of a long log is found by reading a small part
//! of it. An index is built by counting newlines once and grows with the log. Its size is limited.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use abide_core::SessionId;
use abide_session::log::{CHUNK_LIMIT, Log, Piece};
use memchr::{memchr_iter, memrchr};

/// Bytes between two marks, at first.
const SPACING: u64 = CHUNK_LIMIT as u64;
/// Maximum number of marks. Beyond it every second one is dropped and their distance doubles.
const MARKS: usize = 4_096;
/// Logs whose index is kept in memory.
const INDEXES: usize = 16;

/// Begin of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Line number, from one.
    pub line: u64,
    /// Offset of its first byte.
    pub offset: u64,
}

/// Index of the lines of one log. Lines end at a newline; a gap ends a line too, as in the search.
#[derive(Debug)]
pub struct LineIndex {
    marks: Vec<Mark>,
    spacing: u64,
    /// Offset up to which newlines were counted.
    at: u64,
    /// Number of the line at that offset.
    line: u64,
    /// True if that line has bytes before that offset.
    begun: bool,
    /// Bytes missing from the log when it was built. When the quota drops more, lines are numbered again.
    dropped: u64,
}

impl LineIndex {
    fn new(dropped: u64) -> Self {
        LineIndex {
            marks: vec![Mark { line: 1, offset: 0 }],
            spacing: SPACING,
            at: 0,
            line: 1,
            begun: false,
            dropped,
        }
    }

    /// Number of lines. A last line without a newline counts.
    pub fn total(&self) -> u64 {
        self.line - 1 + u64::from(self.begun)
    }

    /// Bytes missing from the log. Numbers of lines are those of other lines when it has changed.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Last mark at or before a line.
    pub fn mark_before(&self, line: u64) -> Mark {
        let after = self.marks.partition_point(|mark| mark.line <= line);
        self.marks[after.saturating_sub(1)]
    }

    /// Counts what was written since the last call.
    pub fn update(&mut self, log: &Log) -> io::Result<()> {
        let (_, dropped) = log.extent()?;
        if dropped != self.dropped {
            *self = LineIndex::new(dropped);
        }
        let mut pieces = log.pieces(self.at, None);
        while let Some(piece) = pieces.next_within(usize::MAX)? {
            match piece {
                Piece::Gap { from, .. } => self.gap(from),
                Piece::Chunk(chunk) => self.count(chunk.offset, &chunk.bytes),
            }
            self.at = pieces.at();
        }
        Ok(())
    }

    /// A reader that starts at the mark sees the gap, and can say how much is missing before the line.
    fn gap(&mut self, from: u64) {
        if self.begun {
            self.line += 1;
            self.begun = false;
        }
        self.mark(from);
    }

    fn count(&mut self, offset: u64, bytes: &[u8]) {
        if let Some(last) = memrchr(b'\n', bytes) {
            self.line += memchr_iter(b'\n', bytes).count() as u64;
            self.mark(offset + last as u64 + 1);
        }
        self.begun = !bytes.ends_with(b"\n");
    }

    /// Notes that the current line begins at `offset`.
    fn mark(&mut self, offset: u64) {
        if self
            .marks
            .last()
            .is_some_and(|last| offset - last.offset < self.spacing)
        {
            return;
        }
        self.marks.push(Mark {
            line: self.line,
            offset,
        });
        if self.marks.len() > MARKS {
            let mut place = 0;
            self.marks.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.spacing *= 2;
        }
    }
}

/// Index of one log, which one reader at a time brings up to date.
type SharedIndex = Arc<Mutex<LineIndex>>;

/// Indexes of the logs that were read last.
#[derive(Default)]
pub struct LineIndexes(Mutex<VecDeque<(SessionId, SharedIndex)>>);

impl LineIndexes {
    /// Index of a session's log.
    pub fn of(&self, id: SessionId) -> SharedIndex {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = match kept.iter().position(|(kept, _)| *kept == id) {
            Some(place) => kept.remove(place).map(|(_, index)| index),
            None => None,
        };
        let index = index.unwrap_or_else(|| Arc::new(Mutex::new(LineIndex::new(0))));
        kept.push_front((id, index.clone()));
        kept.truncate(INDEXES);
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index_of(chunks: &[&[u8]]) -> LineIndex {
        let mut index = LineIndex::new(0);
        let mut offset = 0;
        for chunk in chunks {
            index.count(offset, chunk);
            offset += chunk.len() as u64;
        }
        index
    }

    #[test]
    fn last_line_without_newline_counts() {
        assert_eq!(index_of(&[]).total(), 0);
        assert_eq!(index_of(&[b"a\nb\n"]).total(), 2);
        assert_eq!(index_of(&[b"a\nb"]).total(), 2);
        assert_eq!(index_of(&[b"a", b"b\n", b"c"]).total(), 2);
    }

    #[test]
    fn gap_ends_a_line() {
        let mut index = index_of(&[b"a\nb"]);
        index.gap(3);
        index.count(100, b"c\n");
        assert_eq!(index.total(), 3);
    }

    #[test]
    fn marks_are_limited_and_stay_line_begins() {
        let mut index = LineIndex::new(0);
        let line = [&b"x".repeat(999)[..], b"\n"].concat();
        let chunk = line.repeat(64);
        for n in 0..20_000 {
            index.count(n * 64_000, &chunk);
        }
        assert_eq!(index.total(), 64 * 20_000);
        assert!(index.marks.len() <= MARKS);
        for line in [1, 2, 777_777, 1_280_000] {
            let mark = index.mark_before(line);
            assert_eq!(mark.offset, (mark.line - 1) * 1_000);
            assert!(mark.line <= line && line - mark.line <= 2 * index.spacing / 1_000);
        }
    }
}
