//! Invariants of every timer, measured with a clock that cannot be set.

use std::collections::BTreeMap;

use abide_core::Millis;

use crate::database::{Key, Rows, State};

/// Rule that is broken on purpose, to show that a check can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// The database does not compare owner and epoch.
    NoFence,
    /// Timers are created with the clock of the machine alone.
    NoTimeCheck,
    /// Daemons complete timers by the clock of the database.
    DatabaseTime,
    /// Completions are never marked as repeated.
    NoMark,
    /// Daemons do not rewrite rows that the database lost.
    ForgetNewest,
    /// A batch whose outcome is unknown counts as refused.
    RefuseUnknown,
    /// Shards of dead machines are not taken over.
    NoAdoption,
}

/// A call that created a timer.
#[derive(Clone, Debug)]
pub struct Truth {
    pub called: u64,
    pub total: Millis,
    pub answer: Answer,
    pub completed: Vec<u64>,
    /// Times of its deliveries, and whether each was marked as repeated.
    pub told: Vec<(u64, bool)>,
    /// Both the database and the daemon that knew it have lost it.
    pub may_be_lost: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// None yet; if the daemon is gone, there will be none.
    None,
    Made,
    Refused,
}

#[derive(Default)]
pub struct Truths {
    pub timers: BTreeMap<Key, Truth>,
    /// How much earlier than its duration a timer may complete: zero, unless clocks jump.
    pub tolerance: u64,
}

impl Truths {
    pub fn call(&mut self, key: Key, called: u64, total: Millis) {
        let truth = Truth {
            called,
            total,
            answer: Answer::None,
            completed: Vec::new(),
            told: Vec::new(),
            may_be_lost: false,
        };
        let before = self.timers.insert(key, truth);
        assert!(before.is_none(), "CHECK unique: {key:?} was made twice");
    }

    pub fn answered(&mut self, key: Key, answer: Answer) {
        let truth = self.timers.get_mut(&key).expect("a call");
        assert_eq!(
            truth.answer,
            Answer::None,
            "CHECK answer: {key:?} answered twice"
        );
        truth.answer = answer;
    }

    pub fn completed(&mut self, key: Key, time: u64) {
        let tolerance = self.tolerance;
        let truth = self.timers.get_mut(&key).expect("a call");
        let due = truth.called + truth.total.0;
        assert!(
            time + tolerance >= due,
            "CHECK early: {key:?} completed {} ms early",
            due - time
        );
        truth.completed.push(time);
    }

    pub fn told(&mut self, key: Key, time: u64, repeated: bool) {
        let truth = self.timers.get_mut(&key).expect("a call");
        truth.told.push((time, repeated));
        let first = truth.told.iter().filter(|(_, repeated)| !repeated).count();
        assert!(
            first <= 1,
            "CHECK told: {key:?} told twice, not marked: {truth:?}"
        );
    }

    /// Calls that were refused have changed nothing.
    pub fn check_refused(&self, rows: &Rows) {
        for key in rows.timers.keys() {
            let answer = self.timers.get(key).map(|truth| truth.answer);
            assert_ne!(
                answer,
                Some(Answer::Refused),
                "CHECK refused: {key:?} is there"
            );
        }
    }

    /// Every timer that was created has ended and was delivered.
    pub fn check_rest(&self, rows: &Rows) {
        for (key, truth) in &self.timers {
            if truth.answer != Answer::Made || truth.may_be_lost {
                continue;
            }
            let row = rows.timers.get(key);
            let row = row.unwrap_or_else(|| panic!("CHECK lost: {key:?} is gone: {truth:?}"));
            assert_eq!(row.state, State::Seen, "CHECK over: {key:?} {truth:?}");
            assert!(
                !truth.told.is_empty(),
                "CHECK over: {key:?} was never told: {truth:?}"
            );
        }
        self.check_refused(rows);
    }

    /// Longest time between a deadline (or a loss after it) and the completion.
    pub fn latest(&self, loss: u64) -> u64 {
        let late = |truth: &Truth| {
            let due = truth.called + truth.total.0;
            truth
                .completed
                .first()
                .map_or(u64::MAX, |at| at.saturating_sub(due.max(loss)))
        };
        let made = self
            .timers
            .values()
            .filter(|truth| truth.answer == Answer::Made);
        made.map(late).max().unwrap_or(0)
    }
}
