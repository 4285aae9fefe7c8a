//! Paths as the processes of a sandbox see them. Links lead elsewhere for the keeper, and layers have files that it does not
//! see, so a path of a process is resolved below the root of the sandbox.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, Stat};
use rustix::io::{Errno, Result};

/// Symbolic links that a path may lead through; the kernel follows as many.
const MOST_LINKS: usize = 40;
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const ITSELF: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Root of a sandbox, as its processes see it.
pub(super) struct Inside {
    root: OwnedFd,
}

/// Place at which a call makes a file: its folder, and its name there.
pub(super) struct Place {
    pub folder: OwnedFd,
    pub name: OsString,
}

impl Place {
    /// Kind of the file at this place. `None`: there is none.
    pub fn kind(&self) -> Option<FileType> {
        let found = rustix::fs::statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        found.ok().map(|found| kind(&found))
    }
}

impl Inside {
    /// Opens the root of a process.
    pub fn of(pid: i32) -> Option<Self> {
        let path = format!("/proc/{pid}/root");
        let root = rustix::fs::open(path, FOLDER, Mode::empty()).ok()?;
        Some(Inside { root })
    }

    /// Place that a path of the thread `tid` names. `None`: a folder of the path does not exist.
    pub fn place(&self, path: &Path, tid: u32) -> Option<Place> {
        let (folder, name) = path.parent().zip(path.file_name())?;
        Some(Place {
            folder: self.folder(folder, tid).ok()?,
            name: name.to_owned(),
        })
    }

    /// Place at which opening a path makes a file: that to which links at the end of the path lead. `None`: it makes none.
    pub fn opened_place(&self, path: &Path, tid: u32) -> Option<Place> {
        let mut place = self.place(path, tid)?;
        for _ in 0..MOST_LINKS {
            let found = match rustix::fs::openat(&place.folder, &place.name, ITSELF, Mode::empty())
            {
                Err(Errno::NOENT) => return Some(place),
                found => found.ok()?,
            };
            // What a link of procfs leads to exists.
            if kind(&rustix::fs::fstat(&found).ok()?) != FileType::Symlink || is_of_proc(&found) {
                return None;
            }
            let target = target(&found).ok()?;
            let (folder, name) = target.parent().zip(target.file_name())?;
            place = Place {
                folder: self.walk(place.folder, folder, tid).ok()?,
                name: name.to_owned(),
            };
        }
        None
    }

    /// Opens a folder of the thread `tid`.
    fn folder(&self, path: &Path, tid: u32) -> Result<OwnedFd> {
        let flags = ResolveFlags::IN_ROOT;
        match rustix::fs::openat2(&self.root, path, FOLDER, Mode::empty(), flags) {
            // A path through `/proc/self` fails, because that is the keeper, and so does one through `/proc/1/cwd`.
            Err(_) => self.walk(self.root.try_clone().map_err(errno)?, path, tid),
            opened => opened,
        }
    }

    /// Follows a path step by step, from the folder `at`.
    fn walk(&self, mut at: OwnedFd, path: &Path, tid: u32) -> Result<OwnedFd> {
        let mut links = 0;
        // The next part is the last one.
        let mut left = parts(path);
        while let Some(part) = left.pop() {
            if part == "/" {
                at = self.root.try_clone().map_err(errno)?;
                continue;
            }
            if part == ".." && identity(&at)? == identity(&self.root)? {
                continue;
            }
            let next = rustix::fs::openat(&at, &part, ITSELF, Mode::empty())?;
            if kind(&rustix::fs::fstat(&next)?) != FileType::Symlink {
                at = next;
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Err(Errno::LOOP);
            }
            match is_of_proc(&next) {
                true => at = of_process(&at, &next, &part, tid, &mut left)?,
                false => left.extend(parts(&target(&next)?)),
            }
        }
        Ok(at)
    }
}

/// Follows a link of procfs. Some of them are about the process that follows them, most lead to an open file without a path.
fn of_process(
    at: &OwnedFd,
    link: &OwnedFd,
    name: &OsStr,
    tid: u32,
    left: &mut Vec<OsString>,
) -> Result<OwnedFd> {
    let own = match name.to_str() {
        Some("self") => Some(group_leader(tid)?),
        Some("thread-self") => Some(tid),
        _ => None,
    };
    if let Some(own) = own {
        let path = format!("/proc/{own}");
        return rustix::fs::open(path, FOLDER, Mode::empty());
    }
    // `/proc/net` is a link to `self/net`.
    let text = target(link)?;
    if text.starts_with("self") || text.starts_with("thread-self") {
        left.extend(parts(&text));
        return at.try_clone().map_err(errno);
    }
    rustix::fs::openat(at, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Process of a thread.
fn group_leader(tid: u32) -> Result<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).map_err(errno)?;
    let mut lines = status.lines();
    let leader = lines.find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    leader.ok_or(Errno::SRCH)
}

/// Parts of a path, the first one last.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().rev();
    let parts = parts.filter(|part| *part != Component::CurDir);
    parts.map(|part| part.as_os_str().to_owned()).collect()
}

fn target(link: &OwnedFd) -> Result<PathBuf> {
    let text = rustix::fs::readlinkat(link, "", Vec::new())?;
    Ok(OsString::from_vec(text.into_bytes()).into())
}

fn is_of_proc(fd: &OwnedFd) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|found| found.f_type == PROC_SUPER_MAGIC)
}

fn kind(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
}

/// Device and inode of a folder.
pub(super) fn identity(fd: impl AsFd) -> Result<(u64, u64)> {
    let found = rustix::fs::fstat(fd)?;
    Ok((found.st_dev as _, found.st_ino as _))
}

fn errno(fault: std::io::Error) -> Errno {
    Errno::from_io_error(&fault).unwrap_or(Errno::IO)
}
