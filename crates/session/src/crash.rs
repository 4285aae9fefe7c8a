//! Crash points: named places at which a test can have the process killed, to examine what is left on disk.
//! A crash point that was not requested costs one comparison.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

struct CrashRequest {
    name: String,
    countdown: AtomicU64,
}

static REQUEST: OnceLock<Option<CrashRequest>> = OnceLock::new();

/// Kills this process with SIGKILL if `ABIDE_CRASH_AT` is `name` or `name:n` and this is the n-th call.
pub fn crash_point(name: &str) {
    let Some(request) = REQUEST.get_or_init(read_request) else {
        return;
    };
    if request.name == name && request.countdown.fetch_sub(1, Ordering::Relaxed) == 1 {
        let own = rustix::process::getpid();
        let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
    }
}

fn read_request() -> Option<CrashRequest> {
    let text = std::env::var("ABIDE_CRASH_AT").ok()?;
    let (name, count) = match text.rsplit_once(':') {
        Some((name, count)) => (name, count.parse().ok()?),
        None => (text.as_str(), 1),
    };
    Some(CrashRequest {
        name: name.to_owned(),
        countdown: AtomicU64::new(count),
    })
}
