//! Lists of paths that the keeper sends to the init process of a sandbox through a pipe.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes for which there is room at first, so that most lists need few reads.
pub const ROOM: usize = 32 << 10;

/// Sends paths: each with a zero byte behind it, and one more zero byte at the end.
pub fn send<'a>(to: OwnedFd, paths: impl Iterator<Item = &'a Path>) -> io::Result<()> {
    let mut list = Vec::new();
    for path in paths {
        list.extend_from_slice(path.as_os_str().as_bytes());
        list.push(0);
    }
    list.push(0);
    File::from(to).write_all(&list)
}

/// Receives paths. A list without its end is an error: what is missing in it would not be covered or protected.
pub fn receive(from: OwnedFd) -> io::Result<Vec<PathBuf>> {
    let mut list = Vec::with_capacity(ROOM);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn received(list: &[u8]) -> io::Result<Vec<PathBuf>> {
        let (from, to) = rustix::pipe::pipe()?;
        File::from(to).write_all(list)?;
        receive(from)
    }

    #[test]
    fn list_without_its_end_is_refused() {
        assert_eq!(received(b"\0").unwrap(), [] as [PathBuf; 0]);
        assert_eq!(
            received(b"/a\0/b\0\0").unwrap(),
            ["/a", "/b"].map(PathBuf::from)
        );
        for cut in [&b""[..], b"/a\0", b"/a\0/b"] {
            assert!(received(cut).is_err(), "{cut:?}");
        }
    }
}
