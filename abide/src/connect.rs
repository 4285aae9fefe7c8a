//! Connections to the daemon. A client starts a daemon if none runs.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use abide_engine::config::Paths;
use abide_engine::socket;
use abide_session::private_file;

use crate::daemon_process;
use crate::lock::{is_older, make_folders};

/// Socket of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonSocket {
    /// HTTP, for the command line.
    Http,
    /// MCP, for `abide mcp`.
    Mcp,
    /// Links of other machines, for `abide relay`.
    Link,
}

impl DaemonSocket {
    fn path(self, paths: &Paths) -> std::path::PathBuf {
        match self {
            DaemonSocket::Http => paths.http_socket(),
            DaemonSocket::Mcp => paths.mcp_socket(),
            DaemonSocket::Link => paths.link_socket(),
        }
    }
}

/// Daemons to start in a row if each stops before it can be called.
const START_ATTEMPTS: u32 = 3;

/// Connects to the daemon, and starts one if none runs. If two clients do so at once, the second waits for
/// the first and then uses its daemon.
pub fn connect(paths: &Paths, which: DaemonSocket) -> io::Result<UnixStream> {
    connect_starting(paths, which, Path::new("/proc/self/exe"))
}

/// Connects as above; `program` is the abide executable to start as the daemon.
pub fn connect_starting(
    paths: &Paths,
    which: DaemonSocket,
    program: &Path,
) -> io::Result<UnixStream> {
    if let Ok(stream) = connect_current(paths, which) {
        return Ok(stream);
    }
    make_folders(paths)?;
    let starting = private_file::open(&paths.runtime.join("starting"))?;
    starting.lock()?;
    if let Ok(stream) = connect_current(paths, which) {
        return Ok(stream);
    }
    let mut attempts = 0;
    loop {
        attempts += 1;
        let started = daemon_process::start(paths, program);
        match (socket::connect(&which.path(paths)), started) {
            // An older daemon that does not make way can still be called.
            (Ok(stream), _) => return Ok(stream),
            (Err(_), Err(fault)) => return Err(fault),
            (Err(fault), Ok(())) if attempts == START_ATTEMPTS => return Err(fault),
            // The daemon has stopped since, or starts again with another id.
            (Err(_), Ok(())) => {}
        }
    }
}

/// Connects to a running daemon that is not older than this program. An older one makes way for the next daemon.
pub fn connect_current(paths: &Paths, which: DaemonSocket) -> io::Result<UnixStream> {
    let version = std::fs::read_to_string(paths.daemon_version()).unwrap_or_default();
    if is_older(&version, env!("CARGO_PKG_VERSION")) {
        return Err(io::Error::other("the daemon that runs is older"));
    }
    socket::connect(&which.path(paths))
}

/// Connects to a running daemon of any version.
pub fn connect_running(paths: &Paths, which: DaemonSocket) -> io::Result<UnixStream> {
    socket::connect(&which.path(paths))
}
