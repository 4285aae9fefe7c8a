//! Identity of the process at the other end of a socket. Only the kernel is trusted; a process that it cannot name
//! counts as a command.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use abide_core::SessionId;

use super::socket_owner::{self, SocketOwner, socket_owner};
use crate::sock_diag as diag;
use abide_session::facts::processes;
use abide_session::keeper_record::Meta;
use abide_session::mark::{self, Mark};
use abide_session::proc::{self, ProcessHandle};

/// Peer of a connection.
#[derive(Clone, Debug)]
pub enum Peer {
    /// Process of our own user that connected to a unix socket. `None`: the kernel could not name it.
    Process(Option<Arc<ProcessHandle>>),
    /// Process that holds the other end of this TCP connection.
    Tcp {
        /// Address of the other end.
        theirs: SocketAddr,
        /// Address of our end.
        ours: SocketAddr,
    },
    /// Another machine of the fleet, which has proved its key and says on whose behalf it calls.
    Machine(Arc<str>),
}

/// Evidence that a process belongs to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionMembership {
    /// The process has the mark of this session, or is in its cgroup.
    Session(SessionId),
    /// The process is a descendant of the keeper with this pid.
    Keeper(i32),
    /// The process was started by the daemon itself, or cannot be examined.
    Unknown,
}

impl Peer {
    /// Process that connected to our end of a unix socket.
    pub fn of_socket(socket: impl AsFd) -> Self {
        Peer::Process(peer_process(socket).map(Arc::new))
    }

    /// This process.
    pub fn own() -> Self {
        let pid = i32::try_from(std::process::id()).unwrap_or(0);
        Peer::Process(ProcessHandle::open(pid).map(Arc::new))
    }

    /// Session of the process at the other end of a unix socket; `None`: in no session.
    pub fn membership(&self) -> Option<SessionMembership> {
        match self {
            Peer::Process(Some(process)) => membership_of_handle(process),
            Peer::Process(None) | Peer::Tcp { .. } | Peer::Machine(_) => {
                Some(SessionMembership::Unknown)
            }
        }
    }

    /// Memberships of the processes at the other end that may be inside a session. Over TCP this searches all processes
    /// and takes a while.
    pub fn memberships(&self) -> Vec<SessionMembership> {
        match self {
            Peer::Process(_) | Peer::Machine(_) => self.membership().into_iter().collect(),
            Peer::Tcp { theirs, ours } => match socket_owner(*theirs, *ours) {
                SocketOwner::Elsewhere => Vec::new(),
                SocketOwner::None => vec![SessionMembership::Unknown],
                SocketOwner::Seen(pids) => pids.into_iter().filter_map(seen_membership).collect(),
                SocketOwner::Hidden(may_hold) => {
                    match is_made_outside_sessions(*theirs, *ours, &may_hold) {
                        true => Vec::new(),
                        false => vec![SessionMembership::Unknown],
                    }
                }
            },
        }
    }

    /// True if a command of a session holds the other end, alone or with others, or if no process can be found there.
    /// Over TCP this searches all processes and takes a while.
    pub fn is_inside_a_session(&self) -> bool {
        match self {
            Peer::Process(_) | Peer::Machine(_) => self.membership().is_some(),
            Peer::Tcp { theirs, ours } => match socket_owner(*theirs, *ours) {
                SocketOwner::Elsewhere | SocketOwner::None => true,
                SocketOwner::Seen(pids) => pids.into_iter().any(is_inside),
                SocketOwner::Hidden(may_hold) => {
                    !is_made_outside_sessions(*theirs, *ours, &may_hold)
                }
            },
        }
    }

