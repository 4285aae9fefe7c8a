//! Sockets that whoever started this process has opened for it, and the word that it is ready: the way
//! of systemd's socket units.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};

use rustix::io::FdFlags;

use abide_engine::config::SocketActivation;

/// The first descriptor that is handed over.
const FIRST: RawFd = 3;

/// Listening sockets, each known by where it listens.
#[derive(Debug, Default)]
pub struct Sockets(Vec<(PathBuf, UnixListener)>);

impl Sockets {
    /// Takes what was handed over. Must be called once, before anything else opens files. Fails
    /// where something was handed over that is no listening socket with a path.
    pub fn take(activation: &SocketActivation) -> io::Result<Self> {
        let mut sockets = Vec::new();
        for fd in FIRST..FIRST.saturating_add(activation.sockets) {
            // SAFETY: whoever started this process says that it has put it there for us, and nothing
            // else here knows of it.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
            let listens = rustix::net::sockopt::socket_acceptconn(&fd)?;
            let listener = UnixListener::from(fd);
            let path = listener.local_addr()?.as_pathname().map(Path::to_owned);
            match path {
                Some(path) if listens => sockets.push((path, listener)),
                _ => return Err(io::Error::other("a handed-over socket listens nowhere")),
            }
        }
        Ok(Sockets(sockets))
    }

    /// The socket that listens at `path`, where one was handed over.
    pub fn at(&mut self, path: &Path) -> Option<UnixListener> {
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        let wanted = real(path)?;
        let place = self
            .0
            .iter()
            .position(|(at, _)| real(at).as_ref() == Some(&wanted))?;
        Some(self.0.swap_remove(place).1)
    }

    /// A socket that nobody wanted: it listens where no client will look.
    pub fn left(&self) -> Option<&Path> {
        self.0.first().map(|(path, _)| path.as_path())
    }
}

/// Says that this process is ready, to whoever wants to know.
pub fn say_ready(activation: &SocketActivation) {
    let Some(path) = &activation.notify else {
        return;
    };
    let told = UnixDatagram::unbound().and_then(|socket| match path.to_str() {
        Some(name) if name.starts_with('@') => {
            use std::os::linux::net::SocketAddrExt;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(&name[1..])?;
            socket.send_to_addr(b"READY=1", &address)
        }
        _ => socket.send_to(b"READY=1", path),
    });
    if let Err(fault) = told {
        tracing::warn!("cannot report readiness to the parent process: {fault}");
    }
}
