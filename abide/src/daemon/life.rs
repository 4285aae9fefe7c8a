//! How a daemon comes to life, is found, is replaced, and ends.

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use abide_core::session::Phase;
use abide_core::{Engine, Event};
use anyhow::{Context as _, bail};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use super::Handle;
use super::drive::{Seams, drive};
use super::handle::Means;
use super::sight::Sight;
use super::start;
use crate::config::{Config, Handed, Places, TcpDoor};
use crate::door::{http, mcp, wake};
use crate::world::clients::Clients;
use crate::world::clock::{Clock, SystemClock, boot_id};
use crate::world::handed::{self, Sockets};
use crate::world::keepers::Keepers;
use crate::world::probe::Prober;
use crate::world::store::{self, Opened, StoreFault};
use crate::world::web::Web;
use crate::world::{entropy, heap, secret, socket};
use abide_session::mark;
use abide_session::{descriptors, ext4_placement, oom};

/// Which of the daemon's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// HTTP, for the command line.
    Http,
    /// MCP, for `abide mcp`.
    Mcp,
}

impl Door {
    fn path(self, places: &Places) -> std::path::PathBuf {
        match self {
            Door::Http => places.http_socket(),
            Door::Mcp => places.mcp_socket(),
        }
    }
}

/// Connects to the daemon, starting one where there is none. Two at once start one: whoever comes
/// second waits for the first and then finds its daemon.
pub fn connect(places: &Places, door: Door) -> io::Result<UnixStream> {
    connect_starting(places, door, Path::new("/proc/self/exe"))
}

/// The same for a program that is not abide itself: `program` is.
pub fn connect_starting(places: &Places, door: Door, program: &Path) -> io::Result<UnixStream> {
    if let Ok(stream) = connect_current(places, door) {
        return Ok(stream);
    }
    make_folders(places)?;
    let starting = open_private(&places.runtime.join("starting"))?;
    starting.lock()?;
    if let Ok(stream) = connect_current(places, door) {
        return Ok(stream);
    }
    match start::start(places, program) {
        Ok(()) => socket::connect(&door.path(places)),
        // An older one that does not make way can still be called.
        Err(fault) => socket::connect(&door.path(places)).map_err(|_| fault),
    }
}

/// Connects to a daemon that runs already and is not older than this program. An older one makes way for
/// the one that is started next.
pub fn connect_current(places: &Places, door: Door) -> io::Result<UnixStream> {
    let version = std::fs::read_to_string(places.daemon_version()).unwrap_or_default();
    if older(&version, env!("CARGO_PKG_VERSION")) {
        return Err(io::Error::other("the daemon that runs is older"));
    }
    socket::connect(&door.path(places))
}

/// Connects to a daemon that runs already.
pub fn connect_running(places: &Places, door: Door) -> io::Result<UnixStream> {
    socket::connect(&door.path(places))
}

fn make_folders(places: &Places) -> io::Result<()> {
    socket::own_folder(&places.state)?;
    socket::private_folder(&places.runtime)?;
    ext4_placement::make(&places.sessions());
    socket::private_folder(&places.sessions())
}

fn open_private(path: &Path) -> io::Result<File> {
    File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

/// Something of which there is to be one at a time, for as long as the file is held. `None`: there is
/// one already.
pub fn only_one(places: &Places, name: &str) -> io::Result<Option<File>> {
    make_folders(places)?;
    let mut file = open_private(&places.runtime.join(name))?;
    match file.try_lock() {
        Ok(()) => {
            file.set_len(0)?;
            write!(file, "{}", std::process::id())?;
            Ok(Some(file))
        }
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(e)) => Err(e),
    }
}

/// Runs the daemon until it is told to stop. `ready` is told when it can be called, or why not.
pub fn serve(
    places: Places,
    config: Config,
    handed: Handed,
    ready: Option<OwnedFd>,
) -> anyhow::Result<()> {
    let mut ready = ready.map(File::from);
    descriptors::as_many_as_allowed();
    oom::protect_this_process();
    secret::keep_memory();
    mark::note_own();
    heap::keep_large_blocks_apart();
    let sockets =
        Sockets::take(&handed).context("cannot take the sockets that were handed over")?;
    let served = prepare(&places).and_then(|lock| {
        // One thread for everything that waits: a call crosses no thread on its way, which is what
        // makes it quick. What blocks for long (long logs, a slow disk) has threads of its own.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let served = runtime.block_on(run(places, config, (handed, sockets), &mut ready));
        runtime.shutdown_background();
        drop(lock);
        served
    });
    if let (Err(e), Some(mut ready)) = (&served, ready.take()) {
        let _ = write!(ready, "{e:#}");
    }
    served
}

