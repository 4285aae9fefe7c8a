//! The process that keepers are forked from, and whom the processes of a keeper come back to that was
//! killed. It has one thread, and sleeps in one poll. It stays for as long as one of its keepers does,
//! whether or not there is a daemon.

use std::ffi::OsStr;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::{Signal, WaitOptions};

use super::birth;
use super::clock::wall_ms;
use super::line::Line;
use super::place::Surroundings;
use super::proc::{self, Held};
use super::{NURSERY_FD, spawn, tree};

/// The longest path of a session's folder.
const PATH_LIMIT: usize = 4_096;

/// Runs as the nursery until the daemon has closed its end and no keeper is left.
pub fn main() -> ! {
    super::set_name(c"abide-nursery");
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
        // SAFETY: no handler is installed.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // SAFETY: swaps the mask and back, in a process without threads.
    let umask = unsafe { libc::umask(0o077) };
    let Ok(deaths) = hear_of_deaths() else {
        std::process::exit(1)
    };
    // SAFETY: the daemon passes this descriptor; if it did not, every use of it fails.
    let requests = unsafe { OwnedFd::from_raw_fd(NURSERY_FD) };
    spawn::close_on_exec(requests.as_fd());
    let nursery = Nursery {
        around: Surroundings::new(umask),
        keepers: Vec::new(),
    };
    nursery.run(requests, &deaths)
}

/// Becomes whom orphans come back to, and says where it is told that a child has ended.
fn hear_of_deaths() -> io::Result<OwnedFd> {
    // SAFETY: plain system calls in a process without threads; the set is initialised before it is
    // used, and the new descriptor is nobody else's.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        // Whoever started the first of us may not care for children, and nobody is told of those.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let mut child: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut child);
        libc::sigaddset(&mut child, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &child, std::ptr::null_mut());
        match libc::signalfd(-1, &child, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

struct Nursery {
    around: Surroundings,
    /// The keepers that have not been buried, so that their numbers are theirs.
    keepers: Vec<i32>,
}

impl Nursery {
    fn run(mut self, requests: OwnedFd, deaths: &OwnedFd) -> ! {
        let mut requests = Some(requests);
        loop {
            let (asked, died) = wait(requests.as_ref(), deaths);
            if died {
                forget_signals(deaths);
                self.bury();
            }
            if let Some(open) = requests.as_ref().filter(|_| asked) {
                match receive(open.as_fd()) {
                    Ok(Some((folder, line))) => self.bear(&folder, line),
                    Ok(None) => {}
                    // There is no daemon any more. Its folder may go too.
                    Err(_) => {
                        requests = None;
                        let _ = rustix::process::chdir("/");
                    }
                }
            }
            if requests.is_none() && self.keepers.is_empty() && self.strangers().is_empty() {
                std::process::exit(0)
            }
        }
    }

    /// Forks a keeper.
    fn bear(&mut self, folder: &Path, socket: OwnedFd) {
        // SAFETY: the nursery has one thread, so the child may do anything.
        match birth::patiently(|| unsafe {
            match libc::fork() {
                -1 => Err(io::Error::last_os_error()),
                pid => Ok(pid),
            }
        }) {
            Ok(0) => {
                super::keep(folder, socket, &self.around);
                std::process::exit(0)
            }
            Err(fault) => {
                let failure = birth::no_process("cannot start a keeper", &fault);
                Line::new(socket).say(&failure.at(wall_ms()));
            }
            Ok(pid) => self.keepers.push(pid),
        }
    }

    /// Takes leave of children that have ended, and continues keepers that were stopped. A keeper that was killed could not end its tree, which
    /// has come to the nursery meanwhile.
    fn bury(&mut self) {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        while let Ok(Some((pid, status))) = rustix::process::wait(options) {
            let number = pid.as_raw_pid();
            if !status.stopped() {
                self.keepers.retain(|keeper| *keeper != number);
            } else if self.keepers.contains(&number) {
                // A command must not hold up what enforces its limits.
                let _ = rustix::process::kill_process(pid, Signal::CONT);
            }
        }
        // Whoever escapes comes here when its parent has died, and is met then.
        for pid in self.strangers() {
            if let Some(held) = Held::open(pid) {
                held.signal(Signal::STOP);
                tree::kill_all(pid, None);
                held.signal(Signal::KILL);
            }
        }
    }

    /// Children that are no keepers. The numbers are theirs until they are buried.
    fn strangers(&self) -> Vec<i32> {
        let mut children = proc::children(std::process::id() as i32);
        children.retain(|pid| !self.keepers.contains(pid));
        children
    }
}

/// Waits for a request or the end of a child.
fn wait(requests: Option<&OwnedFd>, deaths: &OwnedFd) -> (bool, bool) {
    let mut fds = vec![PollFd::new(deaths, PollFlags::IN)];
    fds.extend(requests.map(|requests| PollFd::new(requests, PollFlags::IN)));
    while let Err(Errno::INTR) = rustix::event::poll(&mut fds, None) {}
    let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
    (ready(1), ready(0))
}

fn forget_signals(deaths: &OwnedFd) {
    let mut told = [0; size_of::<libc::signalfd_siginfo>()];
    while rustix::io::read(deaths, &mut told).is_ok() {}
}

/// One request: a folder and the connection to serve. `None`: it was none.
fn receive(requests: BorrowedFd<'_>) -> Result<Option<(PathBuf, OwnedFd)>, Errno> {
    let mut path = [0; PATH_LIMIT];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut path)];
        match rustix::net::recvmsg(
            requests,
            &mut parts,
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    if received.bytes == 0 {
        return Err(Errno::PIPE);
    }
    let socket = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let path = PathBuf::from(OsStr::from_bytes(&path[..received.bytes]));
    Ok(socket.map(|socket| (path, socket)))
}
