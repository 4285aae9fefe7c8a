//! The one connection that writes.
//!
//! Every commit is one transaction that first locks the rows of the shards that it changes (`ownership.rs`), so that a
//! daemon that is not their owner any more can write nothing. If the server does not answer, the transaction may be
//! written or not: the membership claims the shards again, which waits for the old transaction and keeps it from being
//! written later; then the stamp of its rows tells. The newest transactions are kept in memory, and are written again if a
//! server that took over has lost them.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use abide_core::fleet::{Event as FleetEvent, MachineId, ShardId};
use abide_core::id::IdPermutation;
use abide_core::{Millis, Mono, Record};
use abide_session::crash_point;
use tokio::sync::mpsc;
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::SqlState;

use super::ReservedIds;
use super::batch::fleet_time;
use super::link::{Address, Link, LinkFault, retried};
use super::ownership::{Owned, column, refused};
use super::prepared::Prepared;
use super::reads::Reads;
use super::schema;
use super::settling::Unsettled;
use super::shard_rows::{self, ShardChange};
use super::sharing::{NOW, TimeCheck, is_about_numbers};
use super::transaction::{Counters, Recent, Transaction};
use crate::clock::{Clock, SystemClock, sleep_until};
use crate::fleet::{Fleet, Ownership};
use crate::lock::lock;
use crate::store::deliveries::WakerRecord;
use crate::store::records::TOLD_IN_ANSWER;
use crate::store::seal::RowSeal;
use crate::store::write::{PRUNE_BATCH, crash_points};
use crate::store::{Job, StoreFault};
use crate::{entropy, timestamp};

/// Bytes of a transaction after which a plan that was made before may read too much.
const LARGE: usize = 256 << 10;
/// Time between two attempts to connect: doubled from the first to the last.
const FIRST_RETRY: Millis = Millis(200);
const LAST_RETRY: Millis = Millis::from_secs(5);

/// Sentence about a server that cannot be reached.
pub(super) type Trouble = Arc<Mutex<Option<String>>>;

/// Shard to be loaded.
#[derive(Clone, Copy)]
struct Load {
    shard: ShardId,
    epoch: u64,
}

pub(super) struct WriterParts {
    pub address: Address,
    pub home: ShardId,
    pub seal: RowSeal,
    pub fleet: Fleet,
    pub reads: Reads,
    /// Event loop, which is told what was loaded.
    pub changes: mpsc::Sender<ShardChange>,
    pub trouble: Trouble,
}

pub(super) struct Writer {
    pub(super) parts: WriterParts,
    id_permutation: IdPermutation,
    /// Newest block of numbers for timers and messages.
    pub(super) numbers: Range<u64>,
    pub(super) link: Option<Link>,
    pub(super) owned: Owned,
    counters: Counters,
    pub(super) recent: Recent,
    /// Shards to be loaded when there is a connection.
    loads: VecDeque<Load>,
    /// Shards whose timers the event loop has, or is about to get.
    loaded: BTreeSet<ShardId>,
    pub(super) unsettled: Option<Unsettled>,
    /// True if messages may have been moved to the own shard and not been read since.
    pub(super) has_unread_moves: bool,
    /// Fleet time minus boot time.
    pub(super) boot_offset: Option<i64>,
    /// Attempts to connect that failed in a row.
    failures: u32,
    /// Time of the next attempt, if there is no connection.
    retry_at: Mono,
    /// Time since when there is none, as text.
    lost_since: Option<String>,
}

impl Writer {
    pub fn new(parts: WriterParts, ids: &ReservedIds, link: Link) -> Self {
        Writer {
            link: Some(link),
            id_permutation: ids.id_permutation,
            numbers: ids.numbers.clone(),
            owned: Owned::new(parts.home, ids.id_permutation, parts.seal.clone()),
            counters: Counters::default(),
            recent: Recent::default(),
            loads: VecDeque::new(),
            loaded: BTreeSet::new(),
            unsettled: None,
            has_unread_moves: false,
            boot_offset: None,
            failures: 0,
            retry_at: Mono(0),
            lost_since: None,
            parts,
        }
    }

