//! The database: questions, timers, messages and deliveries. One writer, one synced transaction per generation
//! (`commits.rs`).

mod damage;
mod deliveries;
mod held;
mod known_timers;
mod load;
mod open;
mod postgres;
mod query;
mod read;
mod records;
mod schema;
mod seal;
mod timer_history;
mod timer_list;
mod wal;
mod write;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use abide_core::id::IdPermutation;
use abide_core::record::{StoredRows, StoredState};
use abide_core::timer::Until;
use abide_core::{HeldCommand, Question, QuestionId, Record, SessionId, TimerId};
use rusqlite::{Connection, ffi};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use seal::UNSEALED;

use crate::clients::ConnectedReaders;
pub use damage::{check, damaged_copies, wal_is_damaged};
pub use deliveries::{ClientRow, Delivery, DeliveryState, WakerRecord};
pub use held::CommandAnswer;
pub(crate) use load::RowScope;
pub use open::open;
pub(crate) use open::{OpenedStore, open_postgres};
pub(crate) use postgres::{
    Address as PostgresAddress, Link, OpenedFleet, OwnMachine, SCHEMA_VERSION, ShardChange,
    ShardRows, Statement as PostgresStatement, TIMELINE, statement_guard,
};
pub use postgres::{
    DirectoryFacts, DirectoryRow, DirectoryState, InvalidAddress, ServerFacts, TimerElsewhere,
    TimerMarks,
};
pub(crate) use postgres::{
    FrameTable, MAX_ENTRIES, MAX_FRAMES, NOW_MS, StoredFrame, inspect, introduced_machines, leave,
};
pub use read::{ClosedQuestion, EndedQuery, MessageQuery, MessageRow, StoreReader, TimerRow};
pub use timer_history::TimerChangeRow;
pub use timer_list::{EndedFilter, MessageCounts, TimerOrder, TimerPage, TimerQuery};
#[cfg(test)]
pub(crate) use write::commit;

/// Writer of records.
pub trait Store: Send + Sync {
    /// Makes the records durable, all or none. The event loop has at most one commit in flight.
    fn commit(&self, records: Vec<Record>) -> oneshot::Receiver<Result<(), StoreFault>>;

    /// Finds out how a commit has ended that failed with [`StoreFault::Unknown`], however long that takes, and makes its
    /// records durable if they are not.
    fn settle(&self) -> oneshot::Receiver<Result<(), StoreFault>> {
        oneshot::channel().1
    }

    /// Sentence about a database that cannot be reached at present.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Sentence for calls that are refused because of this fault, if there is a better one than that the disk is full.
    fn refusal(&self, _: &StoreFault) -> Option<String> {
        self.trouble()
    }

    /// Writes a record about wakers.
    fn write_waker_record(&self, record: WakerRecord) -> oneshot::Receiver<Result<(), StoreFault>>;

    /// Takes the messages that other machines have for these readers. `done` is told, or dropped, when the event loop
    /// has them; with it the search does not depend on what the last heartbeat found.
    fn take_messages(&self, _: ConnectedReaders, _done: Option<oneshot::Sender<()>>) {}

    /// Removes a limited number of ended timers and seen messages from before `before_ms`. Returns how many.
    fn prune(&self, before_ms: u64) -> oneshot::Receiver<Result<usize, StoreFault>>;
}

/// Fault of the database. Nothing of what was to be written is there, unless the variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum StoreFault {
    /// The write may succeed later: the disk is full, another program holds the lock, the server cannot be reached.
    #[error("the database cannot be written: {0}")]
    Unwritable(String),
    /// The read may succeed later: the server cannot be reached, or has too much to do.
    #[error("the database cannot be read: {0}")]
    Unreadable(String),
    /// The machine may not write this now: it is joining its fleet, or another machine has its timers. That passes.
    #[error("the database cannot be written: {0}")]
    NotOwned(String),
    /// The write may have been made: the server did not answer. [`Store::settle`] finds out.
    #[error("it is not known whether the database has written: {0}")]
    Unknown(String),
    /// A row was changed by another daemon, so what was decided does not apply any more.
    #[error("the database was changed by another daemon: {0}")]
    Stale(String),
    /// The file cannot be opened, or not for writing.
    #[error("the database cannot be opened: {0}")]
    Unopenable(String),
    /// The file is missing or empty, although there was a database.
    #[error("the database is missing or empty, though there was one")]
    Missing,
    /// The schema is of a later version.
    #[error("the database was written by a newer abide: {0}")]
    Newer(String),
    /// The content of the file is not valid. Nothing was written.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// The system refused a resource other than the file, such as a thread.
    #[error("the system refused what the daemon needs: {0}")]
    Refused(String),
    /// The content on disk is unknown until it is read again.
    #[error("the database failed: {0}")]
    Broken(String),
}

/// State on disk after a commit that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterFault {
    /// Nothing was written.
    NothingWritten,
    /// The commit may have been made; [`Store::settle`] finds out.
    Unknown,
    /// The content is not known until it is read again.
    Broken,
}

