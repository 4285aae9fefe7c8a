//! Input that the child has not read yet.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::frame::InputKey;

/// The character that ends the input of a terminal.
const END_OF_INPUT: u8 = 4;

/// Number of idempotency keys that are remembered. A client only repeats what a daemon that died has not
/// answered.
const NAMES: usize = 64;

/// The write end of a child's standard input and the bytes that wait for it. The queue is not bounded here:
/// a daemon has no more than [`INPUT_WINDOW`](super::frame::INPUT_WINDOW) bytes in flight. If the bytes
/// stayed in the connection, a kill would wait behind them.
pub struct ChildInput {
    to: Option<OwnedFd>,
    is_terminal: bool,
    queue: Vec<u8>,
    is_closing: bool,
    /// Bytes that reached no process, until they are reported.
    dropped: u64,
    /// Bytes received under each of the last keys.
    named: VecDeque<(Vec<u8>, u64)>,
}

impl ChildInput {
    /// Queue that writes to `to`. `is_terminal` decides how the end of input is sent.
    pub fn new(to: Option<OwnedFd>, is_terminal: bool) -> Self {
        ChildInput {
            to,
            is_terminal,
            queue: Vec::new(),
            is_closing: false,
            dropped: 0,
            named: VecDeque::new(),
        }
    }

    /// Appends bytes to the queue. Bytes that were received before under the same key, and bytes after the
    /// end of input, are dropped and count as taken; their number is returned.
    pub fn push(&mut self, mut bytes: Vec<u8>, once: Option<InputKey>) -> u64 {
        if self.to.is_none() || self.is_closing {
            let length = bytes.len() as u64;
            let known = once.map_or(0, |once| self.received(&once).min(length));
            self.dropped += length - known;
            return length;
        }
        let known = once.map_or(0, |once| self.known(once, bytes.len()));
        bytes.drain(..known);
        if self.queue.is_empty() {
            self.queue = bytes;
        } else {
            self.queue.extend_from_slice(&bytes);
        }
        known as u64
    }

    /// True for the first signal under this key, which is then remembered. Input under the same key is
    /// counted separately.
    pub fn is_new(&mut self, name: &[u8]) -> bool {
        let key = [b"signal ", name].concat();
        self.known(InputKey { key, from: 0 }, 1) == 0
    }

    /// Number of bytes from this place on that were received under this key.
    fn received(&self, once: &InputKey) -> u64 {
        let came = self.named.iter().find(|(key, _)| *key == once.key);
        came.map_or(0, |(_, came)| came.saturating_sub(once.from))
    }

    /// Takes the number of bytes that reached no process.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    /// Number of bytes that were received before under this key. All of them are remembered from now on.
    fn known(&mut self, once: InputKey, length: usize) -> usize {
        let until = once.from.saturating_add(length as u64);
        if let Some((_, came)) = self.named.iter_mut().find(|(key, _)| *key == once.key) {
            let known = came.saturating_sub(once.from).min(length as u64);
            *came = until.max(*came);
            return known as usize;
        }
        if self.named.len() == NAMES {
            self.named.pop_front();
        }
        self.named.push_back((once.key, until));
        0
    }

    /// Closes the input after the queued bytes.
    pub fn close(&mut self) {
        if self.is_terminal && !self.is_closing {
            self.queue.push(END_OF_INPUT);
        }
        self.is_closing = !self.is_terminal;
        self.close_if_done();
    }

    /// Descriptor to poll for writing while bytes are queued.
    pub fn wants_out(&self) -> Option<BorrowedFd<'_>> {
        self.to
            .as_ref()
            .filter(|_| !self.queue.is_empty())
            .map(AsFd::as_fd)
    }

    /// Writes as many queued bytes as the child takes; returns their number.
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
                // No process reads any more.
                Err(_) => {
                    self.dropped += (self.queue.len() - taken) as u64;
                    taken = self.queue.len();
                    self.is_closing = true;
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
            if self.is_closing {
                self.to = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_and_a_signal_of_one_name_are_two_things() {
        let (_reader, to) = rustix::pipe::pipe().unwrap();
        let mut input = ChildInput::new(Some(to), false);
        let named = || {
            Some(InputKey {
                key: b"a".to_vec(),
                from: 0,
            })
        };
        assert!(input.is_new(b"a"));
        assert_eq!(input.push(b"xy".to_vec(), named()), 0);
        assert!(!input.is_new(b"a"));
        assert_eq!(input.push(b"xy".to_vec(), named()), 2);
    }

    #[test]
    fn input_after_the_end_is_dropped_unless_it_was_received_before() {
        let (_reader, to) = rustix::pipe::pipe().unwrap();
        let mut input = ChildInput::new(Some(to), false);
        let named = |from| {
            let key = b"a".to_vec();
            Some(InputKey { key, from })
        };
        assert_eq!(input.push(b"xy".to_vec(), named(0)), 0);
        assert_eq!(input.flush(), 2);
        input.close();
        assert_eq!(input.push(b"xyz".to_vec(), named(0)), 3);
        assert_eq!(input.take_dropped(), 1);
        assert_eq!(input.push(b"w".to_vec(), None), 1);
        assert_eq!((input.take_dropped(), input.take_dropped()), (1, 0));
    }

    #[test]
    fn input_that_no_process_reads_is_dropped() {
        let (reader, to) = rustix::pipe::pipe().unwrap();
        drop(reader);
        let mut input = ChildInput::new(Some(to), false);
        assert_eq!(input.push(b"xy".to_vec(), None), 0);
        assert_eq!((input.flush(), input.take_dropped()), (2, 2));
    }
}
