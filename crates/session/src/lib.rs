//! One session on one machine: its directory and log format, its process tree, the keeper process beside
//! it, and the fork server that keepers come from.
//!
//! A keeper is a fork of the fork server that never executes another program, so that all keepers share
//! the pages of one image. It has no async runtime and no threads; it sleeps in one poll. It owns the
//! child's pipes or terminal, writes the log, is the subreaper of the tree, enforces the deadline, and
//! records the ending. The daemon may die and restart at any time.
//!
//! The daemon uses the other modules: it reads the log ([`log`]), the record ([`keeper_record`]) and the state of
//! the processes ([`facts`], [`tree`]), and talks to keepers in frames ([`frame`]).
#![deny(missing_docs)]

use std::os::fd::RawFd;

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
mod fork_exec;
mod fork_server;
pub mod frame;
pub mod inherited_fd;
pub mod inherited_limits;
mod keeper;
pub mod keeper_record;
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
mod signals;
mod spawn;
pub mod tree;

pub use clock::is_synchronised as clock_is_synchronised;
pub use crash::crash_point;
pub use fork_server::{PROCESS_NAME as FORK_SERVER, START_DAEMON, main};
pub use resources::boot_id;

/// Descriptor on which the fork server receives requests.
pub const FORK_SERVER_FD: RawFd = 3;
fn set_name(name: &std::ffi::CStr) {
    let _ = rustix::thread::set_name(name);
}

/// Makes this process the subreaper of its descendants: an orphan gets it as its parent.
fn become_subreaper() {
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}
