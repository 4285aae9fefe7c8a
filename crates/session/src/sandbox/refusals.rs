//! Record of what a sandbox has refused, for results. The kernel reports every attempt to write (seccomp user
//! notification); the keeper compares its path with the plan and lets the call continue. The path is read from the
//! memory of the command, so the record is a hint for people and models, never a permission.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode as Permissions, OFlags};

use super::git::Protected;
use super::layers;
use super::plan::{Mode, Network, Plan};

/// File in the session's directory, made only if there is something to tell.
pub const FILE: &str = "refused";

/// Different refusals that are kept; all are counted.
const MOST_KEPT: usize = 20;
/// Longest path that is kept, in bytes.
const PATH_LIMIT: usize = 4_096;

const NOTIF_RECV: libc::Ioctl = 0xc050_2100_u32 as libc::Ioctl;
const NOTIF_SEND: libc::Ioctl = 0xc018_2101_u32 as libc::Ioctl;
const NOTIF_ID_VALID: libc::Ioctl = 0x4008_2102_u32 as libc::Ioctl;
const CONTINUE: u32 = 1;

/// `struct seccomp_notif` of the kernel.
#[repr(C)]
#[derive(Default)]
struct Notification {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    arch: u32,
    instruction_pointer: u64,
    args: [u64; 6],
}

/// `struct seccomp_notif_resp` of the kernel.
#[repr(C)]
#[derive(Default)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// Names in the workspace that were protected or absent when the session began.
pub(crate) struct Watched {
    plan: Plan,
    protected: Vec<PathBuf>,
    writable: Vec<PathBuf>,
}

/// Refusals of one session.
pub(crate) struct Refusals {
    watched: Watched,
    listener: Option<OwnedFd>,
    kept: Vec<PathBuf>,
    count: u64,
}

impl Watched {
    /// Records the state of the workspace before the command runs.
    pub fn new(plan: &Plan) -> Self {
        let protected = Protected::find(&plan.workspace.path);
        let mut writable: Vec<PathBuf> = ["/proc", "/dev", "/run", "/var/run"]
            .map(PathBuf::from)
            .to_vec();
        writable.extend(layers::layered(plan));
        writable.extend(plan.write.iter().cloned());
        if plan.mode == Mode::WorkspaceWrite {
            writable.push(plan.workspace.path.clone());
            writable.extend(protected.worktree.map(|worktree| worktree.common));
        }
        Watched {
            plan: plan.clone(),
            protected: protected.paths,
            writable,
        }
    }

    /// True if the plan does not permit to write this path.
    fn refuses(&self, path: &Path) -> bool {
        let root = &self.plan.workspace.path;
        let in_workspace = path.strip_prefix(root).ok();
        let is_protected = in_workspace.is_some_and(|path| {
            self.plan.mode == Mode::ReadOnly
                || self.protected.iter().any(|name| path.starts_with(name))
        });
        is_protected || !self.writable.iter().any(|root| path.starts_with(root))
    }

    /// Names that programs outside obey, which the command has made.
    fn planted(&self) -> Vec<PathBuf> {
        let mut now = Protected::find(&self.plan.workspace.path).paths;
        now.retain(|path| !self.protected.contains(path));
        now.truncate(MOST_KEPT);
        now
    }
}

impl Refusals {
    pub fn new(watched: Watched, listener: Option<OwnedFd>) -> Self {
        Refusals {
            watched,
            listener,
            kept: Vec::new(),
            count: 0,
        }
    }

    /// Descriptor that becomes readable when the command attempts to write.
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    /// Stops listening: no process is left that could be reported.
    pub fn close(&mut self) {
        self.listener = None;
    }

