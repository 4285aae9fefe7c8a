//! Loading and unloading of the timers of a shard.

use alloc::vec::Vec;
use core::ops::Range;

use super::{AGENT_MASK, Entry, Found, Origin, Slot, Timers, Undo, number, slot};
use crate::limit;
use crate::time::{Now, Steady};
use crate::timer::{Countdown, StoredTimer, Timer};

impl Timers {
    /// Adds stored timers. Those that are here already are newer than their rows.
    pub fn load(&mut self, kept: Vec<StoredTimer>, origin: Origin) {
        for timer in kept {
            let Some(agent_index) = self.agent_index_of(&timer.agent) else {
                continue;
            };
            let slot = slot(agent_index, timer.number);
            if self.live.contains_key(&slot) || self.ended.contains_key(&timer.number) {
                continue;
            }
            if let Some(key) = &timer.key {
                self.keys.insert((slot & AGENT_MASK, key.clone()), slot);
            }
            let entry = Entry {
                conversation: timer.conversation,
                key: timer.key,
                kind: timer.kind,
                state: timer.state,
                checked: timer.checked,
                conditional: timer.conditional,
                origin,
            };
            self.restore(slot, Some(entry));
            self.numbers.skip(timer.number);
        }
    }

    /// Forgets the timers whose numbers are of a shard that another machine owns, with changes that are not durable.
    /// Returns the timers that had not ended.
    pub fn unload(&mut self, now: Now, is_of: impl Fn(u64) -> bool) -> Vec<Timer> {
        let slots: Vec<Slot> = (self.live.keys().copied())
            .filter(|slot| is_of(number(*slot)))
            .collect();
        let unloaded = slots
            .iter()
            .filter_map(|slot| self.view(now, *slot))
            .collect();
        for slot in slots {
            let key = self.live.get(&slot).and_then(|entry| entry.key.clone());
            self.forget_key(slot, key);
            self.restore(slot, None);
        }
        let (ended, order) = (&mut self.ended, &mut self.ended_order);
        self.undo.retain(|step| match step {
            Undo::Entry(slot, _) => !is_of(number(*slot)),
            Undo::Ended(number) if is_of(*number) => {
                ended.remove(number);
                order.retain(|known| known != number);
                false
            }
            Undo::Ended(_) => true,
        });
        unloaded
    }

    /// Moves deadlines that are earlier than these.
    pub fn postpone(&mut self, deadlines: &[(u64, Steady)]) {
        for (number, due) in deadlines {
            let Ok(Found::Live(slot)) = self.find(&None, self.id_of(*number)) else {
                continue;
            };
            let Some(mut entry) = self.live.get(&slot).cloned() else {
                continue;
            };
            if matches!(entry.state.countdown, Countdown::Running { due: early } if early < *due) {
                entry.state.countdown = Countdown::Running { due: *due };
                self.restore(slot, Some(entry));
            }
        }
    }

    /// Adds numbers for new timers.
    pub fn add_numbers(&mut self, block: Range<u64>) {
        self.numbers.add(block);
    }

    /// Replaces the numbers for new timers.
    pub fn replace_numbers(&mut self, block: Range<u64>) {
        self.numbers.set(block);
    }

    /// Sets the time of the fleet: steady time minus boot time.
    pub fn set_time(&mut self, boot_offset: i64) {
        self.anchor.boot_offset = boot_offset;
    }

    /// Completes nothing until this time has passed.
    pub fn hold(&mut self, now: Now) {
        self.held_until = Some(self.steady(now) + limit::COMMIT_RETRY);
    }

    /// Returns whether a timer was made on a machine that is away.
    pub fn is_adopted(&self, slot: Slot) -> bool {
        self.live
            .get(&slot)
            .is_some_and(|entry| entry.origin == Origin::Adopted)
    }
}
