//! Processes of this machine that have the other end of a TCP connection open. `/proc/net/tcp` has the inode of the
//! socket; the processes are found by their file descriptors.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};

use abide_gate::outside::{Host, Outside};
use abide_session::cgroup;
use abide_session::proc::numbered;

/// Processes of our own user that hold one end of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum SocketOwner {
    /// The end is on another machine, or belongs to another user.
    Elsewhere,
    /// The end is closed, or only in a message from one process to another.
    None,
    /// These processes have it open.
    Seen(Vec<i32>),
    /// No process with readable descriptors has it open. It may be one of these, whose descriptors cannot be read,
    /// such as an ssh server that forwards for its user; or the socket is in a message from one process to another.
    Hidden(Vec<i32>),
}

/// Finds the processes that have the end `theirs` of a connection to `ours` open.
pub fn socket_owner(theirs: SocketAddr, ours: SocketAddr) -> SocketOwner {
    let owner = rustix::process::geteuid().as_raw();
    let (net, proc) = (Path::new("/proc/self/net"), Path::new("/proc"));
    let inode = match socket(net, theirs, ours) {
        Some((user, inode)) if user == owner => inode,
        Some(_) => return SocketOwner::Elsewhere,
        None if Host.is_own_address(theirs.ip().to_canonical()) => return SocketOwner::None,
        None => return SocketOwner::Elsewhere,
    };
    let seen = processes_with_socket(proc, inode);
    if !seen.is_empty() {
        return SocketOwner::Seen(seen);
    }
    let closed = unreadable_processes(proc, owner);
    // An end that was closed meanwhile may have been held by a readable process.
    match socket(net, theirs, ours) {
        Some(still) if still == (owner, inode) && !closed.is_empty() => SocketOwner::Hidden(closed),
        _ => SocketOwner::None,
    }
}

