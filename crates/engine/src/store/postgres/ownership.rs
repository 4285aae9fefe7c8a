//! Shards that this daemon may write, and the fence that keeps others from being written.

use std::collections::{BTreeMap, HashMap};

use abide_core::fleet::ShardId;
use abide_core::id::IdPermutation;
use abide_core::message::{self, About};
use abide_core::{Record, timer};

use super::schema::TIMELINE;
use crate::store::seal::RowSeal;

/// Shards that this daemon owns.
pub(super) struct Owned {
    home: i64,
    shards: BTreeMap<i64, OwnedShard>,
    /// Shards of timers and messages that were adopted, by number. What is not here is of the home shard.
    timers: HashMap<u64, i64>,
    messages: HashMap<u64, i64>,
    id_permutation: IdPermutation,
    pub seal: RowSeal,
}

#[derive(Clone, Copy, Debug)]
struct OwnedShard {
    epoch: i64,
    timeline: u64,
    /// False while ownership is in doubt.
    is_usable: bool,
}

impl Owned {
    pub fn new(home: ShardId, id_permutation: IdPermutation, seal: RowSeal) -> Self {
        Owned {
            home: column(home),
            shards: BTreeMap::new(),
            timers: HashMap::new(),
            messages: HashMap::new(),
            id_permutation,
            seal,
        }
    }

    pub fn home(&self) -> i64 {
        self.home
    }

    /// Notes that the shard is owned in this epoch. Returns whether it was not owned in this epoch before.
    pub fn load(&mut self, shard: i64, epoch: u64, timeline: u64) -> bool {
        let epoch = epoch.cast_signed();
        let before = self.shards.insert(
            shard,
            OwnedShard {
                epoch,
                timeline,
                is_usable: true,
            },
        );
        before.is_none_or(|before| before.epoch != epoch || !before.is_usable)
    }

    pub fn suspend(&mut self, shard: i64) {
        if let Some(owned) = self.shards.get_mut(&shard) {
            owned.is_usable = false;
        }
    }

    /// Notes that another machine owns the shard. Its numbers are kept until it is adopted again: the event loop may
    /// have decided about them before it learns of this, and such a commit must be refused.
    pub fn drop_shard(&mut self, shard: i64) {
        self.shards.remove(&shard);
    }

    /// Notes the numbers of an adopted shard.
    pub fn adopt(
        &mut self,
        shard: i64,
        timers: impl Iterator<Item = u64>,
        messages: impl Iterator<Item = u64>,
    ) {
        self.timers.retain(|_, of| *of != shard);
        self.messages.retain(|_, of| *of != shard);
        self.timers.extend(timers.map(|number| (number, shard)));
        self.messages.extend(messages.map(|number| (number, shard)));
    }

    /// Notes that messages were moved to the home shard, also ones that an adopted shard had before.
    pub fn moved_home(&mut self, messages: impl Iterator<Item = u64>) {
        for message in messages {
            self.messages.remove(&message);
        }
    }

    /// Epoch in which a shard can be written.
    pub fn epoch(&self, shard: i64) -> Option<i64> {
        let owned = self.shards.get(&shard)?;
        owned.is_usable.then_some(owned.epoch)
    }

    /// True if another machine owns the shard.
    pub fn is_dropped(&self, shard: i64) -> bool {
        !self.shards.contains_key(&shard)
    }

    /// Shards that can be written.
    pub fn usable(&self) -> impl Iterator<Item = i64> {
        let usable = self.shards.iter().filter(|(_, owned)| owned.is_usable);
        usable.map(|(shard, _)| *shard)
    }

    /// Locks the rows of these shards, or fails with a division by zero: where another machine is the owner, where the
    /// epoch has changed, or on a server that may have lost commits.
    pub fn fence(&self, shards: &[i64]) -> String {
        let fences = self
            .fences(shards)
            .map(|values| fence("shard", values.map(|n| n.to_string()), "true"));
        fences.collect::<Vec<_>>().join("; ")
    }

    /// Values of the fences of these shards, always in the same order: two daemons that lock several do not block each
    /// other.
    fn fences(&self, shards: &[i64]) -> impl Iterator<Item = [i64; FENCE_VALUES]> {
        let mut sorted = shards.to_vec();
        sorted.sort_unstable();
        sorted.into_iter().map(|shard| self.fence_values(shard))
    }

