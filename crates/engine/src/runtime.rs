//! The engine as one unit: opens the store, recovers the sessions and timers of earlier daemons, and runs the event
//! loop. The daemon serves it through sockets; a program can embed it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use abide_core::record::StoredState;
use abide_core::{Agent, Engine, Event, Millis};
use abide_session::accelerator::Accelerator;
use abide_session::private_file;
use tokio::sync::{mpsc, oneshot};

use crate::clients::Clients;
use crate::clock::{Clock, SystemClock, boot_id};
use crate::config::{Config, Paths};
use crate::event_loop::{self, LoopParts};
use crate::fleet::{Introduction, MachineIdentity, shards};
use crate::handle::{Handle, HandleParts};
use crate::keepers::{Keepers, RecoveredSession};
use crate::policy::PolicyStore;
use crate::policy::audit::AuditLog;
use crate::probe::Prober;
use crate::seams::KeeperControl;
use crate::session_access::SessionAccess;
use crate::store::{
    self, OpenRows, Opened, OpenedPostgres, OwnMachine, PostgresAddress, StoreFault,
};
use crate::web::Web;
use crate::{entropy, machine_link, retention, wakers};

/// Inputs and events that may be queued for the loop.
const INBOX: usize = 4_096;
/// Resend requests that may be queued for the wakers.
const RESEND_QUEUE: usize = 64;

