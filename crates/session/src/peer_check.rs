//! Authorization of connections to a keeper: a daemon of the same user may give orders. A process that a
//! command started may not, or a command could change its own limits.

use std::os::fd::AsFd;

use super::mark;
use super::proc::{self, Peer, ProcessHandle};

/// Limit of the number of ancestors.
const ANCESTORS: usize = 4_096;

/// True if the connected process may give orders. A daemon that a command needs is started outside of the
/// session (`daemon_process` of the program), so there is no exception.
pub fn may_command(socket: impl AsFd) -> bool {
    let own = rustix::process::geteuid();
    let credentials = rustix::net::sockopt::socket_peercred(&socket);
    if !credentials.is_ok_and(|peer| peer.uid == own) {
        return false;
    }
    let peer = match ProcessHandle::peer(&socket) {
        Peer::Handle(held) => Some(held),
        // The daemon's descriptors cannot be read, so on an old kernel only its pid is known.
        Peer::Pid(pid) => ProcessHandle::open(pid),
        Peer::Gone => None,
    };
    // What was read under the pid is about this peer only if the peer still lives.
    peer.is_some_and(|peer| !is_marked(peer.pid) && !is_below(peer.pid) && peer.lives())
}

/// True if a command of a session started the process. A daemon that runs inside a session of another abide
/// has the mark of that session, and so has its keeper.
fn is_marked(pid: i32) -> bool {
    mark::limit_of(pid).is_none_or(|limit| limit < mark::own_limit())
}

/// True if the process is a descendant of this keeper, or cannot be seen. As root a command can remove its
/// mark.
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
