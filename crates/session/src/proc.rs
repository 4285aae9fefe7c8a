//! Process information from `/proc`, and handles on processes (pidfd).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::Timespec;
use rustix::process::{Pid, PidfdFlags, Signal};

/// The fields of `/proc/<pid>/stat` that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// `R`, `S`, `D`, `T`, `t`, `Z` and so on.
    pub state: u8,
    /// Pid of the parent.
    pub ppid: i32,
    /// Process group.
    pub pgrp: i32,
    /// Device number of the controlling terminal, zero for none.
    pub tty: i32,
    /// Foreground process group of that terminal.
    pub tpgid: i32,
    /// CPU time in ticks, user and system.
    pub cpu_ticks: u64,
    /// CPU time of its children that have ended and were waited for, and of theirs.
    pub ended_children_ticks: u64,
    /// Start time in ticks since boot.
    pub start_ticks: u64,
    /// Resident pages.
    pub resident_pages: u64,
    /// Number of threads.
    pub threads: u32,
}

/// Reads `/proc/<pid>/stat`. `None`: there is no such process.
pub fn stat(pid: i32) -> Option<Stat> {
    let file = File::open(format!("/proc/{pid}/stat")).ok()?;
    // The kernel returns the line in one read, and the line is shorter than this buffer.
    let mut room = [0; 1_024];
    let length = file.read_at(&mut room, 0).ok()?;
    parse_stat(&room[..length])
}

/// Path of the file that names the system call in which a thread is blocked.
pub fn syscall_path(pid: i32, thread: i32) -> String {
    format!("/proc/{pid}/task/{thread}/syscall")
}

/// Pids in the text of a procfs file that lists them.
pub fn numbers(text: &str) -> Vec<i32> {
    text.split_ascii_whitespace().filter_map(number).collect()
}

impl Stat {
    /// True if the process is stopped.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    /// True if no thread runs any more. The state of a process whose main thread has exited is `Z` too, but
    /// it has other threads.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }
}

fn parse_stat(text: &[u8]) -> Option<Stat> {
    // The process name is in parentheses and may itself contain parentheses.
    let after = text.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(&text[after..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let mut numbers = [None; 21];
    for (number, field) in numbers.iter_mut().zip(fields) {
        *number = Some(field.parse::<i64>().ok()?);
    }
    let at = |field: usize| numbers[field - 4];
    Some(Stat {
        state,
        ppid: at(4)? as i32,
        pgrp: at(5)? as i32,
        tty: at(7)? as i32,
        tpgid: at(8)? as i32,
        cpu_ticks: (at(14)? + at(15)?) as u64,
        ended_children_ticks: (at(16)? + at(17)?) as u64,
        start_ticks: at(22)? as u64,
        resident_pages: at(24).unwrap_or(0) as u64,
        threads: at(20)? as u32,
    })
}

/// Arguments as one line, or the process name if there are none.
pub fn command_line(pid: i32) -> Option<String> {
    let mut line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    while line.last() == Some(&0) {
        line.pop();
    }
    if line.is_empty() {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        return Some(format!("[{}]", name.trim_end()));
    }
    for byte in &mut line {
        if *byte == 0 {
            *byte = b' ';
        }
    }
    Some(String::from_utf8_lossy(&line).into_owned())
}

/// Children of all threads of a process. A child that starts or ends meanwhile may be missed.
pub fn children(pid: i32) -> Vec<i32> {
    let mut all = Vec::new();
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return all;
    };
    for task in tasks.flatten() {
        match std::fs::read_to_string(task.path().join("children")) {
            Ok(text) => all.extend(numbers(&text)),
            // The kernel does not have these files: search all processes.
            Err(fault) if fault.kind() == io::ErrorKind::NotFound && task.path().exists() => {
                return children_by_search(pid);
            }
            Err(_) => {}
        }
    }
    all
}

fn children_by_search(parent: i32) -> Vec<i32> {
    let mut found = all();
    found.retain(|pid| stat(*pid).is_some_and(|stat| stat.ppid == parent));
    found
}

/// Pids of all processes.
pub fn all() -> Vec<i32> {
    numbered("/proc")
}

/// Numbers that are names in a directory of procfs: the pids of processes, or the ids of threads.
pub fn numbered(folder: impl AsRef<Path>) -> Vec<i32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|item| number(item.file_name().to_str()?))
        .collect()
}

