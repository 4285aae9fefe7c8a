//! PostgreSQL, for a daemon whose configuration names one: `store = "postgres://user@host/db?schema=abide"`.
//!
//! One task writes (`writer.rs`), one thread reads few rows and one reads many (`reads.rs`), each with a connection of its
//! own. The event loop waits for none. The task runs on the thread of the event loop, so that a commit wakes no other
//! thread. The membership (`crate::fleet`), which decides what shards are written here, and the links between machines
//! (`crate::machine_link`) have connections of their own.

mod batch;
mod directory;
mod frames;
mod joining;
mod link;
mod ownership;
mod prepared;
mod reads;
mod schema;
mod settling;
mod shard_rows;
mod sharing;
mod timer_marks;
mod tls;
mod transaction;
mod writer;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use abide_core::fleet::ShardId;
use abide_core::id::IdPermutation;
use abide_core::record::StoredState;
use abide_core::timer::Anchor;
use abide_core::{Millis, Record};
use tokio::sync::{Semaphore, mpsc, oneshot};

pub(crate) use batch::Statement;
pub(crate) use directory::MAX_ENTRIES;
pub use directory::{DirectoryFacts, DirectoryRow, DirectoryState, TimerElsewhere};
pub(crate) use frames::{FrameTable, MAX_FRAMES, NOW_MS, StoredFrame};
pub use joining::ServerFacts;
pub(crate) use joining::{inspect, introduced_machines, leave};
pub use link::InvalidAddress;
pub(crate) use link::{Address, Link};
pub(crate) use prepared::statement_guard;
pub(super) use reads::Reads;
pub(crate) use schema::{TIMELINE, VERSION as SCHEMA_VERSION};
pub(crate) use shard_rows::{ShardChange, ShardRows};
pub use timer_marks::TimerMarks;
use writer::{Trouble, Writer, WriterParts, unreachable};

use super::seal::RowSeal;
use super::{Job, JobQueue, Opened, Store, StoreFault, StoreReader, WakerRecord};
use crate::clients::ConnectedReaders;
use crate::clock::{SystemClock, pause, sleep_until};
use crate::config::Paths;
use crate::fleet::{Fleet, Introduction, MachineIdentity, Runner, RunnerParts};
use crate::lock::lock;

/// Time between two attempts to reach a database that was away when the daemon started.
const RETRY: Duration = Duration::from_secs(2);
/// Oldest server version, as `server_version_num` has it.
const OLDEST_SERVER: u64 = 140_000;
/// Changes of shards that may be queued, for the writer and for the event loop.
const MAX_CHANGES: usize = 1_024;
/// Time for which the start waits for the timers of this machine. They are loaded later if another machine has them.
const START: Millis = Millis::from_secs(3);

/// PostgreSQL with a task that writes.
struct Postgres {
    queue: JobQueue,
    /// Place for a search for messages of other machines in the queue.
    search_place: Arc<Semaphore>,
    trouble: Trouble,
    fleet: Fleet,
}

/// This machine, as it joins the fleet of a database.
#[derive(Clone)]
pub(crate) struct OwnMachine {
    pub paths: Paths,
    pub identity: MachineIdentity,
    pub introduction: Introduction,
    pub boot_id: u128,
}

/// Fleet of an open database.
pub(crate) struct OpenedFleet {
    pub fleet: Fleet,
    /// Changes of the shards of this machine that came during the start, in their order.
    pub first_changes: Vec<ShardChange>,
    /// Changes after those.
    pub changes: mpsc::Receiver<ShardChange>,
}

