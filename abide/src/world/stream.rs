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
use rustix::thread::sched_getcpu as processor;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::clock::micros;

/// Descriptors that come with one message.
const HANDED: usize = 5;
/// Microseconds in which something comes that is about to, mostly.
const SOON: u64 = 60;

/// What is heard before something comes.
#[derive(Debug)]
pub struct Knocker(AsyncFd<OwnedFd>);

impl Knocker {
    /// Listens to it from now on.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: the descriptor is ours alone and stays open for as long as it is registered.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE)? };
        Ok(Knocker(fd))
    }

    /// Waits for a knock. Whether whoever knocks is on another processor than we are.
    pub async fn heard(&self) -> io::Result<bool> {
        loop {
            self.0.readable().await?.clear_ready();
            let mut count = [0; 8];
            match rustix::io::read(self.0.get_ref(), &mut count) {
                Ok(_) => return Ok(u64::from_ne_bytes(count) != 1 + processor() as u64),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Forgets a knock that was not heard before what it announced.
    pub fn forget(&self) {
        let _ = rustix::io::read(self.0.get_ref(), &mut [0; 8]);
    }
}

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

    /// The same where descriptors come only while they are expected.
    pub async fn read_expecting(
        &self,
        expected: impl Fn() -> bool,
        bytes: &mut [u8],
        handed: &mut Vec<OwnedFd>,
    ) -> io::Result<usize> {
        self.receive(|socket| match expected() {
            true => receive_handed(socket, bytes, handed),
            false => receive(socket, bytes),
        })
        .await
    }

    /// What is about to come from another processor: to go to sleep and be woken again would take longer than to
    /// stay awake for it. `None`: it did not come.
    pub fn read_soon(&self, bytes: &mut [u8]) -> Option<io::Result<usize>> {
        let until = micros() + SOON;
        loop {
            match receive(self.0.get_ref(), bytes) {
                Ok((count, _)) => return Some(Ok(count)),
                Err(Errno::AGAIN) if micros() >= until => return None,
                Err(Errno::AGAIN | Errno::INTR) => std::hint::spin_loop(),
                Err(errno) => return Some(Err(errno.into())),
            }
        }
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn knock(bell: &OwnedFd, count: u64) {
        rustix::io::write(bell, &count.to_ne_bytes()).unwrap();
    }

    /// A knock is heard once, one that was forgotten never, and none that comes after it is lost.
    #[tokio::test]
    async fn a_knock_that_was_forgotten_is_not_heard() {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = eventfd(0, flags).unwrap();
        let knocker = Knocker::new(bell.try_clone().unwrap()).unwrap();
        // Nobody runs on a processor of this number.
        let elsewhere = u64::from(u32::MAX);
        for _ in 0..3 {
            knock(&bell, elsewhere);
            assert!(knocker.heard().await.unwrap());
            assert!(knocker.heard().now_or_never().is_none());
            knock(&bell, elsewhere);
            knocker.forget();
            tokio::task::yield_now().await;
            assert!(knocker.heard().now_or_never().is_none());
        }
    }

    #[tokio::test]
    async fn what_is_about_to_come_is_read_at_once_or_not_at_all() {
        let (mut here, there) = UnixStream::pair().unwrap();
        let stream = Stream::new(there).unwrap();
        let mut bytes = [0; 8];
        assert!(stream.read_soon(&mut bytes).is_none());
        here.write_all(b"ab").unwrap();
        assert_eq!(stream.read_soon(&mut bytes).unwrap().unwrap(), 2);
        // It is told of later too, and is not there any more.
        assert!(stream.read(&mut bytes).now_or_never().is_none());
        here.write_all(b"c").unwrap();
        assert_eq!(stream.read(&mut bytes).await.unwrap(), 1);
        drop(here);
        assert_eq!(stream.read_soon(&mut bytes).unwrap().unwrap(), 0);
    }
}
