//! The fork server: the process that keepers are forked from. It is small and single-threaded, so that a fork is
//! cheap and safe; the daemon is neither.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::Signal;

use crate::stream::Stream;
use abide_session::proc::{self, ProcessHandle};
use abide_session::{FORK_SERVER_FD, fd_passing, inherited_fd, nofile_limit, oom};

/// Running fork server and the socket that takes its orders.
pub(super) struct ForkServer {
    /// Dropped before the process: the fork server exits when this socket is closed and its keepers have exited.
    orders: OwnedFd,
    process: ReapedChild,
}

impl ForkServer {
    /// Starts the fork server from an abide binary.
    pub fn start(program: &Path) -> io::Result<Self> {
        let (orders, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        #[expect(
            clippy::disallowed_methods,
            reason = "the fork server is started here and nowhere else"
        )]
        let mut command = Command::new(program);
        command
            .arg0("abide-fork-srv")
            .arg("keeper")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        nofile_limit::restore(&mut command);
        oom::restore_score(&mut command);
        inherited_fd::pass(&mut command, theirs, FORK_SERVER_FD);
        Ok(ForkServer {
            orders,
            process: ReapedChild(Some(command.spawn()?)),
        })
    }

    /// Orders a keeper for the session in this directory. Returns the connection to it, which can be written to at
    /// once.
    pub fn make(&mut self, folder: &Path) -> io::Result<Stream> {
        let server = self.process.pid();
        // A command can stop the fork server. It is a child of this process, so its pid is not reused.
        if proc::stat(server).is_some_and(|stat| stat.is_stopped())
            && let Some(server) = ProcessHandle::open(server)
        {
            server.signal(Signal::CONT);
        }
        let (ours, theirs) = UnixStream::pair()?;
        let path = folder.as_os_str().as_bytes();
        fd_passing::send(&self.orders, path, &[theirs.as_fd()])?;
        Stream::new(ours)
    }
}

/// Child that is reaped when it exits, even after it was dropped.
struct ReapedChild(Option<Child>);

impl ReapedChild {
    fn pid(&self) -> i32 {
        let pid = self.0.as_ref().map(Child::id);
        pid.and_then(|pid| i32::try_from(pid).ok()).unwrap_or(0)
    }
}

impl Drop for ReapedChild {
    fn drop(&mut self) {
        // The fork server lives as long as its keepers do, so the wait can be long.
        if let Some(mut child) = self.0.take()
            && let Ok(None) = child.try_wait()
        {
            let name = "reap-fork-srv".to_owned();
            let _ = std::thread::Builder::new()
                .name(name)
                .spawn(move || child.wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fork_server_that_exits_when_its_socket_closes_is_reaped() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("server");
        let script = format!("#!/bin/sh\nread end <&{FORK_SERVER_FD}\n");
        std::fs::write(&program, script).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&program, executable).unwrap();
        let server = ForkServer::start(&program).unwrap();
        let pid = server.process.pid();
        assert!(proc::stat(pid).is_some());
        drop(server);
        while proc::stat(pid).is_some() {
            std::thread::yield_now();
        }
    }
}
