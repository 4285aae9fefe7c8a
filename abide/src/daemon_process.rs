//! A daemon is started in the background, and waited for until it can be called.
//!
//! A client that is inside a session does not start it itself: what it starts has the session's mark, ends with the
//! session, and keepers take no orders from it. It asks the fork server of a keeper to do so, which is outside.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, Timespec};

use abide_engine::config::Paths;
use abide_session::folder::{self, CTL};
use abide_session::proc::{self, ProcessHandle};
use abide_session::{FORK_SERVER, START_DAEMON, boot_id, mark, tree};

/// The descriptor on which a daemon that its client started says that it is ready, or what is wrong.
const READY_FD: i32 = 3;

/// The named pipe on which a daemon that the fork server started says so.
fn ready_path(paths: &Paths) -> PathBuf {
    paths.runtime.join("ready")
}

/// How long the fork server may take to execute the daemon.
const EXECUTED: Timespec = Timespec {
    tv_sec: 30,
    tv_nsec: 0,
};

/// Starts a daemon and waits until it can be called. The caller holds the lock on starting one.
pub(super) fn start(paths: &Paths, program: &Path) -> io::Result<()> {
    let said = match keeper_above(&paths.sessions()) {
        Some(keeper) => start_outside(paths, &keeper)?,
        None => start_here(paths, program)?,
    };
    let why = match said.trim() {
        "ready" => return Ok(()),
        "" => "it ended without a word",
        why => why,
    };
    Err(io::Error::other(format!(
        "the daemon did not start: {why}. Its log is {}",
        paths.daemon_log().display()
    )))
}

/// Starts it as a child of this process. Returns what it says.
fn start_here(paths: &Paths, program: &Path) -> io::Result<String> {
    let (mut ready, theirs) = io::pipe()?;
    #[expect(
        clippy::disallowed_methods,
        reason = "the daemon is started here where a client can"
    )]
    let mut command = Command::new(program);
    command
        .arg0("abide")
        .args(["serve", "--background"])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some(folder) = paths.one_folder() {
        command.env("ABIDE_DIR", folder);
    }
    let fd = theirs.as_raw_fd();
    // SAFETY: only setsid, dup2 and fcntl run between fork and exec; all are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            libc::setsid();
            let done = if fd == READY_FD {
                libc::fcntl(fd, libc::F_SETFD, 0)
            } else {
                libc::dup2(fd, READY_FD)
            };
            if done < 0 {
                Err(io::Error::last_os_error())
            } else {
                Ok(())
            }
        });
    }
    let mut child = command.spawn()?;
    drop(theirs);
    let mut said = String::new();
    ready.read_to_string(&mut said)?;
    // Whoever started it may live long, and would keep what is left of a daemon that has ended.
    std::thread::spawn(move || child.wait());
    Ok(said)
}

/// Has the fork server of this keeper start it. Returns what it says.
fn start_outside(paths: &Paths, keeper: &ProcessHandle) -> io::Result<String> {
    let server = fork_server(keeper).ok_or_else(|| io::Error::other(INSIDE))?;
    let path = ready_path(paths);
    let _ = std::fs::remove_file(&path);
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let ready = rustix::fs::open(&path, flags, Mode::empty())?;
    server.signal(START_DAEMON);
    let mut fds = [PollFd::new(&ready, PollFlags::IN)];
    let executed = poll(&mut fds, Some(&EXECUTED));
    let mut said = String::new();
    if matches!(executed, Ok(1)) {
        rustix::io::ioctl_fionbio(&ready, false)?;
        File::from(ready).read_to_string(&mut said)?;
    }
    let _ = std::fs::remove_file(&path);
    Ok(said)
}

/// The process that a keeper was forked from, if it lives.
fn fork_server(keeper: &ProcessHandle) -> Option<ProcessHandle> {
    let parent = || proc::stat(keeper.pid).map(|stat| stat.ppid);
    let pid = parent()?;
    let server = ProcessHandle::open(pid)?;
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    let is_named = name.trim_ascii_end() == FORK_SERVER.to_bytes();
    // While it is the parent of a keeper that lives, the number is its own.
    (is_named && parent() == Some(pid) && keeper.lives()).then_some(server)
}

/// A keeper that takes no orders from this process, because a command has started this process.
fn keeper_above(sessions: &Path) -> Option<ProcessHandle> {
    let own = mark::own_limit();
    // No limit is higher.
    if own == u64::MAX {
        return None;
    }
    let folders = std::fs::read_dir(sessions).ok()?.flatten();
    let kept = folders
        .map(|entry| entry.path())
        .filter(|path| path.join(CTL).exists());
    kept.filter_map(|path| folder::read_meta(&path).ok().flatten())
        .filter(|meta| meta.keeper.boot_id == boot_id())
        .filter_map(|meta| tree::keeper(&meta))
        .find(|keeper| mark::limit_of(keeper.pid).is_some_and(|limit| limit > own))
}

const INSIDE: &str = "the daemon cannot be run by a command of one of its own sessions, because their keepers would take \
                      no orders from it; start it outside of every session, as any abide command in a terminal of \
                      your own does";

/// Refuses to serve where keepers would take no orders. Their sessions would look as if they had been lost.
pub(super) fn check_outside(paths: &Paths) -> io::Result<()> {
    match keeper_above(&paths.sessions()) {
        Some(_) => Err(io::Error::other(INSIDE)),
        None => Ok(()),
    }
}

/// In a daemon that was started in the background: where it says that it is ready.
pub fn ready_pipe(paths: &Paths) -> Option<OwnedFd> {
    // SAFETY: it is only looked at whether there is such a descriptor.
    if unsafe { libc::fcntl(READY_FD, libc::F_GETFD) } >= 0 {
        // SAFETY: the client that started this put it there, and nothing else here knows of it.
        return Some(unsafe { OwnedFd::from_raw_fd(READY_FD) });
    }
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let ready = rustix::fs::open(ready_path(paths), flags, Mode::empty()).ok()?;
    // The client waits for this before it waits for the rest.
    let _ = rustix::io::write(&ready, b"\n");
    Some(ready)
}

/// In a daemon that was started in the background: has standard error written to its log.
pub fn log_to_file(paths: &Paths) -> io::Result<()> {
    let path = paths.daemon_log();
    turn_over(&path);
    let mut options = File::options();
    let opened = options.create(true).append(true).mode(0o600).open(&path);
    let in_place = |fault: io::Error| {
        io::Error::new(
            fault.kind(),
            format!("cannot write {}: {fault}", path.display()),
        )
    };
    rustix::stdio::dup2_stderr(opened.map_err(in_place)?.as_fd())?;
    Ok(())
}

/// A log that has grown long is put aside for the next one, in the place of the one before.
fn turn_over(log: &Path) {
    const LONG: u64 = 1 << 20;
    if std::fs::metadata(log).is_ok_and(|found| found.len() > LONG) {
        // One that cannot be moved only goes on growing.
        let _ = std::fs::rename(log, log.with_added_extension("old"));
    }
}
