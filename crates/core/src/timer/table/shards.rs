//! Loading and unloading of the timers of a shard.

use alloc::vec::Vec;
use core::ops::Range;

use super::{
    ADOPTED, AGENT_MASK, BACKGROUND, CONDITIONAL, Entry, Found, MISSION, Origin, PAUSED, Short,
    Slot, Timers, UNCHECKED, Undo, number, slot,
};
use crate::limit;
use crate::time::{Now, Steady};
use crate::timer::{Countdown, Kind, StoredTimer, Timer, WaitMode};

impl Timers {
    /// Adds stored timers. Those that are here already are newer than their rows.
    pub fn load(&mut self, kept: Vec<StoredTimer>, origin: Origin) {
        let mut live = Vec::with_capacity(kept.len());
        let mut queue = Vec::with_capacity(kept.len());
        for timer in kept {
            let Some(agent_index) = self.agent_index_of(&timer.agent) else {
                continue;
            };
            let slot = slot(agent_index, timer.number);
            if self.live.contains_key(&slot) || self.ended.contains_key(&timer.number) {
                continue;
            }
            let at = match timer.state.countdown {
                Countdown::Running { due } => due,
                Countdown::Paused { remaining, until } => {
                    self.paused.insert(slot, remaining.0);
                    until
                }
            };
            let mut flags = 0;
            flags |= u16::from(timer.kind == Kind::Mission) * MISSION;
            flags |= u16::from(timer.state.wait_mode == WaitMode::Background) * BACKGROUND;
            flags |= u16::from(matches!(timer.state.countdown, Countdown::Paused { .. })) * PAUSED;
            flags |= u16::from(timer.conditional) * CONDITIONAL;
            flags |= u16::from(origin == Origin::Adopted) * ADOPTED;
            let is_probed = matches!(timer.state.countdown, Countdown::Running { .. });
            flags |= u16::from(timer.conditional && is_probed) * UNCHECKED;
            let entry = Entry {
                total: Short::new(timer.state.total.0),
                at: Short::new(at.0),
                checked: Short::new(timer.checked.0),
                flags,
            };
            if let Some(key) = timer.key {
                self.keys.insert((slot & AGENT_MASK, key.clone()), slot);
                self.key_of.insert(slot, key);
            }
            if let Some(conversation) = timer.conversation {
                self.conversations.insert(slot, conversation);
            }
            live.push((slot, entry));
            queue.push((self.queued_at(entry), slot));
            self.numbers.skip(timer.number);
        }
        // Collecting a sorted list is much faster than inserting its entries.
        if self.live.is_empty() {
            self.live = live.into_iter().collect();
            self.queue = queue.into_iter().collect();
        } else {
            self.live.extend(live);
            self.queue.extend(queue);
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
            self.restore(slot, None);
            self.forget_key(slot);
            self.conversations.remove(&slot);
        }
        let (ended, order) = (&mut self.ended, &mut self.ended_order);
        self.undo.retain(|step| match step {
            Undo::Entry(slot, _) | Undo::Key(slot, _) => !is_of(number(*slot)),
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
            let entry = self.live.get(&slot).copied();
            let early = entry.filter(|entry| !entry.is(PAUSED) && entry.at.get() < due.0);
            if let Some(mut entry) = early {
                entry.at = Short::new(due.0);
                self.restore(slot, Some((entry, None)));
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
        self.live.get(&slot).is_some_and(|entry| entry.is(ADOPTED))
    }
}
