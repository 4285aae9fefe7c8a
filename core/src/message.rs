//! Messages to agents, kept until they have been seen.
//!
//! A message is recorded before anybody is told. Whoever is told says so when the words have left
//! the house; until then the message is in flight, and a crash or a broken connection makes it
//! unread again, marked as repeated, since nobody knows how far it came.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::id::{Agent, CallId, MessageId, SessionId, Shuffle, TimerId};
use crate::time::{Steady, Wall};

/// What a message is about. Its text is made from that when it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// This timer has completed.
    Timer(TimerId),
    /// This session has ended and nobody waited for it.
    Session(SessionId),
}

/// A message as it is handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its id.
    pub id: MessageId,
    /// Its number, under which it is recorded.
    pub number: u64,
    /// What it is about.
    pub about: About,
    /// Whether it may have been told before.
    pub repeated: bool,
}

/// What is recorded of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// There is a message.
    Posted {
        /// Its number.
        number: u64,
        /// Its id.
        id: MessageId,
        /// To whom.
        agent: Agent,
        /// What about.
        about: About,
        /// Whether the answer of a call that stood by tells it. Where that arrives, there was no need
        /// for a message.
        told: bool,
        /// When.
        at: Wall,
    },
    /// These are being told, or were told to a call that lost its way: they are messages now,
    /// whatever told them first.
    Told {
        /// Their numbers.
        numbers: Vec<u64>,
        /// When.
        at: Wall,
    },
    /// These have been seen.
    Seen {
        /// Their numbers.
        numbers: Vec<u64>,
        /// When.
        at: Wall,
    },
}

/// A message read back at start that has not been seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its number.
    pub number: u64,
    /// To whom.
    pub agent: Agent,
    /// What about.
    pub about: About,
    /// Whether it was being told.
    pub told: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    about: About,
    repeated: bool,
    /// The call that is telling it.
    with: Option<CallId>,
}

/// A call that waits for a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reader {
    pub agent: Agent,
    pub most: usize,
    pub until: Steady,
}

/// All messages that have not been seen, and the calls that wait for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outbox {
    shuffle: Shuffle,
    next: u64,
    boxes: BTreeMap<Agent, BTreeMap<u64, Entry>>,
    in_flight: BTreeMap<CallId, (Agent, Vec<u64>)>,
    readers: BTreeMap<CallId, Reader>,
    alarms: BTreeSet<(Steady, CallId)>,
    undo: Vec<Undo>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Undo {
    Entry(Agent, u64, Option<Entry>),
    Flight(CallId, Option<(Agent, Vec<u64>)>),
    Reader(CallId, Option<Reader>),
}

impl Outbox {
    pub fn open(&mut self, shuffle: Shuffle, next: u64, kept: Vec<Kept>) {
        self.shuffle = shuffle.for_messages();
        self.next = next;
        for message in kept {
            let entry = Entry {
                about: message.about,
                repeated: message.told,
                with: None,
            };
            self.next = self.next.max(message.number + 1);
            let agents = self.boxes.entry(message.agent).or_default();
            agents.insert(message.number, entry);
        }
    }

    /// Messages that have not been seen, those in flight included.
    pub fn len(&self) -> usize {
        self.boxes.values().map(BTreeMap::len).sum()
    }

    pub fn waiting(&self) -> usize {
        self.readers.len()
    }

    pub fn post(&mut self, agent: &Agent, about: About) -> Told {
        let number = self.next;
        self.next += 1;
        let entry = Entry {
            about,
            repeated: false,
            with: None,
        };
        self.put(agent, number, Some(entry));
        self.told(number, entry)
    }

    /// These are being told by a call, together with what it tells already.
    pub fn tell(&mut self, agent: &Agent, told: &[u64], call: CallId) {
        let flight = self.in_flight.get(&call).cloned();
        let (_, mut numbers) = flight.unwrap_or_else(|| (agent.clone(), Vec::new()));
        for number in told {
            let entry = self.boxes.get(agent).and_then(|all| all.get(number));
            if let Some(entry) = entry.copied() {
                let with = Some(call);
                self.put(agent, *number, Some(Entry { with, ..entry }));
                numbers.push(*number);
            }
        }
        if !numbers.is_empty() {
            self.set_flight(call, Some((agent.clone(), numbers)));
        }
    }

    /// Hands the oldest unread messages to a call.
    pub fn take(&mut self, agent: &Agent, call: CallId, most: usize) -> Vec<Told> {
        let Some(all) = self.boxes.get(agent) else {
            return Vec::new();
        };
        let taken: Vec<Told> = (all.iter())
            .filter(|(_, entry)| entry.with.is_none())
            .take(most)
            .map(|(number, entry)| self.told(*number, *entry))
            .collect();
        let numbers: Vec<u64> = taken.iter().map(|message| message.number).collect();
        self.tell(agent, &numbers, call);
        taken
    }

    /// What a call was told has left the house. Returns the numbers of what has been seen.
    pub fn delivered(&mut self, call: CallId) -> Vec<u64> {
        let Some((agent, numbers)) = self.set_flight(call, None) else {
            return Vec::new();
        };
        for number in &numbers {
            self.put(&agent, *number, None);
        }
        numbers
    }

