//! The three clocks of the kernel, read directly, and pauses: a keeper has no async runtime.

use std::time::Duration;

use rustix::event::PollFd;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Pause after a `poll` that failed for lack of memory.
pub const POLL_RETRY: Duration = Duration::from_millis(10);

/// Milliseconds of `CLOCK_MONOTONIC`, which stops while the machine is suspended.
pub fn mono_ms() -> u64 {
    read(ClockId::Monotonic)
}

/// Milliseconds of `CLOCK_BOOTTIME`, which includes suspend.
pub fn boot_ms() -> u64 {
    read(ClockId::Boottime)
}

/// Milliseconds since the Unix epoch.
pub fn wall_ms() -> u64 {
    read(ClockId::Realtime)
}

fn read(clock: ClockId) -> u64 {
    let at = clock_gettime(clock);
    (at.tv_sec as u64) * 1_000 + (at.tv_nsec as u64) / 1_000_000
}

/// Sleeps for less than a second.
pub fn pause(time: Duration) {
    let time = Timespec {
        tv_sec: 0,
        tv_nsec: time.subsec_nanos().into(),
    };
    let mut nothing: [PollFd<'_>; 0] = [];
    let _ = rustix::event::poll(&mut nothing, Some(&time));
}

/// True if the wall clock is synchronised over the network, as the kernel reports it; `None`: unknown.
pub fn is_synchronised() -> Option<bool> {
    // SAFETY: all zero is a valid value of this struct, and without modes the call only reads.
    let (state, time) = unsafe {
        let mut time: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&mut time), time)
    };
    (state >= 0).then_some(time.status & libc::STA_UNSYNC == 0)
}