    /// Runs jobs until all senders are dropped.
    pub async fn serve(
        mut self,
        mut queue: mpsc::Receiver<Job>,
        mut ownership: mpsc::Receiver<Ownership>,
    ) {
        loop {
            while let Some(load) = self.loads.front().copied().filter(|_| self.link.is_some()) {
                match self.load(load).await {
                    Ok(()) => drop(self.loads.pop_front()),
                    Err(fault) => self.lost(&fault.to_string()),
                }
            }
            let job = tokio::select! {
                biased;
                Some(change) = ownership.recv() => {
                    self.ownership_changed(change).await;
                    continue;
                }
                () = self.link_needs_work() => {
                    self.reconnect().await;
                    continue;
                }
                job = queue.recv() => match job {
                    Some(job) => job,
                    None => return,
                },
            };
            // A connection that has just been lost is made again before a job is refused.
            if self.link.is_none() && self.failures == 0 {
                self.reconnect().await;
            }
            match job {
                Job::Commit(records, done) => drop(done.send(self.commit(&records).await)),
                Job::Settle(done) => {
                    if let Some(unsettled) = &mut self.unsettled {
                        unsettled.done = Some(done);
                    }
                    self.settle().await;
                }
                Job::WakerRecord(record, _place, done) => {
                    drop(done.send(self.write_waker_record(&record).await));
                }
                Job::TakeMessages(readers, _place, done) => {
                    self.take_messages(&readers, done).await;
                }
                Job::Prune(before, done) => drop(done.send(self.prune(before).await)),
            }
        }
    }

    /// Waits until the connection is lost, or should be made.
    async fn link_needs_work(&mut self) {
        match &mut self.link {
            Some(link) => link.closed().await,
            None => sleep_until(&SystemClock, Some(self.retry_at)).await,
        }
    }

    async fn reconnect(&mut self) {
        self.link = None;
        match self.parts.address.connect().await {
            Ok(link) => {
                self.link = Some(link);
                (self.failures, self.lost_since) = (0, None);
                *lock(&self.parts.trouble) = None;
                self.settle().await;
            }
            Err(fault) => self.lost(&fault.reason()),
        }
    }

    /// Notes that the connection is lost. The sentence has the newest reason: a server that is back may refuse the
    /// password.
    pub(super) fn lost(&mut self, why: &str) {
        self.link = None;
        let doubled = FIRST_RETRY.0 << self.failures.min(8);
        let jitter = entropy::bits() % FIRST_RETRY.0;
        self.retry_at = SystemClock.mono() + Millis(doubled.min(LAST_RETRY.0) + jitter);
        self.failures = self.failures.saturating_add(1);
        let now = || timestamp::rfc3339(SystemClock.now().wall.0);
        let since = self.lost_since.get_or_insert_with(now);
        let sentence = format!(
            "the database at {} cannot be reached since {since}: {why}",
            self.parts.address.shown()
        );
        let mut trouble = lock(&self.parts.trouble);
        if trouble.as_ref() != Some(&sentence) {
            tracing::error!("{sentence}");
            *trouble = Some(sentence);
        }
    }

    async fn ownership_changed(&mut self, change: Ownership) {
        match change {
            Ownership::Load {
                shard,
                epoch,
                timeline,
            } => {
                if self.owned.load(column(shard), epoch, timeline) {
                    self.loads.retain(|load| load.shard != shard);
                    self.loads.push_back(Load { shard, epoch });
                }
            }
            Ownership::Suspend(shard) => self.owned.suspend(column(shard)),
            Ownership::Drop(shard) => {
                self.owned.drop_shard(column(shard));
                self.loads.retain(|load| load.shard != shard);
                if self.loaded.remove(&shard) {
                    self.tell(ShardChange::Dropped(shard)).await;
                }
                self.settle().await;
            }
            Ownership::TimeSet(boot_offset) => {
                let is_first = self.boot_offset.replace(boot_offset).is_none();
                self.tell(ShardChange::TimeSet(boot_offset)).await;
                if !is_first {
                    self.read_deadlines().await;
                }
            }
        }
    }

    pub(super) async fn tell(&self, change: ShardChange) {
        // The event loop ends with the daemon.
        let _ = self.parts.changes.send(change).await;
    }

