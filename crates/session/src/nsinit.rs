//! The pid namespace of one session, and its init process.
//!
//! The init process runs no program. It makes a mount namespace with a `/proc` that shows only the pid
//! namespace, reaps orphans, and exits when it is released and no process is left; the kernel then kills
//! the rest of the namespace. The command itself stays a child of the keeper, which sees its exit status.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::pipe::PipeFlags;
use rustix::process::{Signal, WaitOptions, set_parent_process_death_signal, wait};
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};

use super::cgroup::SessionCgroup;
use super::fork_exec::{CLONE_INTO_CGROUP, CloneArgs, exit_now, fork_failure, retry_on_eagain};
use super::frame::StartFailure;
use super::spawn;
use super::{inherited_fd, set_name, signals};

/// Pid namespace in which commands can be started.
pub struct Namespace {
    /// Pid of the init process of the namespace.
    pub pid: i32,
    /// pidfd of the init process.
    pub handle: OwnedFd,
    /// Write end of a pipe: the init process ends after it is closed and no other process is left.
    keep_alive: Option<OwnedFd>,
}

/// Forks this process, which has one thread, into new namespaces and into the control group of its session. Returns 0 in
/// the child. `handle` becomes a pidfd of the child.
pub(crate) fn fork_into_namespaces(
    namespaces: libc::c_int,
    cgroup: Option<&SessionCgroup>,
    handle: &mut RawFd,
) -> io::Result<i32> {
    let args = CloneArgs {
        flags: (namespaces | libc::CLONE_PIDFD) as u64 | cgroup.map_or(0, |_| CLONE_INTO_CGROUP),
        pidfd: std::ptr::from_mut(handle) as u64,
        exit_signal: libc::SIGCHLD as u64,
        cgroup: cgroup.map_or(0, |cgroup| cgroup.folder.as_raw_fd()) as u64,
        ..CloneArgs::default()
    };
    // SAFETY: without CLONE_VM the child has a copy of all memory, as after a fork, and this
    // process has one thread.
    retry_on_eagain(|| unsafe {
        match libc::syscall(libc::SYS_clone3, &args, size_of::<CloneArgs>()) {
            -1 => Err(io::Error::last_os_error()),
            pid => Ok(pid as i32),
        }
    })
}

impl Namespace {
    /// Creates a namespace. Later children of this process start in it.
    pub fn make(cgroup: Option<&SessionCgroup>) -> Result<Self, StartFailure> {
        let fail = |fault: io::Error| StartFailure::new("cannot make a process namespace", &fault);
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|e| fail(e.into()));
        let ((report, to_report), (held, keep_alive)) = (pipe()?, pipe()?);
        let mut handle: RawFd = -1;
        let namespaces = libc::CLONE_NEWPID | libc::CLONE_NEWNS;
        let pid = fork_into_namespaces(namespaces, cgroup, &mut handle);
        let pid = match pid {
            Ok(0) => init(to_report.as_fd(), held.as_fd()),
            Ok(pid) => pid,
            Err(fault) if fault.raw_os_error() == Some(libc::EPERM) => return Err(not_allowed()),
            Err(fault) => return Err(fork_failure("cannot make a process namespace", &fault)),
        };
        drop(to_report);
        // SAFETY: the kernel has written a new descriptor.
        let handle = unsafe { OwnedFd::from_raw_fd(handle) };
        let namespace = Namespace {
            pid,
            handle,
            keep_alive: Some(keep_alive),
        };
        read_report(&report).map_err(fail)?;
        let kind = ThreadNameSpaceType::PROCESS_ID;
        move_into_thread_name_spaces(namespace.handle.as_fd(), kind).map_err(|e| fail(e.into()))?;
        Ok(namespace)
    }

    /// Namespace with this init process, which ends after `keep_alive` is closed.
    pub(super) fn of(pid: i32, handle: OwnedFd, keep_alive: OwnedFd) -> Self {
        Namespace {
            pid,
            handle,
            keep_alive: Some(keep_alive),
        }
    }

    /// Kills all processes in the namespace.
    pub fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.handle, Signal::KILL);
    }

    /// Lets the namespace end as soon as no process is left in it.
    pub fn release(&mut self) {
        self.keep_alive = None;
    }
}

impl Drop for Namespace {
    /// Ends a namespace in which nothing was started, since it was not released.
    fn drop(&mut self) {
        if self.keep_alive.is_some() {
            self.kill();
            spawn::reap(self.pid);
        }
    }
}

fn not_allowed() -> StartFailure {
    StartFailure::now(
        libc::EPERM,
        "cannot contain the command: only root may make a process namespace here \
                   without changing who the command runs as",
    )
}

fn read_report(report: &OwnedFd) -> io::Result<()> {
    let mut bytes = [0; 4];
    loop {
        return match rustix::io::read(report, &mut bytes) {
            Ok(4) => match i32::from_ne_bytes(bytes) {
                0 => Ok(()),
                errno => Err(io::Error::from_raw_os_error(errno)),
            },
            Ok(_) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => Err(errno.into()),
        };
    }
}

/// Main function of the init process. All signals stay blocked, as in a keeper, so that a signal sent to the tree
/// does not end it; only SIGKILL does.
fn init(report: BorrowedFd<'_>, held: BorrowedFd<'_>) -> ! {
    set_name(c"abide-init");
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let errno: i32 = match own_mounts() {
        Ok(()) => 0,
        Err(fault) => fault.raw_os_error().unwrap_or(libc::EIO),
    };
    let _ = rustix::io::write(report, &errno.to_ne_bytes());
    reap_until_empty(held)
}

/// Reaps orphans until the keeper has closed its end and no process is left.
pub(super) fn reap_until_empty(held: BorrowedFd<'_>) -> ! {
    // Inherited descriptors would keep the streams and sockets of the session open.
    let _ = rustix::stdio::dup2_stdin(held);
    inherited_fd::close_from(2);
    if let Ok(signals) = signals::open_signalfd(&[libc::SIGCHLD]) {
        let _ = rustix::stdio::dup2_stdout(&signals);
    }
    let all = WaitOptions::from_bits_retain(libc::__WALL.cast_unsigned());
    while wait_while_kept_alive() {
        while matches!(wait(all | WaitOptions::NOHANG), Ok(Some(_))) {}
    }
    // The command is gone, so all remaining processes are descendants of this one.
    while !matches!(wait(all), Err(Errno::CHILD)) {}
    exit_now(0)
}

/// Waits until a child has ended or the keeper has closed its end. True while the end is open.
fn wait_while_kept_alive() -> bool {
    let (held, signals) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    let mut fds = [
        PollFd::from_borrowed_fd(held, PollFlags::IN),
        PollFd::from_borrowed_fd(signals, PollFlags::IN),
    ];
    let _ = rustix::event::poll(&mut fds, None);
    let mut signal = [0_u8; size_of::<libc::signalfd_siginfo>()];
    let _ = rustix::io::read(signals, &mut signal);
    fds[0].revents().is_empty()
}

fn own_mounts() -> io::Result<()> {
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change(c"/", private)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(rustix::mount::mount(
        c"proc", c"/proc", c"proc", flags, None,
    )?)
}
