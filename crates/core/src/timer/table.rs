//! All timers of one daemon: one table with a small entry for each timer that has not ended, and one queue over all
//! of them.
//!
//! Every change can be undone until it is settled, because a change counts only when its record is durable.

mod shards;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::vec::Vec;
use core::ops::Range;

use super::{
    Act, Anchor, CompletedBy, Countdown, Create, Kind, Refusal, State, Status, StoredTimer, Timer,
    WaitMode,
};
use crate::fleet::ADOPTED_GRACE;
use crate::id::{Agent, Conversation, IdPermutation, Key, NUMBER_BITS, TimerId};
use crate::limit;
use crate::numbers::Numbers;
use crate::request;
use crate::time::{Boot, Millis, Now, Steady, Wall};
use crate::undo_log::{RevertScope, UndoLog};

/// Position of a timer in the table: the index of its agent in the upper bits and its number in the lower bits, so
/// that the timers of one agent are adjacent and in the order of their creation.
pub(crate) type Slot = u64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timers {
    id_permutation: IdPermutation,
    anchor: Anchor,
    agents: Vec<Agent>,
    agent_indices: BTreeMap<Agent, u32>,
    numbers: Numbers,
    live: BTreeMap<Slot, Entry>,
    /// Remaining times of paused timers.
    paused: BTreeMap<Slot, u64>,
    /// Times at which a timer is due or its pause ends.
    queue: BTreeSet<(u64, Slot)>,
    keys: BTreeMap<(Slot, Key), Slot>,
    key_of: BTreeMap<Slot, Key>,
    /// Conversations that created the timers, if known.
    conversations: BTreeMap<Slot, Conversation>,
    ended: BTreeMap<u64, Timer>,
    ended_order: VecDeque<u64>,
    undo: UndoLog<Undo>,
    anchored: Anchored,
    /// Set after a failed commit: no timer completes before this time.
    held_until: Option<Steady>,
    /// Time until which conditions are looked at before timers that came due without a daemon complete by time.
    first_probe_until: Steady,
}

/// Number below 2^48 in six bytes: enough for nine thousand years in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Short([u16; 3]);

impl Short {
    fn new(number: u64) -> Self {
        let number = number.min((1 << 48) - 1);
        Short([number as u16, (number >> 16) as u16, (number >> 32) as u16])
    }

    fn get(self) -> u64 {
        let [low, middle, high] = self.0.map(u64::from);
        high << 32 | middle << 16 | low
    }
}

/// Entry of a timer that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    total: Short,
    /// Time at which the timer is due; while it is paused, time at which it resumes.
    at: Short,
    checked: Short,
    flags: u16,
}

const MISSION: u16 = 1;
const BACKGROUND: u16 = 2;
const PAUSED: u16 = 4;
const CONDITIONAL: u16 = 8;
const ADOPTED: u16 = 16;
/// Loaded at the start with a condition, which nothing has looked at for some time.
const UNCHECKED: u16 = 32;

impl Entry {
    fn is(self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    fn set(&mut self, flag: u16, on: bool) {
        self.flags = if on {
            self.flags | flag
        } else {
            self.flags & !flag
        };
    }

    fn wait_mode(self) -> WaitMode {
        if self.is(BACKGROUND) {
            WaitMode::Background
        } else {
            WaitMode::Foreground
        }
    }
}

/// Durability of the anchor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Anchored {
    /// No anchor: no database was opened.
    #[default]
    Never,
    /// The anchor is recorded.
    Safe,
    /// The record of the anchor belongs to the generation that gathers.
    Gathering,
    /// The record of the anchor is being committed.
    InFlight,
    /// The anchor could not be recorded; another attempt follows.
    Unsafe,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Undo {
    Entry(Slot, Option<(Entry, Option<u64>)>),
    Ended(u64),
    Key(Slot, Key),
}

/// Timer that a caller may see.
pub(crate) enum Found {
    Live(Slot),
    Ended(Timer),
}

/// Machine that made a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This machine.
    Home,
    /// Another machine, which is away.
    Adopted,
}