/// Opens the database, migrates its schema, joins its fleet and reads what is open.
pub(super) async fn open(
    address: Address,
    machine: OwnMachine,
) -> Result<(Opened, OpenedFleet), StoreFault> {
    let trouble = Trouble::default();
    let (jobs, queue) = JobQueue::new();
    let (ownership, ownership_changes) = mpsc::channel(MAX_CHANGES);
    let (changes_sender, changes) = mpsc::channel(MAX_CHANGES);
    let home = ShardId(machine.identity.id);
    let boot_id = machine.boot_id;
    let seal = RowSeal::open(&machine.paths.row_key());
    let seal = seal.map_err(|fault| StoreFault::Refused(fault.to_string()))?;
    let (runner, fleet) = Runner::new(RunnerParts {
        address: address.clone(),
        paths: machine.paths,
        identity: machine.identity,
        introduction: machine.introduction,
        ownership,
    });
    let reads = Reads::start(address.clone())?;
    let (link, ids) = prepare(&address).await?;
    let parts = WriterParts {
        address,
        home,
        seal,
        fleet: fleet.clone(),
        reads: reads.clone(),
        changes: changes_sender,
        trouble: trouble.clone(),
    };
    let writer = Writer::new(parts, &ids, link);
    let membership = tokio::spawn(runner.run());
    tokio::spawn(async move {
        writer.serve(queue, ownership_changes).await;
        membership.abort();
    });
    let FirstLoad {
        boot_offset,
        rows,
        others,
        changes,
    } = first_load(changes, home).await;
    let store = Postgres::new(jobs, trouble, fleet.clone());
    let reader = StoreReader::of_postgres(reads, ids.id_permutation, ownership::column(home));
    let opened = opened_with(Arc::new(store), reader, ids, boot_id, boot_offset, rows);
    let fleet = OpenedFleet {
        fleet,
        first_changes: others,
        changes,
    };
    Ok((opened, fleet))
}

/// Connects for the first time: checks the server and migrates the schema.
async fn prepare(address: &Address) -> Result<(Link, ReservedIds), StoreFault> {
    let link = address.connect().await.map_err(unreachable)?;
    let version = link.transact("SHOW server_version_num", &[]).await;
    let version = version.map_err(unreachable)?;
    let version = schema::first_value(&version).and_then(|number| number.parse().ok());
    if version.is_none_or(|number: u64| number < OLDEST_SERVER) {
        return Err(StoreFault::Unopenable(
            "the server is older than PostgreSQL 14".into(),
        ));
    }
    let key = schema::migrate(&link, &address.schema).await?;
    let ids = ReservedIds {
        id_permutation: IdPermutation { key },
        numbers: schema::reserve_numbers(&link).await?,
    };
    Ok((link, ids))
}

/// Ids that this daemon may give out.
struct ReservedIds {
    id_permutation: IdPermutation,
    /// Numbers for timers and messages that no other machine uses.
    numbers: Range<u64>,
}

/// Changes of the shards that came during the start.
struct FirstLoad {
    /// Fleet time minus boot time, if it came in time.
    boot_offset: Option<i64>,
    /// Rows of the own shard, if they came in time.
    rows: Option<ShardRows>,
    /// Other changes. The shard of a machine that is gone may be loaded before the own one.
    others: Vec<ShardChange>,
    changes: mpsc::Receiver<ShardChange>,
}

/// Waits for the rows of the own shard.
async fn first_load(mut changes: mpsc::Receiver<ShardChange>, home: ShardId) -> FirstLoad {
    let until = SystemClock.mono() + START;
    let (mut boot_offset, mut rows, mut others) = (None, None, Vec::new());
    while rows.is_none() {
        let change = tokio::select! {
            change = changes.recv() => change,
            () = sleep_until(&SystemClock, Some(until)) => None,
        };
        match change {
            Some(ShardChange::TimeSet(set)) => boot_offset = Some(set),
            Some(ShardChange::Loaded(loaded)) if loaded.shard == home => rows = Some(*loaded),
            Some(other) => others.push(other),
            None => break,
        }
    }
    FirstLoad {
        boot_offset,
        rows,
        others,
        changes,
    }
}

