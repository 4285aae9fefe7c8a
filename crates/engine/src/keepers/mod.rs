//! Keepers, from the daemon's side: the fork server that makes them, a pool of idle keepers, and one connection to
//! each living keeper. Sessions of earlier daemons are found by their directories.

mod connection;
mod control;
mod failed_keeper;
mod fork_server;
mod gate;
mod recovery;
mod starting;

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_core::{
    Containment, Event, Millis, Mono, Sandboxed, SandboxedBy, Session, SessionId, SessionName,
    StartError, Wall,
};
use abide_output::secret_fingerprints::SecretFingerprints;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use connection::{Follower, LogProgress};
pub use gate::PortState;

use crate::clock::{SystemClock, pause};
use crate::lock::lock;
use crate::stream::Stream;
use crate::{entropy, socket};
use abide_session::crash_point;
use abide_session::daemon_record::{DaemonRecords, OpenRecord};
use abide_session::frame::{InputKey, ToKeeper};
use abide_session::keeper_record;
use connection::KeeperConnection;
use fork_server::ForkServer;
use starting::PendingStarts;

/// Idle keepers beyond the target that are kept while calls follow each other closely.
const MAX_SURPLUS: usize = 12;

/// Time without an ended session after which keepers prepare for reuse, unless a command is started before.
const REUSE_DELAY: Duration = Duration::from_millis(5);

/// Keepers whose session is over and that have not yet prepared for the next one.
#[derive(Default)]
struct DeferredReuse {
    connections: Vec<Arc<KeeperConnection>>,
    /// Time at which the last of them was added.
    since: Mono,
    /// A task that has them prepare is scheduled.
    scheduled: bool,
}

/// Bytes that must be free before a command is started, so that its first output is not lost.
const MIN_FREE: u64 = 64 << 10;
/// Error if less is free.
const DISK_FULL: &str = "the disk is full, so nothing that the command writes could be kept; free some \
    space and try again";

/// Error if a keeper exits before its command was started.
const NO_KEEPER: &str = "no keeper could be started for it; see the daemon's log";

/// All keepers of one daemon.
pub struct Keepers {
    sessions: PathBuf,
    program: PathBuf,
    idle_target: usize,
    events: mpsc::Sender<Event>,
    fork_server: Mutex<Option<ForkServer>>,
    idle: Mutex<VecDeque<SessionId>>,
    deferred: Mutex<DeferredReuse>,
    connections: Mutex<HashMap<SessionId, Arc<KeeperConnection>>>,
    containment: Mutex<HashMap<SessionId, Containment>>,
    sandboxes: Mutex<HashMap<SessionId, Sandboxed>>,
    gates: gate::Gates,
    /// Reasons why the keepers of reserved ids could not be made.
    keeper_faults: Mutex<HashMap<SessionId, String>>,
    records: Arc<DaemonRecords>,
    starting: PendingStarts,
    shutdown: CancellationToken,
}

/// A session of an earlier daemon.
pub struct RecoveredSession {
    pub id: SessionId,
    pub session: Session,
    pub details: SessionDetails,
    /// True once a client has received the ending.
    pub ending_delivered: bool,
    /// Time of the hard limit, as far as the directory says.
    pub deadline: Option<Mono>,
}

/// Facts about a session that the core does not know.
#[derive(Debug, Default)]
pub struct SessionDetails {
    pub cwd: PathBuf,
    /// True if the session has a terminal.
    pub pty: bool,
    /// Hard limit, counted from the start.
    pub deadline: Option<Millis>,
    pub secrets: SecretFingerprints,
    /// Damage of its record, as a sentence.
    pub damage: Option<Arc<str>>,
    pub name: Option<SessionName>,
}

