//! `screen`: the terminal screen as a person would see it now.

use std::io;

use abide_api::ActionResult;
use abide_output::mask::Mask;
use abide_output::printable::screen_line;

use super::{ActionError, ActionRunner, FinishedAction, FinishedCall, SessionRef, unreadable};
use crate::tools::report;
use abide_engine::SessionView;
use abide_engine::screen::Snapshot;

impl ActionRunner {
    pub(super) async fn screen(&self, session_ref: &SessionRef) -> FinishedAction {
        let view = self.session(session_ref)?;
        if !view.pty {
            return Err(ActionError::conflict(format!(
                "Session '{}' has no terminal and so no screen; read_output has what it wrote",
                view.id
            )));
        }
        let _guard = self.attend(view.id).await;
        let seen = self.snapshot(&view).await.map_err(unreadable)?;
        let view = self.newest(&view);
        let mut text = painted(&seen);
        if !view.is_running() {
            text.push('\n');
            text.push_str(&abide_engine::text::ending_line(&view));
        }
        let activity = self.activity(&view);
        let ended = (!view.is_running()).then_some(view.id);
        let summary = report::summary(&view, view.is_running());
        let result = self.result_of(&view, summary, text, activity, action(seen));
        Ok(FinishedCall::from(result).reporting_end_of(ended))
    }

    /// Screen of a full-screen program as text, if one runs.
    pub(super) async fn full_screen(&self, view: &SessionView) -> Option<String> {
        if !view.pty || !view.is_running() || !self.modes(view).await.full_screen {
            return None;
        }
        let seen = self.snapshot(view).await.ok()?;
        Some(painted(&seen))
    }

    /// Screen in printable characters, with its secrets masked.
    async fn snapshot(&self, view: &SessionView) -> io::Result<Snapshot> {
        let mut seen = self.handle.screens().snapshot(view.id).await?;
        let mask = self.mask_of(view);
        for line in &mut seen.lines {
            *line = screen_line(line);
        }
        mask_rows(&mut seen, &mask);
        seen.title = seen.title.map(|title| mask.apply(screen_line(&title)));
        Ok(seen)
    }
}

/// Masks secrets, also those that go on in the next row.
fn mask_rows(seen: &mut Snapshot, mask: &Mask) {
    let cols = usize::from(seen.size.cols);
    let mut rows = seen.lines.as_mut_slice();
    let mut wraps = seen.wraps.iter();
    while !rows.is_empty() {
        let wrapped = wraps.by_ref().take_while(|wraps| **wraps).count();
        let (paragraph, rest) = rows.split_at_mut((wrapped + 1).min(rows.len()));
        rows = rest;
        let text = paragraph.concat();
        let masked = mask.apply(text.clone());
        if masked == text {
            continue;
        }
        let mut chars = masked.chars();
        if let Some((last, first)) = paragraph.split_last_mut() {
            for row in first {
                *row = chars.by_ref().take(cols).collect();
            }
            *last = chars.collect();
        }
    }
}

/// Screen as text: its rows down to the last one with text, and a line about its state.
fn painted(seen: &Snapshot) -> String {
    let lines = &seen.lines;
    let filled = lines.iter().rposition(|line| !line.is_empty());
    let rows = filled.map_or(0, |last| last + 1);
    let mut text = lines[..rows].join("\n");
    if rows > 0 {
        text.push('\n');
    }
    text.push_str(&about(seen));
    text
}

fn about(seen: &Snapshot) -> String {
    let cursor = seen.cursor;
    let mut words = format!(
        "[cursor at row {}, column {}",
        cursor.row + 1,
        cursor.col + 1
    );
    if !cursor.visible {
        words.push_str(" (hidden)");
    }
    words.push_str(&format!("; {}x{}", seen.size.cols, seen.size.rows));
    if seen.modes.full_screen {
        words.push_str("; full-screen program");
    }
    if let Some(title) = &seen.title {
        words.push_str(&format!("; title: {title}"));
    }
    words.push(']');
    words
}

fn action(seen: Snapshot) -> ActionResult {
    ActionResult::Screen {
        screen: seen.lines,
        cursor_row: seen.cursor.row + 1,
        cursor_col: seen.cursor.col + 1,
        cursor_visible: seen.cursor.visible,
        cols: seen.size.cols,
        rows: seen.size.rows,
        title: seen.title,
        alternate_screen: seen.alternate,
        bracketed_paste: seen.modes.bracketed_paste,
        application_cursor: seen.modes.application_cursor,
        mouse: seen.modes.mouse,
    }
}
