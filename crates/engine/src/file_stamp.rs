//! State of a file, to notice that it has changed since it was read.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use abide_core::{Millis, Mono};

/// Time for which a file that had text must be empty or missing before that counts. A program that rewrites the file,
/// such as `generate > config.toml`, empties it first, and rules must not get fewer for that moment.
const EMPTY_GRACE: Millis = Millis(1_000);

/// State of a file at the time it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileStamp {
    /// Not read yet.
    Unread,
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

    fn is_empty(&self) -> bool {
        matches!(self, FileStamp::Missing | FileStamp::Is { size: 0, .. })
    }
}

/// Grace of a file of settings that is empty or missing.
#[derive(Default)]
pub struct EmptyGrace {
    had_text: bool,
    /// Empty or missing file, and the time at which it was first seen so.
    since: Option<(FileStamp, Mono)>,
}

impl EmptyGrace {
    /// True if a file in this state is not to be read yet, because it had text shortly before.
    pub fn holds(&mut self, file: FileStamp, now: Mono) -> bool {
        if !file.is_empty() {
            self.had_text = true;
            self.since = None;
            return false;
        }
        let since = match self.since {
            Some((seen, since)) if seen == file => since,
            _ => now,
        };
        self.since = Some((file, since));
        self.had_text &= now.since(since) < EMPTY_GRACE;
        self.had_text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_or_missing_file_counts_after_the_grace() {
        let folder = tempfile::tempdir().expect("a folder");
        let (empty, text) = (folder.path().join("empty"), folder.path().join("text"));
        std::fs::write(&empty, "").expect("a file");
        std::fs::write(&text, "a = 1").expect("a file");
        let (empty, text) = (FileStamp::of(&empty), FileStamp::of(&text));
        for nothing in [empty, FileStamp::Missing] {
            let mut grace = EmptyGrace::default();
            assert!(!grace.holds(nothing, Mono(0)), "it never had text");
            assert!(!grace.holds(text, Mono(10)));
            assert!(grace.holds(nothing, Mono(20)));
            assert!(grace.holds(nothing, Mono(1_019)));
            assert!(!grace.holds(nothing, Mono(1_020)));
            assert!(!grace.holds(nothing, Mono(1_030)));
            assert!(!grace.holds(text, Mono(1_040)));
            assert!(grace.holds(nothing, Mono(1_050)));
        }
        let mut grace = EmptyGrace::default();
        assert!(!grace.holds(text, Mono(0)));
        assert!(grace.holds(FileStamp::Missing, Mono(10)));
        assert!(grace.holds(empty, Mono(2_000)), "it was written in between");
    }
}
