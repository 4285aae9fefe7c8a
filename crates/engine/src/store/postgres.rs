//! PostgreSQL, for a daemon whose configuration names one: `store = "postgres://user@host/db?schema=abide"`.
//!
//! One thread writes (`writer.rs`) and one reads (`reads.rs`), each with a connection of its own. The event loop waits
//! for neither.

mod batch;
mod link;
mod reads;
mod records;
mod schema;
mod writer;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc as std_mpsc};
use std::time::Duration;

use abide_core::Record;
use abide_core::id::IdPermutation;
use tokio::sync::{mpsc, oneshot};

pub(crate) use link::Address;
pub(super) use reads::Reads;
use writer::{Job, Joined, Trouble, Writer};

use super::{MAX_JOBS, MAX_WAKER_RECORDS, Opened, Store, StoreFault, StoreReader, WakerRecord};
use crate::clock::pause;

/// Time between two attempts to reach a database that was away when the daemon started.
const RETRY: Duration = Duration::from_secs(2);

/// PostgreSQL with a thread that writes.
struct Postgres {
    jobs: mpsc::Sender<Job>,
    /// Number of waker records in the queue.
    waker_records: Arc<AtomicUsize>,
    trouble: Trouble,
}

/// Opens the database, migrates its schema and reads what is open. `owner` is the id of this installation.
pub(super) fn open(address: Address, owner: &str, boot_id: u128) -> Result<Opened, StoreFault> {
    let trouble = Trouble::default();
    let (jobs, queue) = mpsc::channel(MAX_JOBS);
    let (joined_tx, joined) = std_mpsc::sync_channel::<Result<Joined, StoreFault>>(1);
    let waker_records = Arc::new(AtomicUsize::new(0));
    let mut writer = Writer::new(address.clone(), owner.to_owned(), trouble.clone());
    let queued_records = waker_records.clone();
    run_on_thread(async move {
        let joined = writer.join().await;
        let is_joined = joined.is_ok();
        let _ = joined_tx.send(joined);
        if is_joined {
            writer.serve(queue, &queued_records).await;
        }
    })?;
    let ended = || StoreFault::Refused("the thread of the database has ended".into());
    let Joined { ids_key } = joined.recv().map_err(|_| ended())??;
    let reads = Reads::start(address)?;
    let id_permutation = IdPermutation { key: ids_key };
    let loaded = reads.read_now(move |db| super::read_open(db, id_permutation, boot_id))?;
    let store = Postgres {
        jobs,
        waker_records,
        trouble,
    };
    let reader = StoreReader::of_postgres(reads, id_permutation);
    Ok(Opened::new(Arc::new(store), reader, loaded))
}

/// Tells when a database can be opened that could not be at the start.
pub(super) fn watch(address: Address, owner: &str) -> Result<oneshot::Receiver<()>, StoreFault> {
    let (reachable, receiver) = oneshot::channel();
    let owner = owner.to_owned();
    run_on_thread(async move {
        loop {
            pause(RETRY).await;
            let mut writer = Writer::new(address.clone(), owner.clone(), Arc::default());
            if writer.join().await.is_ok() {
                let _ = reachable.send(());
                return;
            }
        }
    })?;
    Ok(receiver)
}

/// Runs a future on a thread with a runtime of its own.
fn run_on_thread(work: impl Future<Output = ()> + Send + 'static) -> Result<(), StoreFault> {
    let refused =
        |e: std::io::Error| StoreFault::Refused(format!("a thread for the database: {e}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(refused)?;
    std::thread::Builder::new()
        .name("abide-store".into())
        .spawn(move || runtime.block_on(work))
        .map_err(refused)?;
    Ok(())
}

impl Postgres {
    /// Sends a job. If that is not possible, its sender is dropped, which the receiver sees as a failure.
    fn send<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> oneshot::Receiver<T> {
        let (done, answer) = oneshot::channel();
        let _ = self.jobs.try_send(job(done));
        answer
    }
}

impl Store for Postgres {
    fn commit(&self, records: Vec<Record>) -> oneshot::Receiver<Result<(), StoreFault>> {
        self.send(|done| Job::Commit(records, done))
    }

    fn settle(&self) -> oneshot::Receiver<Result<(), StoreFault>> {
        self.send(Job::Settle)
    }

    fn trouble(&self) -> Option<String> {
        self.trouble.lock().expect("no holder panics").clone()
    }

    fn refusal(&self, fault: &StoreFault) -> Option<String> {
        self.trouble().or_else(|| Some(fault.to_string()))
    }

    fn write_waker_record(&self, record: WakerRecord) -> oneshot::Receiver<Result<(), StoreFault>> {
        if self.waker_records.fetch_add(1, Ordering::Relaxed) >= MAX_WAKER_RECORDS {
            self.waker_records.fetch_sub(1, Ordering::Relaxed);
            return oneshot::channel().1;
        }
        self.send(|done| Job::WakerRecord(record, done))
    }

    fn prune(&self, before_ms: u64) -> oneshot::Receiver<Result<usize, StoreFault>> {
        self.send(|done| Job::Prune(before_ms, done))
    }
}
