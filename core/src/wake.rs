//! When to wake an agent that does not read its messages: not at once, since it may be about to, not
//! again and again for the same message, and never more often than a budget allows.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::time::{Millis, Steady};

/// How long after each failure the next try comes; three days in all.
pub const BACK_OFF: [Millis; 9] = [
    Millis::from_secs(5),
    Millis::from_secs(5 * 60),
    Millis::from_secs(30 * 60),
    Millis::from_secs(2 * 3_600),
    Millis::from_secs(5 * 3_600),
    Millis::from_secs(10 * 3_600),
    Millis::from_secs(14 * 3_600),
    Millis::from_secs(20 * 3_600),
    Millis::from_secs(20 * 3_600),
];

/// The span that a budget is for.
pub const BUDGET_SPAN: Millis = Millis::from_secs(3_600);

/// One way to wake one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waker {
    after: Millis,
    budget: usize,
    /// Messages that it has not woken for yet.
    waiting: BTreeSet<u64>,
    /// Not before then.
    next: Option<Steady>,
    attempts: usize,
    /// A try is under way.
    busy: bool,
    /// When it woke, as far as the budget remembers.
    woke: VecDeque<Steady>,
}

/// What came of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// It is tried again then.
    Again(Steady),
    /// It was tried often enough.
    GivenUp,
}

impl Waker {
    /// Wakes `after` a message has waited, at most `budget` times in an hour.
    pub fn new(after: Millis, budget: usize) -> Self {
        Waker {
            after,
            budget: budget.max(1),
            waiting: BTreeSet::new(),
            next: None,
            attempts: 0,
            busy: false,
            woke: VecDeque::new(),
        }
    }

    /// A message waits for the agent.
    pub fn posted(&mut self, now: Steady, message: u64) {
        self.waiting.insert(message);
        self.next.get_or_insert(now + self.after);
    }

    /// The messages it has not woken for yet.
    pub fn waiting(&self) -> impl Iterator<Item = u64> {
        self.waiting.iter().copied()
    }

    /// A message needs nobody to be woken any more.
    pub fn settled(&mut self, message: u64) {
        self.waiting.remove(&message);
        if self.waiting.is_empty() {
            self.next = None;
            self.attempts = 0;
        }
    }

    /// When it is to be looked at again.
    pub fn alarm(&self) -> Option<Steady> {
        if self.busy || self.waiting.is_empty() {
            return None;
        }
        let next = self.next?;
        let full = self.woke.len() >= self.budget;
        let free = self
            .woke
            .front()
            .filter(|_| full)
            .map(|at| *at + BUDGET_SPAN);
        Some(free.map_or(next, |free| free.max(next)))
    }

    /// The messages to wake for now. A try is under way then, until it is done or has failed.
    pub fn take(&mut self, now: Steady) -> Option<Vec<u64>> {
        while self.woke.front().is_some_and(|at| *at + BUDGET_SPAN <= now) {
            self.woke.pop_front();
        }
        if self.alarm()? > now {
            return None;
        }
        self.busy = true;
        self.woke.push_back(now);
        Some(self.waiting.iter().copied().collect())
    }

    /// The try has worked for these messages.
    pub fn done(&mut self, messages: &[u64]) {
        self.busy = false;
        self.attempts = 0;
        for message in messages {
            self.settled(*message);
        }
    }

    /// The try has failed.
    pub fn failed(&mut self, now: Steady, messages: &[u64]) -> Failed {
        self.busy = false;
        match BACK_OFF.get(self.attempts) {
            Some(pause) => {
                self.attempts += 1;
                let next = now + *pause;
                self.next = Some(next);
                Failed::Again(next)
            }
            None => {
                for message in messages {
                    self.settled(*message);
                }
                self.attempts = 0;
                Failed::GivenUp
            }
        }
    }
}
