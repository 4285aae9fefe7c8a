//! A process that a test watches, signals or kills.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::home::PATIENCE;

/// pidfd of a process, which never refers to another process, unlike a pid.
pub struct Process(OwnedFd);

impl Process {
    pub fn on(pid: i32) -> Self {
        Process::if_alive(pid).expect("the process lives")
    }

    /// Opens a process; `None`: it has already ended.
    pub fn if_alive(pid: i32) -> Option<Self> {
        let pid = Pid::from_raw(pid).expect("a process number");
        pidfd_open(pid, PidfdFlags::empty()).ok().map(Process)
    }

    pub fn kill(&self) {
        self.send(Signal::KILL);
    }

    /// Sends a signal. A process that has ended since is no fault.
    pub fn send(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.0, signal);
    }

    pub fn is_alive(&self) -> bool {
        !self.ends_within(Duration::ZERO)
    }

    /// Waits until the process has ended.
    pub fn wait_gone(&self) {
        assert!(self.ends_within(PATIENCE), "the process did not end");
    }

    fn ends_within(&self, span: Duration) -> bool {
        let span = Timespec::try_from(span).expect("a short span");
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut fds, Some(&span)).is_ok_and(|ready| ready > 0)
    }
}