    /// True if a process of this session holds the other end, alone or with others, or if no process can be found at
    /// the other end of a local connection. Over TCP this takes a while.
    pub fn is_inside(&self, session: &Meta) -> bool {
        let (owners, local) = match self {
            Peer::Process(None) => return true,
            // No process of a session here runs on another machine.
            Peer::Machine(_) => return false,
            Peer::Process(Some(process)) if !process.lives() => return true,
            Peer::Process(Some(process)) => (vec![process.pid], true),
            Peer::Tcp { theirs, ours } => match socket_owner(*theirs, *ours) {
                SocketOwner::Elsewhere | SocketOwner::None => {
                    (Vec::new(), theirs.ip().is_loopback())
                }
                SocketOwner::Seen(found) | SocketOwner::Hidden(found) => (found, true),
            },
        };
        let own = processes(session);
        let is_process_of = |pid: &i32| {
            let marked = match mark::of(*pid) {
                Some(Mark::Session(id)) => id.to_string() == session.launch.session,
                Some(Mark::Altered) | None => true,
                Some(Mark::None) => false,
            };
            marked || own.iter().any(|(own, _)| own == pid)
        };
        owners.is_empty() && local || owners.iter().any(is_process_of)
    }
}

/// True if this kernel names the process at the other end of a unix socket: since Linux 6.5, and before with its module
/// `unix_diag`. Otherwise every caller counts as a command.
pub fn can_name_callers() -> bool {
    UnixStream::pair().is_ok_and(|(socket, _other)| match ProcessHandle::peer(&socket) {
        proc::Peer::Handle(_) => true,
        proc::Peer::Pid(_) => diag::unix_peer(&socket).is_some(),
        proc::Peer::Gone => false,
    })
}

/// Handle of the process that connected, as the kernel knows it.
fn peer_process(socket: impl AsFd) -> Option<ProcessHandle> {
    match ProcessHandle::peer(&socket) {
        proc::Peer::Handle(held) => Some(held),
        proc::Peer::Pid(pid) => peer_with_socket(pid, socket),
        proc::Peer::Gone => None,
    }
}

/// Handle of a process by its pid, for kernels before 6.5. The pid is right if that process has the other end of the
/// connection open.
fn peer_with_socket(pid: i32, socket: impl AsFd) -> Option<ProcessHandle> {
    let held = ProcessHandle::open(pid)?;
    let inode = diag::unix_peer(socket)?;
    let holds = socket_owner::has_socket_open(Path::new("/proc"), pid, inode.into());
    (holds && held.lives()).then_some(held)
}

/// True if a connection that no visible process holds was certainly made outside of every session, by a process that
/// cannot be examined, such as the ssh server that carries a tunnel. A command could have sent the socket in a
/// message that no process has received yet. But if the kernel says that the socket was made in the control group of
/// such a process, and no command is in that group or can enter it, no command made it.
fn is_made_outside_sessions(theirs: SocketAddr, ours: SocketAddr, may_hold: &[i32]) -> bool {
    let Some(group) = diag::tcp_creator_group(theirs, ours) else {
        return false;
    };
    let mut groups = may_hold.iter().filter(|pid| !is_inside(**pid));
    groups.any(|pid| socket_owner::is_in_group(*pid, group, is_inside))
}

/// Process name of a keeper.
const KEEPER: &str = "abide-keeper";
/// Prefix of the name of every session's cgroup.
const GROUP: &str = "abide-session_";
/// Maximum length of a chain of ancestors.
const MAX_ANCESTORS: usize = 4_096;
/// Number of attempts to read a chain of ancestors that changes meanwhile.
const ATTEMPTS: usize = 3;

fn is_inside(pid: i32) -> bool {
    membership_of_pid(pid).is_some()
}

/// Membership of a process. A command could lower its mark to that of another session, so the mark does not count in a
/// sandbox, which has mounts of its own.
fn seen_membership(pid: i32) -> Option<SessionMembership> {
    let mounts = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let membership = membership_of_pid(pid)?;
    match mounts(&pid.to_string()) == mounts("self") {
        true => Some(membership),
        false => Some(SessionMembership::Unknown),
    }
}

/// Membership of the process behind a handle. A process that has exited counts as a command: its pid may be reused.
fn membership_of_handle(process: &ProcessHandle) -> Option<SessionMembership> {
    let place = membership_of_pid(process.pid);
    if process.lives() {
        place
    } else {
        Some(SessionMembership::Unknown)
    }
}

/// Membership of a process: a descendant of a command, or a process that the daemon itself started, such as the
/// command of a condition. A process that cannot be examined counts as such, because nothing proves that it is
/// outside.
fn membership_of_pid(pid: i32) -> Option<SessionMembership> {
    let daemon = i32::try_from(std::process::id()).unwrap_or(0);
    membership(Path::new("/proc"), pid, daemon)
}

