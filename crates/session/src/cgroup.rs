//! The cgroup v2 of a session: the one containment that a process of the tree cannot leave without
//! permission.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// Directory of this process's own cgroup, if cgroup v2 is mounted.
pub fn own_folder() -> Option<PathBuf> {
    folder_in("/proc/self/cgroup")
}

/// Directory of another process's cgroup.
pub fn folder_of(pid: i32) -> Option<PathBuf> {
    folder_in(&format!("/proc/{pid}/cgroup"))
}

fn folder_in(groups: &str) -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = std::fs::read_to_string(groups).ok()?;
    find(&mounts, &groups)
}

fn find(mounts: &str, groups: &str) -> Option<PathBuf> {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        if kind.split(' ').next() != Some("cgroup2") {
            return None;
        }
        group_at(place, own)
    })
}

/// Directory of the cgroup `own` in a hierarchy whose mount `place`, the begin of a line of `mountinfo`, describes.
fn group_at(place: &str, own: &str) -> Option<PathBuf> {
    let mut fields = place.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let below = own.strip_prefix(root.trim_end_matches('/'))?;
    Some(Path::new(point).join(below.trim_start_matches('/')))
}

/// The cgroup of one session.
pub struct SessionCgroup {
    /// Path of the cgroup.
    pub path: PathBuf,
    /// The open directory of the cgroup.
    pub folder: OwnedFd,
    /// `cgroup.events`: `POLLPRI` is raised when the result of [`SessionCgroup::is_populated`] changes.
    pub events: File,
}

impl SessionCgroup {
    /// Creates the cgroup below `base`.
    pub fn make(base: &Path, session: &str) -> io::Result<Self> {
        let path = group_of(base, session);
        match std::fs::create_dir(&path) {
            Err(fault) if fault.kind() != io::ErrorKind::AlreadyExists => return Err(fault),
            _ => {}
        }
        let cgroup = SessionCgroup::open(&path)?;
        // Without this file a kill could not be proven.
        match rustix::fs::accessat(
            &cgroup.folder,
            "cgroup.kill",
            rustix::fs::Access::WRITE_OK,
            rustix::fs::AtFlags::empty(),
        ) {
            Ok(()) => Ok(cgroup),
            Err(errno) => {
                cgroup.remove();
                Err(errno.into())
            }
        }
    }

    /// Opens a cgroup that exists.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(SessionCgroup {
            path: path.to_owned(),
            folder,
            events: File::open(path.join("cgroup.events"))?,
        })
    }

    /// Sets `pids.max`, if the parent cgroup delegates the `pids` controller. 0 means no limit.
    pub fn limit_processes(&self, most: u32) {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        if most > 0
            && let Ok(file) = rustix::fs::openat(&self.folder, "pids.max", flags, Mode::empty())
        {
            let _ = rustix::io::write(&file, most.to_string().as_bytes());
        }
    }

    /// Kills all processes in the cgroup and below it with `cgroup.kill`.
    pub fn kill(&self) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, "cgroup.kill", flags, Mode::empty())?;
        rustix::io::write(&file, b"1")?;
        Ok(())
    }

    /// True if a process lives in the cgroup or below it. A cgroup that cannot be read counts as empty: it
    /// was removed.
    pub fn is_populated(&self) -> bool {
        let mut bytes = [0; COUNTERS_SIZE];
        let len = self.events.read_at(&mut bytes, 0).unwrap_or(0);
        bytes[..len].starts_with(b"populated 1")
            || bytes[..len]
                .windows(12)
                .any(|line| line == b"\npopulated 1")
    }

    /// Pids of the processes in the cgroup and below it.
    pub fn processes(&self) -> Vec<i32> {
        let mut all = Vec::new();
        collect(&self.path, &mut all);
        all
    }

    /// True if the process with this pid is in the cgroup or below it.
    pub fn holds(&self, pid: i32) -> bool {
        let Ok(groups) = std::fs::read_to_string(format!("/proc/{pid}/cgroup")) else {
            return false;
        };
        let Some(name) = self.path.file_name().and_then(|name| name.to_str()) else {
            return false;
        };
        groups
            .lines()
            .find_map(|line| line.strip_prefix("0::"))
            .is_some_and(|path| path.split('/').any(|part| part == name))
    }

    /// Number of OOM kills in the cgroup; `None` if the kernel does not count them here.
    pub fn oom_kills(&self) -> Option<u64> {
        oom_kills(&File::open(self.path.join("memory.events")).ok()?)
    }

    /// Removes the cgroup and the cgroups below it.
    pub fn remove(&self) {
        remove(&self.path);
    }
}

