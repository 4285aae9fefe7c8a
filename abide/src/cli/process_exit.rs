//! Waiting for a process that is nobody's child here.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process, held so that no other is ever mistaken for it.
pub struct Process(OwnedFd);

impl Process {
    /// The process of this number; `None`: it is gone already.
    pub fn numbered(pid: i32) -> Option<Self> {
        let pid = Pid::from_raw(pid)?;
        pidfd_open(pid, PidfdFlags::empty()).ok().map(Process)
    }

    /// Returns once it is gone.
    pub fn wait(&self) {
        loop {
            let mut gone = [PollFd::new(&self.0, PollFlags::IN)];
            match rustix::event::poll(&mut gone, None) {
                Err(Errno::INTR) => {}
                _ => return,
            }
        }
    }
}
