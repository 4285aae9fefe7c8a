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
    /// Messages that are not delivered yet, with their number of failures.
    waiting: BTreeMap<u64, usize>,
    /// Earliest time of the next attempt.
    next: Option<Steady>,
    /// Earliest time of the next attempt for messages that arrived during the current one.
    meanwhile: Option<Steady>,
    /// Messages that a person wants sent now, regardless of the budget.
    urged: BTreeSet<u64>,
    /// An attempt is running.
    busy: bool,
    /// Times of the attempts that still count towards the budget.
    woke: VecDeque<Steady>,
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
            next: None,
            meanwhile: None,
            urged: BTreeSet::new(),
            busy: false,
            woke: VecDeque::new(),
        }
    }

    /// Adds a message.
    pub fn posted(&mut self, now: Steady, message: u64) {
        self.waiting.entry(message).or_insert(0);
        let due = now + self.rules.after;
        match self.busy {
            true => self.meanwhile.get_or_insert(due),
            false => self.next.get_or_insert(due),
        };
    }

    /// Adds a message from before the restart, with its number of failures. `hold` is the time before which the
    /// receiver wants no attempt, at most [`LONGEST_HOLD`] from now.
    pub fn kept(&mut self, now: Steady, message: u64, failures: usize, hold: Option<Steady>) {
        if self.waiting.contains_key(&message) {
            return;
        }
        self.posted(now, message);
        self.waiting.insert(message, failures);
        if let Some(hold) = hold.map(|hold| hold.min(now + LONGEST_HOLD)) {
            self.next = self.next.map(|next| next.max(hold));
        }
    }

    /// Sends a message now, even if the agent has seen it, and resets its failures.
    pub fn send_now(&mut self, now: Steady, message: u64) {
        self.waiting.insert(message, 0);
        self.urged.insert(message);
        self.next = Some(now);
    }

    /// Delays the next attempt until this time or later.
    pub fn postpone(&mut self, until: Steady) {
        self.next = self.next.map(|next| next.max(until));
    }

    /// Returns whether a person wants this message sent now.
    pub fn is_urged(&self, message: u64) -> bool {
        self.urged.contains(&message)
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
        self.urged.remove(&message);
        if self.waiting.is_empty() {
            self.next = None;
            self.meanwhile = None;
        }
    }

    /// Time at which [`take`](Waker::take) should be called next.
    pub fn alarm(&self) -> Option<Steady> {
        if self.busy || self.waiting.is_empty() {
            return None;
        }
        let next = self.next?;
        Some(self.budget_delay().unwrap_or(next))
    }

    /// Time until which nothing but the budget delays the next attempt.
    pub fn budget_delay(&self) -> Option<Steady> {
        let full = self.woke.len() >= self.rules.budget;
        if self.busy || self.waiting.is_empty() || !self.urged.is_empty() || !full {
            return None;
        }
        let free = *self.woke.front()? + BUDGET_SPAN;
        (free > self.next?).then_some(free)
    }

    /// Starts an attempt if one is due, and returns its messages. The caller ends it with [`done`](Waker::done) or
    /// [`failed`](Waker::failed).
    pub fn take(&mut self, now: Steady) -> Option<Vec<u64>> {
        self.forget_tries(now);
        if self.alarm()? > now {
            return None;
        }
        self.busy = true;
        self.woke.push_back(now);
        let rest = self
            .waiting
            .keys()
            .filter(|message| !self.urged.contains(*message));
        let urged_first = self.urged.iter().chain(rest).copied();
        let mut taken: Vec<u64> = urged_first.take(self.rules.at_once).collect();
        taken.sort_unstable();
        for message in &taken {
            self.urged.remove(message);
        }
        Some(taken)
    }

    /// Ends the attempt as delivered for these messages.
    pub fn done(&mut self, now: Steady, messages: &[u64]) {
        self.over(now);
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
        self.over(now);
        let mut pause = Millis(0);
        for message in messages {
            if let Some(failures) = self.waiting.get_mut(message) {
                *failures += 1;
                pause = pause.max(pause_after(*failures).unwrap_or_default());
            }
        }
        let pause = Millis(pause.0 + pause.0 / 1_000 * u64::from(jitter.min(1_000)) / 5);
        let hold = no_sooner.unwrap_or_default().min(LONGEST_HOLD);
        // A message that was urged during the attempt does not wait for the back-off.
        let next = match self.urged.is_empty() {
            true => now + pause.max(hold),
            false => now,
        };
        self.next = Some(next);
        let outcome_now = |(message, failures): (u64, usize)| match pause_after(failures) {
            Some(_) => (message, Failed::Again(next)),
            None => (message, Failed::GivenUp),
        };
        let counted = messages.iter().filter_map(|message| {
            let failures = self.waiting.get(message)?;
            Some((*message, *failures))
        });
        let verdicts: Vec<_> = counted.map(outcome_now).collect();
        for (message, failed) in &verdicts {
            if *failed == Failed::GivenUp {
                self.settled(*message);
            }
        }
        verdicts
    }

    /// Returns whether this state can be dropped: no message waits, no attempt is running, and the budget has
    /// no entries.
    pub fn is_spent(&mut self, now: Steady) -> bool {
        self.forget_tries(now);
        !self.busy && self.waiting.is_empty() && self.woke.is_empty()
    }

    /// Number of failures of a message.
    pub fn failures(&self, message: u64) -> usize {
        self.waiting.get(&message).copied().unwrap_or(0)
    }

    fn forget_tries(&mut self, now: Steady) {
        while self.woke.front().is_some_and(|at| *at + BUDGET_SPAN <= now) {
            self.woke.pop_front();
        }
    }

    /// Ends the attempt. Messages that waited before it are due at once; messages that arrived during it wait for
    /// their own delay, except where each attempt carries only one message.
    fn over(&mut self, now: Steady) {
        self.busy = false;
        if let Some(due) = self.meanwhile.take() {
            let rest = self.rules.at_once == 1;
            self.next = Some(if rest { now } else { due });
        }
    }
}

fn pause_after(failures: usize) -> Option<Millis> {
    BACK_OFF.get(failures.checked_sub(1)?).copied()
}