/// Change of a timer that is due.
pub(crate) enum Due {
    Resumed(Slot),
    Completed(Timer),
}

impl Timers {
    /// Loads the stored timers. Returns the new anchor, which the caller must record.
    pub fn open(
        &mut self,
        now: Now,
        id_permutation: IdPermutation,
        anchor: Option<Anchor>,
        boot_id: u128,
        numbers: Range<u64>,
        kept: Vec<StoredTimer>,
    ) -> Anchor {
        self.id_permutation = id_permutation;
        self.anchor = Anchor::at_start(anchor, boot_id, now);
        self.anchored = Anchored::Gathering;
        self.numbers.set(numbers);
        self.first_probe_until = self.steady(now) + limit::FIRST_PROBE;
        self.load(kept, Origin::Home);
        self.anchor
    }

    pub fn len(&self) -> usize {
        self.live.len()
    }

    pub fn steady(&self, now: Now) -> Steady {
        self.anchor.steady(now.boot)
    }

    /// Compares the wall clock with the anchor. The caller must record an anchor that is returned.
    pub fn note(&mut self, now: Now) -> Option<Anchor> {
        if self.anchored == Anchored::Never || !self.anchor.note(now) {
            return None;
        }
        self.anchored = Anchored::Gathering;
        Some(self.anchor)
    }

    /// Returns whether the anchor must be recorded again because that failed before.
    pub fn anchor_is_unsafe(&self) -> bool {
        self.anchored == Anchored::Unsafe
    }

    /// Anchor that must be recorded again, if any.
    pub fn anchor_again(&mut self) -> Option<Anchor> {
        let again = self.anchor_is_unsafe();
        again.then(|| {
            self.anchored = Anchored::Gathering;
            self.anchor
        })
    }

    /// Time after which the next timer is due or resumes.
    pub fn alarm(&self) -> Option<Steady> {
        let first = self.queue.first().map(|&(at, _)| Steady(at))?;
        Some(self.held_until.map_or(first, |held| held.max(first)))
    }

    /// Boot time at this steady time.
    pub fn boot(&self, at: Steady) -> Boot {
        self.anchor.boot(at)
    }

    pub fn create(
        &mut self,
        now: Now,
        agent: &Agent,
        conversation: Option<&Conversation>,
        new: &Create,
    ) -> Result<Slot, request::Refusal> {
        let many = |what, limit| request::Refusal::TooMany(format!("{what} (limit {limit})"));
        if self.live.len() >= limit::TIMERS {
            return Err(many("timers are running already", limit::TIMERS));
        }
        let Some(agent_index) = self.agent_index_of(agent) else {
            return Err(many("agents own timers already", limit::AGENTS));
        };
        let Some(number) = self.numbers.take() else {
            return Err(request::Refusal::TooMany(
                "timers were made at once; try again in a second".into(),
            ));
        };
        let slot = slot(agent_index, number);
        let mut entry = Entry {
            total: Short::new(new.total.0),
            at: Short::new((self.steady(now) + new.total).0),
            checked: Short::new(now.wall.0),
            flags: 0,
        };
        entry.set(MISSION, new.kind == Kind::Mission);
        entry.set(CONDITIONAL, new.until.is_some());
        self.put(slot, Some((entry, None)));
        match conversation {
            Some(conversation) => self.conversations.insert(slot, conversation.clone()),
            None => self.conversations.remove(&slot),
        };
        if let Some(key) = &new.key {
            self.undo.push(Undo::Key(slot, key.clone()));
            self.keys.insert((slot & AGENT_MASK, key.clone()), slot);
            self.key_of.insert(slot, key.clone());
        }
        Ok(slot)
    }

