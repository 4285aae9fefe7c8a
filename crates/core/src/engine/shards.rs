//! Shards of a fleet: timers and messages of another machine that this daemon takes over while that machine is away, and
//! its own ones, which another machine may have taken over.
//!
//! An adopted timer completes by time only: its condition is about the machine that made it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::recovery::steady_of_wall;
use super::{Engine, Step};
use crate::effect::Effect;
use crate::fleet::ShardId;
use crate::id::{Agent, TimerId};
use crate::message::{About, StoredMessage};
use crate::record::LoadedShard;
use crate::time::Steady;
use crate::timer::{Countdown, Origin, Timer, Why};
use crate::wait::Outcome;

/// Timers and messages of adopted shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Adopted {
    timers: BTreeMap<u64, ShardId>,
    messages: BTreeMap<u64, ShardId>,
    notes: BTreeMap<ShardId, Arc<str>>,
    /// Shards whose machines may still tell their timers, on a server that was replaced.
    told_elsewhere: BTreeSet<ShardId>,
    /// Shards that were here and are not any more.
    unloaded: BTreeSet<ShardId>,
    /// True if the shard of this machine is one of them.
    is_home_unloaded: bool,
    /// Timers whose calls were answered when the shard of this machine was dropped. The answer has told a completion that
    /// another machine had made, and the message about it comes back with the shard.
    answered: BTreeSet<TimerId>,
}

impl Adopted {
    /// Observation of a condition that this machine cannot check, for a timer that completes by time.
    pub(super) fn note(&self, timer: &Timer) -> Option<Arc<str>> {
        let shard = self
            .timers
            .get(&timer.number)
            .filter(|_| timer.conditional)?;
        self.notes.get(shard).cloned()
    }

    /// True if the machine that made a timer may still tell it.
    pub(super) fn may_be_told_elsewhere(&self, timer: u64) -> bool {
        let shard = self.timers.get(&timer);
        shard.is_some_and(|shard| self.told_elsewhere.contains(shard))
    }

    /// Notes that a message belongs to the shard of its timer.
    pub(super) fn note_message(
        &mut self,
        message: u64,
        about: About,
        number: impl Fn(TimerId) -> u64,
    ) {
        if let About::Timer(timer) = about
            && let Some(shard) = self.timers.get(&number(timer))
        {
            self.messages.insert(message, *shard);
        }
    }

    /// Notes that these messages are of the home shard, also ones that an adopted shard had before.
    pub(super) fn messages_taken(&mut self, messages: &[StoredMessage]) {
        for message in messages {
            self.messages.remove(&message.number);
        }
    }

    /// True if another machine has the shard of this one: no record of it can be written.
    pub(super) fn is_home_unloaded(&self) -> bool {
        self.is_home_unloaded
    }

    pub(super) fn has_unloaded(&self) -> bool {
        !self.unloaded.is_empty()
    }
}

impl Engine {
    /// Adds the timers and messages of a shard that this machine owns from now on.
    pub(super) fn shard_loaded(&mut self, step: &mut Step<'_>, loaded: LoadedShard) {
        let (shard, mut rows) = (loaded.shard, loaded.rows);
        let origin = match loaded.note {
            None => {
                self.adopted.is_home_unloaded = false;
                let answered = core::mem::take(&mut self.adopted.answered);
                for message in &mut rows.messages {
                    let about = |timer: &TimerId| message.about == About::Timer(*timer);
                    message.delivery_begun |= answered.iter().any(about);
                }
                Origin::Home
            }
            Some(note) => {
                let numbers = rows.timers.iter().map(|timer| (timer.number, shard));
                self.adopted.timers.extend(numbers);
                let numbers = rows.messages.iter().map(|message| (message.number, shard));
                self.adopted.messages.extend(numbers);
                self.adopted.notes.insert(shard, note);
                if loaded.may_be_told_elsewhere {
                    self.adopted.told_elsewhere.insert(shard);
                }
                Origin::Adopted
            }
        };
        self.adopted.unloaded.remove(&shard);
        self.went_back = self.went_back.max(rows.went_back);
        let listed: Vec<(u64, bool)> = (rows.timers.iter())
            .map(|timer| {
                let runs = matches!(timer.state.countdown, Countdown::Running { .. });
                (timer.number, timer.conditional && runs)
            })
            .collect();
        self.timers.load(rows.timers, origin);
        self.timers.remember(rows.ended);
        for (number, is_probed) in listed {
            let (timer, until) = (self.timers.id_of(number), None);
            if is_probed && origin == Origin::Home {
                step.push(Effect::Probe { timer, until });
            }
            step.push(Effect::PublishTimer { timer });
        }
        self.messages_loaded(step, rows.messages);
    }

