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
pub mod allocator;
pub mod cgroup;
mod child_input;
mod clock;
pub mod codec;
mod connection;
mod crash;
pub mod daemon_record;
pub mod ext4_placement;
pub mod facts;
pub mod fd_passing;
pub mod folder;
mod fork_exec;
mod fork_server;
pub mod frame;
pub mod inherited_fd;
pub mod inherited_limits;
mod launch;
pub mod log;
pub mod mark;
pub mod nofile_limit;
mod nsinit;
pub mod oom;
mod peer_check;
pub mod private_file;
pub mod proc;
pub mod pts;
#[cfg(test)]
mod random_records;
mod resources;
mod run;
pub mod sandbox;
mod serve;
mod signals;
mod spawn;
pub mod tree;

pub use clock::is_synchronised as clock_is_synchronised;
pub use crash::crash_point;
pub use fork_server::{PROCESS_NAME as FORK_SERVER, START_DAEMON, main};
pub use resources::boot_id;

use clock::wall_ms;
use connection::Connection;
use resources::{ForkServerContext, Resources};
use serve::Keeper;

/// Descriptor on which the fork server receives requests.
pub const FORK_SERVER_FD: RawFd = 3;
/// Descriptor on which a keeper asks the fork server to start a network gate.
const GATE_STARTER_FD: RawFd = 4;

fn run_keeper(folder: &Path, socket: OwnedFd, gate_starter: RawFd, context: &ForkServerContext) {
    let detached = detach_from_fork_server(socket, gate_starter);
    let Ok((socket, gate_starter)) = detached else {
        return;
    };
    let mut connection = Connection::new(socket);
    match Resources::make(folder, context.clone()) {
        Ok(resources) => {
            crash_point("keeper.pre_handshake");
            Keeper::new(resources, connection, gate_starter).serve();
        }
        Err(failure) => connection.send(&failure.at(wall_ms())),
    }
}

/// Detaches a new keeper from the fork server and makes it a subreaper. Returns the socket of the daemon and that for
/// requests to start a gate, which are then the only descriptors beyond the standard three.
fn detach_from_fork_server(socket: OwnedFd, gate_starter: RawFd) -> io::Result<(OwnedFd, OwnedFd)> {
    set_name(c"abide-keeper");
    let _ = rustix::process::setsid();
    become_subreaper();
    // SAFETY: plain system calls in a process without threads. Both sockets are moved to fixed descriptors before all
    // others behind them are closed, and none of those is used afterwards.
    let sockets = unsafe {
        let moved = [
            (socket.as_raw_fd(), FORK_SERVER_FD),
            (gate_starter, GATE_STARTER_FD),
        ];
        for (from, to) in moved {
            // A descriptor that is in its place already must not be moved onto itself.
            if from != to && libc::dup3(from, to, libc::O_CLOEXEC) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        std::mem::forget(socket);
        inherited_fd::close_from(GATE_STARTER_FD + 1);
        (
            OwnedFd::from_raw_fd(FORK_SERVER_FD),
            OwnedFd::from_raw_fd(GATE_STARTER_FD),
        )
    };
    let flags = rustix::fs::OFlags::RDWR;
    let null = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdin(null.as_fd())?;
    rustix::stdio::dup2_stdout(null.as_fd())?;
    rustix::stdio::dup2_stderr(null.as_fd())?;
    rustix::process::chdir("/")?;
    signals::reset_and_block_all();
    Ok(sockets)
}

fn set_name(name: &std::ffi::CStr) {
    let _ = rustix::thread::set_name(name);
}

/// Makes this process the subreaper of its descendants: an orphan gets it as its parent.
fn become_subreaper() {
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}
