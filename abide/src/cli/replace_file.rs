//! Replacement of another program's configuration file: atomic, with the same permissions, and only if the
//! file is still as it was read.

use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Largest file that is read, in bytes: a longer one is not a configuration file.
const FILE_LIMIT: u64 = 64 << 20;
/// Permissions of new files.
const PRIVATE_MODE: u32 = 0o600;

/// Text of a file; `None`: it does not exist.
pub fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(fault) => return Err(fault),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    let read = file.take(FILE_LIMIT + 1).read_to_end(&mut bytes)?;
    if read as u64 > FILE_LIMIT {
        return Err(io::Error::other("it is too long"));
    }
    let text = String::from_utf8(bytes);
    text.map(Some)
        .map_err(|_| io::Error::other("it is not UTF-8 text"))
}

/// Checks that a file may be changed. A file that its owner has made read-only stays as it is, although a
/// user who may write its directory could replace it.
pub fn may_change(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(found) if found.permissions().readonly() => {
            Err(io::Error::other("it is read-only; make it writable first"))
        }
        _ => Ok(()),
    }
}

/// Replaces `before` with `after`; `None` means no file. A symbolic link is followed and kept. Fails
/// without a change if the file is no longer `before`.
pub fn replace(path: &Path, before: Option<&str>, after: Option<&str>) -> io::Result<()> {
    let target_path = target(path)?;
    if read(&target_path)?.as_deref() != before {
        return Err(io::Error::other("it has changed meanwhile; run this again"));
    }
    let Some(after) = after else {
        return std::fs::remove_file(target_path);
    };
    let mode =
        std::fs::metadata(&target_path).map_or(PRIVATE_MODE, |found| found.permissions().mode());
    write(&target_path, after, mode)
}

/// Writes a copy next to a file, with the same permissions.
pub fn copy_beside(path: &Path, copy: &Path, text: &str) -> io::Result<()> {
    let mode = std::fs::metadata(path)?.permissions().mode();
    write(copy, text, mode)
}

fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    let new = path.with_added_extension(format!("new-{}", std::process::id()));
    let mut file = File::options()
        .create_new(true)
        .write(true)
        .mode(PRIVATE_MODE)
        .open(&new)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.set_permissions(Permissions::from_mode(mode & 0o7777)))
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written
}

/// Resolves symbolic links. A path that does not exist is returned as it is; a dangling link is an error.
fn target(path: &Path) -> io::Result<PathBuf> {
    match std::fs::canonicalize(path) {
        Ok(target) => Ok(target),
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => {
            match std::fs::symlink_metadata(path) {
                Ok(_) => Err(io::Error::other("it is a link to a file that is not there")),
                Err(_) => Ok(path.to_owned()),
            }
        }
        Err(fault) => Err(fault),
    }
}
