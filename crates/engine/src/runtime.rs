//! The engine as one unit: opens the store, recovers the sessions and timers of earlier daemons, and runs the event
//! loop. The daemon serves it through sockets; a program can embed it.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use abide_core::record::StoredState;
use abide_core::{Agent, Engine, Event, HeldCommand, Millis, QuestionId, SessionId};
use abide_session::accelerator::Accelerator;
use abide_session::private_file;
use tokio::sync::{mpsc, oneshot};

use crate::clients::Clients;
use crate::clock::{Clock, SystemClock, boot_id};
use crate::config::{Config, Paths};
use crate::event_loop::{self, LoopParts};
use crate::fleet::{Introduction, MachineIdentity, shards};
use crate::handle::{Handle, HandleParts};
use crate::keepers::{Keepers, RecoveredSession, SessionDetails};
use crate::policy::PolicyStore;
use crate::policy::audit::AuditLog;
use crate::probe::Prober;
use crate::sandbox_probe::SandboxProbe;
use crate::seams::KeeperControl;
use crate::session_access::SessionAccess;
use crate::store::{
    self, OpenRows, Opened, OpenedFleet, OpenedStore, OwnMachine, PostgresAddress, StoreFault,
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
    /// the keepers are started; `judge` judges the commands that an earlier daemon was about to start.
    pub async fn start(
        paths: &Paths,
        config: Config,
        program: PathBuf,
        judge: JudgeApproved,
    ) -> Result<Self, RuntimeFault> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let (found, default_agent) = open_store(paths, &config).await?;
        let Opened {
            store,
            reader,
            state,
            mut open,
        } = found.opened;
        let (events, event_queue) = mpsc::channel(INBOX);
        let (inbox, calls) = mpsc::channel(INBOX);
        let (resend, resend_requests) = mpsc::channel(RESEND_QUEUE);
        let web = Arc::new(Web::new(config.ca_file.clone()));
        let prober = Prober::new(events.clone(), web.clone());
        for (timer, until) in std::mem::take(&mut open.conditions) {
            prober.register(timer, until);
        }
        let pool = match Accelerator::KeeperPool.is_on() {
            true => config.idle_keepers,
            false => 0,
        };
        let sandbox_probe = SandboxProbe::new(program.clone(), paths.state.clone());
        let keepers = Keepers::new(paths.sessions(), program, pool, events);
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
            fleet: found.fleet.as_ref().map(|opened| opened.fleet.clone()),
            default_agent: default_agent.clone(),
            sandbox_probe,
            judge,
        };
        let handle = Handle::new(inbox, parts, config);
        // Read now, so that a command does not need another file descriptor. A fault is reported to each command.
        let _ = handle.policy().policy();
        if let Some(fault) = found.fault {
            handle.published().set_storage_fault(&fault);
        }
        prober.set_sessions(SessionAccess(handle.clone()));
        let (mut sessions, details) = recover_sessions(&keepers, &default_agent);
        mark_reported_endings(&mut sessions, &open, &keepers);
        let agents = handle.clients().agents();
        let resumable = agents.iter().map(|agent| handle.resumable(agent));
        let judge = |question, held: &HeldCommand| handle.refusal(question, held);
        let recovered = recovery_events(sessions, resumable, state, open, judge);
        keepers.fill_pool();
        tokio::spawn(wakers::run(
            handle.clone(),
            clock.clone(),
            web,
            resend_requests,
        ));
        let (ready, published) = oneshot::channel();
        let retention = retention::run(handle.clone(), clock.clone(), store.clone());
        let published = start_retention(published, retention);
        let parts = LoopParts {
            clock,
            store,
            keepers: Box::new(keepers),
            probes: prober,
            recovered: details,
            ready,
        };
        let event_loop = tokio::spawn(event_loop::run(
            Engine::new(entropy::bits()).with_default_agent(default_agent),
            recovered,
            calls,
            event_queue,
            handle.clone(),
            parts,
        ));
        let runtime = Runtime {
            handle,
            event_loop,
            recovered: Some(published),
            start_again: Arc::default(),
        };
        if let Some(opened) = found.fleet {
            runtime.start_fleet(opened);
        }
        if let Some(usable_again) = found.usable_again {
            runtime.stop_when_usable(usable_again);
        }
        Ok(runtime)
    }

    /// Stops when a database can be used that could not be opened, so that the next daemon opens it.
    fn stop_when_usable(&self, usable_again: oneshot::Receiver<()>) {
        self.stop_after("the database can be used again", async move {
            if usable_again.await.is_err() {
                std::future::pending().await
            }
        });
    }

    /// Starts the tasks that connect the engine with the other machines of its fleet.
    fn start_fleet(&self, opened: OpenedFleet) {
        let (fleet, handle) = (opened.fleet.clone(), self.handle.clone());
        fleet.set_clients(handle.clients().clone());
        tokio::spawn(shards::take_messages(fleet.clone(), handle.clone()));
        tokio::spawn(shards::forward(opened, handle));
        self.stop_after("this machine has a new id", async move {
            fleet.new_identity().await;
        });
    }

    /// Stops the engine after an event, because of which it has to be started again.
    fn stop_after(&self, why: &'static str, event: impl Future<Output = ()> + Send + 'static) {
        let (handle, start_again) = (self.handle.clone(), self.start_again.clone());
        tokio::spawn(async move {
            event.await;
            let _ = start_again.set(why);
            handle.stop().await;
        });
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

/// Sessions of earlier daemons, and their details.
fn recover_sessions(
    keepers: &Arc<Keepers>,
    default_agent: &Agent,
) -> (Vec<RecoveredSession>, HashMap<SessionId, SessionDetails>) {
    let mut sessions = keepers.recover();
    let mut details = HashMap::new();
    for found in &mut sessions {
        found.session.agent = default_agent.of_stored(&found.session.agent.0);
        details.insert(found.id, std::mem::take(&mut found.details));
    }
    (sessions, details)
}

/// Starts retention after all sessions are published, since it must not choose before. Returns a receiver that hears of
/// that too.
fn start_retention(
    published: oneshot::Receiver<()>,
    retention: impl Future<Output = ()> + Send + 'static,
) -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        if published.await.is_ok() {
            let _ = sender.send(());
            retention.await;
        }
    });
    receiver
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