    pub fn fence_values(&self, shard: i64) -> [i64; FENCE_VALUES] {
        let owned = self.shards.get(&shard);
        let (epoch, timeline) = owned.map_or((-1, 0), |owned| (owned.epoch, owned.timeline));
        [shard, self.home, epoch, timeline.cast_signed()]
    }

    /// Shard of a timer.
    pub fn of_timer(&self, number: u64) -> i64 {
        self.timers.get(&number).copied().unwrap_or(self.home)
    }

    /// Shard of a message.
    pub fn of_message(&self, number: u64) -> i64 {
        self.messages.get(&number).copied().unwrap_or(self.home)
    }

    /// Parts of a record, each with its shard. A message is in the shard of the timer that it is about.
    pub fn split<'a>(&mut self, record: &'a Record) -> Vec<(i64, Part<'a>)> {
        let number = match record {
            Record::Asked { .. } | Record::Closed { .. } | Record::Held { .. } => {
                return vec![(self.home, Part::Whole(record))];
            }
            Record::Timer(record) => match record {
                timer::Record::Created(_) | timer::Record::Anchored(_) => None,
                timer::Record::Changed(timer::Changed { number, .. })
                | timer::Record::Ended(timer::Ended { number, .. })
                | timer::Record::Acted { number, .. } => Some(*number),
            },
            Record::Message(message::Record::Posted {
                number, content, ..
            }) => {
                let shard = match content.about {
                    About::Timer(timer) => {
                        self.of_timer(self.id_permutation.to_number(timer.0.bits()))
                    }
                    About::Session(_) | About::Question(_) => self.home,
                };
                if shard != self.home {
                    self.messages.insert(*number, shard);
                }
                return vec![(shard, Part::Whole(record))];
            }
            Record::Message(message::Record::DeliveryStarted {
                numbers,
                in_flight,
                at,
            }) => {
                let (in_flight, at) = (*in_flight, *at);
                return self.split_by_message(numbers, |numbers| {
                    message::Record::DeliveryStarted {
                        numbers,
                        in_flight,
                        at,
                    }
                });
            }
            Record::Message(message::Record::Seen { numbers, at }) => {
                let at = *at;
                return self
                    .split_by_message(numbers, |numbers| message::Record::Seen { numbers, at });
            }
            Record::Message(message::Record::Released { numbers }) => {
                return self
                    .split_by_message(numbers, |numbers| message::Record::Released { numbers });
            }
        };
        let shard = number.map_or(self.home, |number| self.of_timer(number));
        vec![(shard, Part::Whole(record))]
    }

    /// Parts of a record about several messages.
    fn split_by_message<'a>(
        &self,
        numbers: &[u64],
        part: impl Fn(Vec<u64>) -> message::Record,
    ) -> Vec<(i64, Part<'a>)> {
        let mut all: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
        for number in numbers {
            let shard = self.of_message(*number);
            all.entry(shard).or_default().push(*number);
        }
        let parts = all.into_iter();
        let parts =
            parts.map(|(shard, numbers)| (shard, Part::Split(Record::Message(part(numbers)))));
        parts.collect()
    }
}

/// SQLSTATE of a transaction that a check in it has refused. Each check causes another error, because the text of an
/// error depends on the language of the server; all are plain SQL, which any database carries out.
pub(super) mod refused {
    use tokio_postgres::error::SqlState;

    /// Another machine owns the shard, or the server may have lost commits: division by zero.
    pub const BY_FENCE: SqlState = SqlState::DIVISION_BY_ZERO;
    /// The time of the database is not that of this machine: square root of a negative number.
    pub const BY_TIME: SqlState = SqlState::INVALID_ARGUMENT_FOR_POWER_FUNCTION;
    /// Another machine has taken a row: cast of a word to a number.
    pub const BY_ROW: SqlState = SqlState::INVALID_TEXT_REPRESENTATION;
}

/// Shard, owner, epoch and timeline.
pub(super) const FENCE_VALUES: usize = 4;