    /// Timer that was created with this idempotency key.
    pub fn keyed(&self, agent: &Agent, key: &Key) -> Option<Found> {
        let agent_index = u64::from(*self.agent_indices.get(agent)?) << NUMBER_BITS;
        let slot = *self.keys.get(&(agent_index, key.clone()))?;
        if self.live.contains_key(&slot) {
            return Some(Found::Live(slot));
        }
        self.ended.get(&number(slot)).cloned().map(Found::Ended)
    }

    /// Timer that this caller may see: its own, or any if the caller is a person.
    pub fn find(&self, caller: &Option<Agent>, id: TimerId) -> Result<Found, Refusal> {
        let number = self.id_permutation.to_number(id.0.bits());
        let live = |agent_index: u32| {
            Some(slot(agent_index, number)).filter(|s| self.live.contains_key(s))
        };
        let found = match caller {
            Some(agent) => self
                .agent_indices
                .get(agent)
                .and_then(|agent_index| live(*agent_index)),
            None => (0..self.agents.len() as u32).find_map(live),
        };
        if let Some(slot) = found {
            return Ok(Found::Live(slot));
        }
        let own = |timer: &&Timer| caller.as_ref().is_none_or(|me| *me == timer.agent);
        if let Some(timer) = self.ended.get(&number).filter(own) {
            return Ok(Found::Ended(timer.clone()));
        }
        Err(self.not_found(caller, id))
    }

    fn not_found(&self, caller: &Option<Agent>, timer: TimerId) -> Refusal {
        let all = self.slots(caller, None).count();
        let known: Vec<TimerId> = (self.slots(caller, None).take(limit::IDS_LISTED))
            .map(|slot| self.id(slot))
            .collect();
        let more = all - known.len();
        Refusal::NotFound { timer, known, more }
    }

    /// Timers that have not ended and that a caller may see, from a number on.
    pub fn slots(
        &self,
        caller: &Option<Agent>,
        after: Option<TimerId>,
    ) -> impl Iterator<Item = Slot> {
        let indices = match caller {
            Some(agent) => self.agent_indices.get(agent).map_or(0..0, |p| *p..*p + 1),
            None => 0..self.agents.len() as u32,
        };
        let after = after.map(|id| self.id_permutation.to_number(id.0.bits()));
        let from = after.map_or(0, |number| number + 1);
        indices.flat_map(move |agent_index| {
            let range = slot(agent_index, from)..slot(agent_index + 1, 0);
            self.live.range(range).map(|(slot, _)| *slot)
        })
    }

    pub fn id(&self, slot: Slot) -> TimerId {
        self.id_of(number(slot))
    }

    pub fn id_of(&self, number: u64) -> TimerId {
        TimerId::from_bits(self.id_permutation.to_bits(number))
    }

    pub fn number_of(&self, id: TimerId) -> u64 {
        self.id_permutation.to_number(id.0.bits())
    }

    /// State of a timer that has not ended.
    pub fn view(&self, now: Now, slot: Slot) -> Option<Timer> {
        let entry = *self.live.get(&slot)?;
        let at = Steady(entry.at.get());
        let (status, remaining, pause_until) = match self.paused.get(&slot) {
            Some(left) => {
                let (back_to, until) = (entry.wait_mode(), at);
                let status = Status::Paused { back_to, until };
                (status, Millis(*left), Some(self.anchor.wall(at)))
            }
            None => {
                let left = at.since(self.steady(now));
                (Status::Running(entry.wait_mode()), left, None)
            }
        };
        let total = Millis(entry.total.get());
        Some(Timer {
            id: self.id(slot),
            number: number(slot),
            agent: self.agent(slot),
            conversation: self.conversations.get(&slot).cloned(),
            wakes: entry.is(MISSION) || entry.is(BACKGROUND),
            kind: if entry.is(MISSION) {
                Kind::Mission
            } else {
                Kind::Waiting
            },
            status,
            total,
            remaining: Millis(remaining.0.min(total.0)),
            checked: Wall(entry.checked.get()),
            pause_until,
            conditional: entry.is(CONDITIONAL),
        })
    }

