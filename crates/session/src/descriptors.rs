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

/// Lets a program that is about to be started have as many as this process had in the beginning, or as
/// many as there may be now, where somebody has taken some away.
pub fn as_before(command: &mut Command) {
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