impl Keepers {
    /// Keepers for the sessions in `sessions`, made from `program`. Their reports go to `events`.
    pub fn new(
        sessions: PathBuf,
        program: PathBuf,
        idle_target: usize,
        events: mpsc::Sender<Event>,
    ) -> Arc<Self> {
        Arc::new(Keepers {
            sessions,
            program,
            idle_target,
            events,
            fork_server: Mutex::default(),
            idle: Mutex::default(),
            deferred: Mutex::default(),
            connections: Mutex::default(),
            containment: Mutex::default(),
            sandboxes: Mutex::default(),
            gates: gate::Gates::default(),
            keeper_faults: Mutex::default(),
            records: Arc::default(),
            starting: PendingStarts::default(),
            shutdown: CancellationToken::new(),
        })
    }

    /// Starts keepers in advance, up to the target.
    pub fn fill_pool(self: &Arc<Self>) {
        while lock(&self.idle).len() < self.idle_target {
            let id = self.unused_id();
            // A keeper that cannot be made now is made when it is needed, or the start fails with the reason.
            if self.start_keeper(id).is_err() {
                return;
            }
            lock(&self.idle).push_back(id);
        }
    }

    /// Closes idle keepers beyond the target, which busy times leave behind.
    pub fn trim_pool(&self) {
        let mut idle = lock(&self.idle);
        let surplus = idle.len().saturating_sub(self.idle_target);
        for id in idle.drain(..surplus) {
            if let Some(connection) = self.connection(id) {
                connection.close();
            }
        }
    }

    /// Position of the ready idle keeper that ran last: its memory is most likely still in the caches.
    fn next_ready(&self, idle: &VecDeque<SessionId>) -> Option<usize> {
        let now = SystemClock.mono();
        let is_ready = |id: &SessionId| {
            self.connection(*id)
                .is_some_and(|connection| connection.is_ready(now))
        };
        idle.iter().rposition(is_ready)
    }

    /// Removes a keeper that has exited from the pool of idle keepers.
    fn drop_idle(&self, id: SessionId) {
        let mut idle = lock(&self.idle);
        idle.retain(|kept| *kept != id);
    }

    /// True if output of a command could not be written.
    fn disk_is_full(&self) -> bool {
        self.free_on_disk().is_some_and(|free| free < MIN_FREE)
    }

    /// Bytes that can be written, if the file system says.
    fn free_on_disk(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(&self.sessions).ok()?;
        // Reserved blocks are for root.
        let free = match rustix::process::geteuid().is_root() {
            true => disk.f_bfree,
            false => disk.f_bavail,
        };
        // Some file systems do not count inodes.
        let no_files = disk.f_files > 0 && disk.f_ffree == 0;
        Some(match no_files {
            true => 0,
            false => free.saturating_mul(disk.f_frsize),
        })
    }

    /// Reports a start that failed at this time.
    fn failed_at(self: &Arc<Self>, session: SessionId, why: &str, at: Wall) {
        let event = Event::StartFailed {
            session,
            fault: why.into(),
            error: StartError::Other,
            at,
        };
        let events = self.events.clone();
        tokio::spawn(async move {
            let _ = events.send(event).await;
        });
    }

    /// Sends a frame to a keeper. Does nothing if the keeper is gone.
    pub fn send(&self, id: SessionId, frame: &ToKeeper) {
        if let Some(connection) = self.connection(id) {
            match frame {
                ToKeeper::Watch { beyond } => connection.watch(*beyond),
                frame => connection.send(frame),
            }
            if matches!(frame, ToKeeper::Signal { .. }) {
                crash_point("signal.post_send");
            }
        }
    }

    /// Writes to the command's input, and waits while the command does not read it. Input with an idempotency key is
    /// written once.
    pub async fn input(
        &self,
        id: SessionId,
        bytes: &[u8],
        once: Option<InputKey>,
    ) -> io::Result<()> {
        let connection = self.connection(id).ok_or(io::ErrorKind::BrokenPipe)?;
        connection.input(bytes, once).await
    }

    /// Bytes of input that reached no process of the session, because it has no input or has closed it.
    pub fn dropped_input(&self, id: SessionId) -> u64 {
        let connection = self.connection(id);
        connection.map_or(0, |connection| connection.dropped_input())
    }

