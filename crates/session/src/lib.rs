//! One session on one machine: its directory and log format, its process tree, the keeper process beside
//! it, and the fork server that keepers come from.
//!
//! A keeper is a fork of the fork server that never executes another program, so that all keepers share
//! the pages of one image. It has no async runtime and no threads; it sleeps in one poll. It owns the
//! child's pipes or terminal, writes the log, is the subreaper of the tree, enforces the deadline, and
//! records the ending. The daemon may die and restart at any time.
//!
//! The daemon uses the other modules: it reads the log ([`log`]), the record ([`folder`]) and the state of
//! the processes ([`facts`], [`tree`]), and talks to keepers in frames ([`frame`]).
#![deny(missing_docs)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

pub mod accelerator;
pub mod cgroup;
pub mod changed_limits;
mod child_input;
mod clock;
mod codec;
mod connection;
mod crash;
pub mod descriptors;
pub mod ext4_placement;
pub mod facts;
pub mod folder;
mod fork_exec;
mod fork_server;
pub mod frame;
pub mod idempotency_log;
pub mod inherited_limits;
mod launch;
pub mod log;
pub mod mark;
mod nsinit;
pub mod oom;
mod peer_check;
pub mod private_file;
pub mod proc;
pub mod pts;
pub mod read_cursors;
mod resources;
mod run;
mod serve;
mod spawn;
pub mod tree;

pub use crash::crash_point;
pub use fork_server::{PROCESS_NAME as FORK_SERVER, START_DAEMON, main};
pub use resources::boot_id;

use clock::wall_ms;
use connection::Connection;
use resources::{ForkServerContext, Resources};
use serve::Keeper;

/// Descriptor on which the fork server receives requests.
pub const FORK_SERVER_FD: RawFd = 3;

fn run_keeper(folder: &Path, socket: OwnedFd, context: &ForkServerContext) {
    let Ok(socket) = detach_from_fork_server(socket) else {
        return;
    };
    let mut connection = Connection::new(socket);
    match Resources::make(folder, context) {
        Ok(resources) => {
            crash_point("keeper.pre_handshake");
            Keeper::new(resources, connection).serve();
        }
        Err(failure) => connection.say(&failure.at(wall_ms())),
    }
}

/// Detaches a new keeper from the fork server and makes it a subreaper. Returns the socket, which is then
/// the only descriptor beyond the standard three.
fn detach_from_fork_server(socket: OwnedFd) -> io::Result<OwnedFd> {
    set_name(c"abide-keeper");
    // SAFETY: plain system calls in a process without threads. The socket is moved to a fixed descriptor before all
    // others behind it are closed, and none of those is used afterwards.
    let socket = unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        if libc::dup3(socket.as_raw_fd(), FORK_SERVER_FD, libc::O_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        std::mem::forget(socket);
        libc::close_range(FORK_SERVER_FD as u32 + 1, u32::MAX, 0);
        OwnedFd::from_raw_fd(FORK_SERVER_FD)
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

/// Resets every signal to its default action, which the command will inherit, and blocks all that can be
/// blocked, so that none acts on the keeper.
fn reset_signals() {
    // SAFETY: no handler is installed; the structures are initialised before they are used.
    unsafe {
        // A direct system call, because libc refuses to change two of the signals. All zeroes is the default action,
        // no flags and an empty mask.
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

/// Unblocks all signals, for a program that is executed next.
fn unblock_signals() {
    // SAFETY: the set is initialised before it is used.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

fn set_name(name: &std::ffi::CStr) {
    // SAFETY: the name is a valid string that the kernel copies.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}
