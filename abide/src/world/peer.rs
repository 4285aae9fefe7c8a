//! Who is at the other end of a socket. Only the kernel is believed.

use std::net::SocketAddr;
use std::path::Path;

use abide_core::SessionId;

use super::holders::holders;
use super::lookout::Lookout;
use crate::keeper::folder::Meta;

/// Who connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of our own user, through a unix socket.
    Process {
        /// Its id, where the kernel can tell one.
        pid: Option<i32>,
    },
    /// Whoever holds the other end of this TCP connection.
    Tcp {
        /// That end.
        theirs: SocketAddr,
        /// Ours.
        ours: SocketAddr,
    },
}

/// Where a process that belongs to a session was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// In this session's control group.
    Session(SessionId),
    /// Below the keeper with this process id.
    Keeper(i32),
    /// Started by the daemon itself, or not to be looked at.
    Somewhere,
}

impl Peer {
    /// Where in which session a process is at the other end of a unix socket; `None`: in no session.
    pub fn inside(self) -> Option<Inside> {
        match self {
            Peer::Process { pid: Some(pid) } => place_of_peer(pid),
            Peer::Process { pid: None } | Peer::Tcp { .. } => Some(Inside::Somewhere),
        }
    }

    /// Whether a command that is kept here is at the other end, or one of several that hold it.
    /// Where nobody can be found there, nothing speaks for them. Over TCP this looks through all
    /// processes and takes a while.
    pub fn is_inside_a_session(self) -> bool {
        match self {
            Peer::Process { pid } => pid.is_none_or(|pid| place_of_peer(pid).is_some()),
            Peer::Tcp { theirs, ours } => {
                let holders = holders(theirs, ours);
                let inside = |pid| place_of_peer(pid).is_some();
                holders.is_empty() || holders.into_iter().any(inside)
            }
        }
    }
}

impl Peer {
    /// Whether a process of this very session is at the other end, or one of several that hold it. Of
    /// this machine somebody must be found there; over TCP that takes a while.
    pub fn is_inside(self, session: &Meta) -> bool {
        let holders = match self {
            Peer::Process { pid } => pid.into_iter().collect(),
            Peer::Tcp { theirs, ours } => holders(theirs, ours),
        };
        let near = match self {
            Peer::Process { .. } => true,
            Peer::Tcp { theirs, .. } => theirs.ip().is_loopback(),
        };
        let own = Lookout::default().glance(session);
        holders.is_empty() && near || own.iter().any(|(pid, _)| holders.contains(pid))
    }
}

/// The name under which a keeper runs.
const KEEPER: &str = "abide-keeper";
/// What the name of every session's control group begins with.
const GROUP: &str = "abide-session_";
/// Processes have no longer line of ancestors than this, or something is wrong with them.
const ANCESTORS: usize = 4_096;

/// Where a process belongs to a session: to the tree of a command that is kept here. So does what
/// the daemon itself has started, such as the command of a condition: no person was ever started by
/// it. One that cannot be looked at (any more) counts as such, because nothing speaks for it.
fn place_of_peer(pid: i32) -> Option<Inside> {
    let daemon = i32::try_from(std::process::id()).unwrap_or(0);
    place(Path::new("/proc"), pid, daemon)
}

fn place(proc: &Path, pid: i32, daemon: i32) -> Option<Inside> {
    let mut pid = pid;
    for _ in 0..ANCESTORS {
        let folder = proc.join(pid.to_string());
        let Ok(groups) = std::fs::read_to_string(folder.join("cgroup")) else {
            return Some(Inside::Somewhere);
        };
        let mut names = groups.split(['/', '\n']);
        if let Some(session) = names.rfind(|name| name.starts_with(GROUP)) {
            let id = session
                .strip_prefix("abide-")
                .and_then(|id| id.parse().ok());
            return Some(id.map_or(Inside::Somewhere, Inside::Session));
        }
        let Ok(stat) = std::fs::read(folder.join("stat")) else {
            return Some(Inside::Somewhere);
        };
        let Some((name, parent)) = name_and_parent(&stat) else {
            return Some(Inside::Somewhere);
        };
        if name == KEEPER.as_bytes() {
            return Some(Inside::Keeper(pid));
        }
        if parent == daemon {
            return Some(Inside::Somewhere);
        }
        if parent <= 0 {
            return None;
        }
        pid = parent;
    }
    Some(Inside::Somewhere)
}

/// The name stands in parentheses and may itself hold any byte.
fn name_and_parent(stat: &[u8]) -> Option<(&[u8], i32)> {
    let open = stat.iter().position(|b| *b == b'(')?;
    let close = stat.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    let parent = rest.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some((stat.get(open + 1..close)?, parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(proc: &Path, pid: i32, name: &str, parent: i32, group: &str) {
        let folder = proc.join(pid.to_string());
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(
            folder.join("stat"),
            format!("{pid} ({name}) S {parent} 1 1"),
        )
        .unwrap();
        std::fs::write(folder.join("cgroup"), format!("0::/{group}\n")).unwrap();
    }

    #[test]
    fn a_command_is_known_by_its_group_its_keeper_or_the_daemon() {
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
            assert_eq!(place(proc, outside, 40), None, "{outside}");
        }
        let session = Inside::Session("session_k3v9x2bc".parse().unwrap());
        for (inside, wanted) in [
            (20, Inside::Keeper(20)),
            (21, Inside::Keeper(20)),
            (22, Inside::Keeper(20)),
            (30, session),
            (31, session),
            (41, Inside::Somewhere),
            (42, Inside::Somewhere),
        ] {
            assert_eq!(place(proc, inside, 40), Some(wanted), "{inside}");
        }
    }

    #[test]
    fn nothing_speaks_for_a_process_that_is_gone() {
        let proc = tempfile::tempdir().unwrap();
        assert!(place(proc.path(), 99, 1).is_some());
    }

    #[test]
    fn a_circle_of_parents_ends() {
        let proc = tempfile::tempdir().unwrap();
        process(proc.path(), 7, "a", 8, "");
        process(proc.path(), 8, "b", 7, "");
        assert!(place(proc.path(), 7, 1).is_some());
    }
}
