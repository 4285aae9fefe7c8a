//! Registration of file descriptors with the event loop of the async runtime.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor, which the registration owns and closes when it is dropped.
pub fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` keeps its descriptor open, under the same number, for as long as it is registered.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest)? })
}
