//! How far the readers of a session have read, in a small file beside its log: it outlives the daemon,
//! and costs no more than the read itself. Where it is lost, everything counts as unread again.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FILE: &str = "read";
/// Most cursors are shorter. All are written at this length, so that the same readers' lines lie one
/// over the other: to cut the file first would send it to the disk each time.
const WIDTH: usize = 80;
/// What the file of a few readers has room in.
const ROOM: usize = 1 << 10;

/// The readers of one session. It stays open, so that whoever waits for output has only to read and to
/// write once it is there.
pub struct Unread {
    path: PathBuf,
    file: Option<File>,
    /// Bytes of the file that were seen or written last.
    length: usize,
}

impl Unread {
    /// Those of the session whose folder this is. Nobody may have read yet.
    pub fn of(session_folder: &Path) -> Self {
        let path = session_folder.join(FILE);
        let file = OpenOptions::new().read(true).write(true).open(&path).ok();
        Unread {
            path,
            file,
            length: 0,
        }
    }

    /// Who has read how far: names and cursors, as they were written down.
    pub fn positions(&mut self) -> Vec<(String, String)> {
        let bytes = self.file.as_ref().and_then(|file| whole(file).ok());
        let bytes = bytes.unwrap_or_default();
        self.length = bytes.len();
        let text = String::from_utf8(bytes).unwrap_or_default();
        let pair = |line: &str| {
            let (name, cursor) = line.split_once(' ')?;
            Some((name.to_owned(), cursor.trim_end().to_owned()))
        };
        text.lines().filter_map(pair).collect()
    }

    /// Writes it down. Who has a name that is none is left out.
    pub fn remember(&mut self, positions: &[(&str, String)]) {
        let mut text = String::new();
        for (name, cursor) in positions {
            if !name.is_empty() && !name.contains(char::is_whitespace) {
                text.push_str(&format!("{name} {cursor:<WIDTH$}\n"));
            }
        }
        if let Err(fault) = self.write(&text) {
            let path = self.path.display();
            tracing::warn!("cannot write down in {path} how far it was read: {fault}");
        }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            file @ None => {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).truncate(false);
                file.insert(options.mode(0o600).open(&self.path)?)
            }
        };
        file.write_all_at(text.as_bytes(), 0)?;
        if self.length > text.len() {
            file.set_len(text.len() as u64)?;
        }
        self.length = text.len();
        Ok(())
    }
}

/// All of a file that is mostly small.
fn whole(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; ROOM];
    let mut length = 0;
    loop {
        length += file.read_at(&mut bytes[length..], length as u64)?;
        if length < bytes.len() {
            bytes.truncate(length);
            return Ok(bytes);
        }
        bytes.resize(2 * length, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_takes_the_place_of_what_was() {
        let folder = tempfile::tempdir().unwrap();
        let mut unread = Unread::of(folder.path());
        assert_eq!(unread.positions(), []);
        for cursors in [vec!["1"], vec!["123456o100E99p", "7"], vec!["8"]] {
            let names = ["a", "b"];
            let written: Vec<(&str, String)> = names
                .into_iter()
                .zip(cursors.into_iter().map(String::from))
                .collect();
            unread.positions();
            unread.remember(&written);
            let found = Unread::of(folder.path()).positions();
            let found: Vec<(&str, String)> = found
                .iter()
                .map(|(name, cursor)| (name.as_str(), cursor.clone()))
                .collect();
            assert_eq!(found, written);
        }
    }
}