    /// Waits until no input is on the way to the session.
    pub async fn input_taken(&self, id: SessionId) {
        if let Some(connection) = self.connection(id) {
            connection.input_taken().await;
        }
    }

    /// Types the reply of the terminal to a query of the command. If the command has too much unread input, the reply
    /// is dropped, because it would come too late.
    pub fn send_reply(&self, id: SessionId, bytes: &[u8]) {
        if let Some(connection) = self.connection(id) {
            connection.send_reply(bytes);
        }
    }

    /// Follows the length of a session's log.
    pub fn follow(&self, id: SessionId) -> Option<Follower> {
        self.connection(id).map(Follower::new)
    }

    pub fn folder(&self, id: SessionId) -> PathBuf {
        self.sessions.join(id.to_string())
    }

    /// Disconnects from all keepers without touching a session, so that the next engine in this process can adopt
    /// them.
    pub fn disconnect_all(&self) {
        self.shutdown.cancel();
        lock(&self.fork_server).take();
        lock(&self.idle).clear();
        lock(&self.deferred).connections.clear();
        lock(&self.connections).clear();
    }

    /// Recovers the sessions of earlier daemons: connects to living keepers, and reads the endings of the others or
    /// records them as lost.
    pub fn recover(self: &Arc<Self>) -> Vec<RecoveredSession> {
        recovery::recover(self)
    }

    /// Stores a name that a session was given after its start.
    pub(super) fn store_name(&self, id: SessionId, name: Option<&SessionName>) -> io::Result<()> {
        self.record(id)
            .set_name(name.map_or("", SessionName::as_str))
    }

    /// Record of the daemon about a session.
    pub fn record(&self, id: SessionId) -> OpenRecord {
        self.records.open(&self.folder(id))
    }

    /// Removes the directory of an ended session.
    pub fn remove(&self, id: SessionId) -> io::Result<()> {
        lock(&self.containment).remove(&id);
        lock(&self.sandboxes).remove(&id);
        std::fs::remove_dir_all(self.folder(id))
    }

    fn connection(&self, id: SessionId) -> Option<Arc<KeeperConnection>> {
        lock(&self.connections).get(&id).cloned()
    }

    fn set_containment(&self, id: SessionId, by: Containment) {
        lock(&self.containment).insert(id, by);
    }

    fn set_sandbox(&self, id: SessionId, sandboxed: Sandboxed) {
        lock(&self.sandboxes).insert(id, sandboxed);
    }

    /// True if the command of a session runs in namespaces, so that it may have a network gate.
    fn is_sandboxed(&self, id: SessionId) -> bool {
        let sandboxes = lock(&self.sandboxes);
        sandboxes
            .get(&id)
            .is_some_and(|of| of.by >= SandboxedBy::Bubblewrap)
    }

    /// Id that no session has or had.
    fn unused_id(&self) -> SessionId {
        loop {
            let id = SessionId::from_bits(entropy::bits());
            if !self.folder(id).exists() {
                return id;
            }
        }
    }

    /// Starts a keeper under this id. Fails with the reason, as a sentence.
    fn start_keeper(self: &Arc<Self>, id: SessionId) -> Result<(), String> {
        let made = self.make(&self.folder(id));
        let stream = made.map_err(|fault| {
            tracing::error!("cannot start a keeper: {fault}");
            keeper_fault(&fault)
        })?;
        self.adopt(id, stream, true);
        Ok(())
    }

    /// Reuses a keeper whose session is over under a new session id, as an idle keeper. This is far cheaper than
    /// forking another. `None`: there are enough idle keepers.
    fn reuse(
        self: &Arc<Self>,
        connection: &KeeperConnection,
    ) -> Option<(SessionId, Arc<KeeperConnection>)> {
        let idle = lock(&self.idle).len();
        if self.idle_target == 0 || idle >= self.idle_target + MAX_SURPLUS {
            return None;
        }
        let connection = Arc::new(connection.reuse()?);
        let id = self.unused_id();
        let folder = self.folder(id).into_os_string().into_vec();
        connection.queue(&ToKeeper::Renew { folder });
        self.defer_reuse(connection.clone());
        lock(&self.connections).insert(id, connection.clone());
        lock(&self.idle).push_back(id);
        Some((id, connection))
    }

