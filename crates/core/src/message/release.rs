//! Messages of conversations that have ended, which other conversations and other machines may read.

use alloc::vec::Vec;

use super::{Entry, Outbox, ReadRule};
use crate::conversation::Released;
use crate::id::Agent;
use crate::limit;
use crate::time::Steady;

impl Outbox {
    /// Releases the unread messages of conversations that have ended. Returns those that were not released before.
    pub fn release(&mut self, agent: &Agent, rule: ReadRule<'_>) -> Vec<u64> {
        let mut found = Vec::new();
        for (conversation, numbers) in self.of.get(agent).into_iter().flatten() {
            let Some(conversation) = conversation else {
                continue;
            };
            let released = rule.conversations.released(rule.now, agent, conversation);
            let entries = (self.readable(agent, numbers, released))
                .filter_map(|number| Some((number, self.boxes.get(agent)?.get(&number)?)));
            let new = entries.filter(|(_, entry)| !entry.released && entry.with.is_none());
            found.extend(new.map(|(number, entry)| (number, entry.clone())));
        }
        let numbers = found.iter().map(|(number, _)| *number).collect();
        for (number, entry) in found {
            let released = true;
            self.put(agent, number, Some(Entry { released, ..entry }));
        }
        numbers
    }

    /// Earliest time after which a message becomes readable for other conversations of the agent, because a waker had
    /// long enough to resume its own one.
    pub fn next_release(&self, agent: &Agent, rule: ReadRule<'_>) -> Option<Steady> {
        let all = self.boxes.get(agent)?;
        let of = self.of.get(agent).into_iter().flatten();
        let times = of.filter_map(|(conversation, numbers)| {
            let conversation = conversation.as_ref()?;
            let released = rule.conversations.released(rule.now, agent, conversation);
            let Released::MadeBefore(_) = released else {
                return None;
            };
            let mut made = numbers.iter().filter_map(|number| all.get(number));
            let first = made.find(|entry| !released.has(entry.made))?;
            Some(first.made + limit::RESUME)
        });
        times.min()
    }
}
