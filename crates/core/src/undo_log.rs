//! Log of changes that are not durable yet, so that they can be reverted if a commit fails.
//!
//! There are at most two generations of changes: one whose commit is in flight, and the one that gathers
//! meanwhile. A failed commit reverts both, the newest change first, because the later generation was decided on top of
//! the earlier one.

use alloc::vec::Vec;

/// Generations to revert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RevertScope {
    /// Both, because the commit in flight failed.
    Both,
    /// The one that gathers, because it is not known how the commit in flight ends.
    Gathering,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UndoLog<T> {
    /// Steps that revert the changes, oldest first.
    steps: Vec<T>,
    /// Number of steps that belong to the generation in flight.
    in_flight: usize,
}

impl<T> Default for UndoLog<T> {
    fn default() -> Self {
        UndoLog {
            steps: Vec::new(),
            in_flight: 0,
        }
    }
}

impl<T> UndoLog<T> {
    pub fn push(&mut self, step: T) {
        self.steps.push(step);
    }

    /// Begins a new generation; the changes up to now are the generation in flight.
    pub fn begin_commit(&mut self) {
        self.in_flight = self.steps.len();
    }

    /// Forgets the generation in flight, because it is durable. Returns whether it had changes.
    pub fn commit_succeeded(&mut self) -> bool {
        let in_flight = core::mem::take(&mut self.in_flight);
        self.steps.drain(..in_flight);
        in_flight > 0
    }

    /// Removes and returns the newest step of these generations.
    pub fn pop(&mut self, which: RevertScope) -> Option<T> {
        if which == RevertScope::Gathering && self.steps.len() <= self.in_flight {
            return None;
        }
        let step = self.steps.pop();
        self.in_flight = self.in_flight.min(self.steps.len());
        step
    }

    /// Takes the steps of these generations, oldest first.
    pub fn take(&mut self, which: RevertScope) -> Vec<T> {
        if which == RevertScope::Both {
            self.in_flight = 0;
        }
        self.steps.split_off(self.in_flight)
    }

    /// Removes steps that must not be carried out any more.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let (mut at, mut in_flight) = (0, self.in_flight);
        self.steps.retain(|step| {
            let is_kept = keep(step);
            in_flight -= usize::from(!is_kept && at < self.in_flight);
            at += 1;
            is_kept
        });
        self.in_flight = in_flight;
    }

    /// Oldest step for which `is_wanted` is true.
    pub fn oldest_mut(&mut self, mut is_wanted: impl FnMut(&T) -> bool) -> Option<&mut T> {
        self.steps.iter_mut().find(|step| is_wanted(step))
    }

    /// Steps of both generations, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.steps.iter()
    }
}