    /// Delays the preparation of a keeper for reuse: a client that was answered may send its next call at once, and that
    /// needs the CPU more.
    fn defer_reuse(self: &Arc<Self>, connection: Arc<KeeperConnection>) {
        let mut deferred = lock(&self.deferred);
        deferred.connections.push(connection);
        deferred.since = SystemClock.mono();
        if !std::mem::replace(&mut deferred.scheduled, true) {
            tokio::spawn(self.clone().reuse_when_quiet());
        }
    }

    async fn reuse_when_quiet(self: Arc<Self>) {
        loop {
            pause(REUSE_DELAY).await;
            let mut deferred = lock(&self.deferred);
            let quiet = SystemClock.mono().since(deferred.since);
            if deferred.connections.is_empty() || quiet.0 >= REUSE_DELAY.as_millis() as u64 {
                deferred.scheduled = false;
                drop(deferred);
                return self.reuse_deferred();
            }
        }
    }

    fn reuse_deferred(&self) {
        let mut deferred = lock(&self.deferred);
        for connection in std::mem::take(&mut deferred.connections) {
            connection.send_queued();
        }
    }

    fn make(&self, folder: &Path) -> io::Result<Stream> {
        let mut fork_server = lock(&self.fork_server);
        // A fork server that has died is replaced once; a second failure is a fault of the machine.
        let mut may_retry = true;
        loop {
            let made = match fork_server.as_mut() {
                Some(fork_server) => fork_server.make(folder),
                None => ForkServer::start(&self.program)
                    .and_then(|started| fork_server.insert(started).make(folder)),
            };
            match made {
                Ok(stream) => return Ok(stream),
                // Another fork server would need even more descriptors.
                Err(e) if is_out_of_descriptors(&e) => return Err(e),
                Err(e) => {
                    tracing::warn!("the fork server failed: {e}");
                    *fork_server = None;
                    if !std::mem::take(&mut may_retry) {
                        return Err(e);
                    }
                }
            }
        }
    }

    fn adopt(self: &Arc<Self>, id: SessionId, stream: Stream, made_here: bool) {
        let connection = Arc::new(KeeperConnection::new(stream));
        if !made_here {
            connection.begin_start();
        }
        lock(&self.connections).insert(id, connection.clone());
        tokio::spawn(connection::read_connection(
            self.clone(),
            id,
            connection,
            made_here,
        ));
    }

    fn connect(&self, id: SessionId) -> io::Result<Stream> {
        let mut socket = socket::connect(&self.folder(id).join(keeper_record::CTL))?;
        // If the keeper exits at this moment, the reader of the connection notices.
        let _ = socket.write_all(&hello());
        Stream::new(socket)
    }
}

/// First frame to a keeper that may have another connection.
fn hello() -> Vec<u8> {
    let mut frame = Vec::new();
    ToKeeper::Hello.encode(&mut frame);
    frame
}

/// Kind of the error that the keeper met at the start of a command. 0: it was none of the system's.
fn start_error(errno: i32) -> StartError {
    match errno {
        libc::ENOENT | libc::ENOTDIR => StartError::NotFound,
        libc::EACCES | libc::ENOEXEC | libc::EISDIR | libc::ETXTBSY => StartError::NotExecutable,
        _ => StartError::Other,
    }
}

/// True if the limit of open files of this process or of the machine is reached.
fn is_out_of_descriptors(fault: &io::Error) -> bool {
    matches!(fault.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Describes why a keeper could not be made, and what to do.
fn keeper_fault(fault: &io::Error) -> String {
    if is_out_of_descriptors(fault) {
        return "too_many_open_files: the daemon can open no more of them; end some sessions, or let it \
                have more (`ulimit -n`)"
            .into();
    }
    format!("no keeper could be started for it: {fault}; see the daemon's log")
}