/// True if a process is in the control group with this id, and no command is in that group or can enter it: our user
/// must not be allowed to move processes into it, and no process in it may be `inside` a session.
pub fn is_in_group(pid: i32, id: u64, inside: impl Fn(i32) -> bool) -> bool {
    let group = cgroup::folder_of(pid);
    let group = group.filter(|group| std::fs::metadata(group).is_ok_and(|of| of.ino() == id));
    let Some(group) = group else {
        return false;
    };
    // The daemon and the fork server start commands in their own group if they cannot create others.
    if cgroup::own_folder().is_none_or(|own| own == group) {
        return false;
    }
    let may_write = |name: &str| {
        let path = group.join(name);
        path.exists() && accessat(CWD, &path, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
    };
    if may_write("cgroup.procs") || may_write("cgroup.threads") {
        return false;
    }
    let Ok(members) = std::fs::read_to_string(group.join("cgroup.procs")) else {
        return false;
    };
    let mut members = members.lines().filter_map(|pid| pid.parse().ok());
    !members.any(inside)
}

/// User and inode of the socket from the first to the second address; `None`: there is none that a process has open.
fn socket(net: &Path, from: SocketAddr, to: SocketAddr) -> Option<(u32, u64)> {
    let mut tables = Vec::new();
    if from.is_ipv4() {
        tables.push(("tcp", table_address(from), table_address(to)));
    }
    // A dual-stack socket is in the IPv6 table, even with an IPv4 peer.
    tables.push((
        "tcp6",
        table_address(to_ipv6(from)),
        table_address(to_ipv6(to)),
    ));
    tables.into_iter().find_map(|(table, from, to)| {
        let rows = std::fs::read_to_string(net.join(table)).ok()?;
        rows.lines().find_map(|row| {
            let mut fields = row.split_ascii_whitespace().skip(1);
            if fields.next()? != from || fields.next()? != to {
                return None;
            }
            let (uid, inode) = (fields.nth(4)?, fields.nth(1)?);
            let inode = inode.parse().ok().filter(|inode| *inode != 0)?;
            Some((uid.parse().ok()?, inode))
        })
    })
}

fn to_ipv6(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => (ip.to_ipv6_mapped(), address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

/// Address as in the kernel's tables: words in native byte order.
fn table_address(address: SocketAddr) -> String {
    let words = |octets: &[u8]| -> String {
        octets
            .chunks_exact(4)
            .map(|word| {
                let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
                format!("{word:08X}")
            })
            .collect()
    };
    let ip = match address.ip() {
        IpAddr::V4(ip) => words(&ip.octets()),
        IpAddr::V6(ip) => words(&ip.octets()),
    };
    format!("{ip}:{:04X}", address.port())
}

/// Processes under `proc` that have this socket open, as far as their descriptors can be read.
fn processes_with_socket(proc: &Path, inode: u64) -> Vec<i32> {
    let mut all = numbered(proc);
    all.retain(|pid| has_socket_open(proc, *pid, inode));
    all
}

/// True if a process has this socket open, as far as its descriptors can be read.
pub fn has_socket_open(proc: &Path, pid: i32, inode: u64) -> bool {
    let Ok(open) = std::fs::read_dir(proc.join(pid.to_string()).join("fd")) else {
        return false;
    };
    let name = format!("socket:[{inode}]");
    open.flatten().any(|file| {
        std::fs::read_link(file.path()).is_ok_and(|link| link.as_os_str() == name.as_str())
    })
}

/// Processes of `owner` under `proc` whose descriptors cannot be read.
fn unreadable_processes(proc: &Path, owner: u32) -> Vec<i32> {
    let closed = |pid: &i32| {
        let open = std::fs::read_dir(proc.join(pid.to_string()).join("fd"));
        open.is_err_and(|fault| fault.kind() != ErrorKind::NotFound)
    };
    let owned = |pid: &i32| {
        let status = std::fs::read_to_string(proc.join(pid.to_string()).join("status"));
        status.is_ok_and(|status| user(&status) == Some(owner))
    };
    let mut found = numbered(proc);
    found.retain(|pid| closed(pid) && owned(pid));
    found
}

/// Effective user id of a process.
fn user(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn ends(address: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(address).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn process_that_holds_the_other_end_is_found() {
        let (client, server) = ends("127.0.0.1:0");
        let (theirs, ours) = (server.peer_addr().unwrap(), server.local_addr().unwrap());
        let me = i32::try_from(std::process::id()).unwrap();
        assert_eq!(socket_owner(theirs, ours), SocketOwner::Seen(vec![me]));
        drop(client);
        let closed = socket_owner(theirs, ours);
        assert_eq!(closed, SocketOwner::None, "a closed end has no owner");
    }

    #[test]
    fn user_of_a_socket_is_found() {
        let (_client, server) = ends("127.0.0.1:0");
        let (theirs, ours) = (server.peer_addr().unwrap(), server.local_addr().unwrap());
        let net = Path::new("/proc/self/net");
        let owner = rustix::process::geteuid().as_raw();
        let found = socket(net, theirs, ours).map(|(user, _)| user);
        assert_eq!(found, Some(owner));
    }

    #[test]
    fn unreadable_processes_are_listed_by_user() {
        let proc = tempfile::tempdir().unwrap();
        let process = |pid: &str, user: u32| {
            let folder = proc.path().join(pid);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(
                folder.join("status"),
                format!("Name:\tx\nUid:\t0\t{user}\t0\t0\n"),
            )
            .unwrap();
            folder.join("fd")
        };
        // The directory exists but cannot be read.
        std::fs::write(process("5", 7), "").unwrap();
        std::fs::write(process("6", 8), "").unwrap();
        std::fs::create_dir(process("8", 7)).unwrap();
        process("9", 7);
        assert_eq!(unreadable_processes(proc.path(), 7), [5]);
    }

    #[test]
    fn ipv4_and_ipv6_tables_are_searched() {
        let net = tempfile::tempdir().unwrap();
        let key4 = table_address("127.0.0.1:256".parse().unwrap());
        let key6 = table_address("[::ffff:127.0.0.1]:256".parse().unwrap());
        assert_eq!(key4.len(), 13);
        assert!(key4.ends_with(":0100"), "{key4}");
        let row = |key: &str, inode: u64| {
            format!("head\n 0: {key} {key} 01 0:0 00:0 0 7 0 {inode} 1 0\n")
        };
        let at: SocketAddr = "127.0.0.1:256".parse().unwrap();
        std::fs::write(net.path().join("tcp6"), row(&key6, 5)).unwrap();
        assert_eq!(socket(net.path(), at, at), Some((7, 5)));
        std::fs::write(net.path().join("tcp"), row(&key4, 4)).unwrap();
        assert_eq!(socket(net.path(), at, at), Some((7, 4)));
        std::fs::write(net.path().join("tcp"), row(&key4, 0)).unwrap();
        assert_eq!(socket(net.path(), at, at), Some((7, 5)), "0 is no socket");
    }
}
