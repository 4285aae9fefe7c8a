//! The pid namespace of one session, and its init process.
//!
//! The init process runs no program. It makes a mount namespace with a `/proc` that shows only the pid
//! namespace, reaps orphans, and exits when it is released and no process is left; the kernel then kills
//! the rest of the namespace. The command itself stays a child of the keeper, which sees its exit status.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::pipe::PipeFlags;
use rustix::process::Signal;

use super::cgroup::Leaf;
use super::fork_exec::{CLONE_INTO_CGROUP, CloneArgs, fork_failure, retry_on_eagain};
use super::set_name;
use super::spawn::Failure;

/// Pid namespace in which commands can be started.
pub struct Namespace {
    /// Pid of the init process of the namespace.
    pub pid: i32,
    /// pidfd of the init process.
    pub handle: OwnedFd,
    leash: Option<OwnedFd>,
}

impl Namespace {
    /// Creates a namespace. Later children of this process start in it.
    pub fn make(leaf: Option<&Leaf>) -> Result<Self, Failure> {
        let fail = |fault: io::Error| Failure::new("cannot make a process namespace", &fault);
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|e| fail(e.into()));
        let ((report, to_report), (held, leash)) = (pipe()?, pipe()?);
        let mut handle: RawFd = -1;
        let args = CloneArgs {
            flags: (libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_PIDFD) as u64
                | leaf.map_or(0, |_| CLONE_INTO_CGROUP),
            pidfd: std::ptr::from_mut(&mut handle) as u64,
            exit_signal: libc::SIGCHLD as u64,
            cgroup: leaf.map_or(0, |leaf| leaf.folder.as_raw_fd()) as u64,
            ..CloneArgs::default()
        };
        // SAFETY: without CLONE_VM the child has a copy of all memory, as after a fork, and this
        // process has one thread.
        let pid = retry_on_eagain(|| unsafe {
            match libc::syscall(libc::SYS_clone3, &args, size_of::<CloneArgs>()) {
                -1 => Err(io::Error::last_os_error()),
                pid => Ok(pid as i32),
            }
        });
        let pid = match pid {
            Ok(0) => init(to_report.as_raw_fd(), held.as_raw_fd()),
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
            leash: Some(leash),
        };
        let made = read_report(&report).and_then(|()| {
            // SAFETY: changes the namespace of later children, and nothing else.
            match unsafe { libc::setns(namespace.handle.as_raw_fd(), libc::CLONE_NEWPID) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
        match made {
            Ok(()) => Ok(namespace),
            Err(fault) => {
                namespace.abandon();
                Err(fail(fault))
            }
        }
    }

    /// Kills all processes in the namespace.
    pub fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.handle, Signal::KILL);
    }

    /// Lets the namespace end as soon as no process is left in it.
    pub fn let_go(&mut self) {
        self.leash = None;
    }

    /// Ends a namespace in which nothing was started.
    pub fn abandon(self) {
        self.kill();
        // SAFETY: waits for a child of ours and stores nothing.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WALL) };
    }
}

fn not_allowed() -> Failure {
    Failure {
        errno: libc::EPERM,
        sentence: "cannot contain the command: only root may make a process namespace here \
                   without changing who the command runs as"
            .into(),
    }
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
fn init(report: RawFd, held: RawFd) -> ! {
    set_name(c"abide-init");
    // SAFETY: plain system calls in a process without threads.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let errno: i32 = match own_mounts() {
            Ok(()) => 0,
            Err(fault) => fault.raw_os_error().unwrap_or(libc::EIO),
        };
        libc::write(report, errno.to_ne_bytes().as_ptr().cast(), 4);
        // Inherited descriptors would keep the streams and sockets of the session open.
        libc::dup2(held, 0);
        libc::close_range(2, u32::MAX, 0);
        let mut children: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut children);
        libc::sigaddset(&mut children, libc::SIGCHLD);
        let fd = libc::signalfd(-1, &children, libc::SFD_NONBLOCK);
        libc::dup2(fd, 1);
        libc::close(fd);
        while held_still() {
            while libc::waitpid(-1, std::ptr::null_mut(), libc::__WALL | libc::WNOHANG) > 0 {}
        }
        // The command is gone, so all remaining processes are descendants of this one.
        while libc::waitpid(-1, std::ptr::null_mut(), libc::__WALL) >= 0
            || *libc::__errno_location() != libc::ECHILD
        {}
        libc::_exit(0)
    }
}

/// Waits until a child has ended or the keeper has closed its end. True while the end is open.
fn held_still() -> bool {
    let watch = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut fds = [watch(0), watch(1)];
    let mut signal = [0_u8; size_of::<libc::signalfd_siginfo>()];
    // SAFETY: both places are valid for what is written to them.
    unsafe {
        libc::poll(fds.as_mut_ptr(), 2, -1);
        libc::read(1, signal.as_mut_ptr().cast(), signal.len());
    }
    fds[0].revents == 0
}

fn own_mounts() -> io::Result<()> {
    let mount = |what: &std::ffi::CStr, at: &std::ffi::CStr, flags| {
        // SAFETY: the strings are valid and the kernel copies them.
        match unsafe {
            libc::mount(
                what.as_ptr(),
                at.as_ptr(),
                what.as_ptr(),
                flags,
                std::ptr::null(),
            )
        } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    mount(c"none", c"/", libc::MS_REC | libc::MS_PRIVATE)?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mount(c"proc", c"/proc", flags)
}
