//! How far the readers of a session have read, in a small file beside its log: it outlives the daemon,
//! and costs no more than the read itself. Where it is lost, everything counts as unread again.

use std::path::Path;

const FILE: &str = "read";

/// Who has read how far: names and cursors, as they were written down.
pub fn positions(folder: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(folder.join(FILE)).unwrap_or_default();
    let pair = |line: &str| {
        let (name, cursor) = line.split_once(' ')?;
        Some((name.to_owned(), cursor.to_owned()))
    };
    text.lines().filter_map(pair).collect()
}

/// Writes it down. Who has a name that is none is left out.
pub fn remember(folder: &Path, positions: &[(&str, String)]) {
    let mut text = String::new();
    for (name, cursor) in positions {
        if !name.is_empty() && !name.contains(char::is_whitespace) {
            text.extend([name, " ", cursor, "\n"]);
        }
    }
    if let Err(fault) = std::fs::write(folder.join(FILE), text) {
        let folder = folder.display();
        tracing::warn!("cannot write down how far {folder} was read: {fault}");
    }
}