fn opened_with(
    store: Arc<dyn Store>,
    reader: StoreReader,
    ids: ReservedIds,
    boot_id: u128,
    boot_offset: Option<i64>,
    rows: Option<ShardRows>,
) -> Opened {
    Opened {
        store,
        reader,
        state: StoredState {
            id_permutation: ids.id_permutation,
            boot_id,
            anchor: boot_offset.map(|boot_offset| Anchor {
                boot_id,
                boot_offset,
                ..Anchor::default()
            }),
            timer_numbers: ids.numbers.clone(),
            message_numbers: ids.numbers,
        },
        open: rows.map(|rows| rows.open).unwrap_or_default(),
    }
}

/// Tells when a database can be opened that could not be at the start.
pub(super) fn watch(address: Address) -> oneshot::Receiver<()> {
    let (reachable, receiver) = oneshot::channel();
    tokio::spawn(async move {
        loop {
            pause(RETRY).await;
            if prepare(&address).await.is_ok() {
                let _ = reachable.send(());
                return;
            }
        }
    });
    receiver
}

impl Postgres {
    fn new(queue: JobQueue, trouble: Trouble, fleet: Fleet) -> Self {
        Postgres {
            queue,
            search_place: Arc::new(Semaphore::new(1)),
            trouble,
            fleet,
        }
    }
}

impl Store for Postgres {
    fn commit(&self, records: Vec<Record>) -> oneshot::Receiver<Result<(), StoreFault>> {
        self.queue.send(|done| Job::Commit(records, done))
    }

    fn settle(&self) -> oneshot::Receiver<Result<(), StoreFault>> {
        self.queue.send(Job::Settle)
    }

    fn trouble(&self) -> Option<String> {
        let trouble = lock(&self.trouble).clone();
        trouble.or_else(|| self.fleet.state().trouble.clone())
    }

    fn refusal(&self, fault: &StoreFault) -> Option<String> {
        self.trouble().or_else(|| Some(fault.to_string()))
    }

    fn write_waker_record(&self, record: WakerRecord) -> oneshot::Receiver<Result<(), StoreFault>> {
        self.queue.write_waker_record(record)
    }

    fn take_messages(&self, readers: ConnectedReaders, done: Option<oneshot::Sender<()>>) {
        // If a search is queued, the next heartbeat or call tries again.
        if let Ok(place) = self.search_place.clone().try_acquire_owned() {
            let job = Job::TakeMessages(readers, place, done);
            let _ = self.queue.jobs.try_send(job);
        }
    }

    fn prune(&self, before_ms: u64) -> oneshot::Receiver<Result<usize, StoreFault>> {
        self.queue.send(|done| Job::Prune(before_ms, done))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use abide_core::fleet::MachineId;

    use super::*;
    use crate::store::MAX_JOBS;

    #[test]
    fn commit_has_a_place_behind_waker_records_and_searches_that_wait() {
        let (jobs, mut queue) = JobQueue::new();
        let (ownership, _changes) = mpsc::channel(1);
        let folder = tempfile::tempdir().expect("a folder");
        let (_runner, fleet) = Runner::new(RunnerParts {
            address: Address::parse("postgres://nobody@localhost/none", None).expect("an address"),
            paths: Paths::under(folder.path()),
            identity: MachineIdentity {
                id: MachineId(1),
                name: "one".into(),
            },
            introduction: Introduction::default(),
            ownership,
        });
        let store = Postgres::new(jobs, Trouble::default(), fleet);
        for _ in 0..2 * MAX_JOBS {
            let readers = ConnectedReaders {
                agents: BTreeSet::new(),
                waiting: BTreeSet::new(),
                conversations: Vec::new(),
            };
            store.take_messages(readers, None);
            drop(store.write_waker_record(WakerRecord::Enabled("w".into())));
        }
        drop((store.prune(0), store.commit(Vec::new())));
        let jobs: Vec<Job> = std::iter::from_fn(|| queue.try_recv().ok()).collect();
        assert_eq!(jobs.len(), MAX_JOBS);
        assert!(matches!(jobs.last(), Some(Job::Commit(..))));
        // Work that is done makes room.
        drop(jobs);
        drop(store.write_waker_record(WakerRecord::Enabled("w".into())));
        assert!(matches!(queue.try_recv(), Ok(Job::WakerRecord(..))));
    }
}