/// Removes the cgroup of a session that has ended or never began.
pub fn remove_group_of(session: &str) {
    if let Some(base) = own_folder() {
        remove(&group_of(&base, session));
    }
}

fn group_of(base: &Path, session: &str) -> PathBuf {
    base.join(format!("abide-{session}"))
}

fn collect(group: &Path, into: &mut Vec<i32>) {
    if let Ok(text) = std::fs::read_to_string(group.join("cgroup.procs")) {
        into.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    }
    for below in folders(group) {
        collect(&below, into);
    }
}

fn remove(group: &Path) {
    if std::fs::remove_dir(group).is_ok() {
        return;
    }
    for below in folders(group) {
        remove(&below);
    }
    let _ = std::fs::remove_dir(group);
}

fn folders(group: &Path) -> Vec<PathBuf> {
    let Ok(listing) = std::fs::read_dir(group) else {
        return Vec::new();
    };
    listing
        .flatten()
        .filter(|item| item.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|item| item.path())
        .collect()
}

/// The file that counts OOM kills for this process: in its memory cgroup (v1), or in the nearest cgroup
/// (v2) that has the counter.
pub fn oom_file() -> Option<PathBuf> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    find_memory(&mounts, &groups).or_else(|| {
        find(&mounts, &groups)?
            .ancestors()
            .map(|group| group.join("memory.events"))
            .find(|file| file.exists())
    })
}

fn find_memory(mounts: &str, groups: &str) -> Option<PathBuf> {
    let own = groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let memory = controllers.split(',').any(|name| name == "memory");
        memory.then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - cgroup ")?;
        if !kind.split([' ', ',']).any(|option| option == "memory") {
            return None;
        }
        Some(group_at(place, own)?.join("memory.oom_control"))
    })
}

/// The value of `oom_kill` in a file of counters.
pub fn oom_kills(counters: &File) -> Option<u64> {
    let mut bytes = [0; COUNTERS_SIZE];
    let len = counters.read_at(&mut bytes, 0).ok()?;
    let mut lines = str::from_utf8(&bytes[..len]).ok()?.lines();
    let kills = lines.find_map(|line| line.strip_prefix("oom_kill "))?;
    kills.trim().parse().ok()
}

/// Files of counters are no longer than this.
const COUNTERS_SIZE: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_own_group_is_found_in_both_layouts() {
        assert_eq!(
            find(HYBRID, "4:memory:/x\n0::/\n"),
            Some("/sys/fs/cgroup/unified".into())
        );
        let pure = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
        assert_eq!(
            find(pure, "0::/user.slice/a.scope\n"),
            Some("/sys/fs/cgroup/user.slice/a.scope".into())
        );
    }

    #[test]
    fn the_number_of_processes_is_limited_where_the_kernel_counts_them() {
        let folder = tempfile::tempdir().unwrap();
        let (events, limit) = (
            folder.path().join("cgroup.events"),
            folder.path().join("pids.max"),
        );
        std::fs::write(events, "populated 0\n").unwrap();
        let cgroup = SessionCgroup::open(folder.path()).unwrap();
        cgroup.limit_processes(100);
        assert!(!limit.exists(), "it is not made where there is none");
        std::fs::write(&limit, "").unwrap();
        cgroup.limit_processes(0);
        assert_eq!(std::fs::read_to_string(&limit).unwrap(), "");
        cgroup.limit_processes(100);
        assert_eq!(std::fs::read_to_string(&limit).unwrap(), "100");
    }

    #[test]
    fn a_group_outside_of_what_is_mounted_is_not_found() {
        let inner = "30 23 0:26 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(find(inner, "0::/other\n"), None);
        assert_eq!(
            find(inner, "0::/docker/1/below\n"),
            Some("/sys/fs/cgroup/below".into())
        );
        assert_eq!(find(HYBRID, "4:memory:/x\n"), None);
    }
}
