//! When to wake an agent that does not read its messages: not at once, since it may be about to, not
//! again and again for the same message, and never more often than a budget allows.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::time::{Millis, Steady};

/// Whose sessions wake-ups are. Nobody is told how they end: that is what deliveries are for.
pub const OWNER: &str = "waker";

/// Delays between a failure and the next attempt; more than three days in all.
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

/// The span that a budget is for.
pub const BUDGET_SPAN: Millis = Millis::from_secs(3_600);

/// The longest that the other side may put a try off.
pub const LONGEST_HOLD: Millis = Millis::from_secs(24 * 3_600);

/// By what rules one waker wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// So long a message waits to be read before anybody is woken.
    pub after: Millis,
    /// Wake-ups in an hour.
    pub budget: usize,
    /// Messages that one wake-up is for, at most.
    pub at_once: usize,
}

/// One way to wake one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waker {
    rules: Rules,
    /// Messages that it has not woken for yet, and how often each has failed.
    waiting: BTreeMap<u64, usize>,
    /// Not before then.
    next: Option<Steady>,
    /// When a message that came during a try is due.
    meanwhile: Option<Steady>,
    /// Those that somebody wants sent now, whatever the budget says.
    urged: BTreeSet<u64>,
    /// A try is under way.
    busy: bool,
    /// When it woke, as far as the budget remembers.
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
    /// One that has nothing to do yet.
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

    /// A message waits for the agent.
    pub fn posted(&mut self, now: Steady, message: u64) {
        self.waiting.entry(message).or_insert(0);
        let due = now + self.rules.after;
        match self.busy {
            true => self.meanwhile.get_or_insert(due),
            false => self.next.get_or_insert(due),
        };
    }

    /// A message has waited since before the last start: it has failed so often, and whoever is to
    /// take it wants no try before `hold`.
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

    /// A message is to be sent now, seen or not, whatever failed before.
    pub fn urge(&mut self, now: Steady, message: u64) {
        self.waiting.insert(message, 0);
        self.urged.insert(message);
        self.next = Some(now);
    }

    /// Returns whether a person wants this message sent now.
    pub fn is_urged(&self, message: u64) -> bool {
        self.urged.contains(&message)
    }

    /// The messages it has not woken for yet.
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

    /// A message needs nobody to be woken any more.
    pub fn settled(&mut self, message: u64) {
        self.waiting.remove(&message);
        self.urged.remove(&message);
        if self.waiting.is_empty() {
            self.next = None;
            self.meanwhile = None;
        }
    }

    /// When it is to be looked at again.
    pub fn alarm(&self) -> Option<Steady> {
        if self.busy || self.waiting.is_empty() {
            return None;
        }
        let next = self.next?;
        Some(self.held_back().unwrap_or(next))
    }

    /// Time until which only the budget holds a wake-up back.
    pub fn held_back(&self) -> Option<Steady> {
        let full = self.woke.len() >= self.rules.budget;
        if self.busy || self.waiting.is_empty() || !self.urged.is_empty() || !full {
            return None;
        }
        let free = *self.woke.front()? + BUDGET_SPAN;
        (free > self.next?).then_some(free)
    }

    /// The messages to wake for now. A try is under way then, until it is done or has failed.
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

    /// The try has worked for these messages.
    pub fn done(&mut self, now: Steady, messages: &[u64]) {
        self.over(now);
        for message in messages {
            self.settled(*message);
        }
    }

    /// The try has failed. `no_sooner` is what the other side asks for; `jitter`, in thousandths, keeps
    /// many that failed together from coming back together.
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
        // What was urged during the try does not wait because the try has failed.
        let next = match self.urged.is_empty() {
            true => now + pause.max(hold),
            false => now,
        };
        self.next = Some(next);
        let verdict = |(message, failures): (u64, usize)| match pause_after(failures) {
            Some(_) => (message, Failed::Again(next)),
            None => (message, Failed::GivenUp),
        };
        let counted = messages.iter().filter_map(|message| {
            let failures = self.waiting.get(message)?;
            Some((*message, *failures))
        });
        let verdicts: Vec<_> = counted.map(verdict).collect();
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

    /// A try is over. What waits behind it goes on at once, and what came meanwhile waits its time.
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
