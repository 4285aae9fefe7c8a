//! Result of a read, and the last lines of output that is longer than the caller wants.

use std::collections::VecDeque;

use abide_core::Millis;

use crate::tools::report;
use crate::unread_lines::{Cursor, Page};

/// Equal lines in a row that are shown one by one. Two are often the echo of a typed line and the answer to it.
const EQUAL_LINES_SHOWN: usize = 2;

/// Lines that a read returns.
#[derive(Default)]
pub(super) struct Found {
    pub lines: Vec<String>,
    pub cursor: Cursor,
    pub full: bool,
    /// Number of skipped lines, and the cursor where they begin.
    pub skipped: Option<(usize, Cursor)>,
    /// True if the pattern was found. `None`: no pattern was given.
    pub matched: Option<bool>,
    /// Time for which the call could wait.
    pub timeout: Millis,
    /// The client's limit, if it shortened the wait of the call.
    pub cut: Option<Millis>,
}

impl Found {
    /// The lines as text, each with its line end. A run of equal lines is one line with a count.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if let Some((skipped, since)) = self.skipped {
            text.push_str(&format!(
                "[… {skipped} earlier lines; read_output with since=\"{since}\" has them …]\n"
            ));
        }
        // A prompt is shown as it is.
        let (complete, prompt) = match self.cursor.is_within_line() {
            true => self.lines.split_at(self.lines.len().saturating_sub(1)),
            false => self.lines.split_at(self.lines.len()),
        };
        for run in complete.chunk_by(|a, b| a == b).chain(prompt.chunks(1)) {
            push_run(&mut text, &run[0], run.len());
        }
        text
    }

    /// True if the last line is complete. False for a prompt or for no lines at all.
    pub fn ends_with_complete_line(&self) -> bool {
        !self.lines.is_empty() && !self.cursor.is_within_line()
    }

    /// Text in place of lines if there are none.
    pub fn nothing(&self, runs: bool) -> String {
        match self.cut.filter(|_| runs) {
            Some(limit) => format!("Still running; no output in {}", report::cut_at(limit)),
            None => "No output available".into(),
        }
    }

    /// Text below the lines if none of them matched in time. Some clients show a model nothing but the text.
    pub fn unmatched(&self, runs: bool) -> Option<String> {
        let unmatched = runs && self.matched == Some(false) && !self.lines.is_empty();
        unmatched.then(|| match self.cut {
            Some(limit) => format!("[still running; no match in {}]", report::cut_at(limit)),
            None => format!("[no match in {}]", self.timeout),
        })
    }
}

/// Appends `count` equal lines. Up to [`EQUAL_LINES_SHOWN`] stay as they are.
fn push_run(text: &mut String, line: &str, count: usize) {
    if count <= EQUAL_LINES_SHOWN {
        for _ in 0..count {
            text.push_str(line);
            text.push('\n');
        }
    } else if line.is_empty() {
        text.push_str(&format!("[{count} blank lines]\n"));
    } else {
        text.push_str(&format!("{line} [×{count}]\n"));
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

/// Buffer of the last lines.
pub(super) struct Tail {
    from: Cursor,
    /// Cursor up to which the log was read.
    pub cursor: Cursor,
    lines: VecDeque<String>,
    /// Size of the lines in bytes.
    bytes: usize,
    limits: TailLimits,
    skipped: usize,
}

/// Limits of the lines that a [`Tail`] keeps. The last line is always kept.
#[derive(Clone, Copy)]
pub(super) struct TailLimits {
    pub lines: usize,
    pub bytes: usize,
}

impl Tail {
    /// Empty buffer that begins at this cursor.
    pub fn new(from: Cursor, limits: TailLimits) -> Self {
        Tail {
            from,
            cursor: from,
            lines: VecDeque::new(),
            bytes: 0,
            limits,
            skipped: 0,
        }
    }

    /// Appends lines, and drops the oldest beyond the limits.
    pub fn extend(&mut self, lines: Vec<String>) {
        self.bytes += lines.iter().map(String::len).sum::<usize>();
        self.lines.extend(lines);
        while self.lines.len() > self.limits.lines
            || (self.bytes > self.limits.bytes && self.lines.len() > 1)
        {
            let dropped = self.lines.pop_front();
            self.bytes -= dropped.map_or(0, |line| line.len());
            self.skipped += 1;
        }
    }

    /// Turns the buffer into the result of a read.
    pub fn found(self, cursor: Cursor, matched: Option<bool>) -> Found {
        Found {
            lines: self.lines.into(),
            cursor,
            full: false,
            skipped: (self.skipped > 0).then_some((self.skipped, self.from)),
            matched,
            ..Found::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lines: &[&str], cursor: &str) -> Found {
        Found {
            lines: lines.iter().map(ToString::to_string).collect(),
            cursor: cursor.parse().unwrap(),
            ..Found::default()
        }
    }

    #[test]
    fn run_of_equal_lines_is_one_line_with_a_count() {
        let lines = ["a", "b", "b", "c", "c", "c", "", "", "", "a"];
        let text = found(&lines, "20").text();
        assert_eq!(text, "a\nb\nb\nc [×3]\n[3 blank lines]\na\n");
    }

    #[test]
    fn prompt_is_not_counted_with_the_lines_before_it() {
        let text = found(&["$ ", "$ ", "$ ", "$ "], "11P").text();
        assert_eq!(text, "$  [×3]\n$ \n");
    }

    #[test]
    fn lines_beyond_the_byte_limit_are_skipped_but_for_the_last() {
        let limits = TailLimits {
            lines: 100,
            bytes: 10,
        };
        let mut tail = Tail::new(Cursor::default(), limits);
        tail.extend(vec!["12345".into(), "67890".into(), "1".into()]);
        tail.extend(vec!["long ".repeat(10)]);
        let found = tail.found(Cursor::at(60), None);
        assert_eq!(found.lines, ["long ".repeat(10)]);
        assert_eq!(found.skipped, Some((3, Cursor::default())));
    }
}
