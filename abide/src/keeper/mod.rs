//! The small process beside every child, and the nursery that they come from.
//!
//! A keeper is a fork of the nursery that never executes another program, so that all keepers share
//! the pages of one image. It has no runtime and no threads; it sleeps in one poll. It owns the
//! child's pipes or terminal, writes the log, is whom orphans of the tree come back to, enforces the
//! hard limit, and writes down the ending. The daemon may die and come back at any time.

use std::ffi::OsStr;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

mod birth;
pub mod cgroup;
mod clock;
mod codec;
mod crash;
mod feed;
pub mod folder;
pub mod frame;
mod launch;
mod line;
pub mod log;
mod nsinit;
mod place;
pub mod proc;
mod rehearse;
mod run;
mod serve;
mod spawn;
pub mod tree;

pub use crash::crash_point;
pub use place::boot_id;

use frame::FromKeeper;
use line::Line;
use place::{Place, Surroundings};
use serve::Keeper;

/// Where the nursery finds its socket.
pub const NURSERY_FD: RawFd = 3;
/// The longest path of a session's folder.
const PATH_LIMIT: usize = 4_096;

/// Runs as the nursery until the daemon closes its end. The keepers go on.
pub fn main() -> ! {
    set_name(c"abide-nursery");
    for signal in [libc::SIGCHLD, libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
        // SAFETY: no handler is installed; ignored children are reaped by the kernel.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // SAFETY: swaps the mask and back, in a process without threads.
    let umask = unsafe { libc::umask(0o077) };
    let around = Surroundings::new(umask);
    // SAFETY: the daemon passes this descriptor; if it did not, every use of it fails.
    let requests = unsafe { BorrowedFd::borrow_raw(NURSERY_FD) };
    spawn::close_on_exec(requests);
    loop {
        match receive(requests) {
            Ok(Some((folder, line))) => bear(&folder, line, &around),
            Ok(None) => {}
            Err(_) => std::process::exit(0),
        }
    }
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

/// Forks a keeper.
fn bear(folder: &Path, socket: OwnedFd, around: &Surroundings) {
    // SAFETY: the nursery has one thread, so the child may do anything.
    match birth::patiently(|| unsafe {
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            pid => Ok(pid),
        }
    }) {
        Ok(0) => {
            keep(folder, socket, around);
            std::process::exit(0)
        }
        Err(fault) => {
            let failure = birth::no_process("cannot start a keeper", &fault);
            Line::new(socket).say(&FromKeeper::StartFailed {
                errno: failure.errno,
                sentence: failure.sentence,
            });
        }
        Ok(_) => {}
    }
}

fn keep(folder: &Path, socket: OwnedFd, around: &Surroundings) {
    let Ok(socket) = settle_in(socket) else {
        return;
    };
    let mut line = Line::new(socket);
    match Place::make(folder, around) {
        Ok(place) => {
            crash_point("keeper.pre_handshake");
            Keeper::new(place, line).serve();
        }
        Err(failure) => line.say(&FromKeeper::StartFailed {
            errno: failure.errno,
            sentence: failure.sentence,
        }),
    }
}

/// Cuts every tie to the nursery and becomes whom orphans of the tree come back to. Returns the
/// socket, which is then the only descriptor beyond the standard three.
fn settle_in(socket: OwnedFd) -> io::Result<OwnedFd> {
    set_name(c"abide-keeper");
    // SAFETY: plain system calls in a process without threads. The socket is moved to a place of its
    // own before everything behind that is closed, and nothing else is used afterwards.
    let socket = unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        if libc::dup3(socket.as_raw_fd(), NURSERY_FD, libc::O_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        std::mem::forget(socket);
        libc::close_range(NURSERY_FD as u32 + 1, u32::MAX, 0);
        OwnedFd::from_raw_fd(NURSERY_FD)
    };
    let flags = rustix::fs::OFlags::RDWR;
    let null = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdin(null.as_fd())?;
    rustix::stdio::dup2_stdout(null.as_fd())?;
    rustix::stdio::dup2_stderr(null.as_fd())?;
    rustix::process::chdir("/")?;
    reset_signals();
    Ok(socket)
}

/// Every signal has its default effect, as the command will inherit, and all that can be are
/// blocked, so that none has it here.
fn reset_signals() {
    // SAFETY: no handler is installed; the structures are initialised before they are used.
    unsafe {
        // Asked of the kernel itself: the library refuses to touch two of them. All zeroes is the
        // default effect, no flags and an empty mask.
        let default = [0_u64; 4];
        let nothing = std::ptr::null::<u8>();
        for signal in 1..=64_i64 {
            libc::syscall(libc::SYS_rt_sigaction, signal, &default, nothing, 8_usize);
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        action.sa_flags = libc::SA_NOCLDSTOP;
        libc::sigaction(libc::SIGCHLD, &action, std::ptr::null_mut());
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
}

fn set_name(name: &std::ffi::CStr) {
    // SAFETY: the name is a valid string that the kernel copies.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}
