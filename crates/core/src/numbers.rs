//! Numbers for timers or messages, in blocks that no other machine uses.
//!
//! A number counts as used when the record that has it is durable. Numbers of a generation that is reverted are used
//! again, so that a database that is away for long does not use up a block.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use crate::id::NUMBER_BITS;
use crate::undo_log::{RevertScope, UndoLog};

/// Numbers that were reserved and not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    blocks: VecDeque<Range<u64>>,
    taken: UndoLog<u64>,
}

/// All numbers, for a machine that is alone.
impl Default for Numbers {
    fn default() -> Self {
        Numbers {
            blocks: [ALL].into(),
            taken: UndoLog::default(),
        }
    }
}

/// All numbers that can become ids.
pub const ALL: Range<u64> = 0..1 << NUMBER_BITS;

impl Numbers {
    /// Replaces all blocks by one. Numbers that were taken before are not given back.
    pub fn set(&mut self, block: Range<u64>) {
        self.blocks.clear();
        self.taken = UndoLog::default();
        self.add(block);
    }

    /// Adds a block.
    pub fn add(&mut self, block: Range<u64>) {
        if !block.is_empty() {
            self.blocks.push_back(block);
        }
    }

    /// Leaves out the numbers up to this one, which a stored row has.
    pub fn skip(&mut self, number: u64) {
        for block in &mut self.blocks {
            if block.contains(&number) {
                block.start = number + 1;
            }
        }
        self.blocks.retain(|block| !block.is_empty());
    }

    /// Next number; `None` until another block is added.
    pub fn take(&mut self) -> Option<u64> {
        let block = self.blocks.front_mut()?;
        let number = block.next()?;
        if block.is_empty() {
            self.blocks.pop_front();
        }
        self.taken.push(number);
        Some(number)
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub fn begin_commit(&mut self) {
        self.taken.begin_commit();
    }

    pub fn commit_succeeded(&mut self) {
        self.taken.commit_succeeded();
    }

    /// Gives back the numbers of these generations.
    pub fn commit_failed(&mut self, which: RevertScope) {
        let back: Vec<u64> = self.taken.take(which);
        for number in back.into_iter().rev() {
            match self.blocks.front_mut() {
                Some(block) if block.start == number + 1 => block.start = number,
                _ => self.blocks.push_front(number..number + 1),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reverted_numbers_are_taken_again_in_order() {
        let mut numbers = Numbers::default();
        numbers.set(4..6);
        numbers.add(9..11);
        assert_eq!(numbers.take(), Some(4));
        numbers.begin_commit();
        assert_eq!([numbers.take(), numbers.take()], [Some(5), Some(9)]);
        numbers.commit_failed(RevertScope::Gathering);
        assert_eq!(numbers.take(), Some(5));
        numbers.commit_succeeded();
        numbers.commit_failed(RevertScope::Both);
        let rest: Vec<_> = core::iter::from_fn(|| numbers.take()).collect();
        assert_eq!(rest, [5, 9, 10]);
        assert!(numbers.is_empty());
    }

    #[test]
    fn replaced_numbers_do_not_come_back_with_a_failed_commit() {
        let mut numbers = Numbers::default();
        numbers.set(4..6);
        assert_eq!(numbers.take(), Some(4));
        numbers.begin_commit();
        assert_eq!(numbers.take(), Some(5));
        numbers.set(9..10);
        numbers.commit_failed(RevertScope::Both);
        assert_eq!([numbers.take(), numbers.take()], [Some(9), None]);
    }

    #[test]
    fn skipped_numbers_are_not_taken() {
        let mut numbers = Numbers::default();
        numbers.set(0..4);
        numbers.skip(7);
        numbers.skip(1);
        assert_eq!(numbers.take(), Some(2));
        numbers.skip(3);
        assert_eq!(numbers.take(), None);
    }
}
