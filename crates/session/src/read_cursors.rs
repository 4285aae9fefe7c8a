//! Read cursors of a session, in a small file beside its log. The file outlives the daemon. If it is lost,
//! everything counts as unread again.
//!
//! A reader gets its answer first; its new cursor is applied when the answer has left. A daemon that dies
//! in between shows the same output once more, which is better than never. A deferred change is visible to
//! all readers in this daemon.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::{crash_point, folder};

const FILE: &str = "read";
/// Width to which cursors are padded. Lines of the same readers then overwrite each other; truncating the
/// file first would send it to the disk each time.
const WIDTH: usize = 80;
/// Size of the first read, which is enough for a few readers.
const ROOM: usize = 1 << 10;
/// Maximum length of the file.
const LONGEST: usize = 1 << 20;

/// Names of readers and their cursors, as they are stored.
pub type Cursors = Vec<(String, String)>;

/// A change that is not applied yet.
type Change = Box<dyn FnOnce(&mut Cursors) + Send>;

/// Cursor files of the sessions that are being read. Readers of a session share one.
#[derive(Default)]
pub struct CursorFiles(Mutex<HashMap<PathBuf, Shared>>);

struct Shared {
    file: Arc<Mutex<CursorFile>>,
    users: usize,
}

impl CursorFiles {
    /// Opens the cursors of the session in this directory. The file need not exist.
    pub fn of(self: &Arc<Self>, session_folder: &Path) -> ReadCursors {
        let mut all = self.0.lock().expect("no holder panics");
        let shared = all
            .entry(session_folder.to_owned())
            .or_insert_with(|| Shared {
                file: Arc::new(Mutex::new(CursorFile::load(session_folder))),
                users: 0,
            });
        shared.users += 1;
        ReadCursors {
            files: self.clone(),
            folder: session_folder.to_owned(),
            file: shared.file.clone(),
        }
    }
}

/// Cursors of one session. Dropping this writes the deferred changes to the file.
pub struct ReadCursors {
    files: Arc<CursorFiles>,
    folder: PathBuf,
    file: Arc<Mutex<CursorFile>>,
}

impl ReadCursors {
    /// Applies the deferred changes and reads the cursors.
    pub fn with<T>(&self, see: impl FnOnce(&Cursors) -> T) -> T {
        let mut file = self.file.lock().expect("no holder panics");
        file.apply_changes();
        see(&file.cursors)
    }

    /// Defers a change until the cursors are read, and at the latest until this is dropped.
    pub fn defer(&self, change: impl FnOnce(&mut Cursors) + Send + 'static) {
        let mut file = self.file.lock().expect("no holder panics");
        file.changes.push(Box::new(change));
    }
}

impl Drop for ReadCursors {
    fn drop(&mut self) {
        // The lock is held: the next reader finds the cursors in memory or on disk.
        let mut all = self.files.0.lock().expect("no holder panics");
        self.file.lock().expect("no holder panics").save();
        if let Some(shared) = all.get_mut(&self.folder) {
            shared.users -= 1;
            if shared.users == 0 {
                all.remove(&self.folder);
            }
        }
    }
}

/// Cursors of one session. The file stays open.
struct CursorFile {
    path: PathBuf,
    file: Option<File>,
    cursors: Cursors,
    changes: Vec<Change>,
    /// The file is out of date.
    unwritten: bool,
    /// Bytes of the file.
    length: usize,
}

impl CursorFile {
    fn load(session_folder: &Path) -> Self {
        let path = session_folder.join(FILE);
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(folder::PLAIN);
        let file = options.open(&path).ok();
        let bytes = file.as_ref().and_then(|file| whole(file).ok());
        let bytes = bytes.unwrap_or_default();
        let length = bytes.len();
        let text = String::from_utf8(bytes).unwrap_or_default();
        let pair = |line: &str| {
            let (name, cursor) = line.split_once(' ')?;
            Some((name.to_owned(), cursor.trim_end().to_owned()))
        };
        CursorFile {
            path,
            file,
            cursors: text.lines().filter_map(pair).collect(),
            changes: Vec::new(),
            unwritten: false,
            length,
        }
    }

    fn apply_changes(&mut self) {
        if self.changes.is_empty() {
            return;
        }
        let before = self.cursors.clone();
        for change in std::mem::take(&mut self.changes) {
            change(&mut self.cursors);
        }
        self.unwritten |= self.cursors != before;
    }

    /// Brings the file up to date.
    fn save(&mut self) {
        self.apply_changes();
        if !std::mem::take(&mut self.unwritten) {
            return;
        }
        crash_point("read.told");
        let mut text = String::new();
        for (name, cursor) in &self.cursors {
            // A name that is empty or contains whitespace cannot be stored.
            if !name.is_empty() && !name.contains(char::is_whitespace) {
                text.push_str(&format!("{name} {cursor:<WIDTH$}\n"));
            }
        }
        if let Err(fault) = self.write(&text) {
            let path = self.path.display();
            tracing::warn!("cannot write down in {path} how far it was read: {fault}");
        }
        crash_point("read.noted");
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            file @ None => {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).truncate(false);
                options.custom_flags(folder::PLAIN);
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

/// Reads a file that is mostly small. A file that is far too long is an error.
fn whole(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; ROOM];
    let mut length = 0;
    loop {
        length += file.read_at(&mut bytes[length..], length as u64)?;
        if length < bytes.len() {
            bytes.truncate(length);
            return Ok(bytes);
        }
        if length >= LONGEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        bytes.resize(2 * length, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursors(cursors: &[(&str, &str)]) -> Cursors {
        let owned = |(name, cursor): &(&str, &str)| ((*name).to_owned(), (*cursor).to_owned());
        cursors.iter().map(owned).collect()
    }

    #[test]
    fn written_cursors_replace_the_old_ones() {
        let folder = tempfile::tempdir().unwrap();
        let files = Arc::new(CursorFiles::default());
        assert_eq!(files.of(folder.path()).with(Cursors::clone), []);
        for written in [
            cursors(&[("a", "1")]),
            cursors(&[("a", "123456o100E99p"), ("b", "7")]),
            cursors(&[("a", "8")]),
        ] {
            let cursors = files.of(folder.path());
            let new = written.clone();
            cursors.defer(|known| *known = new);
            drop(cursors);
            let found = Arc::new(CursorFiles::default()).of(folder.path());
            assert_eq!(found.with(Cursors::clone), written);
        }
    }

    /// A deferred change is visible at once in this daemon, and in the next daemon when its reader is dropped,
    /// even if others still read.
    #[test]
    fn deferred_change_is_visible_at_once_and_written_on_drop() {
        let folder = tempfile::tempdir().unwrap();
        let here = Arc::new(CursorFiles::default());
        let elsewhere = || Arc::new(CursorFiles::default()).of(folder.path());
        let (one, other) = (here.of(folder.path()), here.of(folder.path()));
        one.defer(|known| known.push(("a".into(), "5".into())));
        assert_eq!(other.with(Cursors::clone), cursors(&[("a", "5")]));
        assert_eq!(elsewhere().with(Cursors::clone), []);
        drop(one);
        assert_eq!(elsewhere().with(Cursors::clone), cursors(&[("a", "5")]));
        other.defer(|known| known.push(("b".into(), "7".into())));
        drop(other);
        let both = cursors(&[("a", "5"), ("b", "7")]);
        assert_eq!(elsewhere().with(Cursors::clone), both);
        assert!(here.0.lock().unwrap().is_empty());
    }
}
