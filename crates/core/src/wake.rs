//! Decides when to wake an agent that does not read its messages: after a delay, since the agent may be about to read
//! them; only once per message unless the attempt fails; and never more often than the budget allows.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::time::{Millis, Steady};

/// Agent that owns the sessions of wakers. Their endings cause no messages, since each result is recorded with its
/// delivery.
pub const OWNER: &str = "waker";

/// Delays between a failure and the next attempt, more than three days in total.
pub const BACK_OFF: [Millis; 9] = [
    Millis::from_secs(5),
    Millis::from_secs(5 * 60),
    Millis::from_secs(30 * 60),
    Millis::from_secs(2 * 3_600),
    Millis::from_secs(5 * 3_600),
    Millis::from_secs(10 * 3_600),
    Millis::from_secs(14 * 3_600),
    Millis::from_secs(20 * 3_600),
    Millis::from_secs(24 * 3_600),
];

/// Period that a budget applies to.
pub const BUDGET_SPAN: Millis = Millis::from_secs(3_600);

/// Maximum delay that a receiver can ask for, for example with `Retry-After`.
pub const LONGEST_HOLD: Millis = Millis::from_secs(24 * 3_600);

/// Limits of one waker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Time that a message stays unread before the agent is woken.
    pub after: Millis,
    /// Maximum number of attempts per [`BUDGET_SPAN`].
    pub budget: usize,
    /// Maximum number of messages per attempt.
    pub at_once: usize,
}

/// State of one waker of one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waker {
    rules: Rules,
    /// Messages that are not delivered yet.
    waiting: BTreeMap<u64, PendingMessage>,
    /// Earliest time of the next attempt, whatever is due.
    not_before: Steady,
    /// Messages that a person wants sent now, regardless of the budget.
    send_now: BTreeSet<u64>,
    /// An attempt is running.
    busy: bool,
    /// Times of the attempts that still count towards the budget.
    attempts: VecDeque<Steady>,
}

/// Message that is not delivered yet. Each has its own time, so a message that fails does not hold back the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PendingMessage {
    failures: usize,
    /// Time of its next attempt.
    due: Steady,
    /// The next attempt is made early, because of a restart: if it fails, the back-off goes on where it was.
    is_early: bool,
}

/// Consequence of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// Another attempt at this time.
    Again(Steady),
    /// No more attempts.
    GivenUp,
}

impl Waker {
    /// Waker without messages. A budget or batch size of zero counts as one.
    pub fn new(rules: Rules) -> Self {
        Waker {
            rules: Rules {
                budget: rules.budget.max(1),
                at_once: rules.at_once.max(1),
                ..rules
            },
            waiting: BTreeMap::new(),
            not_before: Steady(0),
            send_now: BTreeSet::new(),
            busy: false,
            attempts: VecDeque::new(),
        }
    }

    /// Adds a message.
    pub fn posted(&mut self, now: Steady, message: u64) {
        let due = now + self.rules.after;
        let new = PendingMessage {
            failures: 0,
            due,
            is_early: false,
        };
        self.waiting.entry(message).or_insert(new);
    }

    /// Adds a message from before the restart, with its number of failures. Its next attempt does not wait for the back-off,
    /// so it does not count as a step of it: a daemon that is started again and again gives no message up. `not_before` is
    /// the time before which the receiver wants no attempt, at most [`LONGEST_HOLD`] from now.
    pub fn restored(
        &mut self,
        now: Steady,
        message: u64,
        failures: usize,
        not_before: Option<Steady>,
    ) {
        if self.waiting.contains_key(&message) {
            return;
        }
        let due = now + self.rules.after;
        let is_early = failures > 0;
        let restored = PendingMessage {
            failures,
            due,
            is_early,
        };
        self.waiting.insert(message, restored);
        let limited = not_before.unwrap_or_default().min(now + LONGEST_HOLD);
        self.not_before = self.not_before.max(limited);
    }

    /// Sends a message now, even if the agent has seen it, and resets its failures.
    pub fn send_now(&mut self, now: Steady, message: u64) {
        let pending = PendingMessage {
            failures: 0,
            due: now,
            is_early: false,
        };
        self.waiting.insert(message, pending);
        self.send_now.insert(message);
        self.not_before = now;
    }

    /// Delays the next attempt until this time or later.
    pub fn postpone(&mut self, until: Steady) {
        if !self.waiting.is_empty() {
            self.not_before = self.not_before.max(until);
        }
    }

    /// Returns whether a person wants this message sent now.
    pub fn is_sent_now(&self, message: u64) -> bool {
        self.send_now.contains(&message)
    }

