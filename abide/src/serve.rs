//! Composition root: connects the engine to its sockets and runs the daemon until it is stopped.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use abide_engine::clock::{Clock, SystemClock};
use abide_engine::config::{Config, HttpListen, Paths};
use abide_engine::machine_link::{OtherMachines, StartedLinks, directory, lost_sessions};
use abide_engine::{Handle, Runtime, RuntimeFault, entropy, secret};
use abide_session::{accelerator, allocator, mark, nofile_limit, oom, private_file};
use anyhow::Context as _;
use tokio::net::TcpListener;

use crate::listener::listen;
use crate::{daemon_process, fleet, http, lock, mcp};

/// Runs the daemon until it is told to stop. On `ready` the daemon reports that it can be called, or an error.
pub fn serve(paths: Paths, config: Config, ready: Option<OwnedFd>) -> anyhow::Result<()> {
    let mut ready = ready.map(File::from);
    // A daemon that a client started is called `exe` otherwise, after the link it was started from.
    let _ = rustix::thread::set_name(c"abide");
    nofile_limit::raise();
    oom::protect_this_process();
    secret::set_not_dumpable();
    mark::note_own();
    allocator::set_mmap_threshold();
    let checked = accelerator::check_switches().map_err(anyhow::Error::from);
    let served = checked
        .and_then(|()| lock::prepare(&paths))
        .and_then(|lock| {
            // One thread runs all asynchronous tasks: a call that never changes threads is fast. Blocking
            // work (long logs, a slow disk) runs on threads of its own.
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let served = runtime.block_on(run(paths, config, &mut ready));
            runtime.shutdown_background();
            drop(lock);
            match has_to_start_again(&served) {
                true => Err(daemon_process::start_again().into()),
                false => served,
            }
        });
    if let (Err(e), Some(mut ready)) = (&served, ready.take()) {
        let _ = write!(ready, "{e:#}");
    }
    served
}

/// True if the daemon has ended because it can start with what it had not: its database, or its new id.
fn has_to_start_again(served: &anyhow::Result<()>) -> bool {
    let fault = served.as_ref().err().and_then(|fault| fault.downcast_ref());
    matches!(fault, Some(RuntimeFault::StartAgain(_)))
}

/// Routes of an engine without sockets.
pub fn in_process_routes(runtime: &Runtime, paths: Paths) -> axum::Router {
    let daemon = http::Daemon {
        started_at: SystemClock.now().wall,
        paths,
        tcp: http::Tcp::Off,
    };
    http::router(http::State::new(runtime.handle.clone(), daemon))
}

async fn run(paths: Paths, config: Config, ready: &mut Option<File>) -> anyhow::Result<()> {
    let started_at = SystemClock.now().wall;
    // `abide doctor` reports what the log says from this line on.
    tracing::info!(
        "abide {} starts, process {}",
        env!("CARGO_PKG_VERSION"),
        std::process::id()
    );
    crate::tools::name_shell(&config.shell);
    let mut runtime = Runtime::start(
        &paths,
        config,
        "/proc/self/exe".into(),
        crate::tools::approved_refusal,
    )
    .await?;
    if !runtime.ready().await {
        return Ok(runtime.stopped().await?);
    }
    let handle = runtime.handle.clone();
    let codec = Arc::new(mcp::RoundCodec::new(load_seal_key(
        &paths.state.join("seal"),
    )?));
    publish_version(&paths)?;
    let http_listener = listen(&paths.http_socket())?;
    let mcp_listener = listen(&paths.mcp_socket())?;
    let (tcp, tcp_listener) = open_tcp(&paths, handle.config().http).await;
    let daemon = http::Daemon {
        started_at,
        paths: paths.clone(),
        tcp,
    };
    let state = http::State::new(handle.clone(), daemon);
    connect_machines(&paths, &handle, &state);
    if let Some((listener, token)) = tcp_listener {
        let served = http::serve_tcp(listener, state.clone(), codec.clone(), token);
        tokio::spawn(served);
    }
    tokio::spawn(http::serve(http_listener, state));
    tokio::spawn(mcp::serve(mcp_listener, handle.clone(), codec));
    tokio::spawn(reread_on_hang_up(
        handle.clone(),
        io::stderr().is_terminal(),
    ));
    tokio::spawn(stop_on_signal(handle));
    if let Some(mut ready) = ready.take() {
        write!(ready, "ready")?;
    }
    tracing::info!(
        "abide {} is ready, process {}",
        env!("CARGO_PKG_VERSION"),
        std::process::id()
    );
    let ended = runtime.stopped().await;
    let _ = std::fs::remove_file(paths.http_address());
    let _ = std::fs::remove_file(paths.http_socket());
    let _ = std::fs::remove_file(paths.mcp_socket());
    let _ = std::fs::remove_file(paths.link_socket());
    tracing::info!("stopped; sessions go on");
    Ok(ended?)
}

