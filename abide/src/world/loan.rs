//! A client's own input and output, lent by its front: the daemon then reads requests where the client
//! puts them, and puts answers where the client reads them, without anybody in between.
//!
//! Nothing about them is changed that others would notice: a pipe is opened anew, so that only ours does
//! not block, and of a socket each single call says that it shall not.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, sockopt};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What a pipe takes as a whole or not at all, and in practice a socket too.
pub const WHOLE: usize = 4_096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Pipe,
    Socket,
}

/// Whether it is something that can be lent.
pub fn is_lendable(fd: BorrowedFd<'_>) -> bool {
    way(fd).is_some()
}

fn way(fd: BorrowedFd<'_>) -> Option<Way> {
    let is = FileType::from_raw_mode(rustix::fs::fstat(fd).ok()?.st_mode);
    match is {
        FileType::Fifo => Some(Way::Pipe),
        FileType::Socket => {
            let is_stream = sockopt::socket_type(fd) == Ok(SocketType::STREAM);
            let is_near = sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX);
            (is_stream && is_near).then_some(Way::Socket)
        }
        _ => None,
    }
}

/// The same, so that using it does not block.
fn unblocked(lent: OwnedFd, access: OFlags) -> io::Result<(Way, OwnedFd)> {
    match way(std::os::fd::AsFd::as_fd(&lent)) {
        None => Err(io::ErrorKind::InvalidInput.into()),
        Some(Way::Socket) => Ok((Way::Socket, lent)),
        Some(Way::Pipe) => {
            let path = format!("/proc/self/fd/{}", lent.as_raw_fd());
            let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC;
            Ok((Way::Pipe, rustix::fs::open(path, flags, Mode::empty())?))
        }
    }
}

/// A client's input.
pub struct Input {
    way: Way,
    fd: AsyncFd<OwnedFd>,
}

impl Input {
    /// Takes it over.
    pub fn take(lent: OwnedFd) -> io::Result<Self> {
        let (way, fd) = unblocked(lent, OFlags::RDONLY)?;
        // SAFETY: the descriptor is ours alone and stays open for as long as it is registered.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE)? };
        Ok(Input { way, fd })
    }

    /// Waits until there is something, and reads it with `read`. Nothing is lost where this is given up
    /// before its end.
    pub async fn read<T>(&self, mut read: impl FnMut(&Self) -> io::Result<T>) -> io::Result<T> {
        loop {
            let mut ready = self.fd.readable().await?;
            match read(self) {
                Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                other => return other,
            }
        }
    }

    /// Reads what is there.
    pub fn read_now(&self, into: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
        loop {
            let count = match self.way {
                Way::Pipe => {
                    rustix::io::read(self.fd.get_ref(), &mut *into).map(|(read, _)| read.len())
                }
                Way::Socket => {
                    rustix::net::recv(self.fd.get_ref(), &mut *into, RecvFlags::DONTWAIT)
                        .map(|((read, _), _)| read.len())
                }
            };
            match count {
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }
}

/// A client's output.
#[derive(Debug)]
pub struct Output {
    way: Way,
    fd: OwnedFd,
}

impl Output {
    /// Takes it over.
    pub fn take(lent: OwnedFd) -> io::Result<Self> {
        let (way, fd) = unblocked(lent, OFlags::WRONLY)?;
        Ok(Output { way, fd })
    }

    /// Writes at most [`WHOLE`] bytes as a whole, or none of them.
    pub fn write_now(&self, bytes: &[u8]) -> bool {
        loop {
            let sent = match self.way {
                Way::Pipe => rustix::io::write(&self.fd, bytes),
                Way::Socket => {
                    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                    rustix::net::send(&self.fd, bytes, flags)
                }
            };
            match sent {
                Err(Errno::INTR) => {}
                other => return other.is_ok(),
            }
        }
    }
}
