//! Bringing a command to life: its pipes or terminal, its group, and every step up to `exec`. Each
//! step that can fail has its own sentence.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::pipe::PipeFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use super::cgroup::Leaf;
use super::launch::{Launch, Size, Stdin};
use super::log::Stream;

/// A command that runs.
pub struct Spawned {
    /// Its first process; a child of this one, so its number is not reused before it is reaped.
    pub leader: i32,
    /// Its output.
    pub streams: Vec<(OwnedFd, Stream)>,
    /// Where its input goes.
    pub input: Option<OwnedFd>,
    /// Its terminal.
    pub pty: Option<Pty>,
}

/// Both ends of a terminal. Ours keeps the other end from closing while the leader may still open it
/// again.
pub struct Pty {
    /// The end that is read and written.
    pub master: OwnedFd,
    /// The end the child has.
    pub slave: OwnedFd,
}

/// A command that could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The system's number, zero where it has none.
    pub errno: i32,
    /// Which step failed and how.
    pub sentence: String,
}

impl Failure {
    pub(super) fn new(what: impl std::fmt::Display, fault: &io::Error) -> Self {
        Failure {
            errno: fault.raw_os_error().unwrap_or(0),
            sentence: format!("{what}: {fault}"),
        }
    }
}

/// What the child needs between its birth and `exec`, made ready before: it may not allocate.
pub(super) struct Plan {
    paths: Vec<CString>,
    argv: Pointers,
    env: Pointers,
    cwd: CString,
    umask: libc::mode_t,
    stdin: RawFd,
    stdout: RawFd,
    stderr: RawFd,
    terminal: bool,
    report: RawFd,
    enter: Option<RawFd>,
}

/// Strings and the null-ended row of pointers to them.
struct Pointers {
    _strings: Vec<CString>,
    row: Vec<*const libc::c_char>,
}

impl Pointers {
    fn new(strings: Vec<CString>) -> Self {
        let mut row: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
        row.push(std::ptr::null());
        Pointers {
            _strings: strings,
            row,
        }
    }
}

/// Starts the command. Returns once it has been executed, or with the step that failed.
pub fn spawn(
    launch: &Launch,
    leaf: Option<&Leaf>,
    umask: libc::mode_t,
) -> Result<Spawned, Failure> {
    let (parent, child) = Ends::open(launch)?;
    let (report, child_report) = pipe("cannot make a pipe")?;
    let plan = Plan::new(launch, &child, child_report.as_raw_fd(), umask)?;
    let leader = born(plan, leaf)?;
    drop(child);
    drop(child_report);
    if let Some((step, errno)) = read_report(&report) {
        reap(leader);
        return Err(step.failure(launch, errno));
    }
    Ok(Spawned {
        leader,
        streams: parent.streams,
        input: parent.input,
        pty: parent.pty,
    })
}

struct Ends {
    streams: Vec<(OwnedFd, Stream)>,
    input: Option<OwnedFd>,
    pty: Option<Pty>,
}

struct ChildEnds {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: Option<OwnedFd>,
    terminal: bool,
}

impl Ends {
    fn open(launch: &Launch) -> Result<(Ends, ChildEnds), Failure> {
        if let Some(size) = launch.pty {
            return Ends::terminal(size);
        }
        let (out, child_out) = pipe("cannot make a pipe")?;
        let (err, child_err) = pipe("cannot make a pipe")?;
        let (input, child_in) = match launch.stdin {
            Stdin::None => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                let null = rustix::fs::open("/dev/null", flags, Mode::empty())
                    .map_err(|errno| Failure::new("cannot open '/dev/null'", &errno.into()))?;
                (None, null)
            }
            Stdin::Bytes(_) | Stdin::Open => {
                let (child_in, input) = pipe("cannot make a pipe")?;
                (Some(input), child_in)
            }
        };
        for fd in [Some(&out), Some(&err), input.as_ref()]
            .into_iter()
            .flatten()
        {
            let _ = rustix::io::ioctl_fionbio(fd, true);
        }
        let parent = Ends {
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

    fn terminal(size: Size) -> Result<(Ends, ChildEnds), Failure> {
        let fail = |errno: Errno| match errno {
            // The kernel says so when all terminals are taken.
            Errno::AGAIN | Errno::NOSPC => Failure {
                errno: libc::ENOSPC,
                sentence: "cannot open a terminal: all terminals of this system are in use".into(),
            },
            _ => Failure::new("cannot open a terminal", &errno.into()),
        };
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags).map_err(fail)?;
        rustix::pty::unlockpt(&master).map_err(fail)?;
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags).map_err(fail)?;
        let _ = rustix::termios::tcsetwinsize(&master, winsize(size));
        let _ = rustix::io::ioctl_fionbio(&master, true);
        let copy = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 3).map_err(fail);
        let parent = Ends {
            streams: vec![(copy(&master)?, Stream::Pty)],
            input: Some(copy(&master)?),
            pty: None,
        };
        let child = ChildEnds {
            stdin: copy(&slave)?,
            stdout: copy(&slave)?,
            stderr: None,
            terminal: true,
        };
        let pty = Some(Pty { master, slave });
        Ok((Ends { pty, ..parent }, child))
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