impl StoreFault {
    /// Fault of a commit that may have been made, for calls that do not wait for it any longer.
    pub(crate) fn no_answer() -> Self {
        StoreFault::Unknown("the database does not answer".into())
    }

    /// State on disk after a commit with this fault.
    pub(crate) fn after_commit(&self) -> AfterFault {
        match self {
            StoreFault::Unwritable(_)
            | StoreFault::NotOwned(_)
            | StoreFault::Unopenable(_)
            | StoreFault::Stale(_)
            | StoreFault::Damaged(_) => AfterFault::NothingWritten,
            StoreFault::Unknown(_) => AfterFault::Unknown,
            StoreFault::Unreadable(_)
            | StoreFault::Missing
            | StoreFault::Newer(_)
            | StoreFault::Refused(_)
            | StoreFault::Broken(_) => AfterFault::Broken,
        }
    }

    /// Reason, without the kind.
    fn reason(&self) -> String {
        match self {
            StoreFault::Unwritable(why)
            | StoreFault::Unreadable(why)
            | StoreFault::Unopenable(why) => why.clone(),
            fault => fault.to_string(),
        }
    }
}

impl From<rusqlite::Error> for StoreFault {
    fn from(e: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        // A disk that refuses a write (an exhausted quota is reported this way, unlike a full disk) keeps its old
        // content. Only after a failed sync the content is unknown.
        let refused = e.sqlite_error().map(|fault| fault.extended_code);
        if let Some(ffi::SQLITE_IOERR_WRITE | ffi::SQLITE_IOERR_SHMSIZE) = refused {
            return StoreFault::Unwritable(e.to_string());
        }
        match e.sqlite_error_code() {
            Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                StoreFault::Unwritable(e.to_string())
            }
            Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
                StoreFault::Unopenable(e.to_string())
            }
            // Invalid pages, missing tables, and values that the schema does not allow.
            Some(
                ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::TypeMismatch
                | ErrorCode::Unknown,
            )
            | None => StoreFault::Damaged(e.to_string()),
            _ => StoreFault::Broken(e.to_string()),
        }
    }
}

/// SQLite with a thread of its own for everything that may take long.
pub struct Sqlite(JobQueue);

/// Sender of the result of a commit.
type Done = oneshot::Sender<Result<(), StoreFault>>;

/// Work for the thread that writes, with the sender of the result.
enum Job {
    Commit(Vec<Record>, Done),
    /// Only for PostgreSQL, like `TakeMessages`.
    Settle(Done),
    WakerRecord(WakerRecord, OwnedSemaphorePermit, Done),
    Prune(u64, oneshot::Sender<Result<usize, StoreFault>>),
    /// Takes the messages of other machines for these readers.
    TakeMessages(
        ConnectedReaders,
        OwnedSemaphorePermit,
        Option<oneshot::Sender<()>>,
    ),
}

/// Queue of the thread that writes.
struct JobQueue {
    jobs: mpsc::Sender<Job>,
    /// Places for waker records in the queue.
    waker_places: Arc<Semaphore>,
}

impl JobQueue {
    fn new() -> (Self, mpsc::Receiver<Job>) {
        let (jobs, queue) = mpsc::channel(MAX_JOBS);
        let waker_places = Arc::new(Semaphore::new(MAX_WAKER_RECORDS));
        (JobQueue { jobs, waker_places }, queue)
    }

    /// Sends a job. If that is not possible, its sender is dropped, which the receiver sees as a failure.
    fn send<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> oneshot::Receiver<T> {
        let (done, answer) = oneshot::channel();
        let _ = self.jobs.try_send(job(done));
        answer
    }

    fn write_waker_record(&self, record: WakerRecord) -> oneshot::Receiver<Result<(), StoreFault>> {
        match self.waker_places.clone().try_acquire_owned() {
            Ok(place) => self.send(|done| Job::WakerRecord(record, place, done)),
            Err(_) => oneshot::channel().1,
        }
    }
}

/// Waker records that may be queued: many clients that connect at once write one each.
const MAX_WAKER_RECORDS: usize = 1_024;
/// Jobs that may be queued: besides the waker records the one commit that the event loop has in flight, the one prune of
/// retention, and one search for messages of other machines. So there is always room for a commit, without which the
/// daemon ends.
const MAX_JOBS: usize = MAX_WAKER_RECORDS + 3;
/// Time that another program may hold the database before a write fails.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Open database and what it holds that is not over.
pub struct Opened {
    /// Writer.
    pub store: Arc<dyn Store>,
    pub reader: StoreReader,
    pub state: StoredState,
    pub open: OpenRows,
}

/// Rows of a database, or of a shard, that are not over.
#[derive(Default)]
pub struct OpenRows {
    /// Timers and messages.
    pub stored: StoredRows,
    pub conditions: Vec<(TimerId, Option<Until>)>,
    pub questions: Vec<(QuestionId, Question)>,
    /// Commands that a person has approved and whose start is not recorded.
    pub approved: Vec<(QuestionId, SessionId, HeldCommand)>,
    /// Clients of all agents.
    pub clients: Vec<ClientRow>,
    /// Sessions whose ending the newest messages report.
    pub reported_endings: HashSet<SessionId>,
}