    /// Adds messages that were read, and hands them to calls that wait.
    pub(super) fn messages_loaded(&mut self, step: &Step<'_>, messages: Vec<StoredMessage>) {
        let made = steady_of_wall(self.timers.steady(step.now), step.now.wall);
        let posted = messages.iter();
        let posted = posted.map(|message| (message.agent.clone(), message.number));
        self.posted.extend(posted);
        self.outbox.load(messages, made);
    }

    /// Forgets a shard that another machine owns. Calls that stand by on its timers are answered: the timers go on.
    pub(super) fn shard_dropped(&mut self, step: &mut Step<'_>, shard: ShardId, is_home: bool) {
        let of = |adopted: &BTreeMap<u64, ShardId>, number: u64| match adopted.get(&number) {
            Some(of) => *of == shard,
            None => is_home,
        };
        let adopted = core::mem::take(&mut self.adopted);
        let unloaded = (self.timers).unload(step.now, |number| of(&adopted.timers, number));
        self.outbox.unload(|number| of(&adopted.messages, number));
        self.adopted = adopted;
        for timer in unloaded {
            for call in self.standby_calls.release(timer.number) {
                if is_home {
                    self.adopted.answered.insert(timer.id);
                }
                let timer = alloc::boxed::Box::new(timer.clone());
                step.reply(call, Outcome::Timer(timer, Why::StandbyOver));
            }
            if timer.conditional {
                step.push(Effect::StopProbe { timer: timer.id });
            }
            step.push(Effect::PublishTimer { timer: timer.id });
        }
        self.adopted.timers.retain(|_, of| *of != shard);
        self.adopted.messages.retain(|_, of| *of != shard);
        self.adopted.notes.remove(&shard);
        self.adopted.told_elsewhere.remove(&shard);
        self.adopted.unloaded.insert(shard);
        self.adopted.is_home_unloaded |= is_home;
    }

    /// Earliest time at which a timer is due or resumes, for the heartbeats of this machine.
    pub fn next_deadline(&self) -> Option<Steady> {
        self.timers.alarm()
    }

