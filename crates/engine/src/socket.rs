//! Unix sockets at paths of any length. A socket address holds at most 107 bytes, so a longer path is reached through
//! a descriptor of its directory.

use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Longest path that fits into a socket address.
const ADDRESS_LIMIT: usize = 107;

pub fn connect(path: &Path) -> io::Result<UnixStream> {
    with_short(path, UnixStream::connect)
}

/// Listens at `path`, replacing a stale socket. The caller holds the lock that excludes other listeners.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    with_short(path, UnixListener::bind)
}

/// Calls `act` with a path that fits into a socket address.
fn with_short<T>(path: &Path, act: impl FnOnce(PathBuf) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() <= ADDRESS_LIMIT {
        return act(path.to_owned());
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let folder = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECTORY)
        .open(folder)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
    act(short)
}

/// Creates a directory that only its owner may enter, or checks that an existing one is private.
pub fn private_folder(path: &Path) -> io::Result<()> {
    check(
        path,
        0o077,
        "it can be entered by others; run chmod 700 on it",
    )
}

/// Creates a directory, or makes an existing one private that others could read. One that others could change is
/// refused, because what is in it may be theirs.
pub fn own_folder(path: &Path) -> io::Result<()> {
    check(
        path,
        0o022,
        "it can be changed by others; run chmod 700 on it",
    )?;
    let is_private = std::fs::metadata(path)?.mode() & 0o077 == 0;
    // A home folder that serves as the state folder belongs to other programs too.
    if is_private || path == crate::config::home() {
        return Ok(());
    }
    std::fs::set_permissions(path, Permissions::from_mode(0o700))
}

/// Creates a directory if it is missing, and adds the path to errors.
fn check(path: &Path, forbidden: u32, complaint: &str) -> io::Result<()> {
    create_and_check(path, forbidden, complaint).map_err(|e| {
        let instead = match e.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "; ABIDE_DIR names another folder"
            }
            _ => "",
        };
        io::Error::new(e.kind(), format!("{}: {e}{instead}", path.display()))
    })
}

/// Creates a directory if it is missing, and checks its type, owner and mode.
fn create_and_check(path: &Path, forbidden: u32, complaint: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let found = std::fs::symlink_metadata(path)?;
    let owner = rustix::process::geteuid().as_raw();
    let trouble = if !found.is_dir() {
        "it is not a folder (a link is not accepted)"
    } else if found.uid() != owner {
        "it belongs to another user"
    } else if found.mode() & forbidden != 0 {
        complaint
    } else {
        return Ok(());
    };
    Err(io::Error::other(trouble.to_owned()))
}
