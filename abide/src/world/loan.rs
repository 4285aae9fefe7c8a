//! A client's own input and output, lent by its front: the daemon then reads requests where the client
//! puts them, and puts answers where the client reads them, without anybody in between.
//!
//! Nothing about them is changed that others would notice: a pipe is opened anew, so that only ours does
//! not block, and of a socket each single call says that it shall not.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, sockopt};
use rustix::pipe::{PipeFlags, SpliceFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::keeper::crash_point;

/// What a pipe takes as a whole or not at all, and a socket with some room too.
pub const WHOLE: usize = 4_096;
/// The room that a socket must have for that.
const ROOM: usize = 4 * WHOLE;

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
    match way(lent.as_fd()) {
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

    /// Waits until there is something, and reads it with `read`, which says how much it was and whether there
    /// was room for more. Nothing is lost where this is given up before its end.
    pub async fn read(
        &self,
        mut read: impl FnMut(&Self) -> io::Result<(usize, bool)>,
    ) -> io::Result<usize> {
        loop {
            let mut ready = self.fd.readable().await?;
            match read(self) {
                Err(fault) if fault.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Ok((count, room)) => {
                    // Nothing is left, and what comes next is told anew.
                    if count > 0 && room {
                        ready.clear_ready();
                    }
                    return Ok(count);
                }
                Err(fault) => return Err(fault),
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

/// A pipe in which an answer stands before it is given to the client. Front and daemon share it: whatever
/// stands in it when the daemon dies has not been given, and the front gives it.
pub struct Stage {
    read: OwnedFd,
    write: OwnedFd,
}

impl Stage {
    /// An empty one.
    pub fn create() -> io::Result<Self> {
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let (read, write) = rustix::pipe::pipe_with(flags)?;
        Ok(Stage { read, write })
    }

    /// Takes over both ends of one. Whoever made it has no say in whether it blocks here.
    pub fn take(read: OwnedFd, write: OwnedFd) -> io::Result<Self> {
        match (
            unblocked(read, OFlags::RDONLY)?,
            unblocked(write, OFlags::WRONLY)?,
        ) {
            ((Way::Pipe, read), (Way::Pipe, write)) => Ok(Stage { read, write }),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Its two ends.
    pub fn ends(&self) -> [BorrowedFd<'_>; 2] {
        [self.read.as_fd(), self.write.as_fd()]
    }

    fn put(&self, bytes: &[u8]) -> bool {
        again(|| rustix::io::write(&self.write, bytes)) == Ok(bytes.len())
    }

    /// Takes out what stands in it.
    pub fn take_out(&self) -> Vec<u8> {
        let mut bytes = vec![0; WHOLE];
        let count = again(|| rustix::io::read(&self.read, &mut bytes));
        bytes.truncate(count.unwrap_or(0));
        bytes
    }
}

fn again<T>(mut act: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match act() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// A client's output.
pub struct Output {
    way: Way,
    fd: OwnedFd,
    stage: Stage,
}

/// What became of a line.
#[derive(Debug, PartialEq, Eq)]
pub enum Gone {
    /// The client has it.
    Whole,
    /// The client has nothing of it.
    Not,
    /// All but this.
    Without(Vec<u8>),
}

impl Output {
    /// Takes it over.
    pub fn take(lent: OwnedFd, stage: Stage) -> io::Result<Self> {
        let (way, fd) = unblocked(lent, OFlags::WRONLY)?;
        if way == Way::Socket && sockopt::socket_send_buffer_size(&fd)? < ROOM {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Output { way, fd, stage })
    }

    /// Gives the client at most [`WHOLE`] bytes. `note` is called when they would reach it even if we were
    /// killed, and `undo` where they cannot be given now.
    pub fn give<N>(
        &self,
        bytes: &[u8],
        notes: &mut N,
        note: impl FnOnce(&mut N),
        undo: impl FnOnce(&mut N),
    ) -> Gone {
        if !self.has_room() || !self.stage.put(bytes) {
            return Gone::Not;
        }
        crash_point("loan.staged");
        note(notes);
        crash_point("loan.noted");
        let mut left = bytes.len();
        while left > 0 {
            match self.move_on(left) {
                Ok(count @ 1..) => left = left.saturating_sub(count),
                Ok(0) | Err(_) => break,
            }
        }
        crash_point("loan.given");
        if left == bytes.len() {
            undo(notes);
        }
        if left == 0 {
            return Gone::Whole;
        }
        let rest = self.stage.take_out();
        if left == bytes.len() {
            Gone::Not
        } else {
            Gone::Without(rest)
        }
    }

    /// From the stage to the client, without a copy.
    fn move_on(&self, count: usize) -> Result<usize, Errno> {
        let flags = SpliceFlags::NONBLOCK;
        again(|| rustix::pipe::splice(&self.stage.read, None, &self.fd, None, count, flags))
    }

    /// Into a socket the kernel moves bytes without regard to whether that may take long, so it is asked
    /// before. Nobody else writes there meanwhile.
    fn has_room(&self) -> bool {
        let mut asked = [PollFd::new(&self.fd, PollFlags::OUT)];
        let now = Timespec::default();
        self.way == Way::Pipe
            || again(|| rustix::event::poll(&mut asked, Some(&now))).is_ok_and(|count| count > 0)
    }

    /// Gives the client at most [`WHOLE`] bytes as a whole, or none of them, whatever becomes of us.
    pub fn tell(&self, bytes: &[u8]) -> bool {
        let sent = again(|| match self.way {
            Way::Pipe => rustix::io::write(&self.fd, bytes),
            Way::Socket => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                rustix::net::send(&self.fd, bytes, flags)
            }
        });
        sent.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn output(fd: OwnedFd) -> (Output, Stage) {
        let stage = Stage::create().unwrap();
        let same = Stage {
            read: stage.read.try_clone().unwrap(),
            write: stage.write.try_clone().unwrap(),
        };
        (Output::take(fd, stage).unwrap(), same)
    }

    fn give(output: &Output, line: &[u8], noted: &mut i32) -> Gone {
        output.give(line, noted, |noted| *noted += 1, |noted| *noted -= 1)
    }

    #[test]
    fn gives_whole_lines_until_there_is_no_room() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        for (to, from) in [(OwnedFd::from(ours), OwnedFd::from(theirs)), (write, read)] {
            let (output, stage) = output(to);
            let (line, mut noted) = ([b'x'; WHOLE], 0);
            while give(&output, &line, &mut noted) == Gone::Whole {}
            assert!(noted > 3);
            assert!(stage.take_out().is_empty());
            drop(output);
            let mut got = Vec::new();
            std::fs::File::from(from).read_to_end(&mut got).unwrap();
            assert_eq!(got.len(), noted as usize * WHOLE);
        }
    }

    #[test]
    fn what_is_not_given_stands_on_the_stage() {
        let (_read, write) = rustix::pipe::pipe().unwrap();
        let (output, stage) = output(write);
        assert!(output.stage.put(b"line\n"));
        drop(output);
        assert_eq!(stage.take_out(), b"line\n");
        assert!(stage.take_out().is_empty());
    }

    #[test]
    fn nobody_else_notices_that_ours_does_not_block() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let _ours = output(write.try_clone().unwrap());
        let flags = rustix::fs::fcntl_getfl(&write).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK));
        drop(read);
    }

    #[test]
    fn a_stage_does_not_block_whatever_its_maker_does() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let copies = (read.try_clone().unwrap(), write.try_clone().unwrap());
        let stage = Stage::take(copies.0, copies.1).unwrap();
        assert!(stage.take_out().is_empty());
        while stage.put(&[b'x'; WHOLE]) {}
        assert_eq!(stage.take_out().len(), WHOLE);
        let (socket, _other) = UnixStream::pair().unwrap();
        assert!(Stage::take(socket.into(), write).is_err());
    }

    #[test]
    fn a_socket_that_would_take_a_line_in_pieces_is_not_taken() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        sockopt::set_socket_send_buffer_size(&ours, WHOLE).unwrap();
        let stage = Stage::create().unwrap();
        assert!(Output::take(ours.into(), stage).is_err());
    }

    #[test]
    fn a_reader_that_is_gone_gets_nothing() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let (output, stage) = output(write);
        drop(read);
        let mut noted = 0;
        assert_eq!(give(&output, b"line\n", &mut noted), Gone::Not);
        assert!(!output.tell(b"line\n"));
        assert_eq!(noted, 0);
        assert!(stage.take_out().is_empty());
    }

    #[test]
    fn only_pipes_and_sockets_are_lent() {
        let file = tempfile::tempfile().unwrap();
        assert!(!is_lendable(file.as_fd()));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(!is_lendable(null.as_fd()));
        let (read, _write) = rustix::pipe::pipe().unwrap();
        assert!(is_lendable(read.as_fd()));
        let (mut ours, _theirs) = UnixStream::pair().unwrap();
        ours.write_all(b"x").unwrap();
        assert!(is_lendable(ours.as_fd()));
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!is_lendable(tcp.as_fd()));
    }
}
