//! The fork server: the process that keepers are forked from. It is small and single-threaded, so that a fork is
//! cheap and safe; the daemon is neither.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};
use rustix::process::Signal;

use crate::stream::Stream;
use abide_session::proc::{self, ProcessHandle};
use abide_session::{FORK_SERVER_FD, descriptors, inherited_fd, oom};

/// Running fork server and the socket that takes its orders.
pub(super) struct ForkServer {
    orders: OwnedFd,
    process: Child,
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
        descriptors::as_before(&mut command);
        oom::restore_score(&mut command);
        inherited_fd::pass(&mut command, theirs, FORK_SERVER_FD);
        Ok(ForkServer {
            orders,
            process: command.spawn()?,
        })
    }

    /// Orders a keeper for the session in this directory. Returns the connection to it, which can be written to at
    /// once.
    pub fn make(&mut self, folder: &Path) -> io::Result<Stream> {
        let server = i32::try_from(self.process.id()).unwrap_or(0);
        // A command can stop the fork server. It is a child of this process, so its pid is not reused.
        if proc::stat(server).is_some_and(|stat| stat.is_stopped())
            && let Some(server) = ProcessHandle::open(server)
        {
            server.signal(Signal::CONT);
        }
        let (ours, theirs) = UnixStream::pair()?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let passed = [theirs.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&passed));
        let path = [IoSlice::new(folder.as_os_str().as_bytes())];
        sendmsg(&self.orders, &path, &mut control, SendFlags::NOSIGNAL)?;
        Stream::new(ours)
    }
}

impl Drop for ForkServer {
    fn drop(&mut self) {
        // The fork server exits when its socket is closed; only reaping is left to do.
        let _ = self.process.try_wait();
    }
}
