//! The end of what is read, where there is more than anybody wants.

use std::collections::VecDeque;

use super::read::Found;
use crate::door::lines::Cursor;

/// The last lines of many.
pub(super) struct Tail {
    from: Cursor,
    /// How far was read.
    pub cursor: Cursor,
    lines: VecDeque<String>,
    most: usize,
    skipped: usize,
}

impl Tail {
    /// Nothing yet, from here on.
    pub fn new(from: Cursor, most: usize) -> Self {
        Tail {
            from,
            cursor: from,
            lines: VecDeque::new(),
            most,
            skipped: 0,
        }
    }

    /// What comes next.
    pub fn extend(&mut self, lines: Vec<String>) {
        self.lines.extend(lines);
        while self.lines.len() > self.most {
            self.lines.pop_front();
            self.skipped += 1;
        }
    }

    /// What a reader gets of it.
    pub fn found(self, cursor: Cursor, matched: Option<bool>) -> Found {
        Found {
            lines: self.lines.into(),
            cursor,
            full: false,
            skipped: (self.skipped > 0).then_some((self.skipped, self.from)),
            matched,
        }
    }
}
