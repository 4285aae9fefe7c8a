//! Connected socket on the event loop that wakes its reader only when bytes arrive.
//!
//! The streams of the runtime also wake when the peer has read something, which here happens after every message, for
//! nothing. Room to write is polled only after a write that did not fit.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::async_fd;

#[derive(Debug)]
pub struct Stream(AsyncFd<OwnedFd>);

impl Stream {
    /// Wraps a connected socket.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let fd = async_fd::register(OwnedFd::from(stream), Interest::READABLE)?;
        Ok(Stream(fd))
    }

    /// Waits for bytes and reads them. Zero: the peer has closed the connection.
    pub async fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.readable().await?;
            match rustix::net::recv(self.0.get_ref(), &mut *bytes, RecvFlags::empty()) {
                Ok((count, _)) => {
                    // The socket is drained, and the next bytes are a new event.
                    if 0 < count && count < bytes.len() {
                        ready.clear_ready();
                    }
                    return Ok(count);
                }
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Writes as much as the socket has room for. Zero: there is no room.
    pub fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match rustix::net::send(self.0.get_ref(), bytes, flags) {
                Ok(count) => return Ok(count),
                Err(Errno::AGAIN) => return Ok(0),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Waits until there is room to write.
    pub async fn writable(&self) -> io::Result<()> {
        let same = self.0.get_ref().try_clone()?;
        let room = async_fd::register(same, Interest::WRITABLE)?;
        room.writable().await?.retain_ready();
        Ok(())
    }

    /// True if the peer has closed the connection.
    pub fn is_closed(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        matches!(
            rustix::net::recv(self.0.get_ref(), &mut [0; 1], flags),
            Ok((0, _))
        )
    }

    /// Closes the connection for both sides.
    pub fn close(&self) {
        let _ = rustix::net::shutdown(self.0.get_ref(), Shutdown::Both);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}
