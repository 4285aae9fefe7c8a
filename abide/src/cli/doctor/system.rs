//! Properties and limits of this machine, for the administrator of an installation.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use abide_session::cgroup::{self, SessionCgroup};
use abide_session::facts;
use abide_session::proc::{self, ProcessHandle, wait_for_end};

/// Time-out for a program that prints its version. A package runner may fetch it first.
const VERSION_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest version text, in bytes.
const VERSION_LIMIT: u64 = 4 << 10;

/// Number in a file of procfs or sysfs.
pub fn number(path: impl AsRef<Path>) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// `pids` limit with the least room among the cgroups around this process: the limit and the current number.
pub fn group_processes() -> Option<(u64, u64)> {
    let own = cgroup::own_folder()
        .into_iter()
        .chain(cgroup_v1_folder("pids"));
    own.flat_map(|folder| {
        let groups: Vec<PathBuf> = folder.ancestors().map(Path::to_owned).collect();
        groups
    })
    .filter_map(|group| {
        Some((
            number(group.join("pids.max"))?,
            number(group.join("pids.current"))?,
        ))
    })
    .min_by_key(|(most, now)| most.saturating_sub(*now))
}

/// Directory of this process in a cgroup v1 controller.
fn cgroup_v1_folder(controller: &str) -> Option<PathBuf> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| {
        let (names, path) = line.split_once(':')?.1.split_once(':')?;
        names
            .split(',')
            .any(|name| name == controller)
            .then_some(path)
    })?;
    let root = Path::new("/sys/fs/cgroup").join(controller);
    Some(root.join(path.trim_start_matches('/')))
}

/// Reason why a session gets no cgroup.
#[derive(Debug, thiserror::Error)]
pub enum NoCgroup {
    #[error("no control groups of the second version are mounted")]
    NotMounted,
    #[error("none can be made in {}: {fault}", base.display())]
    NotMade { base: PathBuf, fault: io::Error },
}

/// Tries to make a cgroup for a session. Returns the folder in which it was made.
pub fn control_group() -> Result<PathBuf, NoCgroup> {
    let base = cgroup::own_folder().ok_or(NoCgroup::NotMounted)?;
    match SessionCgroup::make(&base, &format!("doctor-{}", std::process::id())) {
        Ok(made) => {
            made.remove();
            Ok(base)
        }
        Err(fault) => Err(NoCgroup::NotMade { base, fault }),
    }
}

/// Properties of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Bytes that this user may still write.
    pub free: u64,
    /// Number of free inodes; `None`: the file system does not count them.
    pub files: Option<u64>,
    /// Name of the file system, if it is a network file system.
    pub network: Option<&'static str>,
}

/// Reads the properties of the file system that holds this path.
pub fn disk(path: &Path) -> io::Result<Disk> {
    let space = rustix::fs::statvfs(path)?;
    let kind = rustix::fs::statfs(path)?.f_type as u32;
    let network = match kind {
        0x6969 => Some("NFS"),
        0xff53_4d42 | 0xfe53_4d42 => Some("SMB"),
        0x0102_1997 => Some("9p"),
        0x00c3_6400 => Some("Ceph"),
        0x5346_414f => Some("AFS"),
        _ => None,
    };
    Ok(Disk {
        free: space.f_bavail * space.f_frsize,
        files: (space.f_files > 0).then_some(space.f_favail),
        network,
    })
}

/// Owner and permissions of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// True if the directory belongs to this user.
    pub ours: bool,
    /// Permission bits for owner, group and others.
    pub mode: u32,
    /// True for a directory, false for a symbolic link to one.
    pub folder: bool,
}

/// Owner and permissions of a path, without following a link; `None`: it does not exist.
pub fn access(path: &Path) -> Option<Access> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some(Access {
        ours: found.uid() == rustix::process::geteuid().as_raw(),
        mode: found.mode() & 0o777,
        folder: found.is_dir(),
    })
}

/// Checks that files can be created in a directory or, if it does not exist, in its nearest existing
/// ancestor. The error names the path that prevents it.
pub fn writable(folder: &Path) -> Result<(), (&Path, io::Error)> {
    let there = folder.ancestors().find(|path| path.exists());
    let there = there.unwrap_or(Path::new("/"));
    if !there.is_dir() {
        return Err((there, io::Error::from(rustix::io::Errno::NOTDIR)));
    }
    let wanted = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(there, wanted).map_err(|fault| (there, fault.into()))
}

/// Start time of a process, in milliseconds since boot.
pub fn process_start(pid: i32) -> Option<u64> {
    Some(proc::stat(pid)?.start_ticks * 1_000 / facts::ticks_per_second())
}

/// Last bytes of a file, from the beginning of a line.
pub fn tail(path: &Path, most: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if len <= most {
        return Ok(text);
    }
    let begin = text.find('\n').map_or(0, |end| end + 1);
    Ok(text[begin..].to_owned())
}

/// Modification time of a file, in Unix milliseconds.
pub fn written_at(path: &Path) -> Option<u64> {
    let modified = std::fs::metadata(path).ok()?.modified().ok()?;
    let since = modified.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// Path of a program that is named as in a shell; `None`: it cannot be executed.
pub fn program(name: &str, path: &std::ffi::OsStr) -> Option<PathBuf> {
    let executable = |path: &Path| {
        let found = std::fs::metadata(path);
        found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        let path = PathBuf::from(name);
        return executable(&path).then_some(path);
    }
    std::env::split_paths(path)
        .map(|folder| folder.join(name))
        .find(|path| executable(path))
}

/// Runs a program with these arguments and `--version`, and returns its output.
pub fn version_of(program: &Path, args: &[&str]) -> io::Result<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a program that a client starts is asked for its version; nothing else is run"
    )]
    let mut child = Command::new(program)
        .args(args)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let process = ProcessHandle::open(child.id().cast_signed());
    wait_for_end(process.as_slice(), VERSION_TIMEOUT);
    let ended = process.as_ref().is_some_and(|process| !process.lives());
    if let Some(process) = process.filter(|_| !ended) {
        process.signal(Signal::KILL);
    }
    let mut output = String::new();
    if ended && let Some(out) = child.stdout.take() {
        out.take(VERSION_LIMIT).read_to_string(&mut output)?;
    }
    let status = child.wait()?;
    match ended && status.success() {
        true => Ok(output.trim().to_owned()),
        false => Err(io::Error::other("it does not say its version")),
    }
}
