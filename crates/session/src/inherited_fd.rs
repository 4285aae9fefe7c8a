//! File descriptors under fixed numbers, by which a process hands pipes and sockets to a program that it
//! starts.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Numbers that [`take`] has returned, so that no descriptor has two owners.
static TAKEN: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());

/// Passes a descriptor under this number to the program that `command` starts.
pub fn pass(command: &mut Command, fd: OwnedFd, number: RawFd) {
    pass_before_exec(command, fd, number, false);
}

/// Passes a descriptor as [`pass`] does, and starts the program in a new session (`setsid`).
pub fn pass_in_new_session(command: &mut Command, fd: OwnedFd, number: RawFd) {
    pass_before_exec(command, fd, number, true);
}

fn pass_before_exec(command: &mut Command, fd: OwnedFd, number: RawFd, new_session: bool) {
    // SAFETY: only setsid, dup2 and fcntl run between fork and exec; all are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            if new_session {
                libc::setsid();
            }
            // dup2 onto itself would leave close-on-exec set.
            let done = match fd.as_raw_fd() == number {
                true => libc::fcntl(number, libc::F_SETFD, 0),
                false => libc::dup2(fd.as_raw_fd(), number),
            };
            match done {
                ..0 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        });
    }
}

/// Closes all descriptors from this number on, in a process that uses none of them afterwards: a fork that keeps
/// only what it needs.
pub(crate) fn close_from(first: RawFd) {
    // SAFETY: a fork of the fork server has one thread, and its caller uses none of these descriptors again.
    unsafe { libc::syscall(libc::SYS_close_range, first as u32, u32::MAX, 0) };
}

/// Takes the descriptor that the parent process has passed under this number. `None`: it is not open, or was
/// taken before. Must be called before this process opens files, which could get the same number.
pub fn take(number: RawFd) -> Option<OwnedFd> {
    let is_standard = number <= 2;
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if is_standard || !taken.insert(number) {
        return None;
    }
    // SAFETY: an inherited descriptor has no owner in this process until it is taken, which happens once.
    unsafe {
        let is_open = libc::fcntl(number, libc::F_GETFD) >= 0;
        is_open.then(|| OwnedFd::from_raw_fd(number))
    }
}