fn number(text: &str) -> Option<i32> {
    text.parse().ok()
}

/// A handle on a process (pidfd): unlike a pid, it never refers to another process.
#[derive(Debug)]
pub struct ProcessHandle {
    /// Pid while the process lives.
    pub pid: i32,
    handle: OwnedFd,
}

impl ProcessHandle {
    /// Opens the process that has this pid now.
    pub fn open(pid: i32) -> Option<Self> {
        let handle = rustix::process::pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        Some(ProcessHandle { pid, handle })
    }

    /// Opens the process that connected to our end of a Unix socket. Kernels before 6.5 only tell its pid,
    /// which may be reused by now.
    pub fn peer(socket: impl AsFd) -> Peer {
        let Ok(credentials) = rustix::net::sockopt::socket_peercred(&socket) else {
            return Peer::Gone;
        };
        let pid = credentials.pid.as_raw_pid();
        match peer_pidfd(&socket) {
            Ok(handle) => Peer::Handle(ProcessHandle { pid, handle }),
            Err(libc::ENOPROTOOPT) => Peer::Pid(pid),
            Err(_) => Peer::Gone,
        }
    }

    /// True while the process lives. If it still lives, what was read under its pid before was about it.
    pub fn lives(&self) -> bool {
        let mut fds = [PollFd::new(&self.handle, PollFlags::IN)];
        matches!(
            rustix::event::poll(&mut fds, Some(&Timespec::default())),
            Ok(0)
        )
    }

    /// Sends a signal. False if that failed.
    pub fn signal(&self, signal: Signal) -> bool {
        rustix::process::pidfd_send_signal(&self.handle, signal).is_ok()
    }
}

/// The process that connected to a unix socket.
#[derive(Debug)]
pub enum Peer {
    /// A handle on that process.
    Handle(ProcessHandle),
    /// Pid of the process at the time it connected.
    Pid(i32),
    /// The process has ended.
    Gone,
}

/// pidfd of the process that connected (`SO_PEERPIDFD`, Linux 6.5), or `errno`. rustix has no function for it.
fn peer_pidfd(socket: impl AsFd) -> Result<OwnedFd, i32> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut handle: libc::c_int = -1;
    let mut size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes one descriptor into a large enough buffer; the descriptor is new and owned here.
    unsafe {
        let done = libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut handle).cast(),
            &mut size,
        );
        match done {
            0 if handle >= 0 => Ok(OwnedFd::from_raw_fd(handle)),
            0 => Err(libc::ESRCH),
            _ => Err(*libc::__errno_location()),
        }
    }
}

/// Waits until all processes have ended, for each at most `limit`.
pub fn wait_for_end(all: &[ProcessHandle], limit: Duration) {
    let limit = Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: limit.subsec_nanos().into(),
    };
    for process in all {
        let mut fds = [PollFd::new(&process.handle, PollFlags::IN)];
        if !matches!(rustix::event::poll(&mut fds, Some(&limit)), Ok(1)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_passed_over() {
        let line = b"42 (a) R (b) S 7 8 9 10 11 0 0 0 0 0 12 13 0 0 20 0 1 0 99 0 0";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.state, stat.ppid, stat.pgrp), (b'S', 7, 8));
        assert_eq!((stat.tty, stat.tpgid), (10, 11));
        assert_eq!((stat.cpu_ticks, stat.start_ticks), (25, 99));
    }

    #[test]
    fn one_whose_first_thread_has_ended_is_not_dead() {
        let of = |state: &str, threads: u32| {
            let line =
                format!("42 (a) {state} 7 8 9 10 11 0 0 0 0 0 12 13 0 0 20 0 {threads} 0 99 0 0");
            parse_stat(line.as_bytes()).unwrap()
        };
        assert!(of("Z", 1).is_dead() && of("X", 1).is_dead());
        assert!(!of("Z", 2).is_dead() && !of("S", 1).is_dead());
    }

    #[test]
    fn this_very_process_is_found() {
        let pid = std::process::id() as i32;
        assert_eq!(
            stat(pid).unwrap().ppid,
            std::os::unix::process::parent_id() as i32
        );
        assert!(ProcessHandle::open(pid).unwrap().lives());
    }
}
