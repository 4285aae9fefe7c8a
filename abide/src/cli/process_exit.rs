//! Wait for the exit of a process that is not a child.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Process behind a pidfd, so that a reused pid cannot be mistaken for it.
pub struct Process(OwnedFd);

impl Process {
    /// Opens the process with this pid; `None`: it has already exited.
    pub fn open(pid: i32) -> Option<Self> {
        let pid = Pid::from_raw(pid)?;
        pidfd_open(pid, PidfdFlags::empty()).ok().map(Process)
    }

    /// Blocks until the process has exited.
    pub fn wait(&self) {
        loop {
            let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
            match rustix::event::poll(&mut fds, None) {
                Err(Errno::INTR) => {}
                _ => return,
            }
        }
    }
}
