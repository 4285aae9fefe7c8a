//! Whom the kernel ends first when memory runs out: rather a command than those who keep it.

use std::ffi::{CStr, CString};
use std::fs;

use rustix::fs::{Mode, OFlags};

/// Where a process's share in that is set.
const FILE: &CStr = c"/proc/self/oom_score_adj";
/// The daemon and its keepers: late, but not never.
const KEPT: i32 = -500;

/// Makes this process one of the last, where that is allowed. What commands are to have instead, where
/// they would not have it by themselves. Once in a process's life.
pub fn step_back() -> Option<&'static CStr> {
    let before: i32 = fs::read_to_string(FILE.to_str().ok()?)
        .ok()?
        .trim()
        .parse()
        .ok()?;
    // Who may not go below nought may often go back to it.
    let lower = [KEPT, 0]
        .into_iter()
        .find(|wanted| before > *wanted && set(&score(*wanted)));
    let now = lower.unwrap_or(before);
    let wanted = before.max(0);
    (now != wanted).then(|| &*Box::leak(score(wanted).into_boxed_c_str()))
}

fn score(of: i32) -> CString {
    CString::new(of.to_string()).unwrap_or_default()
}

/// Sets what this process has. Makes system calls of its own and nothing else.
pub fn set(score: &CStr) -> bool {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(FILE, flags, Mode::empty()) else {
        return false;
    };
    let score = score.to_bytes();
    rustix::io::write(file, score) == Ok(score.len())
}
