//! The three clocks of the kernel, read directly: a keeper has no async runtime.

/// Milliseconds of `CLOCK_MONOTONIC`, which stops while the machine is suspended.
pub fn mono_ms() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Milliseconds of `CLOCK_BOOTTIME`, which includes suspend.
pub fn boot_ms() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// Milliseconds since the Unix epoch.
pub fn wall_ms() -> u64 {
    read(libc::CLOCK_REALTIME)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut at = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `at` is valid for writing and lives across the call.
    unsafe { libc::clock_gettime(clock, &mut at) };
    (at.tv_sec as u64) * 1_000 + (at.tv_nsec as u64) / 1_000_000
}
