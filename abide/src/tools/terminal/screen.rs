//! `screen`: the terminal screen as a person would see it now.

use abide_api::ActionResult;
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
        let _guard = self.attend(&view).await;
        let seen = self
            .handle
            .screens()
            .snapshot(view.id)
            .await
            .map_err(unreadable)?;
        let view = self.newest(&view);
        let mut text = self.mask(&view, painted(&seen));
        if !view.is_running() {
            text.push('\n');
            text.push_str(&abide_engine::text::ending_line(&view));
        }
        let activity = self.activity(&view);
        let lines = seen.lines.iter();
        let whole = lines.map(|line| self.mask(&view, screen_line(line)));
        let whole: Vec<String> = whole.collect();
        let ended = (!view.is_running()).then_some(view.id);
        let summary = report::summary(&view, view.is_running());
        let title = seen.title.as_deref();
        let title = title.map(|title| self.mask(&view, screen_line(title)));
        let action = action(&seen, whole, title);
        let result = self.result_of(&view, summary, text, activity, action);
        Ok(FinishedCall::from(result).reporting_end_of(ended))
    }

    /// Screen of a full-screen program as text, if one runs.
    pub(super) async fn full_screen(&self, view: &SessionView) -> Option<String> {
        if !view.pty || !view.is_running() || !self.modes(view).await.full_screen {
            return None;
        }
        let seen = self.handle.screens().snapshot(view.id).await.ok()?;
        Some(painted(&seen))
    }
}

/// Screen as text: its rows down to the last one with text, and a line about its state.
fn painted(seen: &Snapshot) -> String {
    let lines: Vec<String> = seen.lines.iter().map(|line| screen_line(line)).collect();
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
        words.push_str(&format!("; title: {}", screen_line(title)));
    }
    words.push(']');
    words
}

/// Fields of a screen, of which the rows and the title are masked already.
fn action(seen: &Snapshot, screen: Vec<String>, title: Option<String>) -> ActionResult {
    ActionResult::Screen {
        screen,
        cursor_row: seen.cursor.row + 1,
        cursor_col: seen.cursor.col + 1,
        cursor_visible: seen.cursor.visible,
        cols: seen.size.cols,
        rows: seen.size.rows,
        title,
        alternate_screen: seen.alternate,
        bracketed_paste: seen.modes.bracketed_paste,
        application_cursor: seen.modes.application_cursor,
        mouse: seen.modes.mouse,
    }
}
