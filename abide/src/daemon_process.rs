//! Start of a daemon in the background, up to the moment when it can be called.
//!
//! A client that runs inside a session does not start the daemon itself: the daemon would inherit the
//! session's mark, would end with the session, and keepers would refuse its orders. Instead the client asks a
//! keeper's fork server, which is outside of every session, to start it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, Timespec};

use abide_engine::config::Paths;
use abide_session::keeper_record::{self, CTL};
use abide_session::proc::{self, ProcessHandle};
use abide_session::{FORK_SERVER, START_DAEMON, boot_id, inherited_fd, mark, tree};

/// File descriptor on which a daemon that its client started reports that it is ready, or an error.
const READY_FD: i32 = 3;

/// Named pipe on which a daemon that the fork server started reports that.
fn ready_path(paths: &Paths) -> PathBuf {
    paths.runtime.join("ready")
}

/// Time limit for the fork server to execute the daemon.
const EXEC_TIMEOUT: Timespec = Timespec {
    tv_sec: 30,
    tv_nsec: 0,
};

/// Replaces this process with a new daemon. Sessions continue, and clients connect again. Returns only if it fails.
pub(super) fn start_again() -> io::Error {
    #[expect(
        clippy::disallowed_methods,
        reason = "the daemon itself, in the same process"
    )]
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("abide")
        .args(std::env::args_os().skip(1))
        .exec()
}

/// Starts a daemon and waits until it can be called. The caller holds the lock on starting one.
pub(super) fn start(paths: &Paths, program: &Path) -> io::Result<()> {
    let report = match keeper_above(&paths.sessions()) {
        Some(keeper) => start_outside(paths, &keeper)?,
        None => start_here(paths, program)?,
    };
    let why = match report.trim() {
        "ready" => return Ok(()),
        "" => "it exited without a report",
        why => why,
    };
    Err(io::Error::other(format!(
        "the daemon did not start: {why}. Its log is {}",
        paths.daemon_log().display()
    )))
}

/// Starts the daemon as a child of this process. Returns the daemon's report.
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
    inherited_fd::pass_in_new_session(&mut command, theirs.into(), READY_FD);
    let mut child = command.spawn()?;
    // The command owns this process's copy of the pipe, which must be closed for the report to end.
    drop(command);
    let mut report = String::new();
    ready.read_to_string(&mut report)?;
    // A client may live long; without this wait an ended daemon would stay a zombie.
    std::thread::spawn(move || child.wait());
    Ok(report)
}

/// Has the fork server of this keeper start the daemon. Returns the daemon's report.
fn start_outside(paths: &Paths, keeper: &ProcessHandle) -> io::Result<String> {
    let server = fork_server(keeper).ok_or_else(|| io::Error::other(INSIDE_SESSION))?;
    let path = ready_path(paths);
    let _ = std::fs::remove_file(&path);
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let ready = rustix::fs::open(&path, flags, Mode::empty())?;
    server.signal(START_DAEMON);
    let mut fds = [PollFd::new(&ready, PollFlags::IN)];
    let executed = poll(&mut fds, Some(&EXEC_TIMEOUT));
    let mut report = String::new();
    if matches!(executed, Ok(1)) {
        rustix::io::ioctl_fionbio(&ready, false)?;
        File::from(ready).read_to_string(&mut report)?;
    }
    let _ = std::fs::remove_file(&path);
    Ok(report)
}

/// Fork server of a keeper, if it is alive.
fn fork_server(keeper: &ProcessHandle) -> Option<ProcessHandle> {
    let parent = || proc::stat(keeper.pid).map(|stat| stat.ppid);
    let pid = parent()?;
    let server = ProcessHandle::open(pid)?;
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    let is_named = name.trim_ascii_end() == FORK_SERVER.to_bytes();
    // While this process is the parent of a living keeper, its pid cannot have been reused.
    (is_named && parent() == Some(pid) && keeper.lives()).then_some(server)
}

/// Keeper that would refuse orders from this process, because this process descends from a session's command.
fn keeper_above(sessions: &Path) -> Option<ProcessHandle> {
    let own = mark::own_limit();
    // No limit is higher than this, so no keeper can be above.
    if own == u64::MAX {
        return None;
    }
    let folders = std::fs::read_dir(sessions).ok()?.flatten();
    let with_socket = folders
        .map(|entry| entry.path())
        .filter(|path| path.join(CTL).exists());
    with_socket
        .filter_map(|path| keeper_record::read_meta(&path).ok().flatten())
        .filter(|meta| meta.keeper.boot_id == boot_id())
        .filter_map(|meta| tree::keeper(&meta))
        .find(|keeper| mark::limit_of(keeper.pid).is_some_and(|limit| limit > own))
}

const INSIDE_SESSION: &str = "the daemon cannot be run by a command of one of its own sessions, because their keepers would take \
                      no orders from it; start it outside of every session, as any abide command in a terminal of \
                      your own does";

/// Refuses to run a daemon whose orders keepers would refuse: their sessions would appear to be lost.
pub(super) fn check_outside(paths: &Paths) -> io::Result<()> {
    match keeper_above(&paths.sessions()) {
        Some(_) => Err(io::Error::other(INSIDE_SESSION)),
        None => Ok(()),
    }
}

/// File descriptor on which a daemon that was started in the background reports that it is ready.
pub fn ready_pipe(paths: &Paths) -> Option<OwnedFd> {
    if let Some(ready) = inherited_fd::take(READY_FD) {
        return Some(ready);
    }
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let ready = rustix::fs::open(ready_path(paths), flags, Mode::empty()).ok()?;
    // The client waits for this line, with a time limit, before it waits for the report.
    let _ = rustix::io::write(&ready, b"\n");
    Some(ready)
}

/// Redirects standard error to the log file, in a daemon that was started in the background.
pub fn log_to_file(paths: &Paths) -> io::Result<()> {
    let path = paths.daemon_log();
    rotate(&path);
    let mut options = File::options();
    let opened = options.create(true).append(true).mode(0o600).open(&path);
    let with_path = |fault: io::Error| {
        io::Error::new(
            fault.kind(),
            format!("cannot write {}: {fault}", path.display()),
        )
    };
    rustix::stdio::dup2_stderr(opened.map_err(with_path)?.as_fd())?;
    Ok(())
}

/// Rotates a log that has grown long; the previous old log is overwritten.
fn rotate(log: &Path) {
    const ROTATE_BYTES: u64 = 1 << 20;
    if std::fs::metadata(log).is_ok_and(|found| found.len() > ROTATE_BYTES) {
        // A log that cannot be renamed only keeps growing.
        let _ = std::fs::rename(log, log.with_added_extension("old"));
    }
}
