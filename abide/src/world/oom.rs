//! The daemon is not the first to go when memory runs out, and what it starts does not inherit that.

use std::ffi::CStr;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use abide_session::oom;

/// What programs are to have that this process starts.
static GIVEN: OnceLock<Option<&'static CStr>> = OnceLock::new();

/// Makes this process one of the last to go, where that is allowed.
pub fn step_back() {
    GIVEN.get_or_init(oom::step_back);
}

/// Lets a program that is about to be started have what it would have had without this.
pub fn as_before(command: &mut Command) {
    let Some(score) = GIVEN.get().copied().flatten() else {
        return;
    };
    let set_back = move || {
        set_back(score);
        Ok(())
    };
    // SAFETY: only system calls are made between fork and exec, and nothing is allocated.
    unsafe { command.pre_exec(set_back) };
}

/// Sets what this process has, which is about to become another program.
fn set_back(score: &CStr) {
    if oom::set(score) {
        return;
    }
    // What is said of a process that nobody may look into is root's, and a plain user may not change it.
    let seen = |behavior| set_dumpable_behavior(behavior).is_ok();
    if seen(DumpableBehavior::Dumpable) {
        oom::set(score);
        seen(DumpableBehavior::NotDumpable);
    }
}
