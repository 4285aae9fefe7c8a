//! Number of newlines before the row that is being written, in the merged log of all streams.

use std::collections::VecDeque;

/// Count of the lines of a stream, and of those that other streams wrote between them.
///
/// Bytes of the stream are counted when they are decoded, which can be long after they came, while lines of other
/// streams are noted when they come. So each note has a place in the stream. Between two notes is a line of the stream
/// that is not decoded yet, so they need no more memory than these lines.
#[derive(Default)]
pub struct LineCounter {
    own: u64,
    others: u64,
    /// Lines of other streams that come at a place that is not reached yet: number of lines of the stream before it,
    /// and number of lines of others.
    notes: VecDeque<(u64, u64)>,
}

impl LineCounter {
    /// Counter of a stream before which there are lines.
    pub fn after(lines: u64) -> Self {
        LineCounter {
            others: lines,
            ..LineCounter::default()
        }
    }

    /// Number of lines before the current one.
    pub fn count(&self) -> u64 {
        self.own + self.others
    }

    /// Counts lines of the stream.
    pub fn advance(&mut self, lines: u64) {
        self.own += lines;
        while let Some((_, others)) = self.notes.pop_front_if(|(at, _)| *at <= self.own) {
            self.others += others;
        }
    }

    /// Counts lines of other streams that come after `at` lines of the stream.
    pub fn note(&mut self, at: u64, others: u64) {
        match self.notes.back_mut() {
            Some(last) if last.0 == at => last.1 += others,
            None if at <= self.own => self.others += others,
            _ => self.notes.push_back((at, others)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_other_streams_count_from_their_place_on() {
        let mut lines = LineCounter::after(100);
        lines.note(0, 1);
        assert_eq!(lines.count(), 101);
        lines.note(2, 10);
        lines.note(2, 10);
        lines.note(3, 5);
        lines.advance(1);
        assert_eq!(lines.count(), 102);
        lines.advance(1);
        assert_eq!(lines.count(), 123);
        lines.advance(7);
        assert_eq!(lines.count(), 135);
        assert!(lines.notes.is_empty());
    }
}
