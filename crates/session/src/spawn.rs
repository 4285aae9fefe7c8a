//! Start of a command: its pipes or terminal, arguments and environment. Each step that can fail has its
//! own sentence.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, WaitOptions};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use super::cgroup::SessionCgroup;
use super::fork_exec::{ExecPlan, Pointers, Step, clone_and_exec};
use super::frame::StartFailure;
use super::launch::{Launch, ResourceLimit, Size, Stdin};
use super::log::Stream;
use super::nsinit::Namespace;
use super::sandbox;
use super::sandbox::entry::Entry;
use super::{inherited_limits, mark};

/// A running command.
pub struct Spawned {
    /// Pid of the leader; a child of this process, so its pid is not reused before it is reaped.
    pub leader: i32,
    pub ends: KeeperEnds,
}

/// Descriptors through which the keeper and the command are connected.
pub struct KeeperEnds {
    /// Output streams.
    pub streams: Vec<(OwnedFd, Stream)>,
    /// Write end of its input.
    pub input: Option<OwnedFd>,
    /// Terminal.
    pub pty: Option<Pty>,
}

/// Both ends of a terminal. The keeper holds the slave too, so that the terminal does not close while the
/// leader may open it again.
pub struct Pty {
    /// The end that the keeper reads and writes.
    pub master: OwnedFd,
    /// The child's end.
    pub slave: OwnedFd,
}

/// Context in which a command is started.
pub(super) struct SpawnContext<'a> {
    /// cgroup of the command.
    pub cgroup: Option<&'a SessionCgroup>,
    /// Pid namespace of the command.
    pub namespace: Option<&'a Namespace>,
    /// Sandbox of the command.
    pub sandbox: Option<&'a Entry>,
    /// Init process of the sandbox, which has terminals of its own.
    pub terminals_of: Option<i32>,
    /// umask.
    pub umask: libc::mode_t,
    /// `oom_score_adj` of the command, if it differs from the keeper's.
    pub oom_score: Option<&'static CStr>,
}

/// Starts the command. Returns once the program was executed, or with the step that failed.
pub(super) fn spawn(launch: &Launch, context: &SpawnContext<'_>) -> Result<Spawned, StartFailure> {
    let (ends, child) = KeeperEnds::open(launch, context.terminals_of)?;
    let mut plan = plan(launch, child.streams(), child.terminal, context)?;
    let leader = clone_and_exec(&mut plan, context.cgroup)?;
    if let Some((step, errno)) = plan.fault.get() {
        if leader > 0 {
            reap(leader);
        }
        return Err(step.failure(launch, errno));
    }
    Ok(Spawned { leader, ends })
}

/// Descriptors that only the command needs.
struct ChildEnds {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: Option<OwnedFd>,
    terminal: bool,
}

impl ChildEnds {
    fn streams(&self) -> [RawFd; 3] {
        let stderr = self.stderr.as_ref().unwrap_or(&self.stdout);
        [&self.stdin, &self.stdout, stderr].map(AsRawFd::as_raw_fd)
    }
}

impl KeeperEnds {
    fn open(
        launch: &Launch,
        terminals_of: Option<i32>,
    ) -> Result<(KeeperEnds, ChildEnds), StartFailure> {
        if let Some(size) = launch.record.pty {
            return KeeperEnds::terminal(size, terminals_of);
        }
        let ((out, child_out), (err, child_err)) = (pipe()?, pipe()?);
        for fd in [&out, &err] {
            let _ = rustix::io::ioctl_fionbio(fd, true);
        }
        let (input, child_in) = match launch.stdin {
            Stdin::None => (None, null()?),
            Stdin::Bytes(_) | Stdin::Open => {
                let (child_in, input) = pipe()?;
                let _ = rustix::io::ioctl_fionbio(&input, true);
                (Some(input), child_in)
            }
        };
        let parent = KeeperEnds {
            streams: vec![(out, Stream::Stdout), (err, Stream::Stderr)],
            input,
            pty: None,
        };
        let child = ChildEnds {
            stdin: child_in,
            stdout: child_out,
            stderr: Some(child_err),
            terminal: false,
        };
        Ok((parent, child))
    }

    /// Opens a terminal: in a sandbox with a `/dev` of its own one of those, so that the command finds its path.
    fn terminal(
        size: Size,
        terminals_of: Option<i32>,
    ) -> Result<(KeeperEnds, ChildEnds), StartFailure> {
        let fail = |errno: Errno| match errno {
            // The kernel returns these errors if all pseudo-terminals are in use.
            Errno::AGAIN | Errno::NOSPC => StartFailure::now(
                libc::ENOSPC,
                "pty_limit: all terminals of this system are in use (kernel.pty.max); end a \
                           session that has one, or do without (pty: false)",
            ),
            _ => StartFailure::new("cannot open a terminal", &errno.into()),
        };
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = match terminals_of {
            Some(init) => {
                let path = format!("/proc/{init}/root/dev/pts/ptmx");
                let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
                rustix::fs::open(path, flags, Mode::empty())
            }
            None => rustix::pty::openpt(flags),
        };
        let master = master.map_err(fail)?;
        rustix::pty::unlockpt(&master).map_err(fail)?;
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags).map_err(fail)?;
        let _ = rustix::termios::tcsetwinsize(&master, winsize(size));
        let _ = rustix::io::ioctl_fionbio(&master, true);
        let copy = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 3).map_err(fail);
        let child = ChildEnds {
            stdin: copy(&slave)?,
            stdout: copy(&slave)?,
            stderr: None,
            terminal: true,
        };
        let parent = KeeperEnds {
            streams: vec![(copy(&master)?, Stream::Pty)],
            input: Some(copy(&master)?),
            pty: Some(Pty { master, slave }),
        };
        Ok((parent, child))
    }
}

