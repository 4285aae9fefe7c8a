//! Messages to agents, stored until the agent has seen them.
//!
//! The engine records a message before the daemon sends it. When the answer that carries the message has left the
//! daemon, the daemon reports [`Event::Delivered`](crate::Event::Delivered). Until then the message is in flight:
//! after a crash or a lost connection the message is unread again and marked as repeated, because the agent may
//! already have received it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

use crate::conversation::{Conversations, Released};
use crate::id::{
    Agent, CallId, Conversation, IdPermutation, MessageId, QuestionId, SessionId, TimerId,
};
use crate::numbers::Numbers;
use crate::time::{Steady, Wall};
use crate::undo_log::{RevertScope, UndoLog};

/// Subject of a message. The text is made from it when the message is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// This timer has completed.
    Timer(TimerId),
    /// This session ended while no call waited for it.
    Session(SessionId),
    /// This question about a held command was answered, or expired, while no call waited for it.
    Question(QuestionId),
}

/// Content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageContent {
    /// Subject.
    pub about: About,
    /// The conversation that the message belongs to. `None`: any conversation of the agent may read it.
    pub conversation: Option<Conversation>,
    /// The agent asked to be woken by this message.
    pub wakes: bool,
}

/// A message as a call returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnedMessage {
    /// Id.
    pub id: MessageId,
    /// Number of the message in the records.
    pub number: u64,
    /// Subject.
    pub about: About,
    /// The message may have been delivered before.
    pub repeated: bool,
    /// The caller learns of the subject from another part of its answer.
    pub known: bool,
    /// The conversation that the message was for, if that conversation has ended and is not the caller's.
    pub taken_over: Option<Conversation>,
}

/// Durable fact about messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "a field is named as what it is")]
pub enum Record {
    /// A message was posted.
    Posted {
        number: u64,
        id: MessageId,
        agent: Agent,
        content: MessageContent,
        /// The answer of a waiting call reports the subject too. If that answer arrives, the message is not needed.
        reported_by_call: bool,
        at: Wall,
    },
    /// Delivery of these messages has begun, or an answer that reported their subject was lost. From now on they may
    /// have been delivered before.
    DeliveryStarted {
        numbers: Vec<u64>,
        /// True if the answer of a call carries them: until it is delivered or lost, no other machine tells them.
        in_flight: bool,
        at: Wall,
    },
    /// The agent has seen these messages.
    Seen { numbers: Vec<u64>, at: Wall },
    /// The conversation of these messages is gone from this machine, so that another machine may take them. Recorded
    /// only where machines share messages.
    Released { numbers: Vec<u64> },
}

/// An unseen message, read from the database at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// Number of the message.
    pub number: u64,
    /// Recipient.
    pub agent: Agent,
    /// Subject.
    pub about: About,
    /// The conversation that the message belongs to.
    pub conversation: Option<Conversation>,
    /// Time of posting.
    pub made: Wall,
    /// Delivery had begun before the restart, so the agent may know the message.
    pub delivery_begun: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    about: About,
    conversation: Option<Conversation>,
    made: Steady,
    repeated: bool,
    /// Another machine may take the message though it belongs to a conversation.
    released: bool,
    /// The call whose answer carries the message. `None`: the message is unread.
    with: Option<CallId>,
    /// Other conversations whose results have reported the subject: the message is not for them.
    known_to: BTreeSet<Conversation>,
}

/// A call that waits for a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WaitingReader {
    pub recipient: Recipient,
    pub most: usize,
    pub until: Steady,
}

/// Reader of messages: one conversation of an agent, or a caller without a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recipient {
    pub agent: Agent,
    pub conversation: Option<Conversation>,
}

/// Decides which messages a reader may read: messages of another conversation only after that conversation has ended.
#[derive(Clone, Copy)]
pub(crate) struct ReadRule<'a> {
    pub now: Steady,
    pub conversations: &'a Conversations,
}

impl ReadRule<'_> {
    /// Returns which messages of `conversation` this reader may read: all of its own conversation and all that belong
    /// to no conversation; of another one only those that are released.
    fn released(self, recipient: &Recipient, conversation: Option<&Conversation>) -> Released {
        match conversation {
            Some(of) if recipient.conversation.as_ref() != Some(of) => {
                self.conversations.released(self.now, &recipient.agent, of)
            }
            Some(_) | None => Released::All,
        }
    }

    /// Returns whether the message is for this reader, who may read it.
    fn allows(self, recipient: &Recipient, entry: &Entry) -> bool {
        let released = self.released(recipient, entry.conversation.as_ref());
        released.has(entry.made) && !entry.is_known_to(recipient)
    }
}

