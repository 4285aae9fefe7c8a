//! `oom_score_adj` of the daemon and of keepers: when memory runs out, the kernel should kill a command
//! before the processes that look after it.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

const FILE: &CStr = c"/proc/self/oom_score_adj";
/// `oom_score_adj` of the daemon and its keepers: killed late, but not never.
const PROTECTED: i32 = -500;

/// `oom_score_adj` of programs that this process starts, if it differs from this process's own.
static FOR_CHILDREN: OnceLock<Option<&'static CStr>> = OnceLock::new();

/// Lowers `oom_score_adj` of this process, if the kernel allows it. Returns the value that commands must be
/// given, if they would not inherit it. To be called once in the life of a process.
pub fn lower_score() -> Option<&'static CStr> {
    let before: i32 = fs::read_to_string(FILE.to_str().ok()?)
        .ok()?
        .trim()
        .parse()
        .ok()?;
    // A process that may not go below 0 may often return to 0.
    let lower = [PROTECTED, 0]
        .into_iter()
        .find(|wanted| before > *wanted && set_score(&score(*wanted)));
    let now = lower.unwrap_or(before);
    let wanted = before.max(0);
    (now != wanted).then(|| &*Box::leak(score(wanted).into_boxed_c_str()))
}

/// Lowers `oom_score_adj` of this process and records the value for [`restore_score`].
pub fn protect_this_process() {
    FOR_CHILDREN.get_or_init(lower_score);
}

/// Gives a program that is about to be started the `oom_score_adj` that it would have had without
/// [`protect_this_process`].
pub fn restore_score(command: &mut Command) {
    let Some(score) = FOR_CHILDREN.get().copied().flatten() else {
        return;
    };
    let restore = move || {
        set_score_before_exec(score);
        Ok(())
    };
    // SAFETY: only system calls are made between fork and exec, and nothing is allocated.
    unsafe { command.pre_exec(restore) };
}

fn set_score_before_exec(score: &CStr) {
    if set_score(score) {
        return;
    }
    // The files in /proc of a process that is not dumpable belong to root.
    let set_dumpable = |behavior| set_dumpable_behavior(behavior).is_ok();
    if set_dumpable(DumpableBehavior::Dumpable) {
        set_score(score);
        set_dumpable(DumpableBehavior::NotDumpable);
    }
}

fn score(value: i32) -> CString {
    CString::new(value.to_string()).unwrap_or_default()
}

/// Sets `oom_score_adj` of this process. Makes system calls only, so that it can be called between fork and
/// exec.
pub fn set_score(score: &CStr) -> bool {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(FILE, flags, Mode::empty()) else {
        return false;
    };
    let score = score.to_bytes();
    rustix::io::write(file, score) == Ok(score.len())
}
