//! A database for tests: applies the records of a step, all or none, and returns what it stored.

use std::collections::{BTreeMap, BTreeSet};

use abide_core::id::IdPermutation;
use abide_core::message::{self, About};
use abide_core::record::{Record, StoredRows, StoredState};
use abide_core::timer::{self, Anchor, Status};
use abide_core::{Agent, Conversation, MessageId, TimerId, Wall};

#[derive(Clone, Debug, Default)]
pub struct TestDatabase {
    pub timers: BTreeMap<u64, Row>,
    pub messages: BTreeMap<u64, StoredMessage>,
    pub anchor: Option<Anchor>,
}

/// Row of a timer.
#[derive(Clone, Debug)]
pub struct Row {
    pub id: TimerId,
    pub kept: timer::StoredTimer,
    pub ended: Option<Status>,
    pub ended_times: u32,
}

/// Row of a message.
#[derive(Clone, Debug)]
pub struct StoredMessage {
    pub id: MessageId,
    pub agent: Agent,
    pub about: About,
    pub conversation: Option<Conversation>,
    pub made: Wall,
    pub told: bool,
    pub seen: bool,
}

impl TestDatabase {
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Timer(record) => self.timer(record),
            Record::Message(record) => self.message(record),
            Record::Asked { .. } | Record::Closed { .. } | Record::Held { .. } => {}
        }
    }

    fn timer(&mut self, record: &timer::Record) {
        match record {
            timer::Record::Created(timer::Created {
                number,
                id,
                agent,
                conversation,
                kind,
                until,
                key,
                total,
                due,
                at,
                ..
            }) => {
                let kept = timer::StoredTimer {
                    number: *number,
                    agent: agent.clone(),
                    conversation: conversation.clone(),
                    kind: *kind,
                    state: timer::State {
                        total: *total,
                        countdown: timer::Countdown::Running { due: *due },
                        wait_mode: timer::WaitMode::Foreground,
                    },
                    checked: *at,
                    key: key.clone(),
                    conditional: until.is_some(),
                };
                let row = Row {
                    id: *id,
                    kept,
                    ended: None,
                    ended_times: 0,
                };
                let before = self.timers.insert(*number, row);
                assert!(before.is_none(), "timer {number} was made twice");
            }
            timer::Record::Changed(timer::Changed { number, state, .. }) => {
                let row = self.timers.get_mut(number).expect("a timer that was made");
                assert!(row.ended.is_none(), "an ended timer changed");
                row.kept.state = *state;
            }
            timer::Record::Ended(timer::Ended { number, status, .. }) => {
                let row = self.timers.get_mut(number).expect("a timer that was made");
                row.ended = Some(*status);
                row.ended_times += 1;
                assert_eq!(row.ended_times, 1, "timer {number} ended twice");
            }
            timer::Record::Acted { .. } => {}
            timer::Record::Anchored(anchor) => self.anchor = Some(*anchor),
        }
    }

    fn message(&mut self, record: &message::Record) {
        match record {
            message::Record::Posted {
                number,
                id,
                agent,
                content,
                reported_by_call,
                at,
            } => {
                let letter = StoredMessage {
                    id: *id,
                    agent: agent.clone(),
                    about: content.about,
                    conversation: content.conversation.clone(),
                    made: *at,
                    told: *reported_by_call,
                    seen: false,
                };
                let before = self.messages.insert(*number, letter);
                assert!(before.is_none(), "message {number} was posted twice");
            }
            message::Record::DeliveryStarted { numbers, .. } => {
                for number in numbers {
                    self.messages.get_mut(number).expect("a message").told = true;
                }
            }
            message::Record::Seen { numbers, .. } => {
                for number in numbers {
                    let letter = self.messages.get_mut(number).expect("a message");
                    assert!(!letter.seen, "message {number} was seen twice");
                    letter.seen = true;
                }
            }
            message::Record::Released { .. } => {}
        }
    }

    /// Checks the invariants of any database.
    fn check(&self) {
        let timers: BTreeSet<TimerId> = self.timers.values().map(|row| row.id).collect();
        assert_eq!(timers.len(), self.timers.len(), "two timers under one id");
        let messages: BTreeSet<MessageId> = self.messages.values().map(|m| m.id).collect();
        assert_eq!(
            messages.len(),
            self.messages.len(),
            "two messages under one id"
        );
    }

    pub fn kept(&self, boot_id: u128) -> (StoredState, StoredRows) {
        self.check();
        let live = self.timers.values().filter(|row| row.ended.is_none());
        let unseen = self.messages.iter().filter(|(_, letter)| !letter.seen);
        let state = StoredState {
            id_permutation: IdPermutation { key: 7 },
            boot_id,
            anchor: self.anchor,
            timer_numbers: self.timers.keys().next_back().map_or(0, |last| last + 1)..1 << 40,
            message_numbers: self.messages.keys().next_back().map_or(0, |last| last + 1)..1 << 40,
        };
        let rows = StoredRows {
            timers: live.map(|row| row.kept.clone()).collect(),
            messages: unseen
                .map(|(number, letter)| message::StoredMessage {
                    number: *number,
                    agent: letter.agent.clone(),
                    about: letter.about,
                    conversation: letter.conversation.clone(),
                    made: letter.made,
                    delivery_begun: letter.told,
                })
                .collect(),
            ..StoredRows::default()
        };
        (state, rows)
    }
}
