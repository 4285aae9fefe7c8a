//! The fork server: the process that keepers are forked from. It is also the subreaper of what a killed
//! keeper leaves. It has one thread, sleeps in one poll, and lives as long as one of its keepers does, with
//! or without a daemon. If there is no daemon, it starts one for a client inside a session
//! ([`START_DAEMON`]).

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use rustix::process::{Signal, WaitOptions, set_parent_process_death_signal};

use super::clock::{POLL_RETRY, pause};
use super::connection::Connection;
use super::fork_exec;
use super::frame::FromKeeper;
use super::proc::{self, ProcessHandle};
use super::resources::ForkServerContext;
use super::{
    FORK_SERVER_FD, fd_passing, inherited_fd, keeper, mark, sandbox, signals, spawn, tree,
};

/// Process name (`comm`).
pub const PROCESS_NAME: &CStr = c"abide-fork-srv";

/// Signal that makes the fork server start a daemon. A daemon that a command starts would carry the mark of
/// its session and end with it, and keepers would refuse its orders.
pub const START_DAEMON: Signal = Signal::USR1;

/// Longest path of a session's directory.
const PATH_LIMIT: usize = 4_096;

/// Runs as the fork server until the daemon has closed its end and no keeper is left.
pub fn main() -> ! {
    super::set_name(PROCESS_NAME);
    // Before the first command starts, because a command could lower the limit of any process of its user.
    mark::note_own();
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
        signals::ignore(signal);
    }
    let umask = rustix::process::umask(Mode::RWXG | Mode::RWXO).bits();
    let requests = inherited_fd::take(FORK_SERVER_FD);
    let (Ok(signals), Some(requests)) = (take_signals(), requests) else {
        std::process::exit(1)
    };
    spawn::close_on_exec(requests.as_fd());
    let Ok((gate_requests, gate_starter)) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    ) else {
        std::process::exit(1)
    };
    sandbox::compile_filters_ahead();
    let fork_server = ForkServer {
        context: ForkServerContext::new(umask),
        gate_starter,
        gate_requests,
        keepers: Vec::new(),
        gates: Vec::new(),
    };
    fork_server.run(requests, &signals)
}

/// Becomes a subreaper. Returns the signalfd on which it learns that a child has ended or a daemon is
/// wanted.
fn take_signals() -> io::Result<OwnedFd> {
    super::become_subreaper();
    // A command can stop this process. It continues when its daemon dies, and so exits after its last keeper.
    let _ = set_parent_process_death_signal(Some(Signal::CONT));
    // SIGCHLD may be ignored in the process that started this one; an ignored SIGCHLD is never delivered.
    signals::reset(libc::SIGCHLD);
    signals::open_signalfd(&[libc::SIGCHLD, START_DAEMON.as_raw()])
}

struct ForkServer {
    context: ForkServerContext,
    /// End of the keepers, which each of them inherits.
    gate_starter: OwnedFd,
    /// Socket on which keepers ask for network gates.
    gate_requests: OwnedFd,
    /// Network gates that have not been reaped. A gate ends by itself after its sandbox.
    gates: Vec<i32>,
    /// Keepers that have not been reaped, so that their pids are not reused.
    keepers: Vec<i32>,
}

impl ForkServer {
    fn run(mut self, requests: OwnedFd, signals: &OwnedFd) -> ! {
        let mut requests = Some(requests);
        loop {
            let Woken {
                has_keeper_request,
                has_gate_request,
                has_signal,
            } = wait(requests.as_ref(), &self.gate_requests, signals);
            if has_signal {
                if signals::read_signalfd(signals, START_DAEMON.as_raw()) {
                    self.start_daemon();
                }
                self.reap();
            }
            if has_gate_request && let Ok(Some((_, channel))) = receive(self.gate_requests.as_fd())
            {
                self.start_gate(channel);
            }
            if let Some(open) = requests.as_ref().filter(|_| has_keeper_request) {
                match receive(open.as_fd()) {
                    Ok(Some((folder, socket))) => self.fork_keeper(&folder, socket),
                    Ok(None) => {}
                    // The daemon is gone. This process leaves the working directory, so that it can be removed.
                    Err(_) => {
                        requests = None;
                        let _ = rustix::process::chdir("/");
                    }
                }
            }
            let is_alone =
                self.keepers.is_empty() && self.gates.is_empty() && self.orphans().is_empty();
            if requests.is_none() && is_alone {
                std::process::exit(0)
            }
        }
    }

    /// Forks a keeper.
    fn fork_keeper(&mut self, folder: &Path, socket: OwnedFd) {
        match fork() {
            Ok(0) => {
                let gate_starter = self.gate_starter.as_raw_fd();
                keeper::run_keeper(folder, socket, gate_starter, &self.context);
                std::process::exit(0)
            }
            Err(fault) => {
                let failure = fork_exec::fork_failure("cannot start a keeper", &fault);
                Connection::new(socket).send(&FromKeeper::StartFailed(failure));
            }
            Ok(pid) => self.keepers.push(pid),
        }
    }

