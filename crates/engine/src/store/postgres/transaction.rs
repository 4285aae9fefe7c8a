//! Transaction of a commit: one batch for each shard that it changes, most often one.

use std::collections::{BTreeMap, VecDeque};

use abide_core::time::Steady;
use abide_core::{Millis, Mono, Record, message, timer};

use super::batch::{Batch, Stamp, Statement, WrittenBy};
use super::ownership::Owned;
use crate::clock::SystemClock;
use crate::store::deliveries::WakerRecord;
use crate::store::records::RecordRows;

/// Limits of the transactions that are kept in memory.
const RECENT_AGE: Millis = Millis::from_secs(300);
const RECENT_BYTES: usize = 16 << 20;

/// Batches that are committed together.
pub(super) struct Transaction {
    batches: Vec<Batch>,
    /// Earliest deadline of the timers that it makes.
    soonest: Option<Steady>,
    /// Messages that it begins to tell.
    told: Vec<u64>,
}

/// Numbers for rows of the next transaction.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Number of the last batch.
    pub batch: i64,
    /// Position of the next change in the history of timers.
    pub position: i64,
}

impl Counters {
    fn next_batch(&mut self, now_ms: u64) -> i64 {
        self.batch += 1;
        // Another machine may have written the history of the timer before, so positions follow the time.
        let by_time = i64::try_from(now_ms).unwrap_or(0).saturating_mul(1_024);
        self.position = self.position.max(by_time);
        self.batch
    }
}

impl Transaction {
    /// Transaction of records. Fails with the shard that this machine may not write.
    pub fn of_records(
        owned: &mut Owned,
        counters: &mut Counters,
        now_ms: u64,
        records: &[Record],
    ) -> Result<Self, i64> {
        let batch = counters.next_batch(now_ms);
        let mut batches: BTreeMap<i64, Batch> = BTreeMap::new();
        for record in records {
            for (shard, part) in owned.split(record) {
                let of_shard = batch_of(&mut batches, owned, shard, batch)?;
                of_shard.record(part.as_ref(), &mut counters.position);
            }
        }
        let mut transaction = Transaction::new(batches);
        for record in records {
            match record {
                Record::Timer(timer::Record::Created(timer::Created { due, .. })) => {
                    let soonest = transaction
                        .soonest
                        .map_or(*due, |soonest| soonest.min(*due));
                    transaction.soonest = Some(soonest);
                }
                Record::Message(message::Record::DeliveryStarted { numbers, .. }) => {
                    transaction.told.extend(numbers);
                }
                _ => {}
            }
        }
        Ok(transaction)
    }

    /// Transaction of a record about wakers.
    pub fn of_waker_record(
        owned: &Owned,
        counters: &mut Counters,
        now_ms: u64,
        record: &WakerRecord,
    ) -> Result<Self, i64> {
        let batch = counters.next_batch(now_ms);
        let mut batches = BTreeMap::new();
        if let WakerRecord::Deliveries(all) = record {
            for (message, delivery) in all {
                let shard = owned.of_message(*message);
                batch_of(&mut batches, owned, shard, batch)?.delivery(*message, delivery);
            }
        } else {
            batch_of(&mut batches, owned, owned.home(), batch)?.waker_record(record);
        }
        Ok(Transaction::new(batches))
    }

    fn new(batches: BTreeMap<i64, Batch>) -> Self {
        let mut batches: Vec<Batch> = batches.into_values().collect();
        batches.retain(|batch| !batch.is_empty());
        Transaction {
            batches,
            soonest: None,
            told: Vec::new(),
        }
    }

    /// Earliest deadline of the timers that it makes, if it makes any.
    pub fn soonest(&self) -> Option<Steady> {
        self.soonest
    }

    /// Messages that it begins to tell.
    pub fn told(&self) -> &[u64] {
        &self.told
    }

    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Shards that it changes, with the epochs of its stamps.
    pub fn shards(&self) -> impl Iterator<Item = (i64, i64)> {
        self.batches
            .iter()
            .map(|batch| (batch.stamp.shard, batch.stamp.epoch))
    }

    /// Statements with their parameters. `again`: the transaction may have been committed before.
    pub fn statements(&self, again: bool) -> Vec<Statement<'_>> {
        let all = self.batches.iter();
        all.flat_map(|batch| batch.statements(again)).collect()
    }

    /// The only batch, if there is one shard.
    pub fn only_batch(&self) -> Option<&Batch> {
        match self.batches.as_slice() {
            [batch] => Some(batch),
            _ => None,
        }
    }

    /// Query that counts rows which it has written, if it has written rows of its own.
    pub fn look(&self, by: WrittenBy) -> Option<String> {
        self.batches.iter().find_map(|batch| batch.look(by))
    }

    /// Bytes of its values, approximately.
    pub fn size(&self) -> usize {
        self.batches.iter().map(|batch| batch.size).sum()
    }
}

fn batch_of<'a>(
    batches: &'a mut BTreeMap<i64, Batch>,
    owned: &Owned,
    shard: i64,
    batch: i64,
) -> Result<&'a mut Batch, i64> {
    let epoch = owned.epoch(shard).ok_or(shard)?;
    let stamp = Stamp {
        shard,
        epoch,
        batch,
    };
    Ok(batches
        .entry(shard)
        .or_insert_with(|| Batch::empty(stamp, owned.seal.clone())))
}

/// Newest transactions that were written, oldest first. A server that took over may have lost them.
#[derive(Default)]
pub(super) struct Recent {
    all: VecDeque<(Transaction, Mono)>,
    bytes: usize,
}

impl Recent {
    /// Keeps a transaction that was written, within the limits.
    pub fn keep(&mut self, transaction: Transaction) {
        let now = SystemClock.mono();
        if transaction.look(WrittenBy::It).is_some() {
            self.bytes += transaction.size();
            self.all.push_back((transaction, now));
        }
        while let Some((oldest, at)) = self.all.front()
            && (self.bytes > RECENT_BYTES || now.since(*at) > RECENT_AGE)
        {
            self.bytes -= oldest.size();
            self.all.pop_front();
        }
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn get(&self, at: usize) -> Option<&Transaction> {
        self.all.get(at).map(|(transaction, _)| transaction)
    }

    pub fn from(&self, at: usize) -> impl Iterator<Item = &Transaction> {
        self.all.iter().skip(at).map(|(transaction, _)| transaction)
    }
}