    /// Nobody knows whether what a call was told has arrived: it is unread again. Returns what and whose.
    pub fn undelivered(&mut self, call: CallId) -> Option<(Agent, Vec<Told>)> {
        let (agent, numbers) = self.set_flight(call, None)?;
        let mut unread = Vec::new();
        for number in numbers {
            let entry = self.boxes.get(&agent).and_then(|all| all.get(&number));
            if let Some(entry) = entry.copied() {
                let (with, repeated) = (None, true);
                let entry = Entry {
                    with,
                    repeated,
                    ..entry
                };
                self.put(&agent, number, Some(entry));
                unread.push(self.told(number, entry));
            }
        }
        Some((agent, unread))
    }

    /// These were told by another way. Returns which of them nobody has been told yet.
    pub fn may_be_known(&mut self, agent: &Agent, numbers: &[u64]) -> Vec<u64> {
        let mut told = Vec::new();
        for number in numbers {
            let entry = self.boxes.get(agent).and_then(|all| all.get(number));
            if let Some(entry) = entry.copied().filter(|entry| !entry.repeated) {
                let repeated = true;
                self.put(agent, *number, Some(Entry { repeated, ..entry }));
                told.push(*number);
            }
        }
        told
    }

    /// Whether an agent could read this one now.
    pub fn is_unread(&self, agent: &Agent, number: u64) -> bool {
        let entry = self.boxes.get(agent).and_then(|all| all.get(&number));
        entry.is_some_and(|entry| entry.with.is_none())
    }

    /// How many messages an agent could read now.
    pub fn unread(&self, agent: &Agent) -> usize {
        let all = self.boxes.get(agent).map_or(0, BTreeMap::len);
        let flights = self.in_flight.values().filter(|(whose, _)| whose == agent);
        all - flights.map(|(_, numbers)| numbers.len()).sum::<usize>()
    }

    pub fn any_unread(&self) -> bool {
        let told: usize = self
            .in_flight
            .values()
            .map(|(_, numbers)| numbers.len())
            .sum();
        self.len() > told
    }

    pub fn enter(&mut self, call: CallId, reader: Reader) {
        self.undo.push(Undo::Reader(call, None));
        self.set_reader(call, Some(reader));
    }

    pub fn leave(&mut self, call: CallId) -> Option<Reader> {
        let reader = self.set_reader(call, None)?;
        self.undo.push(Undo::Reader(call, Some(reader.clone())));
        Some(reader)
    }

    pub fn reads(&self, call: CallId) -> bool {
        self.readers.contains_key(&call)
    }

    /// The call of an agent that has waited longest.
    pub fn reader_of(&self, agent: &Agent) -> Option<(CallId, usize)> {
        let mut readers = self.readers.iter();
        let (call, reader) = readers.find(|(_, reader)| reader.agent == *agent)?;
        Some((*call, reader.most))
    }

    /// A call whose wait is over.
    pub fn pop_over(&mut self, now: Steady) -> Option<CallId> {
        let &(until, call) = self.alarms.first()?;
        if until >= now {
            return None;
        }
        self.leave(call).map(|_| call)
    }

    pub fn alarm(&self) -> Option<Steady> {
        self.alarms.first().map(|&(until, _)| until)
    }

    pub fn settle(&mut self) {
        self.undo.clear();
    }

    /// Takes back what happened since the last settling. Returns the calls that wait as before.
    pub fn undo(&mut self) -> Vec<CallId> {
        let mut back = Vec::new();
        while let Some(step) = self.undo.pop() {
            match step {
                Undo::Entry(agent, number, before) => self.restore(&agent, number, before),
                Undo::Flight(call, before) => {
                    match before {
                        Some(flight) => self.in_flight.insert(call, flight),
                        None => self.in_flight.remove(&call),
                    };
                }
                Undo::Reader(call, before) => {
                    match before {
                        Some(_) => back.push(call),
                        None => back.retain(|known| *known != call),
                    }
                    self.set_reader(call, before);
                }
            }
        }
        back
    }

    fn told(&self, number: u64, entry: Entry) -> Told {
        Told {
            id: MessageId::from_bits(self.shuffle.mix(number)),
            number,
            about: entry.about,
            repeated: entry.repeated,
        }
    }

    fn put(&mut self, agent: &Agent, number: u64, after: Option<Entry>) {
        let before = self.boxes.get(agent).and_then(|all| all.get(&number));
        self.undo
            .push(Undo::Entry(agent.clone(), number, before.copied()));
        self.restore(agent, number, after);
    }

    fn restore(&mut self, agent: &Agent, number: u64, entry: Option<Entry>) {
        match entry {
            Some(entry) => {
                let all = self.boxes.entry(agent.clone()).or_default();
                all.insert(number, entry);
            }
            None => {
                if let Some(all) = self.boxes.get_mut(agent) {
                    all.remove(&number);
                    if all.is_empty() {
                        self.boxes.remove(agent);
                    }
                }
            }
        }
    }

    fn set_flight(
        &mut self,
        call: CallId,
        after: Option<(Agent, Vec<u64>)>,
    ) -> Option<(Agent, Vec<u64>)> {
        let before = match after {
            Some(flight) => self.in_flight.insert(call, flight),
            None => self.in_flight.remove(&call),
        };
        self.undo.push(Undo::Flight(call, before.clone()));
        before
    }

    fn set_reader(&mut self, call: CallId, after: Option<Reader>) -> Option<Reader> {
        let before = self.readers.remove(&call);
        if let Some(reader) = &before {
            self.alarms.remove(&(reader.until, call));
        }
        if let Some(reader) = after {
            self.alarms.insert((reader.until, call));
            self.readers.insert(call, reader);
        }
        before
    }
}
