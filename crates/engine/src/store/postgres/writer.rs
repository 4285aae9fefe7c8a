//! The one connection that writes.
//!
//! Every batch is one transaction that first locks the row of `shard` with this daemon's claim, so that a daemon whose
//! claim was replaced can write nothing. If the server does not answer, the batch may be written or not: a new claim
//! waits for the old transaction and keeps it from being written later, then the stamp of its rows tells. The newest
//! batches are kept in memory, and are written again if a server that took over has lost them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_core::{Millis, Mono, Record};
use abide_session::crash_point;
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::SqlState;

use super::batch::{Batch, Stamp};
use super::link::{Address, Link, LinkFault};
use super::schema::{self, first_value};
use crate::clock::{Clock, SystemClock, pause, sleep_until};
use crate::store::StoreFault;
use crate::store::deliveries::WakerRecord;
use crate::store::write::{PRUNE_BATCH, TOLD_BY_CALL, crash_points};
use crate::{entropy, secret, timestamp};

/// Oldest server version, as `server_version_num` has it.
const OLDEST_SERVER: u64 = 140_000;
/// Times that a transaction is sent again that collided with another.
const ATTEMPTS: usize = 5;
/// Limits of the batches that are kept in memory.
const RECENT_AGE: Millis = Millis::from_secs(300);
const RECENT_BYTES: usize = 16 << 20;
/// Time between two attempts to connect: doubled from the first to the last.
const FIRST_RETRY: Millis = Millis(200);
const LAST_RETRY: Millis = Millis::from_secs(5);

/// Sender of the result of a commit.
type Done = oneshot::Sender<Result<(), StoreFault>>;

/// Work for the writer, with the sender of the result.
pub(super) enum Job {
    Commit(Vec<Record>, Done),
    Settle(Done),
    WakerRecord(WakerRecord, Done),
    Prune(u64, oneshot::Sender<Result<usize, StoreFault>>),
}

/// Sentence about a server that cannot be reached.
pub(super) type Trouble = Arc<Mutex<Option<String>>>;

/// Facts that the writer reads when it starts.
pub(super) struct Joined {
    /// Key that ids are made with.
    pub ids_key: u64,
}

pub(super) struct Writer {
    address: Address,
    /// Id of this installation.
    owner: String,
    link: Option<Link>,
    epoch: i64,
    /// Tokens of the last claim that was answered, and of those after it.
    claims: Vec<String>,
    /// Number of the last batch.
    batch: i64,
    /// Position of the next change in the history of timers.
    position: i64,
    /// Newest batches that were written, oldest first.
    recent: VecDeque<(Batch, Mono)>,
    recent_bytes: usize,
    /// Batch whose outcome is not known, and the answer that waits for it.
    unsettled: Option<(Batch, Option<Done>)>,
    /// Another daemon has taken over.
    fenced: Option<String>,
    /// Attempts to connect that failed in a row.
    failures: u32,
    /// Time of the next attempt, if there is no connection.
    retry_at: Mono,
    trouble: Trouble,
}

impl Writer {
    pub fn new(address: Address, owner: String, trouble: Trouble) -> Self {
        Writer {
            address,
            owner,
            link: None,
            epoch: 0,
            claims: Vec::new(),
            batch: 0,
            position: 0,
            recent: VecDeque::new(),
            recent_bytes: 0,
            unsettled: None,
            fenced: None,
            failures: 0,
            retry_at: Mono(0),
            trouble,
        }
    }

    /// Connects for the first time: checks the server, migrates the schema and claims what this installation owns.
    pub async fn join(&mut self) -> Result<Joined, StoreFault> {
        let link = self.address.connect().await.map_err(unreachable)?;
        let version = link.transact("SHOW server_version_num", &[]).await;
        let version = version.map_err(unreachable)?;
        let version = first_value(&version).and_then(|number| number.parse().ok());
        if version.is_none_or(|number: u64| number < OLDEST_SERVER) {
            return Err(StoreFault::Unopenable(
                "the server is older than PostgreSQL 14".into(),
            ));
        }
        let ids_key = schema::migrate(&link, &self.address.schema).await?;
        let row = format!(
            "INSERT INTO shard VALUES (0, '{}', 0, '') ON CONFLICT DO NOTHING",
            self.owner
        );
        link.transact(&row, &[]).await.map_err(unreachable)?;
        self.claim(&link).await?;
        // The calls whose answers were to carry these messages are gone.
        let sql = format!(
            "UPDATE message SET told_ms = made_ms WHERE told_ms = {TOLD_BY_CALL} AND seen_ms IS NULL; \
             SELECT coalesce(max(position) + 1, 0) FROM timer_change"
        );
        let row = link.transact(&sql, &[]).await.map_err(unreachable)?;
        let position = first_value(&row).and_then(|number| number.parse().ok());
        self.position = position.unwrap_or(0);
        self.link = Some(link);
        Ok(Joined { ids_key })
    }