/// Membership of a process by its mark, control group or ancestors.
fn membership(proc: &Path, pid: i32, daemon: i32) -> Option<SessionMembership> {
    let limits = std::fs::read_to_string(proc.join(pid.to_string()).join("limits"));
    match limits.ok().and_then(|limits| mark::in_text(&limits)) {
        Some(Mark::None) => {}
        Some(Mark::Session(id)) => return Some(SessionMembership::Session(id)),
        Some(Mark::Altered) | None => return Some(SessionMembership::Unknown),
    }
    let walks = (0..ATTEMPTS).find_map(|_| walk(proc, pid, daemon).ok());
    walks.unwrap_or(Some(SessionMembership::Unknown))
}

/// A chain of ancestors that changed while it was read.
struct Changed;

/// Searches the ancestors of a process for a session, a keeper or the daemon.
fn walk(proc: &Path, pid: i32, daemon: i32) -> Result<Option<SessionMembership>, Changed> {
    let mut pid = pid;
    let mut child: Option<(i32, ProcessStat)> = None;
    for _ in 0..MAX_ANCESTORS {
        let folder = proc.join(pid.to_string());
        let groups = std::fs::read_to_string(folder.join("cgroup"));
        let line = read_stat(proc, pid);
        // While a child has this parent, the parent's pid is not reused.
        if let Some((child, before)) = child.take()
            && self::read_stat(proc, child).as_ref() != Some(&before)
        {
            return Err(Changed);
        }
        let (Ok(groups), Some(line)) = (groups, line) else {
            return Ok(Some(SessionMembership::Unknown));
        };
        let mut names = groups.split(['/', '\n']);
        if let Some(session) = names.rfind(|name| name.starts_with(GROUP)) {
            let id = session
                .strip_prefix("abide-")
                .and_then(|id| id.parse().ok());
            return Ok(Some(
                id.map_or(SessionMembership::Unknown, SessionMembership::Session),
            ));
        }
        if line.name == KEEPER.as_bytes() {
            return Ok(Some(SessionMembership::Keeper(pid)));
        }
        if line.parent == daemon {
            return Ok(Some(SessionMembership::Unknown));
        }
        if line.parent <= 0 {
            return Ok(None);
        }
        let parent = line.parent;
        child = Some((pid, line));
        pid = parent;
    }
    Ok(Some(SessionMembership::Unknown))
}

/// Fields of `/proc/PID/stat`.
#[derive(PartialEq, Eq)]
struct ProcessStat {
    name: Vec<u8>,
    parent: i32,
    start: u64,
}

