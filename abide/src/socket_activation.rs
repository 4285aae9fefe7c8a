//! Sockets that the parent process has opened for this one, and the notification that this process is ready,
//! as in systemd's socket activation.

use std::io;
use std::os::fd::RawFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};

use rustix::io::{Errno, FdFlags};

use abide_engine::config::SocketActivation;
use abide_session::inherited_fd;

/// First file descriptor that is passed.
const FIRST_FD: RawFd = 3;

/// Listening sockets with their paths.
#[derive(Debug, Default)]
pub struct PassedSockets(Vec<(PathBuf, UnixListener)>);

impl PassedSockets {
    /// Takes the passed sockets. Must be called once, before any file is opened. Fails if a passed descriptor
    /// is no listening socket with a path.
    pub fn take(activation: &SocketActivation) -> io::Result<Self> {
        let mut sockets = Vec::new();
        for fd in FIRST_FD..FIRST_FD.saturating_add(activation.sockets) {
            let fd = inherited_fd::take(fd).ok_or(Errno::BADF)?;
            rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
            let listens = rustix::net::sockopt::socket_acceptconn(&fd)?;
            let listener = UnixListener::from(fd);
            let path = listener.local_addr()?.as_pathname().map(Path::to_owned);
            match path {
                Some(path) if listens => sockets.push((path, listener)),
                _ => return Err(io::Error::other("a handed-over socket listens nowhere")),
            }
        }
        Ok(PassedSockets(sockets))
    }

    /// Passed socket that listens at `path`, if there is one.
    pub fn at(&mut self, path: &Path) -> Option<UnixListener> {
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        let wanted = real(path)?;
        let index = self
            .0
            .iter()
            .position(|(at, _)| real(at).as_ref() == Some(&wanted))?;
        Some(self.0.swap_remove(index).1)
    }

    /// Path of a passed socket that was not used: clients do not look for it there.
    pub fn unused(&self) -> Option<&Path> {
        self.0.first().map(|(path, _)| path.as_path())
    }
}

/// Notifies the parent process that this process is ready, if it asked for that.
pub fn notify_ready(activation: &SocketActivation) {
    let Some(path) = &activation.notify else {
        return;
    };
    let sent = UnixDatagram::unbound().and_then(|socket| match path.to_str() {
        Some(name) if name.starts_with('@') => {
            use std::os::linux::net::SocketAddrExt;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(&name[1..])?;
            socket.send_to_addr(b"READY=1", &address)
        }
        _ => socket.send_to(b"READY=1", path),
    });
    if let Err(fault) = sent {
        tracing::warn!("cannot report readiness to the parent process: {fault}");
    }
}
