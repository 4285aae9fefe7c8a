//! Who may give orders to a keeper: a daemon of the same user. A process that was started by a command is none, or a
//! command could move its own limits.

use std::os::fd::AsFd;

use super::mark;
use super::proc::{self, Peer, ProcessHandle};

/// A process has fewer ancestors than this.
const ANCESTORS: usize = 4_096;

/// Whether the process that connected may give orders. A daemon that a command needs is started outside of the session
/// (`daemon/outside`), so there is no exception.
pub fn may_command(socket: impl AsFd) -> bool {
    let own = rustix::process::geteuid();
    let credentials = rustix::net::sockopt::socket_peercred(&socket);
    if !credentials.is_ok_and(|peer| peer.uid == own) {
        return false;
    }
    let peer = match ProcessHandle::peer(&socket) {
        Peer::Handle(held) => Some(held),
        // The daemon lets nobody look at its descriptors, so on an old kernel its number must do.
        Peer::Pid(pid) => ProcessHandle::open(pid),
        Peer::Gone => None,
    };
    // What was read under its number is about it if it still lives.
    peer.is_some_and(|peer| !is_marked(peer.pid) && !is_below(peer.pid) && peer.lives())
}

/// Whether it was started by a command of a session here. A daemon that runs inside a session of another abide has
/// the mark of that one, and so has its keeper.
fn is_marked(pid: i32) -> bool {
    mark::limit_of(pid).is_none_or(|limit| limit < mark::own_limit())
}

/// Whether it is below this keeper, or not to be seen. With root's rights a command can remove its mark.
fn is_below(pid: i32) -> bool {
    let own = std::process::id() as i32;
    let mut pid = pid;
    for _ in 0..ANCESTORS {
        match proc::stat(pid) {
            Some(stat) if stat.ppid == own => return true,
            Some(stat) if stat.ppid <= 0 => return false,
            Some(stat) => pid = stat.ppid,
            None => return true,
        }
    }
    true
}
