//! Log of changes that are not durable yet, so that they can be reverted if a commit fails.
//!
//! There are at most two generations of changes: the sealed one, whose commit is in flight, and the one that gathers
//! meanwhile. A failed commit reverts both, the newest change first, because the later generation was decided on top of
//! the earlier one.

use alloc::vec::Vec;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UndoLog<T> {
    /// Steps that revert the changes, oldest first.
    steps: Vec<T>,
    /// Number of steps that belong to the sealed generation.
    sealed: usize,
}

impl<T> Default for UndoLog<T> {
    fn default() -> Self {
        UndoLog {
            steps: Vec::new(),
            sealed: 0,
        }
    }
}

impl<T> UndoLog<T> {
    pub fn push(&mut self, step: T) {
        self.steps.push(step);
    }

    /// Begins a new generation; the changes up to now are the sealed one.
    pub fn seal(&mut self) {
        self.sealed = self.steps.len();
    }

    /// Forgets the sealed generation, because it is durable. Returns whether it had changes.
    pub fn settle(&mut self) -> bool {
        let sealed = core::mem::take(&mut self.sealed);
        self.steps.drain(..sealed);
        sealed > 0
    }

    /// Removes and returns the newest step of both generations.
    pub fn pop(&mut self) -> Option<T> {
        let step = self.steps.pop();
        self.sealed = self.sealed.min(self.steps.len());
        step
    }

    /// Takes the steps of both generations, oldest first.
    pub fn take(&mut self) -> Vec<T> {
        self.sealed = 0;
        core::mem::take(&mut self.steps)
    }

    /// Steps of both generations, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.steps.iter()
    }
}