/// Migrates the schema of a database and reads what is open.
pub(crate) fn load(
    db: &mut Connection,
    boot_id: u128,
) -> Result<(StoredState, OpenRows), StoreFault> {
    schema::migrate(db)?;
    let id_permutation = schema::ids_key(db).map(|key| IdPermutation { key })?;
    // The calls whose answers were to carry these messages are gone. If a full disk prevents this update, the call
    // that reads them next makes it.
    let lost = "UPDATE message SET told_ms = made_ms WHERE told_ms = ? AND seen_ms IS NULL";
    db.execute(lost, [records::TOLD_IN_ANSWER])
        .unwrap_or_default();
    let state = load::stored_state(db, id_permutation, boot_id)?;
    Ok((
        state,
        load::open_rows(db, id_permutation, RowScope::Database, &UNSEALED)?,
    ))
}

impl Sqlite {
    /// Opens the database, migrates its schema and reads what is open.
    pub fn open(path: &Path, boot_id: u128) -> Result<Opened, StoreFault> {
        let mut db = connect(path)?;
        let (state, open) = load(&mut db, boot_id)?;
        let reader = StoreReader::new(connect(path)?, connect(path)?, state.id_permutation);
        let (jobs, queue) = JobQueue::new();
        std::thread::Builder::new()
            .name("abide-store".into())
            .spawn(move || serve(&mut db, queue))
            .map_err(|e| StoreFault::Refused(format!("a thread for the database: {e}")))?;
        Ok(Opened {
            store: Arc::new(Sqlite(jobs)),
            reader,
            state,
            open,
        })
    }
}

/// Runs jobs until all senders are dropped.
fn serve(db: &mut Connection, mut queue: mpsc::Receiver<Job>) {
    while let Some(job) = queue.blocking_recv() {
        match job {
            Job::Commit(records, done) => drop(done.send(write::commit(db, &records))),
            Job::WakerRecord(record, _place, done) => {
                drop(done.send(write::write_waker_record(db, &record)));
            }
            Job::Prune(before, done) => drop(done.send(write::prune(db, before))),
            Job::Settle(_) | Job::TakeMessages(..) => {}
        }
    }
}

impl Store for Sqlite {
    fn commit(&self, records: Vec<Record>) -> oneshot::Receiver<Result<(), StoreFault>> {
        self.0.send(|done| Job::Commit(records, done))
    }

    fn write_waker_record(&self, record: WakerRecord) -> oneshot::Receiver<Result<(), StoreFault>> {
        self.0.write_waker_record(record)
    }

    fn prune(&self, before_ms: u64) -> oneshot::Receiver<Result<usize, StoreFault>> {
        self.0.send(|done| Job::Prune(before_ms, done))
    }
}

/// Runs work in one transaction.
fn in_transaction<T>(
    db: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, StoreFault>,
) -> Result<T, StoreFault> {
    let transaction = db.unchecked_transaction()?;
    let done = work(&transaction)?;
    transaction.commit()?;
    Ok(done)
}

/// Opens a connection with the settings that all connections share.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that opens a database"
)]
fn connect(path: &Path) -> Result<Connection, StoreFault> {
    let db = Connection::open(path)?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    db.set_prepared_statement_cache_capacity(64);
    Ok(db)
}

#[cfg(test)]
mod tests {
    use super::*;
    use abide_core::question::Closing;
    use abide_core::time::Wall;

    #[test]
    fn commit_succeeds_with_a_full_queue_of_waker_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abide.db");
        let store = Sqlite::open(&path, 1).expect("a database").store;
        let other = connect(&path).expect("a connection");
        other.execute_batch("BEGIN IMMEDIATE").expect("it is held");
        let note = || store.write_waker_record(WakerRecord::Enabled("w".into()));
        let waker_records: Vec<_> = (0..2 * MAX_WAKER_RECORDS).map(|_| note()).collect();
        let (question, at) = (QuestionId::from_bits(1), Wall(0));
        let closing = Closing::Withdrawn;
        let committed = store.commit(vec![Record::Closed {
            question,
            closing,
            key: None,
            at,
        }]);
        other.execute_batch("ROLLBACK").expect("it is free");
        let committed = committed.blocking_recv();
        assert!(matches!(committed, Ok(Ok(()))), "{committed:?}");
        let made = waker_records
            .into_iter()
            .map(oneshot::Receiver::blocking_recv);
        // A record that was queued but failed because the database was locked counts as accepted.
        let taken = made.filter(Result::is_ok).count();
        assert!(
            (MAX_WAKER_RECORDS..2 * MAX_WAKER_RECORDS).contains(&taken),
            "{taken}"
        );
        assert!(matches!(note().blocking_recv(), Ok(Ok(()))));
    }
}
