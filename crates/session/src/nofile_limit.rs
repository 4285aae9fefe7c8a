//! `RLIMIT_NOFILE`, the limit of open file descriptors. Most systems set a low soft limit, because some old
//! programs break beyond it. The daemon raises it, since every session takes a descriptor; programs that it
//! starts get the original limit.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limits before this process raised them.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of this process to its hard limit.
pub fn raise() {
    let before = getrlimit(Resource::Nofile);
    BEFORE.get_or_init(|| before);
    let most = Rlimit {
        current: before.maximum,
        maximum: before.maximum,
    };
    if let Err(fault) = setrlimit(Resource::Nofile, most) {
        tracing::warn!("cannot raise the limit of open files: {fault}");
    }
}

/// Restores the original limits in a program that is about to be started, or the present hard limit where
/// that is lower now.
pub fn restore(command: &mut Command) {
    let Some(before) = BEFORE.get().cloned() else {
        return;
    };
    let set_back = move || {
        let most = getrlimit(Resource::Nofile).maximum;
        let now = Rlimit {
            current: least(before.current, most),
            maximum: least(before.maximum, most),
        };
        setrlimit(Resource::Nofile, now).map_err(io::Error::from)
    };
    // SAFETY: only system calls are made between fork and exec, and nothing is allocated.
    unsafe { command.pre_exec(set_back) };
}

/// The lower of two limits; `None` is no limit.
fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}
