//! The end of what is read, where there is more than anybody wants.

use std::collections::VecDeque;

use abide_core::Millis;

use crate::lines::{Cursor, Page};
use crate::tools::report;

/// What a reader gets.
#[derive(Default)]
pub(super) struct Found {
    pub lines: Vec<String>,
    pub cursor: Cursor,
    pub full: bool,
    /// Lines that were passed over, and where they begin.
    pub skipped: Option<(usize, Cursor)>,
    /// Whether the pattern was found, where one was looked for.
    pub matched: Option<bool>,
    /// The client's limit, where the call waits no longer because of it.
    pub cut: Option<Millis>,
}

impl Found {
    /// Whether it ends with a complete line. A prompt, or no line at all, does not.
    pub fn ends_with_complete_line(&self) -> bool {
        !self.lines.is_empty() && !self.cursor.is_within_line()
    }

    /// What is said where there are no lines, of a session that still runs or of one that does not.
    pub fn nothing(&self, runs: bool) -> String {
        match self.cut.filter(|_| runs) {
            Some(limit) => format!("Still running; no output in {}", report::cut_at(limit)),
            None => "No output available".into(),
        }
    }

    /// What is said below lines among which none matched before the client's limit.
    pub fn unmatched(&self, runs: bool) -> Option<String> {
        let unmatched = runs && self.matched == Some(false) && !self.lines.is_empty();
        let limit = self.cut.filter(|_| unmatched)?;
        let cut = report::cut_at(limit);
        Some(format!("\n[still running; no match in {cut}]"))
    }
}

impl From<Page> for Found {
    fn from(page: Page) -> Self {
        Found {
            lines: page.lines,
            cursor: page.cursor,
            full: page.full,
            ..Found::default()
        }
    }
}

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
            cut: None,
        }
    }
}