fn pipe(what: &str) -> Result<(OwnedFd, OwnedFd), Failure> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|errno| Failure::new(what, &errno.into()))
}

impl Plan {
    fn new(
        launch: &Launch,
        child: &ChildEnds,
        report: RawFd,
        umask: libc::mode_t,
    ) -> Result<Self, Failure> {
        let argv = strings(&launch.argv, "an argument")?;
        let env: Vec<Vec<u8>> = launch
            .env
            .iter()
            .map(|(name, value)| [name, b"=".as_slice(), value].concat())
            .collect();
        let Some(program) = argv.first() else {
            return Err(Failure {
                errno: libc::EINVAL,
                sentence: "there is nothing to run".into(),
            });
        };
        Ok(Plan {
            paths: candidates(program, &launch.env),
            argv: Pointers::new(argv),
            env: Pointers::new(strings(&env, "the environment")?),
            cwd: string(&launch.cwd, "the folder")?,
            umask,
            stdin: child.stdin.as_raw_fd(),
            stdout: child.stdout.as_raw_fd(),
            stderr: child.stderr.as_ref().unwrap_or(&child.stdout).as_raw_fd(),
            terminal: child.terminal,
            report,
            enter: None,
        })
    }
}

fn strings(all: &[Vec<u8>], what: &str) -> Result<Vec<CString>, Failure> {
    all.iter().map(|bytes| string(bytes, what)).collect()
}

fn string(bytes: &[u8], what: &str) -> Result<CString, Failure> {
    CString::new(bytes).map_err(|_| Failure {
        errno: libc::EINVAL,
        sentence: format!("{what} holds a zero byte, which no program can be given"),
    })
}

/// Where a program may lie: where it says, or in the folders of the child's own `PATH`.
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

/// Forks the child into its control group. Where the kernel is too old, or a filter forbids the
/// call, the child enters by itself.
fn born(mut plan: Plan, leaf: Option<&Leaf>) -> Result<i32, Failure> {
    let into = leaf.map(|leaf| leaf.folder.as_raw_fd());
    let pid = match clone_into(into) {
        Err(fault) if matches!(fault.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            if let Some(leaf) = leaf {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                let procs = rustix::fs::openat(&leaf.folder, "cgroup.procs", flags, Mode::empty())
                    .map_err(|errno| Failure::new("cannot enter the group", &errno.into()))?;
                plan.enter = Some(procs.into_raw());
            }
            // SAFETY: single-threaded; the child only makes system calls until it executes.
            match unsafe { libc::fork() } {
                -1 => Err(io::Error::last_os_error()),
                pid => Ok(pid),
            }
        }
        other => other,
    };
    match pid {
        Ok(0) => become_command(&plan),
        Ok(pid) => {
            if let Some(procs) = plan.enter {
                // SAFETY: opened above, and not used after this.
                drop(unsafe { OwnedFd::from_raw_fd(procs) });
            }
            Ok(pid)
        }
        Err(fault) => Err(Failure::new("cannot start a process", &fault)),
    }
}

trait IntoRaw {
    fn into_raw(self) -> RawFd;
}

impl IntoRaw for OwnedFd {
    fn into_raw(self) -> RawFd {
        use std::os::fd::IntoRawFd;
        self.into_raw_fd()
    }
}

#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

fn clone_into(group: Option<RawFd>) -> io::Result<i32> {
    let args = CloneArgs {
        flags: group.map_or(0, |_| CLONE_INTO_CGROUP),
        exit_signal: libc::SIGCHLD as u64,
        cgroup: group.unwrap_or(0) as u64,
        ..CloneArgs::default()
    };
    // SAFETY: without CLONE_VM the child has a copy of all memory, as after a fork, and the process
    // is single-threaded; the child only makes system calls until it executes.
    match unsafe { libc::syscall(libc::SYS_clone3, &args, size_of::<CloneArgs>()) } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(pid as i32),
    }
}