    /// Runs jobs until all senders are dropped.
    pub async fn serve(mut self, mut queue: mpsc::Receiver<Job>, waker_records: &AtomicUsize) {
        loop {
            let job = tokio::select! {
                biased;
                () = self.link_needs_work() => {
                    self.reconnect_and_settle().await;
                    continue;
                }
                job = queue.recv() => match job {
                    Some(job) => job,
                    None => return,
                },
            };
            // A connection that has just been lost is made again before a job is refused.
            if self.link.is_none() && self.failures == 0 {
                self.reconnect_and_settle().await;
            }
            match job {
                Job::Commit(records, done) => drop(done.send(self.commit(&records).await)),
                Job::Settle(done) => {
                    if let Some((_, waiting)) = &mut self.unsettled {
                        *waiting = Some(done);
                    }
                    if self.link.is_some() {
                        self.settle().await;
                    }
                }
                Job::WakerRecord(record, done) => {
                    waker_records.fetch_sub(1, Ordering::Relaxed);
                    let batch = Batch::of_waker_record(self.next_stamp(), &record);
                    let result = match self.refusal() {
                        Some(refusal) => Err(refusal),
                        None => self.write(batch).await.map_err(|(fault, _)| fault),
                    };
                    drop(done.send(result));
                }
                Job::Prune(before, done) => drop(done.send(self.prune(before).await)),
            }
        }
    }

    /// Waits until the connection is lost, or should be made.
    async fn link_needs_work(&mut self) {
        match &mut self.link {
            _ if self.fenced.is_some() => std::future::pending().await,
            Some(link) => link.closed().await,
            None => sleep_until(&SystemClock, Some(self.retry_at)).await,
        }
    }

    /// Connects, claims and finds out what the server has.
    async fn reconnect_and_settle(&mut self) {
        self.link = None;
        if self.fenced.is_some() {
            return;
        }
        match self.reconnect().await {
            Ok(()) => {
                self.failures = 0;
                *self.trouble.lock().expect("no holder panics") = None;
                if matches!(self.unsettled, Some((_, Some(_)))) {
                    self.settle().await;
                }
            }
            Err(fault @ StoreFault::Fenced(_)) => {
                let sentence =
                    format!("{fault}. Timers and messages are refused here; commands run");
                *self.trouble.lock().expect("no holder panics") = Some(sentence);
            }
            Err(fault) => self.lost(&fault.to_string()),
        }
    }

    async fn reconnect(&mut self) -> Result<(), StoreFault> {
        let link = self.address.connect().await.map_err(unreachable)?;
        self.claim(&link).await?;
        self.write_lost_batches(&link).await?;
        self.link = Some(link);
        Ok(())
    }

    /// Notes that the connection is lost.
    fn lost(&mut self, why: &str) {
        self.link = None;
        let doubled = FIRST_RETRY.0 << self.failures.min(8);
        let jitter = entropy::bits() % FIRST_RETRY.0;
        self.retry_at = SystemClock.mono() + Millis(doubled.min(LAST_RETRY.0) + jitter);
        self.failures = self.failures.saturating_add(1);
        let mut trouble = self.trouble.lock().expect("no holder panics");
        if trouble.is_none() {
            let since = timestamp::rfc3339(SystemClock.now().wall.0);
            let sentence = format!(
                "the database at {} cannot be reached since {since}: {why}",
                self.address.shown()
            );
            tracing::error!("{sentence}");
            *trouble = Some(sentence);
        }
    }