    /// Recorded state of a timer that has not ended.
    pub fn state(&self, slot: Slot) -> Option<State> {
        let entry = *self.live.get(&slot)?;
        let at = Steady(entry.at.get());
        let countdown = match self.paused.get(&slot) {
            None => Countdown::Running { due: at },
            Some(left) => Countdown::Paused {
                remaining: Millis(*left),
                until: at,
            },
        };
        Some(State {
            total: Millis(entry.total.get()),
            countdown,
            wait_mode: entry.wait_mode(),
        })
    }

    /// Sets the time at which a caller last asked for the timer.
    pub fn touch(&mut self, now: Now, slot: Slot) {
        if let Some(entry) = self.live.get_mut(&slot) {
            entry.checked = Short::new(now.wall.0);
        }
    }

    /// Continues a timer with this remaining time; its agent waits for it again.
    pub fn continue_with(
        &mut self,
        now: Now,
        slot: Slot,
        remaining: Option<Millis>,
    ) -> Result<(), Refusal> {
        let (timer, mut entry) = self.running(now, slot, "continue")?;
        entry.set(BACKGROUND, false);
        entry.checked = Short::new(now.wall.0);
        if let Some(remaining) = remaining {
            entry.total = Short::new((timer.elapsed() + remaining).0);
            entry.at = Short::new((self.steady(now) + remaining).0);
        }
        self.put(slot, Some((entry, None)));
        Ok(())
    }

    /// Stops, cancels, pauses or resumes a timer that has not ended. [`Act::Stop`] ends it.
    pub fn act(&mut self, now: Now, slot: Slot, act: Act) -> Result<Timer, Refusal> {
        match act {
            Act::Stop => return self.end(now, slot, Status::Stopped),
            Act::Cancel => {
                let (timer, mut entry) = self.running(now, slot, act.as_str())?;
                if entry.is(BACKGROUND) {
                    return Err(not_allowed(&timer, act.as_str()));
                }
                entry.set(BACKGROUND, true);
                self.put(slot, Some((entry, None)));
            }
            Act::Pause(time) => {
                let (timer, mut entry) = self.running(now, slot, act.as_str())?;
                entry.set(PAUSED, true);
                entry.at = Short::new((self.steady(now) + time).0);
                self.put(slot, Some((entry, Some(timer.remaining.0))));
            }
            Act::Resume => {
                let timer = self.view(now, slot).ok_or_else(|| self.gone(slot))?;
                let Status::Paused { .. } = timer.status else {
                    return Err(not_allowed(&timer, act.as_str()));
                };
                self.resume(slot, self.steady(now));
            }
        }
        self.view(now, slot).ok_or_else(|| self.gone(slot))
    }

    /// Ends a timer. The remaining time at its end is part of its final state.
    pub fn end(&mut self, now: Now, slot: Slot, status: Status) -> Result<Timer, Refusal> {
        let mut timer = self.view(now, slot).ok_or_else(|| self.gone(slot))?;
        timer.status = status;
        timer.pause_until = None;
        self.put(slot, None);
        self.undo.push(Undo::Ended(timer.number));
        self.keep_ended(timer.clone());
        Ok(timer)
    }

    /// Remembers an ended timer, and forgets the oldest one if the limit is reached.
    fn keep_ended(&mut self, timer: Timer) {
        if self.ended_order.len() == limit::ENDED_TIMERS
            && let Some(oldest) = self.ended_order.pop_front()
            && let Some(old) = self.ended.remove(&oldest)
            && let Some(agent_index) = self.agent_indices.get(&old.agent)
        {
            let slot = slot(*agent_index, oldest);
            self.forget_key(slot);
            self.conversations.remove(&slot);
        }
        if self.ended.contains_key(&timer.number) {
            return;
        }
        self.ended_order.push_back(timer.number);
        self.ended.insert(timer.number, timer);
    }