/// The steps of the child, in order.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Step {
    Enter = 1,
    Session = 2,
    Terminal = 3,
    Streams = 4,
    Folder = 5,
    Run = 6,
}

impl Step {
    fn failure(self, launch: &Launch, errno: i32) -> Failure {
        let fault = io::Error::from_raw_os_error(errno);
        match self {
            Step::Enter => Failure::new("cannot enter the control group", &fault),
            Step::Session => Failure::new("cannot start a session of its own", &fault),
            Step::Terminal => Failure::new("cannot take the terminal", &fault),
            Step::Streams => Failure::new("cannot set up the streams", &fault),
            Step::Folder => {
                let folder = String::from_utf8_lossy(&launch.cwd);
                Failure::new(format_args!("cannot enter the folder '{folder}'"), &fault)
            }
            Step::Run => {
                let program = launch.argv.first().map(Vec::as_slice).unwrap_or_default();
                let program = String::from_utf8_lossy(program);
                Failure::new(format_args!("cannot run '{program}'"), &fault)
            }
        }
    }
}

/// The child's way from birth to `exec`. Makes system calls and nothing else.
fn become_command(plan: &Plan) -> ! {
    // SAFETY: plain system calls on descriptors and strings that the plan keeps alive.
    unsafe {
        // The keeper's end would leave the leader to nobody.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::umask(plan.umask);
        if let Some(procs) = plan.enter {
            check(
                plan,
                Step::Enter,
                libc::write(procs, c"0".as_ptr().cast(), 1) as i32,
            );
        }
        check(plan, Step::Session, libc::setsid());
        if plan.terminal {
            check(
                plan,
                Step::Terminal,
                libc::ioctl(plan.stdin, libc::TIOCSCTTY, 0),
            );
        }
        for (from, to) in [(plan.stdin, 0), (plan.stdout, 1), (plan.stderr, 2)] {
            check(plan, Step::Streams, libc::dup2(from, to));
        }
        check(plan, Step::Folder, libc::chdir(plan.cwd.as_ptr()));
        let mut errno = libc::ENOENT;
        for path in &plan.paths {
            libc::execve(path.as_ptr(), plan.argv.row.as_ptr(), plan.env.row.as_ptr());
            match *libc::__errno_location() {
                libc::ENOENT | libc::ENOTDIR => {}
                // Found, but not to be run: look further, and say so if nothing else is found.
                libc::EACCES => errno = libc::EACCES,
                other => {
                    errno = other;
                    break;
                }
            }
        }
        give_up(plan.report, Step::Run, errno)
    }
}

fn check(plan: &Plan, step: Step, result: i32) {
    if result < 0 {
        // SAFETY: reads the number of the call that has just failed.
        give_up(plan.report, step, unsafe { *libc::__errno_location() })
    }
}

fn give_up(report: RawFd, step: Step, errno: i32) -> ! {
    let mut message = [step as u8; 5];
    message[1..].copy_from_slice(&errno.to_ne_bytes());
    // SAFETY: the message is valid for its length; _exit runs nothing of the parent's.
    unsafe {
        libc::write(report, message.as_ptr().cast(), message.len());
        libc::_exit(127)
    }
}

/// What the child reported; `None`: it was executed.
fn read_report(report: &OwnedFd) -> Option<(Step, i32)> {
    let mut message = [0; 5];
    loop {
        match rustix::io::read(report.as_fd(), &mut message) {
            Ok(5) => break,
            Err(Errno::INTR) => {}
            _ => return None,
        }
    }
    let step = match message[0] {
        1 => Step::Enter,
        2 => Step::Session,
        3 => Step::Terminal,
        4 => Step::Streams,
        5 => Step::Folder,
        _ => Step::Run,
    };
    let errno = [message[1], message[2], message[3], message[4]];
    Some((step, i32::from_ne_bytes(errno)))
}

fn reap(pid: i32) {
    // SAFETY: waits for a child of ours and stores nothing.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}

/// Makes sure that no descriptor is left to a child by mistake.
pub(super) fn close_on_exec(fd: impl AsFd) {
    let _ = rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC);
}
