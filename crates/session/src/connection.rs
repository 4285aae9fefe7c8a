//! The connection to a daemon. It never blocks: frames that the daemon does not read are buffered up to a
//! limit, and a daemon that reads nothing beyond that is disconnected.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use abide_core::End;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::frame::{FromKeeper, ToKeeper};

/// Limit of bytes that a daemon has not read.
const UNTAKEN_LIMIT: usize = 64 << 10;
const READ_SIZE: usize = 8 << 10;

/// One connection.
pub struct Connection {
    socket: OwnedFd,
    /// Begin of a frame that was not received in full yet.
    inbox: Vec<u8>,
    /// Frames that were received and not taken yet.
    frames: VecDeque<ToKeeper>,
    outbox: Vec<u8>,
    later: Vec<u8>,
    is_broken: bool,
}

impl Connection {
    /// Uses a connected socket.
    pub fn new(socket: OwnedFd) -> Self {
        let _ = rustix::io::ioctl_fionbio(&socket, true);
        Connection {
            socket,
            inbox: Vec::new(),
            frames: VecDeque::new(),
            outbox: Vec::new(),
            later: Vec::new(),
            is_broken: false,
        }
    }

    /// Descriptor to poll.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// True while bytes wait for the daemon to read.
    pub fn wants_out(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// True once the connection has failed.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// True if the peer has disconnected, although not all of its frames may have been handled.
    pub fn peer_closed(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::empty())];
        let polled = rustix::event::poll(&mut fds, Some(&Timespec::default()));
        polled.is_ok() && fds[0].revents().contains(PollFlags::HUP)
    }

    /// Sends a frame, or queues it until the daemon reads.
    pub fn send(&mut self, frame: &FromKeeper) {
        self.send_all(std::slice::from_ref(frame));
    }

    /// Queues a frame that is sent together with the next one.
    pub fn queue(&mut self, frame: &FromKeeper) {
        frame.encode(&mut self.later);
    }

    /// Sends several frames in one write, so that the daemon is woken once.
    pub fn send_all(&mut self, frames: &[FromKeeper]) {
        if frames.is_empty() {
            return;
        }
        self.outbox.append(&mut self.later);
        for frame in frames {
            frame.encode(&mut self.outbox);
        }
        self.flush();
        if self.outbox.len() > UNTAKEN_LIMIT {
            self.is_broken = true;
        }
    }

    /// Sends queued bytes until the socket would block.
    pub fn flush(&mut self) {
        while !self.outbox.is_empty() && !self.is_broken {
            match rustix::net::send(&self.socket, &self.outbox, SendFlags::NOSIGNAL) {
                Ok(count) => drop(self.outbox.drain(..count)),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(_) => self.is_broken = true,
            }
        }
    }

    /// Reason in a received `Forced` frame that is not handled yet, if there is one.
    pub fn forced(&self) -> Option<End> {
        self.frames.iter().find_map(|frame| match frame {
            ToKeeper::Forced { end } => Some(*end),
            _ => None,
        })
    }

    /// Reads from the socket. Returns whether bytes were received. Frames received before the connection broke are
    /// still handled.
    pub fn receive(&mut self) -> bool {
        let mut bytes = [0; READ_SIZE];
        match rustix::net::recv(&self.socket, &mut bytes[..], RecvFlags::empty()) {
            Ok((0, _)) => self.is_broken = true,
            Ok((count, _)) => {
                self.inbox.extend_from_slice(&bytes[..count]);
                self.decode();
                return true;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.is_broken = true,
        }
        false
    }

    fn decode(&mut self) {
        loop {
            match ToKeeper::take_from(&mut self.inbox) {
                Ok(Some(frame)) => self.frames.push_back(frame),
                Ok(None) => break,
                Err(_) => {
                    self.is_broken = true;
                    break;
                }
            }
        }
        if self.inbox.is_empty() {
            self.inbox = Vec::new();
        }
    }

    /// Takes the next complete frame that was received.
    pub fn next(&mut self) -> Option<ToKeeper> {
        self.frames.pop_front()
    }
}