/// The lock on a folder for an engine within a program: one that is held by anybody else is left alone.
pub fn take_lock(places: &Places) -> anyhow::Result<File> {
    make_folders(places)?;
    let lock = open_private(&places.lock()).context("cannot open the lock")?;
    if lock.try_lock().is_err() {
        bail!(
            "{} is in use by another abide; give this one a folder of its own",
            places.state.display()
        );
    }
    start::check_outside(places)?;
    Ok(lock)
}

/// The routes of an engine that has no socket.
pub fn routes_within(runtime: &Runtime, places: Places) -> axum::Router {
    let daemon = http::Daemon {
        started_at: SystemClock.now().wall,
        places,
        tcp: http::Tcp::Off,
    };
    http::router(http::State::new(runtime.handle.clone(), daemon))
}

/// Makes the folders and takes the lock. The lock comes before the sockets, so that there is never a
/// moment in which two daemons could answer.
fn prepare(places: &Places) -> anyhow::Result<File> {
    make_folders(places)?;
    let mut lock = open_private(&places.lock()).context("cannot open the lock")?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => replace_older(places, &lock)?,
        Err(std::fs::TryLockError::Error(e)) => return Err(e).context("cannot take the lock"),
    }
    start::check_outside(places)?;
    lock.set_len(0)?;
    write!(lock, "{}", std::process::id())?;
    Ok(lock)
}

/// How often, and how long apart, a lock is tried whose holder does not answer.
const LOCK_TRIES: u32 = 500;
/// The same for one that has said that it stops, which may take it a while.
const STOP_TRIES: u32 = 3_000;
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// Another daemon holds the lock. An older one makes way, touching no session; one of this version
/// or a newer one stays. One that does not answer is on its way out, or has only just come.
fn replace_older(places: &Places, lock: &File) -> anyhow::Result<()> {
    let socket = places.http_socket();
    let mut told_to_stop = false;
    let mut tries = 0;
    while tries < if told_to_stop { STOP_TRIES } else { LOCK_TRIES } {
        tries += 1;
        if !told_to_stop && let Ok(running) = http::ask_version(&socket) {
            told_to_stop = make_way(&socket, &running)?;
        }
        if lock.try_lock().is_ok() {
            return Ok(());
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a lock cannot be waited for with an end, and nothing runs yet that this holds up"
        )]
        std::thread::sleep(LOCK_PAUSE);
    }
    let trouble = if told_to_stop {
        "said that it stops but does not"
    } else {
        "does not answer"
    };
    bail!(
        "another daemon holds {} and {trouble}",
        places.lock().display()
    );
}

/// Tells a daemon that is older than this program to stop. False where it went before it could be told so.
fn make_way(socket: &Path, running: &str) -> anyhow::Result<bool> {
    if !older(running, env!("CARGO_PKG_VERSION")) {
        bail!(
            "a daemon runs already (version {running}); `abide status` shows it, `abide stop` ends it"
        );
    }
    match http::ask_to_stop(socket) {
        Ok(()) => Ok(true),
        Err(fault) if went_away(fault.kind()) => Ok(false),
        Err(fault) => Err(fault).context("the older daemon does not stop"),
    }
}

/// Whether a daemon that fails so is no longer there.
fn went_away(fault: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(
        fault,
        BrokenPipe | ConnectionRefused | ConnectionReset | NotFound | UnexpectedEof
    )
}

/// Whether the version `left` comes before `right`.
fn older(left: &str, right: &str) -> bool {
    let numbers = |version: &str| -> Vec<u64> {
        version
            .split(['.', '-', '+'])
            .map_while(|part| part.parse().ok())
            .collect()
    };
    !left.is_empty() && numbers(left) < numbers(right)
}

/// Things that may wait to be stepped through.
const INBOX: usize = 4_096;
/// Messages that may wait to be sent again.
const AGAIN: usize = 64;

/// The engine without doors: what the daemon serves, and what a program can hold within itself.
pub struct Runtime {
    /// The way to call it.
    pub handle: Handle,
    driving: tokio::task::JoinHandle<Result<(), StoreFault>>,
    recovered: Option<oneshot::Receiver<()>>,
}