    /// Begins to use a shard that was claimed: settles what is not known, writes again what was lost, and reads it
    /// unless it is in memory.
    async fn load(&mut self, load: Load) -> Result<(), StoreFault> {
        if let Some(link) = &self.link {
            schema::keep_numbers(link, self.numbers.end).await?;
        }
        self.settle().await;
        self.write_lost_transactions().await?;
        if !self.loaded.insert(load.shard) {
            return Ok(());
        }
        let shard = column(load.shard);
        // The calls whose answers were to carry these messages are gone.
        let in_answer = TOLD_IN_ANSWER;
        let mut untold = format!(
            "{}; UPDATE message SET told_ms = CASE told_ms WHEN {in_answer} THEN made_ms ELSE told_ms END, \
             told_by = NULL WHERE shard = {shard} AND (told_ms = {in_answer} OR told_by IS NOT NULL) \
             AND seen_ms IS NULL",
            self.owned.fence(&[shard])
        );
        if load.shard != self.parts.home {
            untold.push_str(&format!(
                "; UPDATE message SET told_ms = made_ms WHERE shard = {shard} AND told_ms IS NULL AND seen_ms IS NULL \
                 AND EXISTS ({})",
                shard_rows::unseen_since_loss(shard)
            ));
        }
        let marked = match &self.link {
            Some(link) => link.transact(&untold, &[]).await.map_err(unreachable),
            None => Err(no_connection()),
        };
        let rows = match marked {
            Ok(_) => {
                let id_permutation = self.id_permutation;
                let note = self.note(load.shard);
                let reads = &self.parts.reads.few;
                let seal = self.owned.seal.clone();
                reads
                    .read(move |db| shard_rows::read(db, load.shard, note, id_permutation, &seal))
                    .await
            }
            Err(fault) => Err(fault),
        };
        match rows {
            Ok(rows) => {
                if load.shard != self.parts.home {
                    let timers = rows.open.stored.timers.iter().map(|timer| timer.number);
                    let messages = rows
                        .open
                        .stored
                        .messages
                        .iter()
                        .map(|message| message.number);
                    self.owned.adopt(shard, timers, messages);
                }
                self.tell(ShardChange::Loaded(Box::new(rows))).await;
            }
            Err(fault) => {
                tracing::warn!("cannot load the timers of a machine: {fault}");
                self.loaded.remove(&load.shard);
                self.fenced(shard, load.epoch).await;
            }
        }
        Ok(())
    }

    /// Sentence for the conditional timers of a machine that is away; `None` for this machine.
    fn note(&self, shard: ShardId) -> Option<Arc<str>> {
        if shard == self.parts.home {
            return None;
        }
        let state = self.parts.fleet.state();
        let note = match state.machines.get(&shard.0) {
            Some(machine) => {
                let since = timestamp::rfc3339(machine.row.written.0);
                format!(
                    "nobody looked since {since}: machine {} is away",
                    machine.name
                )
            }
            None => "nobody looked: its machine is gone".to_owned(),
        };
        Some(note.into())
    }

    /// Fault of a job that cannot be begun.
    fn refusal(&self) -> Option<StoreFault> {
        if self.link.is_some() && self.unsettled.is_none() {
            return None;
        }
        let trouble = lock(&self.parts.trouble).clone();
        Some(StoreFault::Unwritable(trouble.unwrap_or_default()))
    }

    /// Fault of a commit that changes a shard which this machine may not write now.
    fn not_owned(&self, shard: i64) -> StoreFault {
        let state = self.parts.fleet.state();
        let shard = ShardId(MachineId(shard.cast_unsigned()));
        let keeper = state.adopted.get(&shard);
        let keeper = keeper.and_then(|owner| state.machines.get(owner));
        StoreFault::NotOwned(match (&state.trouble, keeper) {
            (Some(trouble), _) => trouble.clone(),
            (None, Some(keeper)) if state.may_beat_fast => format!(
                "machine {} has the timers of this one, and is asked to give them back",
                keeper.name
            ),
            (None, Some(keeper)) => format!(
                "this machine was cut off, so machine {} has its timers until the connection has been stable for some \
                 time (`fleet.return_after`)",
                keeper.name
            ),
            (None, None) => {
                "this machine is joining the fleet, which takes some seconds".to_owned()
            }
        })
    }