    /// Handles one attempt.
    pub fn handle(&mut self) {
        let Some(listener) = &self.listener else {
            return;
        };
        let mut seen = Notification::default();
        // SAFETY: the kernel writes one structure of this size.
        let received = unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_RECV, &mut seen) };
        if received < 0 {
            return;
        }
        let path = path_of(&seen);
        // SAFETY: the kernel reads an id. A process that has ended since may have given its number to another.
        let is_valid = unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_ID_VALID, &seen.id) } == 0;
        let answer = Response {
            id: seen.id,
            flags: CONTINUE,
            ..Response::default()
        };
        // SAFETY: the kernel reads one structure of this size.
        unsafe { libc::ioctl(listener.as_raw_fd(), NOTIF_SEND, &answer) };
        if let Some(path) = path.filter(|path| is_valid && self.watched.refuses(path)) {
            self.count += 1;
            if self.kept.len() < MOST_KEPT && !self.kept.contains(&path) {
                self.kept.push(path);
            }
        }
    }

    /// Writes the record into the session's directory, if there is something to tell.
    pub fn record(&self, folder: BorrowedFd<'_>) -> io::Result<()> {
        let planted = self.watched.planted();
        if self.kept.is_empty() && planted.is_empty() {
            return Ok(());
        }
        let network = match self.watched.plan.network {
            Network::Off => "off",
            Network::On => "on",
        };
        let mut text = format!(
            "{} {network} {}\n",
            self.watched.plan.mode.as_str(),
            self.count
        )
        .into_bytes();
        for path in &self.kept {
            text.extend_from_slice(b"write ");
            text.extend_from_slice(&in_one_line(path));
        }
        for path in planted {
            text.extend_from_slice(b"planted ");
            text.extend_from_slice(&in_one_line(&path));
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = rustix::fs::openat(folder, FILE, flags, Permissions::from_raw_mode(0o600))?;
        io::Write::write_all(&mut std::fs::File::from(file), &text)
    }
}

fn in_one_line(path: &Path) -> Vec<u8> {
    let mut line: Vec<u8> = path.as_os_str().as_bytes().to_vec();
    for byte in &mut line {
        if *byte == b'\n' {
            *byte = b'?';
        }
    }
    line.push(b'\n');
    line
}

/// Path that a system call names, absolute and without `.` and `..`.
fn path_of(seen: &Notification) -> Option<PathBuf> {
    let (folder, at) = super::filter::path_arguments(seen.number.into())?;
    let text = read_text(seen.pid, seen.args[at])?;
    let base = match folder {
        _ if text.is_absolute() => PathBuf::from("/"),
        Some(at) if seen.args[at] as i32 != libc::AT_FDCWD => {
            let fd = seen.args[at] as i32;
            std::fs::read_link(format!("/proc/{}/fd/{fd}", seen.pid)).ok()?
        }
        _ => std::fs::read_link(format!("/proc/{}/cwd", seen.pid)).ok()?,
    };
    Some(normal(&base.join(text)))
}

fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::Normal(name) => out.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    out
}

/// Text in the memory of a process, up to its zero byte.
fn read_text(pid: u32, address: u64) -> Option<PathBuf> {
    let mut bytes = vec![0_u8; PATH_LIMIT];
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: bytes.len(),
    };
    // SAFETY: the kernel writes into `bytes`, at most as many as it has, and checks the address in the other process.
    let count = unsafe { libc::process_vm_readv(pid as i32, &local, 1, &remote, 1, 0) };
    let count = usize::try_from(count).ok()?;
    bytes.truncate(count);
    let end = bytes.iter().position(|byte| *byte == 0)?;
    bytes.truncate(end);
    Some(std::ffi::OsString::from_vec(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::Folder;
    use abide_core::SandboxedBy;

    #[test]
    fn paths_outside_and_protected_names_are_refused() {
        let workspace = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(workspace.path().join(".git/hooks")).unwrap();
        let plan = Plan {
            at_least: SandboxedBy::Namespaces,
            mode: Mode::WorkspaceWrite,
            network: Network::Off,
            workspace: Folder::resolve(workspace.path()).unwrap(),
            home: "/nonexistent".into(),
            layers: "/nonexistent".into(),
            write: vec!["/cache".into()],
            hide: Vec::new(),
            own: Vec::new(),
        };
        let root = plan.workspace.path.clone();
        let watched = Watched::new(&plan);
        assert!(watched.refuses(Path::new("/etc/x")));
        assert!(watched.refuses(&root.join(".git/hooks/pre-commit")));
        for fine in [
            root.join("file"),
            "/cache/x".into(),
            "/dev/null".into(),
            "/tmp/x".into(),
        ] {
            assert!(!watched.refuses(&fine), "{}", fine.display());
        }
        std::fs::create_dir(root.join(".vscode")).unwrap();
        assert_eq!(watched.planted(), [PathBuf::from(".vscode")]);
        assert_eq!(normal(Path::new("/a/./b/../c")), PathBuf::from("/a/c"));
    }
}