/// All unseen messages, and the calls that wait for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outbox {
    id_permutation: IdPermutation,
    numbers: Numbers,
    boxes: BTreeMap<Agent, BTreeMap<u64, Entry>>,
    /// Indexes into `boxes`: by conversation, and by subject.
    of: BTreeMap<Agent, BTreeMap<Option<Conversation>, BTreeSet<u64>>>,
    about: BTreeSet<(About, u64)>,
    in_flight: BTreeMap<CallId, (Agent, Vec<u64>)>,
    readers: BTreeMap<CallId, WaitingReader>,
    alarms: BTreeSet<(Steady, CallId)>,
    undo: UndoLog<Undo>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Undo {
    Entry(Agent, u64, Option<Entry>),
    Flight(CallId, Option<(Agent, Vec<u64>)>),
    Answered(CallId, WaitingReader),
}

impl Outbox {
    /// Loads the stored messages. `made` converts the time of posting to the clock of the timers.
    pub fn open(
        &mut self,
        id_permutation: IdPermutation,
        numbers: Range<u64>,
        kept: Vec<StoredMessage>,
        made: impl Fn(Wall) -> Steady,
    ) {
        self.id_permutation = id_permutation.for_messages();
        self.numbers.set(numbers);
        self.load(kept, made);
    }

    /// Adds stored messages. One that is here already may have been told by another machine meanwhile.
    pub fn load(&mut self, kept: Vec<StoredMessage>, made: impl Fn(Wall) -> Steady) {
        for message in kept {
            let entry = Entry {
                about: message.about,
                conversation: message.conversation,
                made: made(message.made),
                repeated: message.delivery_begun,
                released: false,
                with: None,
                known_to: BTreeSet::new(),
            };
            let known = self.boxes.get(&message.agent);
            match known.and_then(|all| all.get(&message.number)) {
                None => {
                    self.numbers.skip(message.number);
                    self.restore(&message.agent, message.number, Some(entry));
                }
                Some(known) if known.with.is_some() => {
                    self.set_before(message.number, Some(entry));
                }
                Some(known) => {
                    let repeated = known.repeated || entry.repeated;
                    let entry = Entry {
                        repeated,
                        ..known.clone()
                    };
                    self.restore(&message.agent, message.number, Some(entry));
                }
            }
        }
    }

    /// Forgets the messages whose numbers are of a shard that another machine owns. One that an answer carries is
    /// forgotten if the commit of that answer fails.
    pub fn unload(&mut self, is_of: impl Fn(u64) -> bool) {
        let unloaded: Vec<(Agent, u64, bool)> = (self.boxes.iter())
            .flat_map(|(agent, all)| {
                all.iter()
                    .map(move |(number, entry)| (agent, number, entry))
            })
            .filter(|(_, number, _)| is_of(**number))
            .map(|(agent, number, entry)| (agent.clone(), *number, entry.with.is_some()))
            .collect();
        let mut in_answers = BTreeSet::new();
        for (agent, number, is_in_answer) in unloaded {
            if is_in_answer {
                in_answers.insert(number);
                self.set_before(number, None);
            } else {
                self.remove(&agent, number);
            }
        }
        let is_gone = |number: u64| is_of(number) && !in_answers.contains(&number);
        self.undo
            .retain(|step| !matches!(step, Undo::Entry(_, number, _) if is_gone(*number)));
    }

    /// Sets what becomes of a message if the commit of the answer that carries it fails.
    fn set_before(&mut self, number: u64, entry: Option<Entry>) {
        let oldest = self
            .undo
            .oldest_mut(|step| matches!(step, Undo::Entry(_, of, _) if *of == number));
        if let Some(Undo::Entry(_, _, before)) = oldest {
            *before = entry;
        }
    }

    /// Adds numbers for new messages.
    pub fn add_numbers(&mut self, block: Range<u64>) {
        self.numbers.add(block);
    }

    /// Replaces the numbers for new messages.
    pub fn replace_numbers(&mut self, block: Range<u64>) {
        self.numbers.set(block);
    }