/// Connects this machine with the others, if it has a fleet secret. A fault is only logged: the daemon works alone.
fn connect_machines(paths: &Paths, handle: &Handle, state: &http::State) {
    let Some(fleet) = handle.fleet() else {
        return;
    };
    let links = match OtherMachines::start(paths, handle, fleet.clone()) {
        Ok(Some(started)) => started,
        Ok(None) => return,
        Err(fault) => {
            tracing::error!("this machine has no links to the others of its fleet: {fault}");
            return;
        }
    };
    let StartedLinks {
        machines,
        called,
        relayed,
        flush_requests,
    } = links;
    fleet.set_others(machines.clone());
    tokio::spawn(fleet::serve::serve(machines.clone(), called, state.clone()));
    fleet::relay::start(paths, relayed);
    tokio::spawn(lost_sessions::run(machines.clone(), handle.clone()));
    tokio::spawn(directory::run(machines, handle.clone(), flush_requests));
}

/// Publishes the version of this daemon, so that a newer client may replace it.
fn publish_version(paths: &Paths) -> anyhow::Result<()> {
    let path = paths.daemon_version();
    let written = secret::write(&path, env!("CARGO_PKG_VERSION"));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Opens the TCP listener if one is configured. A failure is only logged: the daemon still serves its unix sockets.
async fn open_tcp(
    paths: &Paths,
    listen_on: HttpListen,
) -> (http::Tcp, Option<(TcpListener, String)>) {
    let _ = std::fs::remove_file(paths.http_address());
    let HttpListen::At(wanted) = listen_on else {
        return (http::Tcp::Off, None);
    };
    let opened = async {
        let token = secret::token(&paths.token())?;
        let listener = bind(paths, wanted).await?;
        let address = listener.local_addr()?;
        secret::write(&paths.http_address(), &address.to_string())?;
        secret::write(&paths.last_address(), &address.to_string())?;
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

/// Binds the listener. If any port will do, the last one is preferred, so that an open page finds its daemon again.
async fn bind(paths: &Paths, wanted: SocketAddr) -> io::Result<TcpListener> {
    let last = paths.read_last_address();
    if wanted.port() == 0
        && let Some(last) = last.filter(|last| last.ip() == wanted.ip())
        && let Ok(listener) = TcpListener::bind(last).await
    {
        return Ok(listener);
    }
    TcpListener::bind(wanted).await
}

/// Key that seals the state which clients carry; it is stored so that it outlives the daemon.
fn load_seal_key(path: &Path) -> anyhow::Result<[u8; 32]> {
    if let Ok(bytes) = std::fs::read(path)
        && let Ok(key) = bytes.try_into()
    {
        return Ok(key);
    }
    let key = entropy::array();
    private_file::open(path)?.write_all(&key)?;
    Ok(key)
}

/// Reads the configuration again at SIGHUP. A daemon in the foreground of a terminal that is closed stops.
async fn reread_on_hang_up(handle: Handle, at_terminal: bool) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut hang_up) = signal(SignalKind::hangup()) else {
        return;
    };
    while hang_up.recv().await.is_some() {
        if at_terminal && !io::stderr().is_terminal() {
            return handle.stop().await;
        }
        handle.live_config().reread();
    }
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
