//! Opens the database of a daemon. Without one that can be used, a store refuses what needs it, and commands run.

use std::path::Path;
use std::sync::Arc;

use abide_core::Record;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::damage::{check_at_start, key_file, known_key, replace_damaged, wal_is_damaged};
use super::{
    Opened, OpenedFleet, OwnMachine, PostgresAddress, Sqlite, Store, StoreFault, StoreReader,
    WakerRecord, load, postgres, schema,
};
use crate::secret;

/// Opens the database. A damaged one is renamed first, and its readable rows are copied. Without a database that can
/// be opened, nothing is stored. Returns a sentence about the fault, if there is one.
pub fn open(path: &Path, boot_id: u128) -> Result<(Opened, Option<String>), StoreFault> {
    let known = known_key(path);
    let wal_damaged = wal_is_damaged(path);
    let opened = check_at_start(path).and_then(|()| Sqlite::open(path, boot_id));
    let (opened, fault_text) = match opened {
        Ok(opened) => {
            let fault_text = match known {
                Some(known) if known != opened.state.id_permutation.key => Some(format!(
                    "the database {} was lost: it was missing, or empty. The timers, questions and messages in it \
                     are gone",
                    path.display()
                )),
                _ if wal_damaged => Some(format!(
                    "the journal of the database, {}-wal, was damaged: what was recorded last may be lost",
                    path.display()
                )),
                _ => None,
            };
            (opened, fault_text)
        }
        Err(StoreFault::Damaged(why)) => {
            let (opened, fault_text) = replace_damaged(path, boot_id, &why)?;
            (opened, Some(fault_text))
        }
        Err(fault @ (StoreFault::Unopenable(_) | StoreFault::Broken(_))) => {
            let fault_text = format!(
                "{fault} ({}). Timers and messages are refused until that is put right and the daemon is started \
                 again; commands run",
                path.display()
            );
            let store = NoDatabase {
                why: fault_text.clone(),
                trouble: None,
            };
            return Ok((open_without_database(boot_id, store)?, Some(fault_text)));
        }
        Err(fault) => return Err(fault),
    };
    let key = opened.state.id_permutation.key;
    if known != Some(key)
        && let Err(fault) = secret::write(&key_file(path), &format!("{key:016x}"))
    {
        tracing::warn!(
            "cannot store the id of the database, so its loss will not be noticed: {fault}"
        );
    }
    Ok((opened, fault_text))
}

/// Database that was opened, or none if it cannot be used.
pub(crate) struct OpenedStore {
    pub opened: Opened,
    /// Fault with which the daemon can run, as a sentence for people.
    pub fault: Option<String>,
    /// Fleet of the database, if it can be used.
    pub fleet: Option<OpenedFleet>,
    /// Tells when a database that could not be used can be.
    pub usable_again: Option<oneshot::Receiver<()>>,
}

/// Opens a PostgreSQL database. Without one that can be used, nothing is stored until there is.
pub(crate) async fn open_postgres(
    address: PostgresAddress,
    machine: OwnMachine,
) -> Result<OpenedStore, StoreFault> {
    let boot_id = machine.boot_id;
    let fault = match postgres::open(address.clone(), machine).await {
        Ok((opened, fleet)) => {
            return Ok(OpenedStore {
                opened,
                fault: None,
                fleet: Some(fleet),
                usable_again: None,
            });
        }
        Err(fault @ StoreFault::Refused(_)) => return Err(fault),
        Err(fault) => fault,
    };
    let sentence = format!(
        "the database at {} cannot be used: {}",
        address.shown(),
        fault.reason()
    );
    tracing::error!("{sentence}. Timers and messages are refused until it can be; commands run");
    let store = NoDatabase {
        why: sentence.clone(),
        trouble: Some(sentence),
    };
    Ok(OpenedStore {
        opened: open_without_database(boot_id, store)?,
        fault: None,
        fleet: None,
        usable_again: Some(postgres::watch(address)),
    })
}

/// Opens without a database: nothing is stored, and calls that need storage are refused.
fn open_without_database(boot_id: u128, store: NoDatabase) -> Result<Opened, StoreFault> {
    let mut db = in_memory()?;
    let (state, open) = load(&mut db, boot_id)?;
    let reader = StoreReader::new(db, in_memory()?, state.id_permutation);
    Ok(Opened {
        store: Arc::new(store),
        reader,
        state,
        open,
    })
}

fn in_memory() -> Result<Connection, StoreFault> {
    let mut db = Connection::open_in_memory()?;
    schema::migrate(&mut db)?;
    Ok(db)
}

/// Store without a database. Refuses with the reason.
struct NoDatabase {
    why: String,
    /// Sentence for calls and the status, if the database may come back while the daemon runs.
    trouble: Option<String>,
}

impl NoDatabase {
    fn refuse<T>(&self) -> oneshot::Receiver<Result<T, StoreFault>> {
        let (done, answer) = oneshot::channel();
        let _ = done.send(Err(StoreFault::Unopenable(self.why.clone())));
        answer
    }
}

impl Store for NoDatabase {
    fn commit(&self, _: Vec<Record>) -> oneshot::Receiver<Result<(), StoreFault>> {
        self.refuse()
    }

    fn trouble(&self) -> Option<String> {
        self.trouble.clone()
    }

    fn write_waker_record(&self, _: WakerRecord) -> oneshot::Receiver<Result<(), StoreFault>> {
        self.refuse()
    }

    fn prune(&self, _: u64) -> oneshot::Receiver<Result<usize, StoreFault>> {
        let (done, answer) = oneshot::channel();
        let _ = done.send(Ok(0));
        answer
    }
}
