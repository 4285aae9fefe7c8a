//! Unix sockets of the machine that a command could connect to: a read-only mount does not prevent it.
//!
//! The keeper lists them while the init process builds the sandbox: with some hundred sockets that takes half a millisecond.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Sockets that a sandbox covers at most; a table with more is refused, because the rest would be reachable.
pub const MOST_SOCKETS: usize = 500;

/// Bytes for which there is room at first, so that most tables need few reads.
const TABLE_ROOM: usize = 32 << 10;

/// Sends the paths of the sockets that are bound in this network namespace: each with a zero byte behind it, and one more
/// zero byte at the end.
pub fn send(to: OwnedFd) -> io::Result<()> {
    let mut table = Vec::with_capacity(TABLE_ROOM);
    File::open("/proc/net/unix")?.read_to_end(&mut table)?;
    let mut list = Vec::new();
    for path in paths(&table) {
        list.extend_from_slice(path.as_os_str().as_bytes());
        list.push(0);
    }
    list.push(0);
    File::from(to).write_all(&list)
}

/// Receives the paths. A list without its end is an error: sockets that are missing in it would be reachable.
pub fn receive(from: OwnedFd) -> io::Result<Vec<PathBuf>> {
    let mut list = Vec::with_capacity(TABLE_ROOM);
    File::from(from).read_to_end(&mut list)?;
    let all = match list.as_slice() {
        [0] => &[],
        [all @ .., 0, 0] => all,
        _ => return Err(io::ErrorKind::UnexpectedEof.into()),
    };
    let paths = all.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    Ok(paths
        .map(|path| PathBuf::from(OsStr::from_bytes(path)))
        .collect())
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

    fn received(list: &[u8]) -> io::Result<Vec<PathBuf>> {
        let (from, to) = rustix::pipe::pipe()?;
        File::from(to).write_all(list)?;
        receive(from)
    }

    #[test]
    fn sockets_arrive_and_a_list_without_its_end_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _bound = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let (from, to) = rustix::pipe::pipe().unwrap();
        let sender = std::thread::spawn(move || send(to));
        assert!(receive(from).unwrap().contains(&path));
        sender.join().unwrap().unwrap();
        assert_eq!(received(b"\0").unwrap(), [] as [PathBuf; 0]);
        assert_eq!(
            received(b"/a\0/b\0\0").unwrap(),
            ["/a", "/b"].map(PathBuf::from)
        );
        for cut in [&b""[..], b"/a\0", b"/a\0/b"] {
            assert!(received(cut).is_err(), "{cut:?}");
        }
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