fn read_stat(proc: &Path, pid: i32) -> Option<ProcessStat> {
    let stat = std::fs::read(proc.join(pid.to_string()).join("stat")).ok()?;
    // The name is in parentheses and may contain any byte.
    let open = stat.iter().position(|b| *b == b'(')?;
    let close = stat.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace().skip(1);
    Some(ProcessStat {
        name: stat.get(open + 1..close)?.to_vec(),
        parent: fields.next()?.parse().ok()?,
        start: fields.nth(17)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(proc: &Path, pid: i32, name: &str, parent: i32, group: &str) {
        let folder = proc.join(pid.to_string());
        std::fs::create_dir(&folder).unwrap();
        let zeros = "0 ".repeat(17);
        std::fs::write(
            folder.join("stat"),
            format!("{pid} ({name}) S {parent} {zeros}{pid} 0"),
        )
        .unwrap();
        std::fs::write(folder.join("cgroup"), format!("0::/{group}\n")).unwrap();
        limit(proc, pid, "unlimited");
    }

    fn limit(proc: &Path, pid: i32, hard: &str) {
        let limits = format!("Max file locks            unlimited            {hard}   locks\n");
        std::fs::write(proc.join(pid.to_string()).join("limits"), limits).unwrap();
    }

    #[test]
    fn command_is_recognised_by_cgroup_keeper_or_daemon() {
        let proc = tempfile::tempdir().unwrap();
        let proc = proc.path();
        process(proc, 1, "init", 0, "");
        process(proc, 10, "bash", 1, "user.slice");
        process(proc, 20, "abide-keeper", 1, "user.slice");
        process(proc, 21, "sh", 20, "user.slice");
        process(proc, 22, "a) S 1 (b", 21, "user.slice");
        process(proc, 30, "sh", 1, "user.slice/abide-session_k3v9x2bc");
        process(proc, 40, "abide", 1, "user.slice");
        process(proc, 41, "sh", 40, "user.slice");
        process(proc, 42, "abide", 41, "user.slice");
        process(
            proc,
            31,
            "sh",
            1,
            "user.slice/abide-session_k3v9x2bc/deeper",
        );
        for outside in [1, 10, 40] {
            assert_eq!(membership(proc, outside, 40), None, "{outside}");
        }
        let session = SessionMembership::Session("session_k3v9x2bc".parse().unwrap());
        for (inside, wanted) in [
            (20, SessionMembership::Keeper(20)),
            (21, SessionMembership::Keeper(20)),
            (22, SessionMembership::Keeper(20)),
            (30, session),
            (31, session),
            (41, SessionMembership::Unknown),
            (42, SessionMembership::Unknown),
        ] {
            assert_eq!(membership(proc, inside, 40), Some(wanted), "{inside}");
        }
    }

    #[test]
    fn orphan_of_a_command_is_recognised_by_its_mark() {
        let proc = tempfile::tempdir().unwrap();
        let proc = proc.path();
        process(proc, 1, "init", 0, "");
        process(proc, 10, "sh", 1, "user.slice");
        assert_eq!(membership(proc, 10, 40), None);
        limit(proc, 10, "3");
        assert_eq!(membership(proc, 10, 40), Some(SessionMembership::Unknown));
        let id: SessionId = "session_k3v9x2bc".parse().unwrap();
        limit(proc, 10, &mark::value("session_k3v9x2bc").to_string());
        assert_eq!(
            membership(proc, 10, 40),
            Some(SessionMembership::Session(id))
        );
        limit(proc, 10, "?");
        assert_eq!(membership(proc, 10, 40), Some(SessionMembership::Unknown));
    }

    #[test]
    fn exited_process_counts_as_a_command() {
        let proc = tempfile::tempdir().unwrap();
        assert!(membership(proc.path(), 99, 1).is_some());
        // SAFETY: the child calls nothing but `_exit`.
        let child = unsafe {
            match libc::fork() {
                0 => libc::_exit(0),
                child => child,
            }
        };
        let held = ProcessHandle::open(child).unwrap();
        let reaped = rustix::process::waitpid(
            rustix::process::Pid::from_raw(child),
            rustix::process::WaitOptions::empty(),
        );
        assert!(matches!(reaped, Ok(Some(_))));
        assert_eq!(
            Peer::Process(Some(Arc::new(held))).membership(),
            Some(SessionMembership::Unknown)
        );
    }

    #[test]
    fn cycle_of_parents_terminates() {
        let proc = tempfile::tempdir().unwrap();
        process(proc.path(), 7, "a", 8, "");
        process(proc.path(), 8, "b", 7, "");
        assert!(membership(proc.path(), 7, 1).is_some());
    }

    #[test]
    fn connecting_process_is_found_with_and_without_so_peerpidfd() {
        let folder = tempfile::tempdir().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(folder.path().join("s")).unwrap();
        let path = folder.path().join("s");
        let client = std::os::unix::net::UnixStream::connect(path).unwrap();
        let (served, _) = listener.accept().unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        assert_eq!(peer_process(&served).map(|held| held.pid), Some(me));
        if diag::unix_peer(&served).is_none() {
            eprintln!("skipped: this kernel has no unix_diag");
            return;
        }
        assert_eq!(peer_with_socket(me, &served).map(|held| held.pid), Some(me));
        let other = std::os::unix::process::parent_id();
        assert!(peer_with_socket(i32::try_from(other).unwrap(), &served).is_none());
        drop(client);
        assert!(
            peer_with_socket(me, &served).is_none(),
            "no process holds a closed end"
        );
    }
}