    /// Claims what this installation owns, so that no earlier transaction can be written any more. Fails if another
    /// daemon has claimed it since.
    async fn claim(&mut self, link: &Link) -> Result<(), StoreFault> {
        let token = secret::random_hex::<16>();
        // The answer to an earlier claim of this daemon may have been lost.
        let earlier: Vec<String> = self
            .claims
            .iter()
            .map(|known| format!("'{known}'"))
            .collect();
        let unchanged = match earlier.is_empty() {
            true => String::new(),
            false => format!(
                " AND (epoch < {} OR claim IN ({}))",
                self.epoch,
                earlier.join(", ")
            ),
        };
        self.claims.push(token.clone());
        let sql = format!(
            "UPDATE shard SET epoch = greatest(epoch, {}) + 1, claim = '{token}' \
             WHERE id = 0 AND owner = '{}'{unchanged} RETURNING epoch",
            self.epoch, self.owner
        );
        let answer = link.transact(&sql, &[]).await.map_err(unreachable)?;
        let Some(epoch) = first_value(&answer).and_then(|epoch| epoch.parse().ok()) else {
            let why = format!(
                "schema {} at {} belongs to another machine; give this one a schema of its own",
                self.address.schema,
                self.address.shown()
            );
            if !earlier.is_empty() {
                self.fenced = Some(why.clone());
            }
            return Err(StoreFault::Fenced(why));
        };
        self.epoch = epoch;
        self.claims = vec![token];
        Ok(())
    }

    /// Locks the row of the claim, or fails with a division by zero.
    fn fence(&self) -> String {
        format!(
            "SELECT 1 / count(*) FROM (SELECT 1 FROM shard WHERE id = 0 AND epoch = {} AND claim = '{}' FOR UPDATE) \
             AS fence",
            self.epoch,
            self.claims.last().map_or("", String::as_str)
        )
    }

    fn next_stamp(&mut self) -> Stamp {
        self.batch += 1;
        Stamp {
            epoch: self.epoch,
            batch: self.batch,
        }
    }

    /// Fault of a job that cannot be begun.
    fn refusal(&self) -> Option<StoreFault> {
        if let Some(why) = &self.fenced {
            return Some(StoreFault::Fenced(why.clone()));
        }
        if self.link.is_some() && self.unsettled.is_none() {
            return None;
        }
        let trouble = self.trouble.lock().expect("no holder panics").clone();
        Some(StoreFault::Unwritable(trouble.unwrap_or_default()))
    }

