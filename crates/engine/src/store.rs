//! The database: what must survive and is not in a session's own folder. One writer, one
//! transaction a turn, synced before anybody is told.

mod checkpoint;
mod damage;
mod deliveries;
mod read;
mod schema;
mod timer_list;
mod wal;
mod write;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use abide_core::id::Shuffle;
use abide_core::record::StoredState;
use abide_core::timer::Until;
use abide_core::{Question, QuestionId, Record, TimerId};
use rusqlite::{Connection, ffi};
use tokio::sync::oneshot;

use checkpoint::Checkpointer;
pub use damage::{check, damaged_copies, journal_is_damaged, open};
pub use deliveries::{ClientRow, Delivery, DeliveryState, WakerRecord};
pub use read::{EndedQuery, MessageQuery, MessageRow, Stats, StoreReader, TimerRow};
pub use timer_list::{EndedFilter, MessageCounts, TimerDay, TimerOrder, TimerPage, TimerQuery};
pub use write::closing_word;
use writer::Writer;

/// Keeps records. The loop awaits `commit` and nothing else.
pub trait Store: Send + Sync {
    /// Makes the records durable, all or none.
    fn commit(&self, records: Vec<Record>) -> oneshot::Receiver<Result<(), StoreFault>>;

    /// Notes something about wakers.
    fn write_waker_record(&self, record: WakerRecord) -> oneshot::Receiver<Result<(), StoreFault>>;

    /// Removes a limited number of ended timers and seen messages from before `ms`; says how many.
    fn prune(&self, before_ms: u64) -> oneshot::Receiver<Result<usize, StoreFault>>;
}

/// The database failed. Nothing of what was to be written is there.
#[derive(Debug, thiserror::Error)]
pub enum StoreFault {
    /// It may work again: the disk is full, or another program holds it.
    #[error("the database cannot be written: {0}")]
    Unwritable(String),
    /// The file may not be opened, or not for writing.
    #[error("the database cannot be opened: {0}")]
    Unopenable(String),
    /// The tables are those of a later version.
    #[error("the database was written by a newer abide: {0}")]
    Newer(String),
    /// What is in the file makes no sense. Nothing was written.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// The system did not give what is needed beside the file, such as a thread.
    #[error("the system refused what the daemon needs: {0}")]
    Refused(String),
    /// Nobody knows what is on the disk any more. Only reading it again tells.
    #[error("the database failed: {0}")]
    Broken(String),
}