    /// Messages that are not delivered yet.
    pub fn waiting(&self) -> impl Iterator<Item = u64> {
        self.waiting.keys().copied()
    }

    /// Number of waiting messages.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes a message that no longer needs a wake-up.
    pub fn settled(&mut self, message: u64) {
        self.waiting.remove(&message);
        self.send_now.remove(&message);
    }

    /// Time at which [`take`](Waker::take) should be called next.
    pub fn alarm(&self) -> Option<Steady> {
        if self.busy || self.waiting.is_empty() {
            return None;
        }
        let next = self.next()?;
        Some(self.budget_delay().unwrap_or(next))
    }

    /// Time until which nothing but the budget delays the next attempt.
    pub fn budget_delay(&self) -> Option<Steady> {
        let full = self.attempts.len() >= self.rules.budget;
        if self.busy || self.waiting.is_empty() || !self.send_now.is_empty() || !full {
            return None;
        }
        let free = *self.attempts.front()? + BUDGET_SPAN;
        (free > self.next()?).then_some(free)
    }

    /// Time of the next attempt, but for the budget.
    fn next(&self) -> Option<Steady> {
        let due = self.waiting.values().map(|message| message.due).min()?;
        Some(due.max(self.not_before))
    }

    /// Starts an attempt if one is due, and returns its messages: those that are due, and those that were not tried yet.
    /// The caller ends it with [`done`](Waker::done) or
    /// [`failed`](Waker::failed).
    pub fn take(&mut self, now: Steady) -> Option<Vec<u64>> {
        self.forget_tries(now);
        if self.alarm()? > now {
            return None;
        }
        self.busy = true;
        self.attempts.push_back(now);
        let is_ready = |state: &PendingMessage| state.due <= now || state.failures == 0;
        let rest = (self.waiting.iter())
            .filter(|(message, state)| !self.send_now.contains(*message) && is_ready(state))
            .map(|(message, _)| message);
        let sent_now_first = self.send_now.iter().chain(rest).copied();
        let mut taken: Vec<u64> = sent_now_first.take(self.rules.at_once).collect();
        taken.sort_unstable();
        for message in &taken {
            self.send_now.remove(message);
        }
        Some(taken)
    }

    /// Ends the attempt as delivered for these messages.
    pub fn done(&mut self, messages: &[u64]) {
        self.busy = false;
        for message in messages {
            self.settled(*message);
        }
    }

    /// Ends the attempt as failed. `no_sooner` is the delay that the receiver asked for; `jitter`, in thousandths,
    /// adds up to a fifth to the back-off, so that wakers that failed together do not retry together.
    pub fn failed(
        &mut self,
        now: Steady,
        messages: &[u64],
        no_sooner: Option<Millis>,
        jitter: u16,
    ) -> Vec<(u64, Failed)> {
        self.busy = false;
        let not_before = now + no_sooner.unwrap_or_default().min(LONGEST_HOLD);
        // A message that a person wants sent now waits neither for the receiver nor for the back-off.
        if self.send_now.is_empty() {
            self.not_before = self.not_before.max(not_before);
        }
        let mut verdicts = Vec::new();
        for message in messages {
            let Some(state) = self.waiting.get_mut(message) else {
                continue;
            };
            if !core::mem::take(&mut state.is_early) {
                state.failures += 1;
            }
            let Some(pause) = pause_after(state.failures) else {
                verdicts.push((*message, Failed::GivenUp));
                self.settled(*message);
                continue;
            };
            let pause = pause.0 + pause.0 / 1_000 * u64::from(jitter.min(1_000)) / 5;
            state.due = match self.send_now.contains(message) {
                true => now,
                false => now + Millis(pause),
            };
            verdicts.push((*message, Failed::Again(state.due.max(self.not_before))));
        }
        verdicts
    }

    /// Returns whether this state can be dropped: no message waits, no attempt is running, and the budget has
    /// no entries.
    pub fn is_idle(&mut self, now: Steady) -> bool {
        self.forget_tries(now);
        !self.busy && self.waiting.is_empty() && self.attempts.is_empty()
    }

    /// Number of failures of a message.
    pub fn failures(&self, message: u64) -> usize {
        self.waiting.get(&message).map_or(0, |state| state.failures)
    }

    fn forget_tries(&mut self, now: Steady) {
        while self
            .attempts
            .front()
            .is_some_and(|at| *at + BUDGET_SPAN <= now)
        {
            self.attempts.pop_front();
        }
    }
}

fn pause_after(failures: usize) -> Option<Millis> {
    BACK_OFF.get(failures.checked_sub(1)?).copied()
}
