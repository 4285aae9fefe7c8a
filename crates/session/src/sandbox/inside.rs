//! Paths as the processes of a sandbox see them. Links lead elsewhere for the keeper, and layers have files that it does not
//! see, so a path of a process is resolved below the root of the sandbox.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, Stat, StatVfsMountFlags,
    StatxAttributes, StatxFlags,
};
use rustix::io::{Errno, Result};

use super::mounts;

/// Symbolic links that a path may lead through; the kernel follows as many.
const MOST_LINKS: usize = 40;
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const ITSELF: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Root of a sandbox, as its processes see it.
pub(super) struct Inside {
    root: OwnedFd,
}

/// File that a path names, or would name if it existed.
pub(super) struct NamedFile {
    /// Path without links, as the processes of the sandbox see it.
    pub path: PathBuf,
    /// Kind of the file. `None`: there is none.
    pub kind: Option<FileType>,
    /// The file, or its folder if it does not exist.
    pub fd: OwnedFd,
}

impl NamedFile {
    /// True if the kernel refuses to change it, because what is mounted there is read-only.
    pub fn is_read_only(&self) -> bool {
        let found = rustix::fs::fstatvfs(&self.fd);
        found.is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
    }

    /// True if something is mounted there, so that the kernel refuses to rename it.
    pub fn is_mount(&self) -> bool {
        let found = rustix::fs::statx(&self.fd, "", AtFlags::EMPTY_PATH, StatxFlags::empty());
        found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
    }

    /// True if it is a folder that has this path in it.
    pub fn has(&self, path: &Path) -> bool {
        rustix::fs::statat(&self.fd, path, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }
}

impl Inside {
    /// Opens the root of a process.
    pub fn of(pid: i32) -> Option<Self> {
        let path = format!("/proc/{pid}/root");
        let root = rustix::fs::open(path, FOLDER, Mode::empty()).ok()?;
        Some(Inside { root })
    }

    /// File that a path of the thread `tid` names, at the end of links if it `follows` them. `None`: a folder of the path
    /// does not exist.
    pub fn find(&self, path: &Path, tid: u32, follows: bool) -> Option<NamedFile> {
        let (folder, name) = path.parent().zip(path.file_name())?;
        let (mut folder, mut name) = (self.folder(folder, tid).ok()?, name.to_owned());
        for _ in 0..=MOST_LINKS {
            let found = match rustix::fs::openat(&folder, &name, ITSELF, Mode::empty()) {
                Err(Errno::NOENT) => {
                    let path = real_path(&folder)?.join(&name);
                    let (kind, fd) = (None, folder);
                    return Some(NamedFile { path, kind, fd });
                }
                found => found.ok()?,
            };
            let kind_found = kind(&rustix::fs::fstat(&found).ok()?);
            if kind_found != FileType::Symlink || !follows {
                let path = real_path(&folder)?.join(&name);
                let (kind, fd) = (Some(kind_found), found);
                return Some(NamedFile { path, kind, fd });
            }
            // It leads to an open file, which need not have a path.
            if is_of_proc(&found) {
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                let fd = rustix::fs::openat(&folder, &name, flags, Mode::empty()).ok()?;
                let (path, kind) = (real_path(&fd)?, Some(kind(&rustix::fs::fstat(&fd).ok()?)));
                return Some(NamedFile { path, kind, fd });
            }
            let target = target(&found).ok()?;
            let (above, last) = target.parent().zip(target.file_name())?;
            (folder, name) = (self.walk(folder, above, tid).ok()?, last.to_owned());
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

/// Path of an open file in its mount namespace, without links.
fn real_path(fd: &OwnedFd) -> Option<PathBuf> {
    fs::read_link(mounts::proc_path(fd)).ok()
}

fn is_of_proc(fd: &OwnedFd) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|found| found.f_type == PROC_SUPER_MAGIC)
}

fn kind(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
}

/// Device and inode of a folder.
fn identity(fd: impl AsFd) -> Result<(u64, u64)> {
    let found = rustix::fs::fstat(fd)?;
    Ok((found.st_dev as _, found.st_ino as _))
}

fn errno(fault: std::io::Error) -> Errno {
    Errno::from_io_error(&fault).unwrap_or(Errno::IO)
}