/// Judges a command that a person has approved: the reason why it must not be started, also written into the audit log.
/// `None`: it may be started.
pub type JudgeApproved = fn(&Handle, QuestionId, &HeldCommand) -> Option<String>;

/// Events that tell the core what earlier daemons left. Questions come after the sessions that they are about, and timers
/// after the conversations whose messages they make; what starts a command comes after `Recovered`.
pub(super) fn recovery_events(
    found: Vec<RecoveredSession>,
    resumable: impl Iterator<Item = Event>,
    state: StoredState,
    open: OpenRows,
    judge: impl Fn(QuestionId, &HeldCommand) -> Option<Arc<str>>,
) -> Vec<Event> {
    let started: HashSet<SessionId> = found.iter().map(|found| found.id).collect();
    let found = found.into_iter().map(|found| Event::SessionFound {
        session: found.id,
        state: Box::new(found.session),
        deadline: found.deadline,
        ending_told: found.ending_delivered,
    });
    let questions =
        (open.questions.into_iter()).map(|(question, state)| Event::Reopened { question, state });
    let mut events: Vec<Event> = found.chain(questions).chain(resumable).collect();
    events.push(Event::StateLoaded(Box::new((state, open.stored))));
    events.push(Event::Recovered);
    let approved = open.approved.into_iter();
    events.extend(approved.map(|(question, session, held)| Event::Approved {
        question,
        session,
        refused: match started.contains(&session) {
            true => None,
            false => judge(question, &held),
        },
        held: Arc::new(held),
    }));
    events
}

/// Maximum length in bytes of the path of a database, with the suffixes of its companion files.
const MAX_DATABASE_PATH: usize = 500;

/// Opens the database of the configuration: PostgreSQL if it has an address, else SQLite. Returns the agent of calls
/// without a name too.
async fn open_store(paths: &Paths, config: &Config) -> Result<(OpenedStore, Agent), RuntimeFault> {
    let Some(url) = &config.store else {
        return Ok((open_sqlite(paths)?, Agent::default()));
    };
    let identity = MachineIdentity::open(paths, config.machine.as_deref());
    let identity = identity.map_err(|source| RuntimeFault::Machine {
        path: paths.machine(),
        source,
    })?;
    let stored_name = identity.name.clone();
    let found = open_postgres(paths, url, config, identity).await?;
    // Another name, if a machine of the fleet has this one.
    let joined = found.fleet.as_ref().map(|opened| opened.fleet.state());
    let name = joined.map_or(stored_name, |state| state.own_name.clone());
    Ok((found, Agent::default_on(&name)))
}

/// Opens the SQLite database.
fn open_sqlite(paths: &Paths) -> Result<OpenedStore, RuntimeFault> {
    let path = paths.database();
    let length = path.as_os_str().len();
    if length > MAX_DATABASE_PATH {
        return Err(RuntimeFault::DatabasePath(length));
    }
    // Created with private permissions before SQLite opens it. If this fails, opening fails too.
    let _ = private_file::open(&path);
    match store::open(&path, boot_id()) {
        Ok((opened, fault)) => Ok(OpenedStore {
            opened,
            fault,
            fleet: None,
            usable_again: None,
        }),
        Err(source) => Err(RuntimeFault::Database { path, source }),
    }
}

/// Opens the PostgreSQL database at an address.
async fn open_postgres(
    paths: &Paths,
    url: &str,
    config: &Config,
    identity: MachineIdentity,
) -> Result<OpenedStore, RuntimeFault> {
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
    Ok(store::open_postgres(address, machine).await?)
}
