//! Dispositions and mask of signals in keepers and the fork server, which receive signals by signalfd only.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

/// Ignores a signal.
pub fn ignore(signal: libc::c_int) {
    set_disposition(signal, libc::SIG_IGN);
}

/// Resets a signal to its default action.
pub fn reset(signal: libc::c_int) {
    set_disposition(signal, libc::SIG_DFL);
}

fn set_disposition(signal: libc::c_int, disposition: libc::sighandler_t) {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(signal, disposition) };
}

/// Resets every signal to its default action, which the command will inherit, and blocks all that can be
/// blocked, so that none acts on the keeper.
pub fn reset_and_block_all() {
    // SAFETY: no handler is installed; the structures are initialised before they are used.
    unsafe {
        // A direct system call, because libc refuses to change two of the signals. All zeroes is the default action,
        // no flags and an empty mask.
        let default = [0_u64; 4];
        let nothing = std::ptr::null::<u8>();
        for signal in 1..=64_i64 {
            libc::syscall(libc::SYS_rt_sigaction, signal, &default, nothing, 8_usize);
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        action.sa_flags = libc::SA_NOCLDSTOP;
        libc::sigaction(libc::SIGCHLD, &action, std::ptr::null_mut());
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
}

/// Unblocks all signals, for a program that is executed next. Makes a system call and nothing else.
pub fn unblock_all() {
    // SAFETY: the set is initialised before it is used.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// Blocks these signals and returns a signalfd on which they are read.
pub fn open_signalfd(signals: &[libc::c_int]) -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised before it is used; the descriptor is new and owned here.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        match libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Reads the pending signals of a signalfd. True if `wanted` is among them.
pub fn read_signalfd(signals: impl AsFd, wanted: libc::c_int) -> bool {
    let mut found = false;
    let mut info = [0; size_of::<libc::signalfd_siginfo>()];
    while rustix::io::read(&signals, &mut info).is_ok() {
        // The first four bytes are the number of the signal.
        found |= info[..4] == wanted.to_ne_bytes();
    }
    found
}