    async fn commit(&mut self, records: &[Record]) -> Result<(), StoreFault> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        let now = SystemClock.now().wall.0;
        let transaction =
            Transaction::of_records(&mut self.owned, &mut self.counters, now, records)
                .map_err(|shard| self.not_owned(shard))?;
        crash_points(records, |[before, _]| before);
        match self.write(transaction).await {
            Ok(()) => {
                crash_points(records, |[_, after]| after);
                self.reserve_numbers(records).await;
                Ok(())
            }
            Err((fault @ StoreFault::Unknown(_), transaction)) => {
                let sent_in: Vec<(i64, i64)> = transaction.shards().collect();
                self.doubt(&sent_in).await;
                self.unsettled = Some(Unsettled {
                    transaction,
                    sent_in,
                    done: None,
                });
                Err(fault)
            }
            Err((fault, _)) => Err(fault),
        }
    }

    async fn write_waker_record(&mut self, record: &WakerRecord) -> Result<(), StoreFault> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        let now = SystemClock.now().wall.0;
        let transaction =
            Transaction::of_waker_record(&self.owned, &mut self.counters, now, record)
                .map_err(|shard| self.not_owned(shard))?;
        self.write(transaction).await.map_err(|(fault, _)| fault)
    }

    /// Has the shards of a transaction claimed again, because its outcome is not known.
    pub(super) async fn doubt(&mut self, sent_in: &[(i64, i64)]) {
        for (shard, epoch) in sent_in {
            self.owned.suspend(*shard);
            let (shard, epoch) = (shard_id(*shard), epoch.cast_unsigned());
            let event = FleetEvent::BatchUnknown { shard, epoch };
            self.parts.fleet.send(event).await;
        }
    }

    /// Writes a transaction and keeps it, or gives it back with the fault.
    async fn write(&mut self, transaction: Transaction) -> Result<(), (StoreFault, Transaction)> {
        if transaction.is_empty() {
            return Ok(());
        }
        match self.send(&transaction, false).await {
            Ok(()) => {
                self.recent.keep(transaction);
                Ok(())
            }
            Err(fault) => Err((fault, transaction)),
        }
    }

    pub(super) async fn send(
        &mut self,
        transaction: &Transaction,
        again: bool,
    ) -> Result<(), StoreFault> {
        let Some(link) = &self.link else {
            return Err(no_connection());
        };
        let shards: Vec<i64> = transaction.shards().map(|(shard, _)| shard).collect();
        let check = match again {
            true => None,
            false => self.time_check(transaction),
        };
        let sent = send_transaction(link, &self.owned, check, transaction, again).await;
        let result = self.handle_link_result(sent, &shards).await;
        if let (Err(StoreFault::Stale(_)), false) = (&result, transaction.told().is_empty()) {
            self.find_gone(transaction.told()).await;
        }
        result
    }

    /// Stops using a shard until the membership has looked at who owns it.
    async fn fenced(&mut self, shard: i64, epoch: u64) {
        self.owned.suspend(shard);
        let shard = shard_id(shard);
        let event = FleetEvent::Fenced { shard, epoch };
        self.parts.fleet.send(event).await;
    }

    /// Drops the connection if the result of a transaction says that it is unusable.
    async fn handle_link_result(
        &mut self,
        result: Result<(), LinkFault>,
        shards: &[i64],
    ) -> Result<(), StoreFault> {
        let Err(fault) = result else {
            return Ok(());
        };
        match &fault {
            LinkFault::Refused(code, _) if *code == refused::BY_FENCE => {
                // Another machine is the owner, or a server that took over has lost the claim: the next look tells.
                for shard in shards {
                    if let Some(epoch) = self.owned.epoch(*shard) {
                        self.fenced(*shard, epoch.cast_unsigned()).await;
                    }
                }
                let why = "another machine may have these timers by now";
                return Err(StoreFault::Unwritable(why.into()));
            }
            LinkFault::Refused(code, why)
                if *code == SqlState::UNIQUE_VIOLATION && why.contains("timer_key") =>
            {
                let why = "a timer with this idempotency key exists on another machine";
                return Err(StoreFault::Stale(why.into()));
            }
            LinkFault::Refused(code, why)
                if *code == SqlState::UNIQUE_VIOLATION && is_about_numbers(why) =>
            {
                self.replace_numbers().await;
                let why = "another machine had the same number for a timer or message; try again";
                return Err(StoreFault::Unwritable(why.into()));
            }
            LinkFault::Refused(code, _) if *code == refused::BY_TIME => {
                return Err(self.refused_by_time().await);
            }
            LinkFault::Refused(code, _) if *code == refused::BY_ROW => {
                let why = "another machine has changed this meanwhile";
                return Err(StoreFault::Stale(why.into()));
            }
            LinkFault::Refused(..) if self.link.as_ref().is_some_and(|link| !link.is_closed()) => {}
            LinkFault::Refused(_, why) | LinkFault::NotSent(why) | LinkFault::Unanswered(why) => {
                self.lost(&why.clone());
            }
        }
        Err(fault.into())
    }

    /// Removes old rows, as [`Store::prune`](crate::store::Store::prune) says. The newest row of each table stays. The
    /// times in a row are of the machine that wrote it, whose clock may be wrong, so a row must also be old by the time
    /// of the fleet.
    async fn prune(&mut self, before_ms: u64) -> Result<usize, StoreFault> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        let shards: Vec<i64> = self.owned.usable().collect();
        let keep = SystemClock.now().wall.0.saturating_sub(before_ms);
        let of = format!(
            "shard = ANY(ARRAY{shards:?}::bigint[]) AND coalesce(over_ms, 0) <= {} - {keep}",
            fleet_time(None)
        );
        let messages = format!(
            "(SELECT number FROM message WHERE {of} AND seen_ms < {before_ms} \
             AND number < (SELECT max(number) FROM message) ORDER BY number LIMIT {PRUNE_BATCH})"
        );
        let timers = format!(
            "(SELECT number FROM timer WHERE {of} AND ended_ms < {before_ms} \
             AND number < (SELECT max(number) FROM timer) \
             AND id NOT IN (SELECT about FROM message WHERE seen_ms IS NULL) ORDER BY number LIMIT {PRUNE_BATCH})"
        );
        // Those of machines that a person has removed: no daemon of theirs does it.
        let sessions = format!(
            "(SELECT s.machine, s.id FROM session AS s JOIN machine AS m ON m.id = s.machine \
             WHERE m.standing = 'forgotten' AND m.written <= {NOW} - {keep} LIMIT {PRUNE_BATCH})"
        );
        let sql = format!(
            "{}; DELETE FROM session WHERE (machine, id) IN {sessions}; DELETE FROM delivery WHERE message IN {messages}; \
             DELETE FROM timer_change WHERE timer IN {timers}; \
             DELETE FROM message WHERE number IN {messages}; \
             DELETE FROM timer WHERE number IN {timers}; \
             DELETE FROM question WHERE (shard, id) IN \
             (SELECT shard, id FROM question WHERE {of} AND closed_ms < {before_ms} LIMIT {PRUNE_BATCH})",
            self.owned.fence(&shards)
        );
        let Some(link) = &self.link else {
            return Ok(0);
        };
        crash_point("gc.mid");
        let answer = link.transact(&sql, &[]).await;
        let removed = answer.as_ref().map_or(0, |answer| {
            let counts = answer.iter().rev().filter_map(|message| match message {
                SimpleQueryMessage::CommandComplete(count) => Some(*count),
                _ => None,
            });
            counts.take(3).sum::<u64>()
        });
        self.handle_link_result(answer.map(drop), &shards).await?;
        Ok(usize::try_from(removed).unwrap_or(usize::MAX))
    }
}