impl Runtime {
    /// Finds what an earlier one left under `places` and goes on with it. `program` is an abide binary:
    /// the keepers are made of it.
    pub fn start(places: &Places, config: Config, program: PathBuf) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        // Made by us first, so that the database and what it keeps beside it are closed to others. Where it
        // cannot be made, it cannot be opened either.
        let _ = open_private(&places.database());
        let (opened, trouble) = open_database(places)?;
        let Opened {
            store,
            past,
            questions,
            kept,
            conditions,
        } = opened;
        let (events, happened) = mpsc::channel(INBOX);
        let (inbox, calls) = mpsc::channel(INBOX);
        let web = Arc::new(Web::new(config.ca_file.clone()));
        let prober = Prober::new(events.clone(), web.clone());
        for (timer, until) in conditions {
            prober.know(timer, until);
        }
        let keepers = Keepers::new(places.sessions(), program, config.spare_keepers, events);
        let (again, wanted_again) = mpsc::channel(AGAIN);
        let means = Means {
            keepers: keepers.clone(),
            clients: Clients::new(past.clients().unwrap_or_default()),
            past,
            prober,
            store: store.clone(),
            again,
        };
        let handle = Handle::new(inbox, means, config);
        if let Some(trouble) = trouble {
            handle.board().storage_trouble(&trouble);
        }
        handle
            .prober()
            .show_sessions(Arc::new(Sight(handle.clone())));
        let found = keepers.recover();
        let unheard: Vec<Event> = found
            .iter()
            .filter(|found| {
                let phase = &found.session.phase;
                matches!(phase, Phase::Leftover { .. } | Phase::Ended { .. })
            })
            .filter(|found| !found.heard)
            .map(|found| Event::Unheard { session: found.id })
            .collect();
        let mut recovered: Vec<Event> = found
            .into_iter()
            .map(|found| Event::Found {
                session: found.id,
                state: found.session,
                deadline: found.deadline,
            })
            .collect();
        recovered.extend(
            questions
                .into_iter()
                .map(|(question, state)| Event::Reopened { question, state }),
        );
        let agents = handle.clients().agents();
        recovered.extend(agents.iter().map(|agent| handle.resumable(agent)));
        recovered.push(Event::StateLoaded(Box::new(kept)));
        recovered.push(Event::Recovered);
        recovered.extend(unheard);
        keepers.warm_up();
        tokio::spawn(wake::keep_awake(
            handle.clone(),
            clock.clone(),
            web,
            wanted_again,
        ));
        let engine = Engine::new(entropy::bits());
        let (ready, all_is_seen) = oneshot::channel();
        let (tell, is_ready) = oneshot::channel();
        let tidying = super::retention::keep_tidy(handle.clone(), clock.clone(), store.clone());
        tokio::spawn(async move {
            // Nothing of the past can be chosen from before all of it can be seen.
            if all_is_seen.await.is_ok() {
                let _ = tell.send(());
                tidying.await;
            }
        });
        let seams = Seams {
            clock,
            store,
            keepers,
            ready,
        };
        let driving = tokio::spawn(drive(
            engine,
            recovered,
            calls,
            happened,
            handle.clone(),
            seams,
        ));
        Ok(Runtime {
            handle,
            driving,
            recovered: Some(is_ready),
        })
    }

    /// Waits until what an earlier one left can be seen. `false`: it has failed, and
    /// [`stopped`](Runtime::stopped) says why.
    pub async fn ready(&mut self) -> bool {
        match self.recovered.take() {
            Some(recovered) => recovered.await.is_ok(),
            None => true,
        }
    }

    /// Until somebody stops it.
    pub async fn stopped(self) -> anyhow::Result<()> {
        let driven = self.driving.await;
        self.handle.keepers().leave();
        match driven {
            Ok(ended) => Ok(ended?),
            Err(e) => Err(e).context("the loop has failed"),
        }
    }
}

/// The longest path, in bytes, that a database can have with what is written beside it.
const LONGEST_DATABASE: usize = 500;

/// Opens the database, and says what is wrong with it where the daemon can go on all the same.
fn open_database(places: &Places) -> anyhow::Result<(Opened, Option<String>)> {
    let path = places.database();
    let length = path.as_os_str().len();
    if length > LONGEST_DATABASE {
        bail!(
            "the path of the database has {length} bytes, and at most {LONGEST_DATABASE} can be opened; \
             choose a folder with a shorter path by ABIDE_DIR"
        );
    }
    let opened = store::open(&path, boot_id());
    opened.with_context(|| format!("cannot use {}", path.display()))
}

