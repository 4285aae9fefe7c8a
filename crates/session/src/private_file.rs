//! Files that only their owner can read.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a file with mode 0600. A temporary file is renamed into place, so a reader sees the old text or
/// the new text.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_added_extension("new");
    match std::fs::remove_file(&new) {
        Err(fault) if fault.kind() != io::ErrorKind::NotFound => return Err(fault),
        _ => {}
    }
    let mut file = File::options()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(text.as_bytes())?;
    std::fs::rename(&new, path)
}

/// Opens a file for writing, created with mode 0600 if it does not exist. Its content is kept.
pub fn open(path: &Path) -> io::Result<File> {
    File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}
