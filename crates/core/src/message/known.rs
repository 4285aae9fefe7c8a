//! Messages of a conversation about what results have reported to other conversations already.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{About, Entry, Outbox, ReadRule, Recipient};
use crate::conversation::Released;
use crate::id::Conversation;

impl Entry {
    pub(super) fn is_known_to(&self, recipient: &Recipient) -> bool {
        let known = |of: &Conversation| self.known_to.contains(of);
        recipient.conversation.as_ref().is_some_and(known)
    }
}

impl Outbox {
    /// Notes that a result has reported these subjects to a reader. Messages about them that belong to another
    /// conversation are not for it, also not when that one has ended.
    pub fn note_known(&mut self, recipient: &Recipient, known: &[About], rule: ReadRule<'_>) {
        let Some(reader) = &recipient.conversation else {
            return;
        };
        let agent = &recipient.agent;
        for about in known {
            let numbers = self.about.range((*about, 0)..=(*about, u64::MAX));
            let numbers: Vec<u64> = numbers.map(|(_, number)| *number).collect();
            for number in numbers {
                let entry = self.boxes.get(agent).and_then(|all| all.get(&number));
                let foreign = entry.filter(|entry| !rule.allows(recipient, entry));
                if let Some(mut entry) = foreign.cloned() {
                    entry.known_to.insert(reader.clone());
                    self.put(agent, number, Some(entry));
                }
            }
        }
    }

    /// Released messages of one conversation that are for this reader.
    pub(super) fn readable_by<'a>(
        &'a self,
        recipient: &'a Recipient,
        numbers: &'a BTreeSet<u64>,
        released: Released,
    ) -> impl Iterator<Item = u64> + 'a {
        let all = self.boxes.get(&recipient.agent);
        let readable = self.readable(&recipient.agent, numbers, released);
        readable.filter(move |number| {
            let entry = all.and_then(|all| all.get(number));
            entry.is_some_and(|entry| !entry.is_known_to(recipient))
        })
    }
}
