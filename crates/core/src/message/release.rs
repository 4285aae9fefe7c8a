//! Messages of conversations that have ended, which other conversations and other machines may read.

use alloc::vec::Vec;

use super::{Entry, Outbox, ReadRule, Recipient};
use crate::conversation::Released;
use crate::id::Agent;
use crate::limit;
use crate::time::Steady;

impl Outbox {
    /// Releases the unread messages of conversations that have ended. Returns those that were not released before.
    pub fn release(&mut self, agent: &Agent, rule: ReadRule<'_>) -> Vec<u64> {
        let (agent, conversation) = (agent.clone(), None);
        let other = Recipient {
            agent,
            conversation,
        };
        let agent = &other.agent;
        let entries = self.boxes.get(agent).into_iter().flatten();
        let is_new =
            |entry: &Entry| entry.conversation.is_some() && !entry.released && entry.with.is_none();
        let found = entries.filter(|(_, entry)| is_new(entry) && rule.allows(&other, entry));
        let found: Vec<(u64, Entry)> = found
            .map(|(number, entry)| (*number, entry.clone()))
            .collect();
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
