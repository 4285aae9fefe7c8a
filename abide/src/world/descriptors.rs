//! How many descriptors a process may have open at once.
//!
//! Most systems let a program have few unless it asks, because some old ones break beyond. The daemon
//! asks: every session takes one. What it starts gets back the number it would have had without abide.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What held before this process asked for more.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Lets this process have as many as it is allowed to.
pub fn as_many_as_allowed() {
    let before = getrlimit(Resource::Nofile);
    BEFORE.get_or_init(|| before);
    let most = Rlimit {
        current: before.maximum,
        maximum: before.maximum,
    };
    if let Err(fault) = setrlimit(Resource::Nofile, most) {
        tracing::warn!("no more descriptors can be had: {fault}");
    }
}

/// Lets a program that is about to be started have as many as this process had in the beginning.
pub fn as_before(command: &mut Command) {
    let Some(before) = BEFORE.get().cloned() else {
        return;
    };
    let set_back = move || setrlimit(Resource::Nofile, before).map_err(io::Error::from);
    // SAFETY: only one system call is made between fork and exec, and nothing is allocated.
    unsafe { command.pre_exec(set_back) };
}