    /// Starts a network gate with this end of its channel as standard input. If it fails, the channel is closed, and the
    /// network of the sandbox with it. The gate outlives the daemon, so the daemon cannot start it.
    fn start_gate(&mut self, channel: OwnedFd) {
        match fork() {
            Ok(0) if rustix::stdio::dup2_stdin(&channel).is_ok() => run_program(&["gate"]),
            Ok(0) => std::process::exit(1),
            Ok(pid) => self.gates.push(pid),
            Err(_) => {}
        }
    }

    /// Starts a daemon that is a sibling of this process, with the environment of the daemon that started
    /// this process. The new daemon reports on the FIFO of the client that it is ready.
    fn start_daemon(&self) {
        let flags = libc::CLONE_PARENT | libc::SIGCHLD;
        // SAFETY: a fork in a process without threads, so the child may do anything.
        let forked = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        if forked == 0 {
            let _ = rustix::process::setsid();
            rustix::process::umask(Mode::from_bits_retain(self.context.umask));
            run_program(&["serve", "--background"])
        }
    }

    /// Reaps children, and continues keepers that were stopped. The tree of a keeper that was killed is
    /// reparented to the fork server, which ends it.
    fn reap(&mut self) {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        while let Ok(Some((pid, status))) = rustix::process::wait(options) {
            let number = pid.as_raw_pid();
            if !status.stopped() {
                self.keepers.retain(|keeper| *keeper != number);
                self.gates.retain(|gate| *gate != number);
            } else if self.keepers.contains(&number) {
                // A command must not stop the keeper that enforces its limits.
                let _ = rustix::process::kill_process(pid, Signal::CONT);
            }
        }
        // A process that escapes is reparented to this one when its parent dies, and found then.
        for pid in self.orphans() {
            if let Some(held) = ProcessHandle::open(pid) {
                held.signal(Signal::STOP);
                tree::kill_all(pid, None);
                held.signal(Signal::KILL);
            }
        }
    }

    /// Children that are neither keepers nor gates. Their pids are not reused until they are reaped.
    fn orphans(&self) -> Vec<i32> {
        let mut children = proc::children(std::process::id() as i32);
        children.retain(|pid| !self.keepers.contains(pid) && !self.gates.contains(pid));
        children
    }
}

fn fork() -> io::Result<i32> {
    // SAFETY: the fork server has one thread, so the child may do anything.
    fork_exec::retry_on_eagain(|| unsafe {
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            pid => Ok(pid),
        }
    })
}

/// Executes this program with other arguments, in a fork that keeps nothing of the fork server.
fn run_program(arguments: &[&str]) -> ! {
    inherited_fd::close_from(FORK_SERVER_FD);
    signals::reset_and_block_all();
    signals::unblock_all();
    #[expect(
        clippy::disallowed_methods,
        reason = "gates outlive the daemon, and a client inside a session cannot start a daemon"
    )]
    let mut program = Command::new("/proc/self/exe");
    let _ = program.arg0("abide").args(arguments).exec();
    std::process::exit(1)
}

/// Descriptors that woke the loop.
struct Woken {
    has_keeper_request: bool,
    has_gate_request: bool,
    has_signal: bool,
}

/// Waits for a request or a signal.
fn wait(requests: Option<&OwnedFd>, gate_requests: &OwnedFd, signals: &OwnedFd) -> Woken {
    let mut fds = vec![
        PollFd::new(signals, PollFlags::IN),
        PollFd::new(gate_requests, PollFlags::IN),
    ];
    fds.extend(requests.map(|requests| PollFd::new(requests, PollFlags::IN)));
    loop {
        match rustix::event::poll(&mut fds, None) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            // The kernel is out of memory: the fork server tries again, without spinning.
            Err(_) => pause(POLL_RETRY),
        }
    }
    let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
    Woken {
        has_keeper_request: ready(2),
        has_gate_request: ready(1),
        has_signal: ready(0),
    }
}

/// Receives a request: a directory and the connection to serve, or any word and the channel of a gate. `None`: the
/// message was no request.
fn receive(requests: BorrowedFd<'_>) -> Result<Option<(PathBuf, OwnedFd)>, Errno> {
    let mut path = [0; PATH_LIMIT];
    let (length, mut socket) = match fd_passing::receive(requests, &mut path, RecvFlags::empty()) {
        // There is no descriptor left for the connection.
        Err(Errno::MSGSIZE) => return Ok(None),
        received => received?,
    };
    if length == 0 {
        return Err(Errno::PIPE);
    }
    let path = PathBuf::from(OsStr::from_bytes(&path[..length]));
    Ok(socket.pop().map(|socket| (path, socket)))
}
