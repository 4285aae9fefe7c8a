//! Crash points: named places at which a test can have the process killed, to examine what is left on disk.
//! A crash point that was not requested costs one comparison.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

struct Wish {
    name: String,
    countdown: AtomicU64,
}

static WISH: OnceLock<Option<Wish>> = OnceLock::new();

/// Kills this process with SIGKILL if `ABIDE_CRASH_AT` is `name` or `name:n` and this is the n-th call.
pub fn crash_point(name: &str) {
    let Some(wish) = WISH.get_or_init(read_wish) else {
        return;
    };
    if wish.name == name && wish.countdown.fetch_sub(1, Ordering::Relaxed) == 1 {
        // SAFETY: sends a signal to this process and touches no memory.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}

fn read_wish() -> Option<Wish> {
    let text = std::env::var("ABIDE_CRASH_AT").ok()?;
    let (name, count) = match text.rsplit_once(':') {
        Some((name, count)) => (name, count.parse().ok()?),
        None => (text.as_str(), 1),
    };
    Some(Wish {
        name: name.to_owned(),
        countdown: AtomicU64::new(count),
    })
}
