//! Calls that stand by on timers.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::id::CallId;
use crate::time::Steady;
use crate::undo_log::{RevertScope, UndoLog};

/// Standby of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standby {
    /// Number of the timer.
    pub number: u64,
    /// Time at which the call must be answered, whatever the timer does.
    pub until: Option<Steady>,
}

/// Calls that stand by, by timer and by the time of their answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StandbyCalls {
    calls: BTreeMap<CallId, Standby>,
    by_timer: BTreeSet<(u64, CallId)>,
    alarms: BTreeSet<(Steady, CallId)>,
    undo: UndoLog<(CallId, Option<Standby>)>,
}

impl StandbyCalls {
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    pub fn contains(&self, call: CallId) -> bool {
        self.calls.contains_key(&call)
    }

    /// Returns whether any call stands by on a timer.
    pub fn has_call_on(&self, number: u64) -> bool {
        let range = (number, CallId(0))..=(number, CallId(u64::MAX));
        self.by_timer.range(range).next().is_some()
    }

    /// Numbers of the timers on which calls stand by.
    pub fn timers(&self) -> impl Iterator<Item = u64> {
        self.by_timer.iter().map(|(number, _)| *number)
    }

    pub fn enter(&mut self, call: CallId, standby: Standby) {
        self.undo.push((call, None));
        self.put(call, standby);
    }

    pub fn leave(&mut self, call: CallId) -> Option<Standby> {
        let standby = self.remove(call)?;
        self.undo.push((call, Some(standby)));
        Some(standby)
    }

    /// Removes and returns all calls that stand by on a timer.
    pub fn release(&mut self, number: u64) -> Vec<CallId> {
        let range = (number, CallId(0))..=(number, CallId(u64::MAX));
        let calls: Vec<CallId> = self.by_timer.range(range).map(|&(_, call)| call).collect();
        for call in &calls {
            self.leave(*call);
        }
        calls
    }

    /// Calls that stand by on timers with such numbers.
    pub fn on(&self, is_it: impl Fn(u64) -> bool) -> Vec<CallId> {
        let calls = self.by_timer.iter().filter(|(number, _)| is_it(*number));
        calls.map(|(_, call)| *call).collect()
    }

    /// Removes and returns a call whose standby is over.
    pub fn pop_over(&mut self, now: Steady) -> Option<(CallId, Standby)> {
        let &(until, call) = self.alarms.first()?;
        if until >= now {
            return None;
        }
        self.leave(call).map(|standby| (call, standby))
    }

    pub fn alarm(&self) -> Option<Steady> {
        self.alarms.first().map(|&(until, _)| until)
    }

    pub fn begin_commit(&mut self) {
        self.undo.begin_commit();
    }

    pub fn commit_succeeded(&mut self) {
        self.undo.commit_succeeded();
    }

    /// Reverts the changes of these generations. Returns the calls that stand by again.
    pub fn commit_failed(&mut self, which: RevertScope) -> Vec<CallId> {
        let mut back = Vec::new();
        while let Some((call, before)) = self.undo.pop(which) {
            match before {
                None => {
                    self.remove(call);
                    back.retain(|known| *known != call);
                }
                Some(standby) => {
                    self.put(call, standby);
                    back.push(call);
                }
            }
        }
        back
    }

    fn put(&mut self, call: CallId, standby: Standby) {
        self.by_timer.insert((standby.number, call));
        if let Some(until) = standby.until {
            self.alarms.insert((until, call));
        }
        self.calls.insert(call, standby);
    }

    fn remove(&mut self, call: CallId) -> Option<Standby> {
        let standby = self.calls.remove(&call)?;
        self.by_timer.remove(&(standby.number, call));
        if let Some(until) = standby.until {
            self.alarms.remove(&(until, call));
        }
        Some(standby)
    }
}
