//! What the child has still to read.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::frame::INPUT_WINDOW;

/// The character that ends the input of a terminal.
const END_OF_INPUT: u8 = 4;

/// The way to a child's standard input.
pub struct Feed {
    to: Option<OwnedFd>,
    terminal: bool,
    queue: Vec<u8>,
    closing: bool,
}

impl Feed {
    /// Feeds what is queued into `to`.
    pub fn new(to: Option<OwnedFd>, terminal: bool) -> Self {
        Feed {
            to,
            terminal,
            queue: Vec::new(),
            closing: false,
        }
    }

    /// Puts bytes behind those that wait. What comes after the end is of no use to anybody and
    /// counts as taken: how much that is, is returned.
    pub fn push(&mut self, bytes: Vec<u8>) -> u64 {
        if self.to.is_none() || self.closing {
            return bytes.len() as u64;
        }
        if self.queue.is_empty() {
            self.queue = bytes;
        } else {
            self.queue.extend_from_slice(&bytes);
        }
        0
    }

    /// The child is to find the end after what waits.
    pub fn close(&mut self) {
        if self.terminal && !self.closing {
            self.queue.push(END_OF_INPUT);
        }
        self.closing = !self.terminal;
        self.close_if_done();
    }

    /// Whether more may not be queued.
    pub fn full(&self) -> bool {
        self.queue.len() > INPUT_WINDOW
    }

    /// For polling, while something waits.
    pub fn wants_out(&self) -> Option<BorrowedFd<'_>> {
        self.to
            .as_ref()
            .filter(|_| !self.queue.is_empty())
            .map(AsFd::as_fd)
    }

    /// Writes what the child takes; returns how much.
    pub fn flush(&mut self) -> u64 {
        let Some(to) = &self.to else {
            return 0;
        };
        let mut taken = 0;
        while taken < self.queue.len() {
            match rustix::io::write(to, &self.queue[taken..]) {
                Ok(count) => taken += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // Nobody reads any more.
                Err(_) => {
                    taken = self.queue.len();
                    self.closing = true;
                }
            }
        }
        self.queue.drain(..taken);
        self.close_if_done();
        taken as u64
    }

    fn close_if_done(&mut self) {
        if self.queue.is_empty() {
            self.queue = Vec::new();
            if self.closing {
                self.to = None;
            }
        }
    }
}
