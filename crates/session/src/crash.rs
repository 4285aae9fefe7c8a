//! Places where a test may have the process die, so that what is left behind can be examined. A
//! place that was not asked for costs one comparison.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

struct Wish {
    name: String,
    countdown: AtomicU64,
}

static WISH: OnceLock<Option<Wish>> = OnceLock::new();

/// Dies here, as if by `kill -9`, when `ABIDE_CRASH_AT` says `name` or `name:n` and this is the
/// n-th time.
pub fn crash_point(name: &str) {
    let Some(wish) = WISH.get_or_init(read_wish) else {
        return;
    };
    if wish.name == name && wish.countdown.fetch_sub(1, Ordering::Relaxed) == 1 {
        // SAFETY: signals this very process and touches no memory.
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