/// Query that locks the row of a shard, or fails with a division by zero if there is none with these values.
pub(super) fn fence<T: std::fmt::Display>(
    table: &str,
    [shard, owner, epoch, timeline]: [T; FENCE_VALUES],
    condition: &str,
) -> String {
    format!(
        "SELECT 1 / count(*) AS held FROM (SELECT 1 FROM {table} WHERE id = {shard} AND owner = {owner} \
         AND epoch = {epoch} AND {TIMELINE} = {timeline} AND {condition} FOR UPDATE) AS rows"
    )
}

/// Part of a record that belongs to one shard.
pub(super) enum Part<'a> {
    Whole(&'a Record),
    Split(Record),
}

impl AsRef<Record> for Part<'_> {
    fn as_ref(&self) -> &Record {
        match self {
            Part::Whole(record) => record,
            Part::Split(record) => record,
        }
    }
}

pub(super) fn column(shard: ShardId) -> i64 {
    shard.0.0.cast_signed()
}

#[cfg(test)]
mod tests {
    use abide_core::fleet::MachineId;
    use abide_core::message::MessageContent;
    use abide_core::time::{Millis, Wall};
    use abide_core::timer::{CompletedBy, Status};
    use abide_core::{Agent, MessageId, TimerId};

    use super::super::transaction::{Counters, Transaction};
    use super::*;
    use crate::store::seal::UNSEALED;

    const HOME: i64 = 1;
    const ADOPTED: i64 = 2;

    fn owned() -> Owned {
        let mut owned = Owned::new(ShardId(MachineId(1)), IdPermutation { key: 7 }, UNSEALED);
        owned.load(HOME, 1, 1);
        owned.load(ADOPTED, 1, 1);
        owned.adopt(ADOPTED, [10].into_iter(), [11].into_iter());
        owned
    }

    /// End of the adopted timer, and its message.
    fn completion() -> [Record; 2] {
        let id = TimerId::from_bits(IdPermutation { key: 7 }.to_bits(10));
        let agent = Agent("a".into());
        let at = Wall(5);
        [
            Record::Timer(timer::Record::Ended(timer::Ended {
                number: 10,
                id,
                status: Status::Completed {
                    by: CompletedBy::Time,
                    late: Millis(0),
                },
                total: Millis(1),
                remaining: Millis(0),
                stop_reason: None,
                seen: None,
                checked: at,
                at,
            })),
            Record::Message(message::Record::Posted {
                number: 12,
                id: MessageId::from_bits(12),
                agent,
                content: MessageContent {
                    about: About::Timer(id),
                    conversation: None,
                    wakes: false,
                },
                reported_by_call: false,
                at,
            }),
        ]
    }

    fn shards(owned: &mut Owned, records: &[Record]) -> Result<Vec<i64>, i64> {
        let transaction = Transaction::of_records(owned, &mut Counters::default(), 0, records)?;
        Ok(transaction.shards().map(|(shard, _)| shard).collect())
    }

    #[test]
    fn decision_about_a_shard_that_was_dropped_meanwhile_is_refused() {
        let mut owned = owned();
        assert_eq!(shards(&mut owned, &completion()), Ok(vec![ADOPTED]));
        owned.drop_shard(ADOPTED);
        assert_eq!(shards(&mut owned, &completion()), Err(ADOPTED));
        let [_, message] = completion();
        assert_eq!(shards(&mut owned, &[message]), Err(ADOPTED));
        let seen = message::Record::Seen {
            numbers: vec![11],
            at: Wall(6),
        };
        let seen = [Record::Message(seen)];
        assert_eq!(shards(&mut owned, &seen), Err(ADOPTED));
    }

    #[test]
    fn message_of_an_adopted_shard_that_was_moved_home_is_told_there() {
        let mut owned = owned();
        owned.moved_home([11].into_iter());
        assert_eq!(owned.of_message(11), HOME);
    }

    #[test]
    fn numbers_of_a_shard_are_replaced_when_it_is_adopted_again() {
        let mut owned = owned();
        owned.drop_shard(ADOPTED);
        owned.load(ADOPTED, 3, 1);
        owned.adopt(ADOPTED, [20].into_iter(), [].into_iter());
        assert_eq!([owned.of_timer(20), owned.of_timer(10)], [ADOPTED, HOME]);
        assert_eq!(owned.of_message(11), HOME);
    }
}