async fn run(
    places: Places,
    config: Config,
    (handed, mut sockets): (Handed, Sockets),
    ready: &mut Option<File>,
) -> anyhow::Result<()> {
    let started_at = SystemClock.now().wall;
    let mut runtime = Runtime::start(&places, config, "/proc/self/exe".into())?;
    if !runtime.ready().await {
        return runtime.stopped().await;
    }
    let handle = runtime.handle.clone();
    let seal = Arc::new(mcp::Seal::new(seal(&places.state.join("seal"))?));
    tell_version(&places, &handed)?;
    let http_listener = listen(&places.http_socket(), &mut sockets)?;
    let mcp_listener = listen(&places.mcp_socket(), &mut sockets)?;
    if let Some(elsewhere) = sockets.left() {
        bail!(
            "a socket was handed over that listens at {}, but clients look for {}",
            elsewhere.display(),
            places.http_socket().display()
        );
    }
    let (tcp, tcp_listener) = open_tcp(&places, handle.config().http).await;
    let daemon = http::Daemon {
        started_at,
        places: places.clone(),
        tcp,
    };
    let state = http::State::new(handle.clone(), daemon);
    if let Some((listener, token)) = tcp_listener {
        let served = http::serve_tcp(listener, state.clone(), seal.clone(), token);
        tokio::spawn(served);
    }
    tokio::spawn(http::serve(http_listener, state));
    tokio::spawn(mcp::serve(mcp_listener, handle.clone(), seal));
    tokio::spawn(stop_on_signal(handle));
    if let Some(mut ready) = ready.take() {
        write!(ready, "ready")?;
    }
    handed::say_ready(&handed);
    tracing::info!(
        "abide {} is ready, process {}",
        env!("CARGO_PKG_VERSION"),
        std::process::id()
    );
    let ended = runtime.stopped().await;
    let _ = std::fs::remove_file(places.http_address());
    // Whoever opened the sockets for us goes on listening there, and starts the next daemon.
    if handed.sockets == 0 {
        let _ = std::fs::remove_file(places.http_socket());
        let _ = std::fs::remove_file(places.mcp_socket());
    }
    tracing::info!("stopped; sessions go on");
    ended
}

/// Lets those who come later know that a newer one may take our place. Whoever handed us our sockets also
/// decides who gets them next.
fn tell_version(places: &Places, handed: &Handed) -> anyhow::Result<()> {
    let path = places.daemon_version();
    let told = match handed.sockets {
        0 => secret::write(&path, env!("CARGO_PKG_VERSION")),
        _ => std::fs::remove_file(&path).or_else(|fault| match fault.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(fault),
        }),
    };
    told.with_context(|| format!("cannot write {}", path.display()))
}

/// Listens at `path`, or takes the socket that listens there already for us.
fn listen(path: &Path, handed: &mut Sockets) -> anyhow::Result<tokio::net::UnixListener> {
    let listener = match handed.at(path) {
        Some(listener) => listener,
        None => {
            socket::listen(path).with_context(|| format!("cannot listen at {}", path.display()))?
        }
    };
    listener.set_nonblocking(true)?;
    Ok(tokio::net::UnixListener::from_std(listener)?)
}

/// Opens the door over TCP, where one is wanted. A daemon without it still serves everybody else, so
/// one that cannot be opened is said and no more.
async fn open_tcp(places: &Places, door: TcpDoor) -> (http::Tcp, Option<(TcpListener, String)>) {
    let _ = std::fs::remove_file(places.http_address());
    let TcpDoor::At(wanted) = door else {
        return (http::Tcp::Off, None);
    };
    let opened = async {
        let token = secret::token(&places.token())?;
        let listener = bind(places, wanted).await?;
        let address = listener.local_addr()?;
        secret::write(&places.http_address(), &address.to_string())?;
        secret::write(&places.last_address(), &address.to_string())?;
        Ok::<_, io::Error>((address, listener, token))
    };
    match opened.await {
        Ok((address, listener, token)) => {
            if !address.ip().is_loopback() {
                tracing::warn!(
                    "HTTP is served at {address}, which other machines may reach; anyone with the \
                     token can run commands here, and the token travels unencrypted"
                );
            }
            (http::Tcp::At(address), Some((listener, token)))
        }
        Err(fault) => {
            let why = format!("HTTP cannot be served at {wanted}: {fault}");
            tracing::error!("{why}");
            (http::Tcp::Failed(why), None)
        }
    }
}

/// Where any port will do, the one of the last time is taken if it is free, so that a page that is
/// still open finds its daemon again.
async fn bind(places: &Places, wanted: SocketAddr) -> io::Result<TcpListener> {
    let last = std::fs::read_to_string(places.last_address()).ok();
    let last = last.and_then(|text| text.parse::<SocketAddr>().ok());
    if wanted.port() == 0
        && let Some(last) = last.filter(|last| last.ip() == wanted.ip())
        && let Ok(listener) = TcpListener::bind(last).await
    {
        return Ok(listener);
    }
    TcpListener::bind(wanted).await
}

/// The key that seals what is handed to clients and comes back; it outlives the daemon.
fn seal(path: &Path) -> anyhow::Result<[u8; 32]> {
    if let Ok(bytes) = std::fs::read(path)
        && let Ok(seal) = bytes.try_into()
    {
        return Ok(seal);
    }
    let mut seal = [0; 32];
    entropy::fill(&mut seal);
    open_private(path)?.write_all(&seal)?;
    Ok(seal)
}

async fn stop_on_signal(handle: Handle) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        return;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    handle.stop().await;
}

/// Whether the peer is the owner of this daemon.
pub fn is_owner(stream: &impl AsFd) -> bool {
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}
