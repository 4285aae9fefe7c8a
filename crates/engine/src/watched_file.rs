//! File of settings that is read again when it has changed.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use abide_core::{Millis, Mono};

/// Time for which a file that had text must be empty or missing before that counts. A program that rewrites the file,
/// such as `generate > config.toml`, empties it first, and rules must not get fewer for that moment.
const EMPTY_GRACE: Millis = Millis(1_000);

/// State of a file at the time it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileStamp {
    /// There is no such file.
    Missing,
    /// The file cannot be looked at.
    Unreadable,
    /// File with these attributes.
    Is {
        /// Device and inode.
        file: (u64, u64),
        /// Bytes.
        size: u64,
        /// Type and permissions.
        mode: u32,
        /// User and group.
        owner: (u32, u32),
        /// Time of modification and of change, in seconds and nanoseconds.
        changed: (i64, i64, i64, i64),
    },
}

impl FileStamp {
    /// State of this file now.
    pub fn of(path: &Path) -> Self {
        match std::fs::metadata(path) {
            Ok(meta) => FileStamp::Is {
                file: (meta.dev(), meta.ino()),
                size: meta.size(),
                mode: meta.mode(),
                owner: (meta.uid(), meta.gid()),
                changed: (
                    meta.mtime(),
                    meta.mtime_nsec(),
                    meta.ctime(),
                    meta.ctime_nsec(),
                ),
            },
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => FileStamp::Missing,
            Err(_) => FileStamp::Unreadable,
        }
    }

    fn is_empty(self) -> bool {
        matches!(self, FileStamp::Missing | FileStamp::Is { size: 0, .. })
    }
}

/// File of settings, and its state when it was read.
pub struct WatchedFile {
    path: PathBuf,
    /// `None`: it is to be read.
    read: Option<FileStamp>,
    had_text: bool,
    /// Empty or missing file, and the time at which it was first seen so.
    emptied: Option<(FileStamp, Mono)>,
}

/// Result of a look at a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// State in which it was read.
    Same,
    /// State in which it is to be read, for [`WatchedFile::was_read`].
    Changed(FileStamp),
    /// Empty or missing, with text shortly before: not to be read yet.
    Emptied,
}

impl WatchedFile {
    /// File that was not read yet.
    pub fn new(path: &Path) -> Self {
        WatchedFile {
            path: path.to_owned(),
            read: None,
            had_text: false,
            emptied: None,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn look(&mut self, now: Mono) -> Look {
        let stamp = FileStamp::of(&self.path);
        if self.read == Some(stamp) {
            return Look::Same;
        }
        if !stamp.is_empty() || !self.had_text {
            self.emptied = None;
            return Look::Changed(stamp);
        }
        let since = match self.emptied {
            Some((seen, since)) if seen == stamp => since,
            _ => now,
        };
        self.emptied = Some((stamp, since));
        match now.since(since) < EMPTY_GRACE {
            true => Look::Emptied,
            false => Look::Changed(stamp),
        }
    }

    /// Notes that the file was read in this state. After a fault it is read again: the fault may be of the moment, such
    /// as too many open files.
    pub fn was_read(&mut self, stamp: FileStamp, usable: bool) {
        self.had_text = !stamp.is_empty();
        self.read = usable.then_some(stamp);
    }

    /// Lets the file be read at the next look, changed or not.
    pub fn reread(&mut self) {
        *self = WatchedFile::new(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_or_missing_file_counts_after_the_grace() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.toml");
        let write = |text: &str| std::fs::write(&path, text).expect("a file");
        let mut file = WatchedFile::new(&path);
        let mut read = |at: u64| {
            let look = file.look(Mono(at));
            if let Look::Changed(stamp) = look {
                file.was_read(stamp, true);
            }
            look
        };
        assert_eq!(
            read(0),
            Look::Changed(FileStamp::Missing),
            "it never had text"
        );
        assert_eq!(read(5), Look::Same);
        let empty = || write("");
        let remove = || std::fs::remove_file(&path).expect("the file");
        for empty in [&empty as &dyn Fn(), &remove] {
            write("a = 1");
            assert!(matches!(read(10), Look::Changed(_)));
            empty();
            assert_eq!(read(20), Look::Emptied);
            assert_eq!(read(1_019), Look::Emptied);
            assert!(matches!(read(1_020), Look::Changed(_)));
            assert_eq!(read(1_030), Look::Same);
        }
        write("a = 1");
        assert!(matches!(read(0), Look::Changed(_)));
        remove();
        assert_eq!(read(10), Look::Emptied);
        write("");
        assert_eq!(read(2_000), Look::Emptied, "it was written in between");
    }

    #[test]
    fn file_that_cannot_be_used_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.toml");
        std::fs::write(&path, "a = 1").expect("a file");
        let mut file = WatchedFile::new(&path);
        for usable in [false, false, true] {
            let Look::Changed(stamp) = file.look(Mono(0)) else {
                panic!("it is to be read");
            };
            file.was_read(stamp, usable);
        }
        assert_eq!(file.look(Mono(0)), Look::Same);
        file.reread();
        assert!(matches!(file.look(Mono(0)), Look::Changed(_)));
    }
}