    /// Adds timers that ended before the start.
    pub fn remember(&mut self, ended: Vec<(Timer, Option<Key>)>) {
        for (timer, key) in ended {
            let Some(agent_index) = self.agent_index_of(&timer.agent) else {
                continue;
            };
            if let Some(key) = key {
                let slot = slot(agent_index, timer.number);
                self.keys.insert((slot & AGENT_MASK, key.clone()), slot);
                self.key_of.insert(slot, key);
            }
            self.keep_ended(timer);
        }
    }

    /// Completes a running timer because its condition holds or can no longer hold.
    pub fn decide(&mut self, now: Now, id: TimerId, by: CompletedBy) -> Option<Timer> {
        let Ok(Found::Live(slot)) = self.find(&None, id) else {
            return None;
        };
        if self.paused.contains_key(&slot) {
            return None;
        }
        let due = Steady(self.live.get(&slot)?.at.get());
        let late = self.steady(now).since(due);
        self.end(now, slot, Status::Completed { by, late }).ok()
    }

    /// Handles and returns the earliest change that is due.
    pub fn pop_due(&mut self, now: Now) -> Option<Due> {
        let steady = self.steady(now);
        if self.held_until.is_some_and(|held| steady <= held) {
            return None;
        }
        let &(at, slot) = self.queue.first()?;
        // Readings are truncated to milliseconds, so only a later reading proves that the whole time has elapsed.
        if Steady(at) >= steady {
            return None;
        }
        let due = Steady(self.live.get(&slot).map_or(at, |entry| entry.at.get()));
        if self.paused.contains_key(&slot) {
            self.resume(slot, due);
            return Some(Due::Resumed(slot));
        }
        let late = steady.since(due);
        let by = CompletedBy::Time;
        let ended = self.end(now, slot, Status::Completed { by, late });
        ended.ok().map(Due::Completed)
    }

    /// Returns whether a timer is due and completes in one of the next steps.
    pub fn completes_next(&self, now: Now, number: u64) -> bool {
        let steady = self.steady(now);
        let held = self.held_until.is_some_and(|held| steady <= held);
        let Ok(Found::Live(slot)) = self.find(&None, self.id_of(number)) else {
            return false;
        };
        let due = |entry: &Entry| Steady(self.queued_at(*entry)) < steady;
        !held && !self.paused.contains_key(&slot) && self.live.get(&slot).is_some_and(due)
    }

    /// Begins a new generation of changes.
    pub fn begin_commit(&mut self) {
        self.undo.begin_commit();
        self.numbers.begin_commit();
        if self.anchored == Anchored::Gathering {
            self.anchored = Anchored::InFlight;
        }
    }

    /// Confirms that the generation in flight is durable.
    pub fn commit_succeeded(&mut self) {
        self.numbers.commit_succeeded();
        if self.undo.commit_succeeded() {
            self.held_until = None;
        }
        if self.anchored == Anchored::InFlight {
            self.anchored = Anchored::Safe;
        }
    }

    /// Reverts the changes of these generations, because they could not be recorded. Timers that are due wait for
    /// [`limit::COMMIT_RETRY`].
    pub fn commit_failed(&mut self, now: Now, which: RevertScope) {
        self.numbers.commit_failed(which);
        while let Some(step) = self.undo.pop(which) {
            match step {
                Undo::Entry(slot, before) => self.restore(slot, before),
                Undo::Ended(number) => {
                    self.ended.remove(&number);
                    self.ended_order.retain(|known| *known != number);
                }
                Undo::Key(slot, key) => {
                    self.keys.remove(&(slot & AGENT_MASK, key));
                    self.key_of.remove(&slot);
                }
            }
        }
        self.held_until = Some(self.steady(now) + limit::COMMIT_RETRY);
        match self.anchored {
            Anchored::InFlight if which == RevertScope::Gathering => {}
            Anchored::Gathering | Anchored::InFlight => self.anchored = Anchored::Unsafe,
            Anchored::Never | Anchored::Safe | Anchored::Unsafe => {}
        }
    }

