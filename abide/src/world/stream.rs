//! A connected socket in the daemon's loop that wakes whoever reads from it when something comes.
//!
//! The runtime's own streams also wake whenever the other side has taken something, which here is
//! after every message, for nothing. Room to write is asked for only where there was none.

use std::io::{self, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Descriptors that come with one message.
const HANDED: usize = 5;

/// One connection.
#[derive(Debug)]
pub struct Stream(AsyncFd<OwnedFd>);

impl Stream {
    /// Takes a connection over.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // SAFETY: the descriptor is ours alone and stays open for as long as it is registered.
        let fd =
            unsafe { AsyncFd::register_with_interest(OwnedFd::from(stream), Interest::READABLE)? };
        Ok(Stream(fd))
    }

    /// Waits for bytes and reads them; none: there will be no more.
    pub async fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.receive(|socket| receive(socket, bytes)).await
    }

    /// The same where descriptors may come with the bytes; they are put behind `handed`.
    pub async fn read_handed(
        &self,
        bytes: &mut [u8],
        handed: &mut Vec<OwnedFd>,
    ) -> io::Result<usize> {
        self.receive(|socket| receive_handed(socket, bytes, handed))
            .await
    }

    /// Waits for bytes and takes them with `take`, which says how many there were and whether that is all.
    async fn receive(
        &self,
        mut take: impl FnMut(&OwnedFd) -> Result<(usize, bool), Errno>,
    ) -> io::Result<usize> {
        loop {
            let mut ready = self.0.readable().await?;
            match take(self.0.get_ref()) {
                Ok((count, all)) => {
                    // Nothing is left, and what comes next is told anew.
                    if count > 0 && all {
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

    /// Writes what the socket takes now; none: there is no room.
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
        // SAFETY: the copy is ours alone and stays open for as long as it is registered.
        let room = unsafe { AsyncFd::register_with_interest(same, Interest::WRITABLE)? };
        room.writable().await?.retain_ready();
        Ok(())
    }

    /// Whether the other side has closed it.
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

fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> Result<(usize, bool), Errno> {
    let (count, _) = rustix::net::recv(socket, &mut *bytes, RecvFlags::empty())?;
    Ok((count, count < bytes.len()))
}

fn receive_handed(
    socket: &OwnedFd,
    bytes: &mut [u8],
    handed: &mut Vec<OwnedFd>,
) -> Result<(usize, bool), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDED))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let room = bytes.len();
    let mut parts = [IoSliceMut::new(bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(socket, &mut parts, &mut ancillary, flags)?;
    // What comes with descriptors is read by itself, however much there is behind it.
    let mut all = received.bytes < room;
    let before = handed.len();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            handed.extend(fds);
            all = false;
        }
    }
    // Where there was no room for all of them, nobody could tell which are missing.
    if received.flags.contains(ReturnFlags::CTRUNC) {
        handed.truncate(before);
        all = false;
    }
    Ok((received.bytes, all))
}

/// Writes to a socket that blocks, with descriptors.
pub fn hand_over(socket: &UnixStream, line: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDED))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let part = [IoSlice::new(line)];
    let sent = loop {
        match rustix::net::sendmsg(socket, &part, &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    (&*socket).write_all(&line[sent..])
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}
