//! The three clocks of the kernel, read directly: a keeper has no async runtime.

use rustix::time::{ClockId, clock_gettime};

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

/// True if the wall clock is synchronised over the network, as the kernel reports it; `None`: unknown.
pub fn is_synchronised() -> Option<bool> {
    // SAFETY: all zero is a valid value of this struct, and without modes the call only reads.
    let (state, time) = unsafe {
        let mut time: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&mut time), time)
    };
    (state >= 0).then_some(time.status & libc::STA_UNSYNC == 0)
}
