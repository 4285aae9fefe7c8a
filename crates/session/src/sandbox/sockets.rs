//! Unix sockets of the machine that a command could connect to: a read-only mount does not prevent it.
//!
//! The keeper lists them while the init process builds the sandbox: with some hundred sockets that takes half a millisecond.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::path_list;

/// Sockets that a sandbox covers at most; a table with more is refused, because the rest would be reachable.
pub const MOST_SOCKETS: usize = 500;

/// Sends the paths of the sockets that are bound in this network namespace.
pub fn send(to: OwnedFd) -> io::Result<()> {
    let mut table = Vec::with_capacity(path_list::ROOM);
    File::open("/proc/net/unix")?.read_to_end(&mut table)?;
    path_list::send(to, paths(&table).iter().map(PathBuf::as_path))
}

fn paths(table: &[u8]) -> Vec<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n').skip(1);
    let mut found: Vec<PathBuf> = lines
        .filter_map(|line| {
            let at = line.windows(2).position(|two| two == b" /")?;
            Some(PathBuf::from(OsStr::from_bytes(&line[at + 1..])))
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_that_are_bound_arrive() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _bound = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let (from, to) = rustix::pipe::pipe().unwrap();
        let sender = std::thread::spawn(move || send(to));
        assert!(path_list::receive(from).unwrap().contains(&path));
        sender.join().unwrap().unwrap();
    }

    #[test]
    fn only_paths_are_listed_once() {
        let table = b"Num RefCount Protocol Flags Type St Inode Path\n\
            0000: 00000002 00000000 00010000 0001 01 100 /run/a b.sock\n\
            0000: 00000002 00000000 00010000 0001 01 101 @abstract\n\
            0000: 00000003 00000000 00000000 0001 03 102\n\
            0000: 00000003 00000000 00000000 0001 03 103 /run/a b.sock\n";
        assert_eq!(paths(table), [PathBuf::from("/run/a b.sock")]);
    }
}
