//! The mark that every process of a session carries: its hard limit on file locks (`RLIMIT_LOCKS`).
//!
//! Linux has not enforced this limit since version 2.4, so its value changes nothing for a program. It is inherited
//! by every descendant, whatever it executes, clears from its environment or gets as its parent, and a process
//! without `CAP_SYS_RESOURCE` can lower a hard limit but never raise it. So a process without the mark was not started
//! by a command (unless that ran as root), and one with it was.

use std::sync::LazyLock;

use abide_core::SessionId;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The upper bits of a mark; the lower ones are those of the session's id.
const PREFIX: u64 = 0x61_6269 << ID_BITS;
const ID_BITS: u32 = 40;

/// Meaning of a process's hard limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The process was not started by a session.
    None,
    /// The process was started by this session.
    Session(SessionId),
    /// The process was started by a session whose id is lost, because the limit was lowered further.
    Altered,
}

/// Hard limit of this process, read on first use, because a command could lower it later.
static OWN: LazyLock<u64> = LazyLock::new(|| {
    let limits = std::fs::read_to_string("/proc/self/limits");
    limits.ok().and_then(|text| hard(&text)).unwrap_or(u64::MAX)
});

/// Reads and remembers the limit of this process, with which the limits of others are compared.
pub fn note_own() {
    LazyLock::force(&OWN);
}

/// Hard limit of this process; `u64::MAX`: unlimited. Every command that this process or its children start has a
/// lower one.
pub fn own_limit() -> u64 {
    *OWN
}

/// Hard limit of a process; `u64::MAX`: unlimited. `None`: there is no such process.
pub fn limit_of(pid: i32) -> Option<u64> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    hard(&limits)
}

/// Mark of a process. `None`: there is no such process.
pub fn of(pid: i32) -> Option<Mark> {
    Some(read(limit_of(pid)?, *OWN))
}

/// Mark of a process, from the text of `/proc/PID/limits`.
pub fn in_text(limits: &str) -> Option<Mark> {
    Some(read(hard(limits)?, *OWN))
}

fn read(hard: u64, own: u64) -> Mark {
    if hard >> ID_BITS == PREFIX >> ID_BITS {
        Mark::Session(SessionId::from_bits(hard))
    } else if hard < own {
        Mark::Altered
    } else {
        Mark::None
    }
}

/// Hard limit on file locks; `u64::MAX`: unlimited.
fn hard(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max file locks"))?;
    match line.split_ascii_whitespace().nth(1)? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

/// Hard limit that marks the processes of a session.
pub fn value(session: &str) -> u64 {
    let bits = session.parse().map_or(0, |id: SessionId| id.0.bits());
    PREFIX | bits
}

/// Marks this process and everything that it starts. Makes only system calls, because it runs between fork and exec.
pub(super) fn set(value: u64) {
    // If the limit is already lower, one less still distinguishes a command from the process that started the
    // daemon.
    let hard = match getrlimit(Resource::Locks).maximum {
        Some(now) if now < value => now.saturating_sub(1),
        _ => value,
    };
    let marked = Rlimit {
        current: Some(hard),
        maximum: Some(hard),
    };
    let _ = setrlimit(Resource::Locks, marked);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_of_a_session_names_it_and_a_lowered_one_is_still_a_mark() {
        let id: SessionId = "session_k3v9x2bc".parse().unwrap();
        let marked = value("session_k3v9x2bc");
        assert_eq!(read(marked, u64::MAX), Mark::Session(id));
        // A daemon that was itself started by a command.
        assert_eq!(read(marked, marked), Mark::Session(id));
        assert_eq!(read(5, u64::MAX), Mark::Altered);
        assert_eq!(read(9, 10), Mark::Altered);
        assert_eq!(read(10, 10), Mark::None);
        assert_eq!(read(u64::MAX, u64::MAX), Mark::None);
        assert_eq!(read(u64::MAX, marked), Mark::None);
    }

    #[test]
    fn hard_limit_is_the_second_number_of_its_line() {
        let text = "Limit  Soft Limit  Hard Limit  Units\n\
                    Max address space         1            2            bytes\n\
                    Max file locks            3            unlimited    locks\n";
        assert_eq!(hard(text), Some(u64::MAX));
        assert_eq!(hard(&text.replace("unlimited", "17")), Some(17));
        assert_eq!(hard("Max address space 1 2 bytes\n"), None);
    }
}