    fn resume(&mut self, slot: Slot, at: Steady) {
        if let (Some(mut entry), Some(left)) =
            (self.live.get(&slot).copied(), self.paused.get(&slot))
        {
            entry.set(PAUSED, false);
            entry.at = Short::new((at + Millis(*left)).0);
            self.put(slot, Some((entry, None)));
        }
    }

    /// Entry of a timer that counts down, or a refusal.
    fn running(
        &self,
        now: Now,
        slot: Slot,
        attempt: &'static str,
    ) -> Result<(Timer, Entry), Refusal> {
        let timer = self.view(now, slot).ok_or_else(|| self.gone(slot))?;
        match (timer.status, self.live.get(&slot)) {
            (Status::Running(_), Some(entry)) => Ok((timer, *entry)),
            _ => Err(not_allowed(&timer, attempt)),
        }
    }

    fn gone(&self, slot: Slot) -> Refusal {
        self.not_found(&Some(self.agent(slot)), self.id(slot))
    }

    fn put(&mut self, slot: Slot, after: Option<(Entry, Option<u64>)>) {
        let before = self.live.get(&slot).copied();
        let before = before.map(|entry| (entry, self.paused.get(&slot).copied()));
        self.undo.push(Undo::Entry(slot, before));
        self.restore(slot, after);
    }

    fn restore(&mut self, slot: Slot, entry: Option<(Entry, Option<u64>)>) {
        if let Some(old) = self.live.remove(&slot) {
            self.queue.remove(&(self.queued_at(old), slot));
            self.paused.remove(&slot);
        }
        let Some((entry, left)) = entry else { return };
        self.queue.insert((self.queued_at(entry), slot));
        self.live.insert(slot, entry);
        if let Some(left) = left {
            self.paused.insert(slot, left);
        }
    }

    /// Time at which something happens. The times of two machines differ, so an adopted timer waits longer, and a
    /// condition is looked at before its timer completes by time.
    fn queued_at(&self, entry: Entry) -> u64 {
        let at = entry.at.get();
        if entry.is(ADOPTED) {
            at.saturating_add(ADOPTED_GRACE.0)
        } else if entry.is(UNCHECKED) {
            at.max(self.first_probe_until.0)
        } else {
            at
        }
    }

    fn forget_key(&mut self, slot: Slot) {
        if let Some(key) = self.key_of.remove(&slot) {
            self.keys.remove(&(slot & AGENT_MASK, key));
        }
    }

    fn agent(&self, slot: Slot) -> Agent {
        let agent_index = (slot >> NUMBER_BITS) as usize;
        self.agents.get(agent_index).cloned().unwrap_or_default()
    }

    fn agent_index_of(&mut self, agent: &Agent) -> Option<u32> {
        if let Some(agent_index) = self.agent_indices.get(agent) {
            return Some(*agent_index);
        }
        if self.agents.len() >= limit::AGENTS {
            return None;
        }
        let agent_index = self.agents.len() as u32;
        self.agents.push(agent.clone());
        self.agent_indices.insert(agent.clone(), agent_index);
        Some(agent_index)
    }
}

/// Bits of a slot that hold the index of its agent.
const AGENT_MASK: u64 = !((1 << NUMBER_BITS) - 1);

fn slot(agent_index: u32, number: u64) -> Slot {
    u64::from(agent_index) << NUMBER_BITS | number
}

fn number(slot: Slot) -> u64 {
    slot & !AGENT_MASK
}

pub(crate) fn not_allowed(timer: &Timer, attempt: &'static str) -> Refusal {
    Refusal::NotAllowed {
        timer: timer.id,
        attempt,
        status: timer.status,
    }
}