    async fn commit(&mut self, records: &[Record]) -> Result<(), StoreFault> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        let stamp = self.next_stamp();
        let batch = Batch::of_records(stamp, records, &mut self.position);
        crash_points(records, |[before, _]| before);
        match self.write(batch).await {
            Ok(()) => {
                crash_points(records, |[_, after]| after);
                Ok(())
            }
            Err((fault @ StoreFault::Unknown(_), batch)) => {
                self.unsettled = Some((batch, None));
                Err(fault)
            }
            Err((fault, _)) => Err(fault),
        }
    }

    /// Writes a batch and keeps it, or gives it back with the fault.
    async fn write(&mut self, batch: Batch) -> Result<(), (StoreFault, Batch)> {
        match self.send(&batch, false).await {
            Ok(()) => {
                self.keep(batch);
                Ok(())
            }
            Err(fault) => Err((fault, batch)),
        }
    }

    async fn send(&mut self, batch: &Batch, again: bool) -> Result<(), StoreFault> {
        let Some(link) = &self.link else {
            return Err(StoreFault::Unwritable("there is no connection".into()));
        };
        let sent = send_batch(link, &self.fence(), batch, again).await;
        self.handle_link_result(sent.map(drop))
    }

    /// Drops the connection if the result of a transaction says that it is unusable.
    fn handle_link_result(&mut self, result: Result<(), LinkFault>) -> Result<(), StoreFault> {
        let Err(fault) = result else {
            return Ok(());
        };
        match &fault {
            LinkFault::Refused(code, _) if *code == SqlState::DIVISION_BY_ZERO => {
                // Another daemon has the claim, or a server that took over has lost it: the next claim tells.
                self.link = None;
                self.failures = 0;
                return Err(StoreFault::Unwritable(
                    "the claim is no longer valid".into(),
                ));
            }
            LinkFault::Refused(..) if self.link.as_ref().is_some_and(|link| !link.is_closed()) => {}
            LinkFault::Refused(_, why) | LinkFault::NotSent(why) | LinkFault::Unanswered(why) => {
                self.lost(&why.clone());
            }
        }
        Err(fault.into())
    }

    /// Keeps a batch that was written, within the limits.
    fn keep(&mut self, batch: Batch) {
        let now = SystemClock.mono();
        if batch.look().is_some() {
            self.recent_bytes += batch.size;
            self.recent.push_back((batch, now));
        }
        while let Some((oldest, at)) = self.recent.front()
            && (self.recent_bytes > RECENT_BYTES || now.since(*at) > RECENT_AGE)
        {
            self.recent_bytes -= oldest.size;
            self.recent.pop_front();
        }
    }

    /// Writes the batches again that a server which took over has lost, in their order.
    async fn write_lost_batches(&mut self, link: &Link) -> Result<(), StoreFault> {
        // A server that has lost a batch has lost all later ones.
        let (mut there, mut lost) = (0, self.recent.len());
        if let Some((newest, _)) = self.recent.back()
            && is_written(link, newest).await?
        {
            return Ok(());
        }
        while there < lost {
            let middle = usize::midpoint(there, lost);
            match is_written(link, &self.recent[middle].0).await? {
                true => there = middle + 1,
                false => lost = middle,
            }
        }
        if there < self.recent.len() {
            tracing::error!(
                "the database has lost {} commits that it had acknowledged; they are written again",
                self.recent.len() - there
            );
        }
        let fence = self.fence();
        for (batch, _) in self.recent.iter().skip(there) {
            let sent = send_batch(link, &fence, batch, true).await;
            sent.map_err(unreachable)?;
        }
        Ok(())
    }

    /// Finds out whether the batch of unknown outcome was written, and writes it if not.
    async fn settle(&mut self) {
        let Some((batch, Some(done))) = self.unsettled.take() else {
            return;
        };
        let looked = match &self.link {
            Some(link) => is_written(link, &batch).await,
            None => Err(StoreFault::Unwritable("there is no connection".into())),
        };
        let settled = match looked {
            Ok(true) => Ok(()),
            Ok(false) => self.send(&batch, true).await,
            // The claim keeps the old transaction from being written, but it is not known whether it was.
            Err(fault) => {
                self.lost(&fault.to_string());
                Err(StoreFault::Unknown(fault.to_string()))
            }
        };
        match settled {
            Err(StoreFault::Unknown(_)) => self.unsettled = Some((batch, Some(done))),
            Ok(()) => {
                self.keep(batch);
                let _ = done.send(Ok(()));
            }
            Err(fault) => drop(done.send(Err(fault))),
        }
    }

    /// Removes old rows, as [`Store::prune`](crate::store::Store::prune) says. The newest row of each table stays.
    async fn prune(&mut self, before_ms: u64) -> Result<usize, StoreFault> {
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        let messages = format!(
            "(SELECT number FROM message WHERE seen_ms < {before_ms} \
             AND number < (SELECT max(number) FROM message) ORDER BY number LIMIT {PRUNE_BATCH})"
        );
        let timers = format!(
            "(SELECT number FROM timer WHERE ended_ms < {before_ms} \
             AND number < (SELECT max(number) FROM timer) \
             AND id NOT IN (SELECT about FROM message WHERE seen_ms IS NULL) ORDER BY number LIMIT {PRUNE_BATCH})"
        );
        let sql = format!(
            "{}; DELETE FROM delivery WHERE message IN {messages}; \
             DELETE FROM timer_change WHERE timer IN {timers}; \
             DELETE FROM message WHERE number IN {messages}; \
             DELETE FROM timer WHERE number IN {timers}; \
             DELETE FROM question WHERE id IN \
             (SELECT id FROM question WHERE closed_ms < {before_ms} LIMIT {PRUNE_BATCH})",
            self.fence()
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
        self.handle_link_result(answer.map(drop))?;
        Ok(usize::try_from(removed).unwrap_or(usize::MAX))
    }
}

/// Sends a batch; again if it collided with another transaction.
async fn send_batch(link: &Link, fence: &str, batch: &Batch, again: bool) -> Result<(), LinkFault> {
    let statements = batch.statements(again);
    let mut attempt = 1;
    loop {
        match link.transact(fence, &statements).await {
            Err(fault) if fault.is_transient() && attempt < ATTEMPTS => {
                attempt += 1;
                pause(Duration::from_millis(5 + entropy::bits() % 20)).await;
            }
            result => return result.map(drop),
        }
    }
}

/// True if the rows of a batch carry its stamp or a later one.
async fn is_written(link: &Link, batch: &Batch) -> Result<bool, StoreFault> {
    let Some(look) = batch.look() else {
        return Ok(false);
    };
    let answer = link.transact(&look, &[]).await.map_err(unreachable)?;
    Ok(first_value(&answer).is_some_and(|count| count != "0"))
}

/// Fault of a transaction that decides nothing about records.
fn unreachable(fault: LinkFault) -> StoreFault {
    match fault {
        LinkFault::NotSent(why) | LinkFault::Unanswered(why) | LinkFault::Refused(_, why) => {
            StoreFault::Unwritable(why)
        }
    }
}
