//! Unix sockets of the machine that a command could connect to: a read-only mount does not prevent it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Sockets that a sandbox covers at most; a table with more is refused, because the rest would be reachable.
pub const MOST_SOCKETS: usize = 500;

/// Paths of the sockets that are bound in the network namespace of this process.
pub fn bound() -> std::io::Result<Vec<PathBuf>> {
    Ok(paths(&std::fs::read("/proc/net/unix")?))
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
    fn socket_that_is_bound_is_listed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _bound = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(bound().unwrap().contains(&path));
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