/// Fault that prevents the start of the engine, or stops it.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeFault {
    /// The path of the database has too many bytes.
    #[error(
        "the path of the database has {0} bytes, and at most {MAX_DATABASE_PATH} can be opened; choose a folder with \
         a shorter path by ABIDE_DIR"
    )]
    DatabasePath(usize),
    /// The database cannot be used.
    #[error("cannot use {}", path.display())]
    Database { path: PathBuf, source: StoreFault },
    /// The database failed while the engine ran.
    #[error(transparent)]
    Store(#[from] StoreFault),
    /// The database can be used, though not at the start, or this machine has a new id. The next start uses it.
    #[error("the engine has to be started again, because {0}")]
    StartAgain(&'static str),
    /// The id of this installation cannot be read or written.
    #[error("cannot use {}", path.display())]
    Machine {
        /// File with the id.
        path: PathBuf,
        source: std::io::Error,
    },
    /// The task of the event loop panicked.
    #[error("the event loop failed")]
    EventLoop(#[source] tokio::task::JoinError),
}

/// Running engine without interfaces.
pub struct Runtime {
    pub handle: Handle,
    event_loop: tokio::task::JoinHandle<Result<(), StoreFault>>,
    recovered: Option<oneshot::Receiver<()>>,
    /// Reason to start again, once there is one.
    start_again: Arc<OnceLock<&'static str>>,
}

impl Runtime {
    /// Starts the engine and recovers what earlier daemons left in `paths`. `program` is an abide binary, from which
    /// the keepers are started.
    pub fn start(paths: &Paths, config: Config, program: PathBuf) -> Result<Self, RuntimeFault> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        // Created with private permissions before SQLite opens it. If this fails, opening fails too.
        let (opened, fault, fleet, is_usable, unnamed) = match &config.store {
            None => {
                let _ = private_file::open(&paths.database());
                let (opened, fault) = open_database(paths)?;
                (opened, fault, None, None, Agent::default())
            }
            Some(url) => {
                let identity = MachineIdentity::open(paths, config.machine.as_deref());
                let identity = identity.map_err(|source| RuntimeFault::Machine {
                    path: paths.machine(),
                    source,
                })?;
                let stored_name = identity.name.clone();
                let found = open_postgres(paths, url, &config, identity)?;
                // Another name, if a machine of the fleet has this one.
                let joined = found.fleet.as_ref().map(|opened| opened.fleet.state());
                let name = joined.map_or(stored_name, |state| state.own_name.clone());
                let unnamed = Agent::unnamed_on(&name);
                (found.opened, None, found.fleet, found.is_usable, unnamed)
            }
        };
        let Opened {
            store,
            reader,
            state,
            mut open,
        } = opened;
        let (events, event_queue) = mpsc::channel(INBOX);
        let (inbox, calls) = mpsc::channel(INBOX);
        let web = Arc::new(Web::new(config.ca_file.clone()));
        let prober = Prober::new(events.clone(), web.clone());
        for (timer, until) in std::mem::take(&mut open.conditions) {
            prober.register(timer, until);
        }
        let pool = match Accelerator::KeeperPool.is_on() {
            true => config.idle_keepers,
            false => 0,
        };
        let keepers = Keepers::new(paths.sessions(), program, pool, events);
        let (resend, resend_requests) = mpsc::channel(RESEND_QUEUE);
        let parts = HandleParts {
            paths: paths.clone(),
            keepers: keepers.clone(),
            clients: Clients::new(std::mem::take(&mut open.clients)),
            store_reader: reader,
            prober: prober.clone(),
            store: store.clone(),
            resend,
            policy: PolicyStore::new(&paths.config),
            audit: AuditLog::new(paths.audit()),
            fleet: fleet.as_ref().map(|opened| opened.fleet.clone()),
            unnamed: unnamed.clone(),
        };
        let handle = Handle::new(inbox, parts, config);
        // Read now, so that a command does not need another file descriptor. A fault is reported to each command.
        let _ = handle.policy().policy();
        if let Some(fault) = fault {
            handle.published().set_storage_fault(&fault);
        }
        handle
            .prober()
            .set_sessions(Arc::new(SessionAccess(handle.clone())));
        let agents = handle.clients().agents();
        let resumable = agents.iter().map(|agent| handle.resumable(agent));
        let mut sessions = keepers.recover();
        let mut details = HashMap::new();
        for found in &mut sessions {
            found.session.agent = unnamed.of_stored(&found.session.agent.0);
            details.insert(found.id, std::mem::take(&mut found.details));
        }
        mark_reported_endings(&mut sessions, &open, &keepers);
        let recovered = recovery_events(sessions, resumable, state, open);
        keepers.fill_pool();
        tokio::spawn(wakers::run(
            handle.clone(),
            clock.clone(),
            web,
            resend_requests,
        ));
        let engine = Engine::new(entropy::bits()).with_unnamed(unnamed);
        let (ready, recovered_published) = oneshot::channel();
        let (ready_sender, ready_receiver) = oneshot::channel();
        let retention = retention::run(handle.clone(), clock.clone(), store.clone());
        tokio::spawn(async move {
            // Retention must not choose before all sessions are published.
            if recovered_published.await.is_ok() {
                let _ = ready_sender.send(());
                retention.await;
            }
        });
        let parts = LoopParts {
            clock,
            store,
            keepers: Box::new(keepers),
            probes: prober,
            recovered: details,
            ready,
        };
        let event_loop = tokio::spawn(event_loop::run(
            engine,
            recovered,
            calls,
            event_queue,
            handle.clone(),
            parts,
        ));
        let start_again = Arc::new(OnceLock::new());
        if let Some(opened) = fleet {
            opened.fleet.set_clients(handle.clients().clone());
            let fleet = opened.fleet.clone();
            let has_new_identity = async move {
                fleet.has_new_identity().await;
                "this machine has a new id"
            };
            tokio::spawn(stop_after(
                has_new_identity,
                handle.clone(),
                start_again.clone(),
            ));
            tokio::spawn(shards::take_messages(opened.fleet.clone(), handle.clone()));
            tokio::spawn(shards::forward(opened, handle.clone()));
        }
        if let Some(is_usable) = is_usable {
            let is_back = async move {
                match is_usable.await {
                    Ok(()) => "the database can be used again",
                    Err(_) => std::future::pending().await,
                }
            };
            tokio::spawn(stop_after(is_back, handle.clone(), start_again.clone()));
        }
        Ok(Runtime {
            handle,
            event_loop,
            recovered: Some(ready_receiver),
            start_again,
        })
    }

    /// Waits until recovered sessions and timers are published. Returns false on failure;
    /// [`stopped`](Runtime::stopped) has the reason.
    pub async fn ready(&mut self) -> bool {
        match self.recovered.take() {
            Some(recovered) => recovered.await.is_ok(),
            None => true,
        }
    }

    /// Waits until the engine is stopped.
    pub async fn stopped(self) -> Result<(), RuntimeFault> {
        let result = self.event_loop.await;
        if let Some(fleet) = self.handle.fleet() {
            fleet.leave().await;
        }
        self.handle.keepers().disconnect_all();
        result.map_err(RuntimeFault::EventLoop)??;
        match self.start_again.get() {
            Some(why) => Err(RuntimeFault::StartAgain(why)),
            None => Ok(()),
        }
    }
}

/// Stops the engine when there is a reason to start it again.
async fn stop_after(
    reason: impl Future<Output = &'static str>,
    handle: Handle,
    start_again: Arc<OnceLock<&'static str>>,
) {
    let _ = start_again.set(reason.await);
    handle.stop().await;
}

/// Marks sessions whose ending a message reports. The daemon that committed the message may have been killed before it
/// could do so.
pub(super) fn mark_reported_endings(
    found: &mut [RecoveredSession],
    open: &OpenRows,
    keepers: &dyn KeeperControl,
) {
    for session in found {
        if !session.ending_delivered && open.reported_endings.contains(&session.id) {
            session.ending_delivered = true;
            keepers.mark_ending_delivered(session.id);
        }
    }
}

/// Events that tell the core what earlier daemons left. Questions come after the sessions that they are about, and timers
/// after the conversations whose messages they make; what reports an ending or starts a command comes after `Recovered`.
pub(super) fn recovery_events(
    found: Vec<RecoveredSession>,
    resumable: impl Iterator<Item = Event>,
    state: StoredState,
    open: OpenRows,
) -> Vec<Event> {
    let is_over = |found: &&RecoveredSession| found.session.phase.ending().is_some();
    let undelivered: Vec<Event> = (found.iter().filter(is_over))
        .filter(|found| !found.ending_delivered)
        .map(|found| Event::EndingUndelivered { session: found.id })
        .collect();
    let found = found.into_iter().map(|found| Event::SessionFound {
        session: found.id,
        state: Box::new(found.session),
        deadline: found.deadline,
    });
    let questions =
        (open.questions.into_iter()).map(|(question, state)| Event::Reopened { question, state });
    let mut events: Vec<Event> = found.chain(questions).chain(resumable).collect();
    events.push(Event::StateLoaded(Box::new((state, open.stored))));
    events.push(Event::Recovered);
    events.extend(undelivered);
    let approved = open.approved.into_iter();
    events.extend(approved.map(|(question, session, held)| Event::Approved {
        question,
        session,
        held: Arc::new(held),
    }));
    events
}

/// Maximum length in bytes of the path of a database, with the suffixes of its companion files.
const MAX_DATABASE_PATH: usize = 500;

/// Opens the database. Returns a sentence about a fault with which the daemon can run.
fn open_database(paths: &Paths) -> Result<(Opened, Option<String>), RuntimeFault> {
    let path = paths.database();
    let length = path.as_os_str().len();
    if length > MAX_DATABASE_PATH {
        return Err(RuntimeFault::DatabasePath(length));
    }
    store::open(&path, boot_id()).map_err(|source| RuntimeFault::Database { path, source })
}

/// Opens the PostgreSQL database at an address.
fn open_postgres(
    paths: &Paths,
    url: &str,
    config: &Config,
    identity: MachineIdentity,
) -> Result<OpenedPostgres, RuntimeFault> {
    let address = PostgresAddress::parse(url, config.ca_file.clone());
    let address = address.map_err(|fault| StoreFault::Unopenable(fault.to_string()))?;
    let address = address.following(paths.config.clone());
    let introduction = Introduction {
        labels: config.labels.clone(),
        lost_after: config.lost_after.map(Millis::from_secs),
        return_after: config.fleet.return_after.map(Millis::from_secs),
        ..machine_link::proof(paths, &identity)
    };
    let machine = OwnMachine {
        paths: paths.clone(),
        identity,
        introduction,
        boot_id: boot_id(),
    };
    Ok(store::open_postgres(address, machine)?)
}
