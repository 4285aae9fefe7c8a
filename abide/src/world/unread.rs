//! How far the readers of a session have read, in a small file beside its log: it outlives the daemon,
//! and costs no more than the read itself. Where it is lost, everything counts as unread again.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const FILE: &str = "read";
/// Most cursors are shorter. All are written at this length, so that the same readers' lines lie one
/// over the other: to cut the file first would send it to the disk each time.
const WIDTH: usize = 80;

/// Who has read how far: names and cursors, as they were written down.
pub fn positions(folder: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(folder.join(FILE)).unwrap_or_default();
    let pair = |line: &str| {
        let (name, cursor) = line.split_once(' ')?;
        Some((name.to_owned(), cursor.trim_end().to_owned()))
    };
    text.lines().filter_map(pair).collect()
}

/// Writes it down. Who has a name that is none is left out.
pub fn remember(folder: &Path, positions: &[(&str, String)]) {
    let mut text = String::new();
    for (name, cursor) in positions {
        if !name.is_empty() && !name.contains(char::is_whitespace) {
            text.push_str(&format!("{name} {cursor:<WIDTH$}\n"));
        }
    }
    if let Err(fault) = write(&folder.join(FILE), &text) {
        let folder = folder.display();
        tracing::warn!("cannot write down how far {folder} was read: {fault}");
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    file.write_all_at(text.as_bytes(), 0)?;
    let length = text.len() as u64;
    if file.metadata()?.len() > length {
        file.set_len(length)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_takes_the_place_of_what_was() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(positions(folder.path()), []);
        for cursors in [vec!["1"], vec!["123456o100E99p", "7"], vec!["8"]] {
            let names = ["a", "b"];
            let written: Vec<(&str, String)> = names
                .into_iter()
                .zip(cursors.into_iter().map(String::from))
                .collect();
            remember(folder.path(), &written);
            let found = positions(folder.path());
            let found: Vec<(&str, String)> = found
                .iter()
                .map(|(name, cursor)| (name.as_str(), cursor.clone()))
                .collect();
            assert_eq!(found, written);
        }
    }
}