    /// Agents with calls that wait for messages.
    pub fn agents_waiting(&self) -> BTreeSet<Agent> {
        self.outbox.agents_waiting().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::vec;

    use super::*;
    use crate::event::Event;
    use crate::fleet::MachineId;
    use crate::id::{CallId, SessionId};
    use crate::message::{self, MessageContent};
    use crate::record::{Record, StoredRows};
    use crate::request::{Caller, Request};
    use crate::time::{Boot, Millis, Mono, Now, Wall};
    use crate::timer::{self, Kind, State, StoredTimer, WaitMode};

    const HOME: ShardId = ShardId(MachineId(1));
    const ADOPTED: ShardId = ShardId(MachineId(2));

    fn step(engine: &mut Engine, seconds: u64, event: Event) -> Vec<Effect> {
        let ms = 1_000_000 + seconds * 1_000;
        let now = Now {
            wall: Wall(ms),
            boot: Boot(ms),
            mono: Mono(ms),
        };
        let mut effects = Vec::new();
        engine.step(now, event, &mut effects);
        effects
    }

    fn loaded(shard: ShardId, messages: Vec<StoredMessage>) -> Event {
        Event::ShardLoaded(Box::new(LoadedShard {
            shard,
            note: (shard != HOME).then(|| "away".into()),
            rows: StoredRows {
                messages,
                ..StoredRows::default()
            },
            may_be_told_elsewhere: false,
        }))
    }

    fn dropped(shard: ShardId) -> Event {
        let is_home = shard == HOME;
        Event::ShardDropped { shard, is_home }
    }

    #[test]
    fn message_that_was_taken_from_an_adopted_shard_stays_when_that_shard_is_dropped() {
        let message = StoredMessage {
            number: 11,
            agent: Agent("a".into()),
            about: About::Timer(TimerId::from_bits(1)),
            conversation: None,
            made: Wall(1),
            delivery_begun: false,
        };
        let mut engine = Engine::new(7);
        step(&mut engine, 0, loaded(ADOPTED, vec![message.clone()]));
        let numbers = vec![11];
        step(&mut engine, 0, Event::MessagesGone { numbers });
        assert_eq!(engine.outbox.len(), 0);
        let messages = vec![message];
        step(&mut engine, 0, Event::MessagesTaken { messages });
        step(&mut engine, 0, dropped(ADOPTED));
        assert_eq!(engine.outbox.len(), 1);
    }

    #[test]
    fn message_about_a_timer_whose_call_was_answered_when_the_shard_was_dropped_is_marked_as_repeated()
     {
        let mut engine = Engine::new(7);
        let agent = Agent("a".into());
        let timer = engine.timers.id_of(5);
        let stored = StoredTimer {
            number: 5,
            agent: agent.clone(),
            conversation: None,
            kind: Kind::Waiting,
            state: State {
                total: Millis(60_000),
                countdown: Countdown::Running {
                    due: Steady(1_060_000),
                },
                wait_mode: WaitMode::Foreground,
            },
            checked: Wall(1),
            key: None,
            conditional: false,
        };
        let home = |timers: Vec<StoredTimer>, messages: Vec<StoredMessage>| {
            Event::ShardLoaded(Box::new(LoadedShard {
                shard: HOME,
                note: None,
                rows: StoredRows {
                    timers,
                    messages,
                    ..StoredRows::default()
                },
                may_be_told_elsewhere: false,
            }))
        };
        let called = |call, request| Event::Called {
            call: CallId(call),
            caller: Caller {
                agent: Some(agent.clone()),
                conversation: None,
            },
            reserved: None,
            request,
        };
        step(&mut engine, 0, home(vec![stored], Vec::new()));
        let standby = timer::Request::Continue {
            timer,
            remaining: None,
            standby: None,
            client_limit: None,
            key: None,
        };
        step(&mut engine, 0, called(1, Request::Timer(standby)));
        let replied = step(&mut engine, 1, dropped(HOME));
        let is_reply = |effect: &Effect| matches!(effect, Effect::Reply { .. });
        assert_eq!(replied.iter().filter(|effect| is_reply(effect)).count(), 1);
        let message = |number, about| StoredMessage {
            number,
            agent: agent.clone(),
            about: About::Timer(about),
            conversation: None,
            made: Wall(1),
            delivery_begun: false,
        };
        let other = engine.timers.id_of(6);
        let messages = vec![message(11, timer), message(12, other)];
        step(&mut engine, 2, home(Vec::new(), messages));
        let read = Request::ReadMessages {
            standby: Millis(0),
            most: 10,
            known: Vec::new(),
        };
        let effects = step(&mut engine, 3, called(2, read));
        let told = effects.iter().find_map(|effect| match effect {
            Effect::Reply {
                outcome: Outcome::Messages(messages, _),
                ..
            } => Some(messages),
            _ => None,
        });
        let told = told.expect("an answer").iter();
        let told: Vec<_> = told
            .map(|message| (message.number, message.repeated))
            .collect();
        assert_eq!(told, [(11, true), (12, false)]);
    }

    #[test]
    fn message_about_a_session_waits_while_another_machine_has_the_home_shard() {
        let posted = |effects: &[Effect]| {
            let is_posted = |effect: &&Effect| {
                matches!(
                    effect,
                    Effect::Record(Record::Message(message::Record::Posted { .. }))
                )
            };
            effects.iter().filter(is_posted).count()
        };
        let mut engine = Engine::new(7);
        step(&mut engine, 0, loaded(HOME, Vec::new()));
        step(&mut engine, 0, dropped(HOME));
        let now = Now {
            wall: Wall(1_000_000),
            boot: Boot(1_000_000),
            mono: Mono(1_000_000),
        };
        let mut effects = Vec::new();
        let content = MessageContent {
            about: About::Session(SessionId::from_bits(1)),
            conversation: None,
            wakes: false,
        };
        let begun = &mut Step {
            now,
            effects: &mut effects,
        };
        engine.post_with_retry(begun, Agent("a".into()), content);
        assert_eq!(posted(&effects), 0);
        for seconds in [5, 10] {
            let effects = step(&mut engine, seconds, Event::Tick);
            assert_eq!(effects, [], "a record would be refused, with all others");
        }
        step(&mut engine, 11, loaded(HOME, Vec::new()));
        assert_eq!(posted(&step(&mut engine, 15, Event::Tick)), 1);
    }
}
