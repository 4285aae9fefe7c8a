//! State of a file, to notice that it has changed since it was read.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
}
