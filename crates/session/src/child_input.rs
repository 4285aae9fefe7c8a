//! What the child has still to read.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::frame::Once;

/// The character that ends the input of a terminal.
const END_OF_INPUT: u8 = 4;

/// Of how many names it is known how much came under them. Only what a daemon that died has not
/// answered is said again.
const NAMES: usize = 64;

/// The way to a child's standard input. What the child does not take waits here, however much that is: a
/// daemon has no more than [`INPUT_WINDOW`](super::frame::INPUT_WINDOW) on its way. Were it left in the
/// connection, a kill would wait behind it.
pub struct ChildInput {
    to: Option<OwnedFd>,
    terminal: bool,
    queue: Vec<u8>,
    closing: bool,
    /// How much came under each of the last names.
    named: VecDeque<(Vec<u8>, u64)>,
}

impl ChildInput {
    /// Feeds what is queued into `to`.
    pub fn new(to: Option<OwnedFd>, terminal: bool) -> Self {
        ChildInput {
            to,
            terminal,
            queue: Vec::new(),
            closing: false,
            named: VecDeque::new(),
        }
    }

    /// Puts bytes behind those that wait. What came before under the same name, and what comes after
    /// the end, is of no use to anybody and counts as taken: how much that is, is returned.
    pub fn push(&mut self, mut bytes: Vec<u8>, once: Option<Once>) -> u64 {
        if self.to.is_none() || self.closing {
            return bytes.len() as u64;
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

    /// Whether no signal came under this name before. From now on one did. Input of the same name is
    /// something else.
    pub fn is_new(&mut self, name: &[u8]) -> bool {
        let key = [b"signal ", name].concat();
        self.known(Once { key, from: 0 }, 1) == 0
    }

    /// How many of the bytes came before. From now on all of them did.
    fn known(&mut self, once: Once, length: usize) -> usize {
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

    /// The child is to find the end after what waits.
    pub fn close(&mut self) {
        if self.terminal && !self.closing {
            self.queue.push(END_OF_INPUT);
        }
        self.closing = !self.terminal;
        self.close_if_done();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_and_a_signal_of_one_name_are_two_things() {
        let (_reader, to) = rustix::pipe::pipe().unwrap();
        let mut input = ChildInput::new(Some(to), false);
        let named = || {
            Some(Once {
                key: b"a".to_vec(),
                from: 0,
            })
        };
        assert!(input.is_new(b"a"));
        assert_eq!(input.push(b"xy".to_vec(), named()), 0);
        assert!(!input.is_new(b"a"));
        assert_eq!(input.push(b"xy".to_vec(), named()), 2);
    }
}
