//! `screen`: what a person would see now.

use abide_output::printable::one_line;
use serde_json::{Map, Value, json};

use super::{Desk, DoneReading, Finished, Named, fields, unreadable};
use crate::tools::report;
use abide_engine::screen::Snapshot;

impl Desk {
    pub(super) async fn screen(&self, named: &Named) -> Option<DoneReading> {
        let view = match self.session(named) {
            Ok(view) => view,
            Err(sentence) => return Some(Err(sentence)),
        };
        if !view.pty {
            return Some(Err(format!(
                "Session '{}' has no terminal and so no screen; read_output has what it wrote",
                view.id
            )));
        }
        let _guard = self.attend(&view).await;
        let seen = match self.handle.screens().snapshot(view.id).await {
            Ok(seen) => seen,
            Err(fault) => return Some(Err(unreadable(&fault))),
        };
        let view = self.newest(&view);
        let lines: Vec<String> = seen.lines.iter().map(|line| one_line(line)).collect();
        let filled = lines.iter().rposition(|line| !line.is_empty());
        let rows = filled.map_or(0, |last| last + 1);
        let mut text = self.mask(&view, lines[..rows].join("\n"));
        if rows > 0 {
            text.push('\n');
        }
        text.push_str(&about(&seen));
        if !view.is_running() {
            text.push('\n');
            text.push_str(&abide_engine::text::ending_line(&view));
        }
        let mut more = facts(&seen);
        if view.is_running() {
            report::add_process_facts(&self.handle, &view, &mut more);
        }
        let whole: Vec<String> = lines
            .iter()
            .map(|line| self.mask(&view, line.clone()))
            .collect();
        more.insert("screen".into(), json!(whole));
        let ended = (!view.is_running()).then_some(view.id);
        let result = self.result(&view, text, more);
        Some(Ok(Finished::from(result).telling_end_of(ended)))
    }
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
    if seen.alternate {
        words.push_str("; full-screen program");
    }
    if let Some(title) = &seen.title {
        words.push_str(&format!("; title: {}", one_line(title)));
    }
    words.push(']');
    words
}

fn facts(seen: &Snapshot) -> Map<String, Value> {
    fields! {
        "cursor_row": seen.cursor.row + 1,
        "cursor_col": seen.cursor.col + 1,
        "cursor_visible": seen.cursor.visible,
        "cols": seen.size.cols,
        "rows": seen.size.rows,
        "title": seen.title.as_deref().map(one_line),
        "alternate_screen": seen.alternate,
        "bracketed_paste": seen.modes.bracketed_paste,
        "application_cursor": seen.modes.application_cursor,
        "mouse": seen.modes.mouse,
    }
}