fn shard_id(column: i64) -> ShardId {
    ShardId(MachineId(column.cast_unsigned()))
}

pub(super) fn no_connection() -> StoreFault {
    StoreFault::Unwritable("there is no connection".into())
}

/// Sends a transaction; again if it collided with another transaction.
pub(super) async fn send_transaction(
    link: &Link,
    owned: &Owned,
    check: Option<TimeCheck>,
    transaction: &Transaction,
    again: bool,
) -> Result<(), LinkFault> {
    retried(|| send_once(link, owned, check.as_ref(), transaction, again)).await
}

async fn send_once(
    link: &Link,
    owned: &Owned,
    check: Option<&TimeCheck>,
    transaction: &Transaction,
    again: bool,
) -> Result<(), LinkFault> {
    if !again && let Some(prepared) = prepared(link, owned, check, transaction) {
        return link.execute(&prepared).await;
    }
    let shards: Vec<i64> = transaction.shards().map(|(shard, _)| shard).collect();
    let mut first = owned.fence(&shards);
    if let Some(check) = check {
        first = format!("{first}; {}", check.sql());
    }
    let sent = link.transact(&first, &transaction.statements(again)).await;
    if transaction.size() > LARGE {
        link.forget_statements();
    }
    sent.map(drop)
}

/// Transaction as one statement, if it can be one.
fn prepared<'a>(
    link: &Link,
    owned: &Owned,
    check: Option<&TimeCheck>,
    transaction: &'a Transaction,
) -> Option<Prepared<'a>> {
    let batch = transaction.only_batch().filter(|_| link.prepares())?;
    let time = match check {
        Some(check) => Some(check.only_time()?),
        None => None,
    };
    let fence = owned.fence_values(batch.stamp.shard);
    Prepared::new(batch, fence, time)
}

/// Fault of a transaction that decides nothing about records.
pub(super) fn unreachable(fault: LinkFault) -> StoreFault {
    StoreFault::Unwritable(fault.reason())
}