pub(super) fn winsize(size: Size) -> Winsize {
    Winsize {
        ws_row: size.rows,
        ws_col: size.cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), StartFailure> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
        .map_err(|errno| StartFailure::new("cannot make a pipe", &errno.into()))
}

fn null() -> Result<OwnedFd, StartFailure> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open("/dev/null", flags, Mode::empty())
        .map_err(|errno| StartFailure::new("cannot open '/dev/null'", &errno.into()))
}

/// No core files: the machine may have a program outside that takes them. A command can raise the limit.
const NO_CORE: ResourceLimit = ResourceLimit {
    resource: inherited_limits::CORE,
    soft: 0,
    hard: u64::MAX,
};

fn plan<'a>(
    launch: &Launch,
    streams: [RawFd; 3],
    terminal: bool,
    context: &SpawnContext<'a>,
) -> Result<ExecPlan<'a>, StartFailure> {
    let argv = strings(&launch.argv, "an argument")?;
    let env: Vec<Vec<u8>> = launch
        .env
        .iter()
        .map(|(name, value)| [name, b"=".as_slice(), value].concat())
        .collect();
    let Some(program) = argv.first() else {
        return Err(StartFailure::now(libc::EINVAL, "there is nothing to run"));
    };
    let mut limits = launch
        .inherited
        .as_ref()
        .map_or_else(Vec::new, |inherited| inherited.limits.clone());
    if context.sandbox.is_some() {
        limits.push(NO_CORE);
    }
    Ok(ExecPlan {
        paths: candidates(program, &launch.env),
        argv: Pointers::new(argv),
        env: Pointers::new(strings(&env, "the environment")?),
        cwd: string(&launch.record.cwd, "the folder")?,
        umask: launch
            .inherited
            .as_ref()
            .map_or(context.umask, |inherited| inherited.umask & 0o777),
        limits,
        mark: mark::value(&launch.record.session),
        oom_score: context.oom_score,
        streams,
        terminal,
        mounts_of: context.namespace.map(|space| space.handle.as_raw_fd()),
        sandbox: context.sandbox,
        leader: Cell::new(0),
        enter: None,
        fault: Cell::new(None),
    })
}

fn strings(all: &[Vec<u8>], what: &str) -> Result<Vec<CString>, StartFailure> {
    all.iter().map(|bytes| string(bytes, what)).collect()
}

fn string(bytes: &[u8], what: &str) -> Result<CString, StartFailure> {
    CString::new(bytes).map_err(|_| {
        StartFailure::now(
            libc::EINVAL,
            format!("{what} holds a zero byte, which no program can be given"),
        )
    })
}

/// Candidate paths of a program: its own path, or the directories of the child's `PATH`.
fn candidates(program: &CStr, env: &[(Vec<u8>, Vec<u8>)]) -> Vec<CString> {
    let name = program.to_bytes();
    if name.contains(&b'/') || name.is_empty() {
        return vec![program.to_owned()];
    }
    let path = env.iter().rev().find(|(name, _)| name == b"PATH");
    let path = path.map_or(b"/usr/local/bin:/usr/bin:/bin".as_slice(), |(_, value)| {
        value
    });
    path.split(|byte| *byte == b':')
        .map(|folder| if folder.is_empty() { b"." } else { folder })
        .filter_map(|folder| CString::new([folder, b"/", name].concat()).ok())
        .collect()
}

impl Step {
    fn failure(self, launch: &Launch, errno: i32) -> StartFailure {
        let fault = io::Error::from_raw_os_error(errno);
        match self {
            Step::Enter => StartFailure::new("cannot enter the control group", &fault),
            Step::Mounts => StartFailure::new("cannot enter the namespace", &fault),
            Step::Sandbox => sandbox_failure(launch, "enter the sandbox", &fault),
            Step::Rights => sandbox_failure(launch, "give up all rights", &fault),
            Step::Filter => sandbox_failure(launch, "install the system call filter", &fault),
            Step::Session => StartFailure::new("cannot start a session of its own", &fault),
            Step::Terminal => StartFailure::new("cannot take the terminal", &fault),
            Step::Streams => StartFailure::new("cannot set up the streams", &fault),
            Step::Folder => {
                let folder = String::from_utf8_lossy(&launch.record.cwd);
                StartFailure::new(format_args!("cannot enter the folder '{folder}'"), &fault)
            }
            Step::Run => {
                let program = launch.argv.first().map(Vec::as_slice).unwrap_or_default();
                let program = String::from_utf8_lossy(program);
                let mut failure = StartFailure::new(format_args!("cannot run '{program}'"), &fault);
                if errno == libc::E2BIG {
                    let next = "; put long text into a file or into the command's input";
                    failure.sentence.push_str(next);
                }
                failure
            }
        }
    }
}

fn sandbox_failure(launch: &Launch, step: &str, fault: &io::Error) -> StartFailure {
    let mode = launch.sandbox.as_ref().map(|plan| plan.mode);
    sandbox::cannot(
        mode,
        &format!("{step}: {fault}"),
        fault.raw_os_error().unwrap_or(0),
    )
}

pub(super) fn reap(pid: i32) {
    let _ = rustix::process::waitpid(Pid::from_raw(pid), WaitOptions::empty());
}

/// Sets `FD_CLOEXEC`, so that a child does not inherit the descriptor.
pub(super) fn close_on_exec(fd: impl AsFd) {
    let _ = rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC);
}