    /// Returns whether a message can be posted.
    pub fn has_numbers(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// Agents that have messages for a particular conversation.
    pub fn agents_with_conversations(&self) -> impl Iterator<Item = Agent> {
        let certain = |all: &BTreeMap<Option<Conversation>, _>| all.keys().any(Option::is_some);
        let found = self.of.iter().filter(move |(_, all)| certain(all));
        found.map(|(agent, _)| agent.clone())
    }

    /// Number of unseen messages, including those in flight.
    pub fn len(&self) -> usize {
        self.boxes.values().map(BTreeMap::len).sum()
    }

    pub fn waiting(&self) -> usize {
        self.readers.len()
    }

    /// Agents of calls that wait.
    pub fn agents_waiting(&self) -> impl Iterator<Item = &Agent> {
        self.readers.values().map(|reader| &reader.recipient.agent)
    }

    /// Adds a new message. Returns its id and its number; `None` until there are numbers.
    pub fn post(
        &mut self,
        now: Steady,
        agent: &Agent,
        content: &MessageContent,
    ) -> Option<(MessageId, u64)> {
        let number = self.numbers.take()?;
        let entry = Entry {
            about: content.about,
            conversation: content.conversation.clone(),
            made: now,
            repeated: false,
            released: false,
            with: None,
            known_to: BTreeSet::new(),
        };
        self.put(agent, number, Some(entry));
        Some((self.id(number), number))
    }

    /// Marks messages as in flight with the answer of `call`, in addition to those that the answer already carries.
    pub fn tell(&mut self, agent: &Agent, told: &[u64], call: CallId) {
        let flight = self.in_flight.get(&call).cloned();
        let (_, mut numbers) = flight.unwrap_or_else(|| (agent.clone(), Vec::new()));
        for number in told {
            let entry = self.boxes.get(agent).and_then(|all| all.get(number));
            if let Some(entry) = entry.cloned() {
                let with = Some(call);
                self.put(agent, *number, Some(Entry { with, ..entry }));
                numbers.push(*number);
            }
        }
        if !numbers.is_empty() {
            self.set_flight(call, Some((agent.clone(), numbers)));
        }
    }

    /// Takes the oldest unread messages, at most `most`, for the answer of `call`. Unread messages about the subjects
    /// in `known` are taken too and do not count towards `most`.
    pub fn take(
        &mut self,
        recipient: &Recipient,
        call: CallId,
        most: usize,
        known: &[About],
        rule: ReadRule<'_>,
    ) -> Vec<ReturnedMessage> {
        let known: BTreeSet<u64> = self.known(recipient, known, rule).collect();
        let mut unread = BTreeSet::new();
        for (conversation, numbers) in self.of.get(&recipient.agent).into_iter().flatten() {
            let released = rule.released(recipient, conversation.as_ref());
            let readable = self.readable_by(recipient, numbers, released);
            let new =
                |number: &u64| self.is_unread(&recipient.agent, *number) && !known.contains(number);
            unread.extend(readable.filter(new).take(most));
        }
        let oldest = unread.into_iter().take(most);
        let numbers: BTreeSet<u64> = known.iter().copied().chain(oldest).collect();
        let taken: Vec<ReturnedMessage> = (numbers.iter())
            .filter_map(|number| {
                let entry = self.boxes.get(&recipient.agent)?.get(number)?;
                let foreign = entry.conversation.clone();
                Some(ReturnedMessage {
                    id: self.id(*number),
                    number: *number,
                    about: entry.about,
                    repeated: entry.repeated,
                    known: known.contains(number),
                    taken_over: foreign.filter(|of| recipient.conversation.as_ref() != Some(of)),
                })
            })
            .collect();
        let numbers: Vec<u64> = numbers.into_iter().collect();
        self.tell(&recipient.agent, &numbers, call);
        taken
    }

    /// Unread messages about these subjects that the reader may read.
    fn known(
        &self,
        recipient: &Recipient,
        known: &[About],
        rule: ReadRule<'_>,
    ) -> impl Iterator<Item = u64> {
        let all = known.iter().flat_map(|about| {
            let found = self.about.range((*about, 0)..=(*about, u64::MAX));
            found.map(|(_, number)| *number)
        });
        all.filter(move |number| {
            let entry = self
                .boxes
                .get(&recipient.agent)
                .and_then(|all| all.get(number));
            entry.is_some_and(|entry| entry.with.is_none() && rule.allows(recipient, entry))
        })
    }

    /// Released messages of one conversation. `numbers` is in the order of posting, so the first message that is not
    /// released ends the list.
    fn readable<'a>(
        &'a self,
        agent: &Agent,
        numbers: &'a BTreeSet<u64>,
        released: Released,
    ) -> impl Iterator<Item = u64> + 'a {
        let all = self.boxes.get(agent);
        let has = move |number: &u64| {
            let entry = all.and_then(|all| all.get(number));
            entry.is_some_and(|entry| released.has(entry.made))
        };
        numbers.iter().copied().take_while(has)
    }

    /// Removes the messages that the answer of `call` carried, because it was sent. Returns their numbers.
    pub fn delivered(&mut self, call: CallId) -> Vec<u64> {
        let Some((agent, numbers)) = self.set_flight(call, None) else {
            return Vec::new();
        };
        for number in &numbers {
            self.put(&agent, *number, None);
        }
        numbers
    }

    /// Marks the messages that the answer of `call` carried as unread and repeated, because the answer may not have
    /// arrived. Returns their agent and their numbers.
    pub fn undelivered(&mut self, call: CallId) -> Option<(Agent, Vec<u64>)> {
        let (agent, numbers) = self.set_flight(call, None)?;
        let mut unread = Vec::new();
        for number in numbers {
            let entry = self.boxes.get(&agent).and_then(|all| all.get(&number));
            if let Some(entry) = entry.cloned() {
                let (with, repeated) = (None, true);
                let entry = Entry {
                    with,
                    repeated,
                    ..entry
                };
                self.put(&agent, number, Some(entry));
                unread.push(number);
            }
        }
        Some((agent, unread))
    }

    /// Marks messages as repeated because a waker has delivered them. Returns those that were not marked before.
    pub fn may_be_known(&mut self, agent: &Agent, numbers: &[u64]) -> Vec<u64> {
        let mut told = Vec::new();
        for number in numbers {
            let entry = self.boxes.get(agent).and_then(|all| all.get(number));
            if let Some(entry) = entry.cloned().filter(|entry| !entry.repeated) {
                let repeated = true;
                self.put(agent, *number, Some(Entry { repeated, ..entry }));
                told.push(*number);
            }
        }
        told
    }

    /// Returns whether an agent could read this message now.
    pub fn is_unread(&self, agent: &Agent, number: u64) -> bool {
        let entry = self.boxes.get(agent).and_then(|all| all.get(&number));
        entry.is_some_and(|entry| entry.with.is_none())
    }

    /// Number of messages that an agent could read now.
    pub fn unread(&self, recipient: &Recipient, rule: ReadRule<'_>) -> usize {
        let of = self.of.get(&recipient.agent).into_iter().flatten();
        let all = of.map(|(conversation, numbers)| {
            let is_own = conversation.is_none() || *conversation == recipient.conversation;
            match rule.released(recipient, conversation.as_ref()) {
                Released::All if is_own => numbers.len(),
                Released::Nothing => 0,
                some => self.readable_by(recipient, numbers, some).count(),
            }
        });
        let all: usize = all.sum();
        let flights = self.in_flight.values();
        let flights = flights.filter(|(agent, _)| *agent == recipient.agent);
        let told = flights.flat_map(|(_, numbers)| numbers).filter(|number| {
            let entry = self
                .boxes
                .get(&recipient.agent)
                .and_then(|all| all.get(number));
            entry.is_some_and(|entry| rule.allows(recipient, entry))
        });
        all.saturating_sub(told.count())
    }

    /// Sessions about which a reader has unread messages.
    pub fn unread_sessions<'a>(
        &'a self,
        recipient: &'a Recipient,
        rule: ReadRule<'a>,
    ) -> impl Iterator<Item = SessionId> + 'a {
        let entries = self.boxes.get(&recipient.agent).into_iter().flatten();
        entries.filter_map(move |(_, entry)| match entry.about {
            About::Session(id) if entry.with.is_none() && rule.allows(recipient, entry) => Some(id),
            About::Session(_) | About::Timer(_) | About::Question(_) => None,
        })
    }

    pub fn any_unread(&self) -> bool {
        let told: usize = self
            .in_flight
            .values()
            .map(|(_, numbers)| numbers.len())
            .sum();
        self.len() > told
    }

    pub fn enter(&mut self, call: CallId, reader: WaitingReader) {
        self.set_reader(call, Some(reader));
    }

    pub fn leave(&mut self, call: CallId) -> Option<WaitingReader> {
        self.set_reader(call, None)
    }

    /// Notes that a call which waited was answered with messages: it waits again if they cannot be recorded.
    pub fn answered(&mut self, call: CallId, reader: WaitingReader) {
        self.undo.push(Undo::Answered(call, reader));
    }

    pub fn reads(&self, call: CallId) -> bool {
        self.readers.contains_key(&call)
    }

    /// The oldest waiting call that may read this message.
    pub fn reader_for(&self, agent: &Agent, number: u64, rule: ReadRule<'_>) -> Option<CallId> {
        let entry = self.boxes.get(agent)?.get(&number)?;
        let mut readers = self.readers.iter();
        let lets = |reader: &WaitingReader| {
            reader.recipient.agent == *agent && rule.allows(&reader.recipient, entry)
        };
        readers
            .find(|(_, reader)| lets(reader))
            .map(|(call, _)| *call)
    }

    /// A waiting call of this agent that has unread messages by now, because a conversation was released.
    pub fn reader_with_unread(&self, agent: &Agent, rule: ReadRule<'_>) -> Option<CallId> {
        let mut readers = self.readers.iter();
        let has = |reader: &WaitingReader| {
            reader.recipient.agent == *agent && self.unread(&reader.recipient, rule) > 0
        };
        readers
            .find(|(_, reader)| has(reader))
            .map(|(call, _)| *call)
    }

    /// Removes and returns a call whose standby has passed.
    pub fn pop_over(&mut self, now: Steady) -> Option<(CallId, WaitingReader)> {
        let &(until, call) = self.alarms.first()?;
        if until >= now {
            return None;
        }
        self.leave(call).map(|reader| (call, reader))
    }

    pub fn alarm(&self) -> Option<Steady> {
        self.alarms.first().map(|&(until, _)| until)
    }

    pub fn begin_commit(&mut self) {
        self.undo.begin_commit();
        self.numbers.begin_commit();
    }

    pub fn commit_succeeded(&mut self) {
        self.undo.commit_succeeded();
        self.numbers.commit_succeeded();
    }

    /// Reverts the changes of these generations. Returns the calls that wait again.
    pub fn commit_failed(&mut self, which: RevertScope) -> Vec<CallId> {
        self.numbers.commit_failed(which);
        let mut back = Vec::new();
        while let Some(step) = self.undo.pop(which) {
            match step {
                Undo::Entry(agent, number, before) => self.restore(&agent, number, before),
                Undo::Flight(call, before) => {
                    match before {
                        Some(flight) => self.in_flight.insert(call, flight),
                        None => self.in_flight.remove(&call),
                    };
                }
                Undo::Answered(call, reader) => {
                    back.push(call);
                    self.set_reader(call, Some(reader));
                }
            }
        }
        back
    }

    pub fn id(&self, number: u64) -> MessageId {
        MessageId::from_bits(self.id_permutation.to_bits(number))
    }

    fn put(&mut self, agent: &Agent, number: u64, after: Option<Entry>) {
        let before = self.boxes.get(agent).and_then(|all| all.get(&number));
        self.undo
            .push(Undo::Entry(agent.clone(), number, before.cloned()));
        self.restore(agent, number, after);
    }

    fn restore(&mut self, agent: &Agent, number: u64, entry: Option<Entry>) {
        match entry {
            Some(entry) => {
                let of = self.of.entry(agent.clone()).or_default();
                of.entry(entry.conversation.clone())
                    .or_default()
                    .insert(number);
                self.about.insert((entry.about, number));
                let all = self.boxes.entry(agent.clone()).or_default();
                all.insert(number, entry);
            }
            None => self.remove(agent, number),
        }
    }

    fn remove(&mut self, agent: &Agent, number: u64) {
        let Some(all) = self.boxes.get_mut(agent) else {
            return;
        };
        let removed = all.remove(&number);
        if all.is_empty() {
            self.boxes.remove(agent);
        }
        let Some(removed) = removed else { return };
        self.about.remove(&(removed.about, number));
        if let Some(of) = self.of.get_mut(agent) {
            if let Some(numbers) = of.get_mut(&removed.conversation) {
                numbers.remove(&number);
                if numbers.is_empty() {
                    of.remove(&removed.conversation);
                }
            }
            if of.is_empty() {
                self.of.remove(agent);
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

    fn set_reader(&mut self, call: CallId, after: Option<WaitingReader>) -> Option<WaitingReader> {
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

mod known;
mod release;
#[cfg(test)]
mod tests;