impl From<rusqlite::Error> for StoreFault {
    fn from(e: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        // A disk that refuses what is written (a quota that is used up is told so, unlike a disk that is full)
        // leaves what was there as it was. Only where a sync fails nobody knows.
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
            // Pages that are none, tables that are not there, and values that no column of ours holds.
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

/// SQLite with a thread of its own, which does whatever may take long.
pub struct Sqlite {
    writer: Arc<Writer>,
    checkpointer: Arc<Checkpointer>,
    jobs: std_mpsc::SyncSender<Job>,
    /// How many notes are among them.
    waker_records: Arc<AtomicUsize>,
}

enum Job {
    Commit(Vec<Record>, oneshot::Sender<Result<(), StoreFault>>),
    WakerRecord(WakerRecord, oneshot::Sender<Result<(), StoreFault>>),
    Prune(u64, oneshot::Sender<Result<usize, StoreFault>>),
}

/// Notes that may be queued for the writer: of many clients that come at once, each is one.
const MAX_WAKER_RECORDS: usize = 1_024;
/// What may be queued in all. The loop awaits each turn, and so does who tidies: however many notes wait,
/// there is room for these.
const MAX_JOBS: usize = MAX_WAKER_RECORDS + 2;
/// How long another program may hold the database before that is a failure.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// What a database holds that is not over yet.
pub struct Opened {
    /// The way to write.
    pub store: Arc<dyn Store>,
    /// The way to read what is over, and all texts.
    pub reader: StoreReader,
    /// Questions that are open.
    pub questions: Vec<(QuestionId, Question)>,
    /// Timers and messages.
    pub state: StoredState,
    /// What the timers wait for.
    pub conditions: Vec<(TimerId, Until)>,
}

impl Sqlite {
    /// Opens the database, brings its tables up to date, and reads what is open.
    pub fn open(path: &Path, boot_id: u128) -> Result<Opened, StoreFault> {
        let mut db = connect(path)?;
        schema::migrate(&mut db)?;
        let shuffle = schema::ids_key(&db).map(|key| Shuffle { key })?;
        let questions = read::open_questions(&db)?;
        let (state, conditions) = read::stored_state(&db, shuffle, boot_id)?;
        let reader = StoreReader::new(connect(path)?, connect(path)?, shuffle);
        let writer = Arc::new(Writer::new(db)?);
        let checkpointer = Arc::new(Checkpointer::start(connect(path)?, writer.clone())?);
        let (jobs, queue) = std_mpsc::sync_channel::<Job>(MAX_JOBS);
        let waker_records = Arc::new(AtomicUsize::new(0));
        let (serving, asking, queued_records) =
            (writer.clone(), checkpointer.clone(), waker_records.clone());
        std::thread::Builder::new()
            .name("abide-store".into())
            .spawn(move || serve(&serving, &asking, &queue, &queued_records))
            .map_err(|e| StoreFault::Refused(format!("a thread for the database: {e}")))?;
        let store = Sqlite {
            writer,
            checkpointer,
            jobs,
            waker_records,
        };
        Ok(Opened {
            store: Arc::new(store),
            reader,
            questions,
            state,
            conditions,
        })
    }
}

fn serve(
    writer: &Writer,
    checkpointer: &Checkpointer,
    queue: &std_mpsc::Receiver<Job>,
    waker_records: &AtomicUsize,
) {
    while let Ok(job) = queue.recv() {
        match job {
            Job::Commit(records, done) => drop(done.send(writer.commit(&records))),
            Job::WakerRecord(record, done) => {
                waker_records.fetch_sub(1, Ordering::Relaxed);
                drop(done.send(writer.with(|db| deliveries::write_waker_record(db, &record))));
            }
            Job::Prune(before, done) => {
                drop(done.send(writer.with(|db| write::prune(db, before))));
            }
        }
        // Whoever waits has been answered first.
        if writer.wal_size.needs_checkpoint() {
            checkpointer.request();
        }
    }
}

impl Store for Sqlite {
    fn commit(&self, records: Vec<Record>) -> oneshot::Receiver<Result<(), StoreFault>> {
        let (done, answer) = oneshot::channel();
        if let Some(result) = self.writer.try_commit_inline(&records) {
            let _ = done.send(result);
            if self.writer.wal_size.needs_checkpoint() {
                self.checkpointer.request();
            }
            return answer;
        }
        // A dead writer drops `done`, which the receiver sees as a failure.
        let _ = self.jobs.try_send(Job::Commit(records, done));
        answer
    }

    fn write_waker_record(&self, record: WakerRecord) -> oneshot::Receiver<Result<(), StoreFault>> {
        let (done, answer) = oneshot::channel();
        // Where there are too many, `done` is dropped, which the receiver sees as a failure.
        if self.waker_records.fetch_add(1, Ordering::Relaxed) >= MAX_WAKER_RECORDS
            || self.jobs.try_send(Job::WakerRecord(record, done)).is_err()
        {
            self.waker_records.fetch_sub(1, Ordering::Relaxed);
        }
        answer
    }

    fn prune(&self, before_ms: u64) -> oneshot::Receiver<Result<usize, StoreFault>> {
        let (done, answer) = oneshot::channel();
        let _ = self.jobs.try_send(Job::Prune(before_ms, done));
        answer
    }
}

/// Does all of something in one transaction, or nothing. What begins and ends it is prepared once: to
/// read those words again takes longer than many a transaction.
fn in_transaction<T>(
    db: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, StoreFault>,
) -> Result<T, StoreFault> {
    db.prepare_cached("BEGIN")?.execute([])?;
    let done = work(db).and_then(|done| {
        db.prepare_cached("COMMIT")?.execute([])?;
        Ok(done)
    });
    if done.is_err() && !db.is_autocommit() {
        // Where even this fails, the next one cannot begin and says so.
        let _ = db.execute_batch("ROLLBACK");
    }
    done
}

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
    fn however_many_notes_wait_a_commit_is_made() {
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
            at,
        }]);
        other.execute_batch("ROLLBACK").expect("it is free");
        let committed = committed.blocking_recv();
        assert!(matches!(committed, Ok(Ok(()))), "{committed:?}");
        let made = waker_records
            .into_iter()
            .map(oneshot::Receiver::blocking_recv);
        // A note for which the database was held too long has failed, but it was taken.
        let taken = made.filter(Result::is_ok).count();
        assert!(
            (MAX_WAKER_RECORDS..2 * MAX_WAKER_RECORDS).contains(&taken),
            "{taken}"
        );
        assert!(matches!(note().blocking_recv(), Ok(Ok(()))));
    }
}
