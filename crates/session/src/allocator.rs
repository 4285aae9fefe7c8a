//! Settings of the memory allocator of this process.

/// Size in bytes from which on a block is allocated with `mmap` and returned to the kernel when it is freed.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD: libc::c_int = 4 << 20;

/// Keeps large blocks out of the heap. By default glibc raises this threshold when a large block is freed, so
/// that growing tables move into the heap and leave holes there that are never reused: with a million timers
/// a tenth of the memory.
#[cfg(target_env = "gnu")]
pub fn set_mmap_threshold() {
    // SAFETY: sets a parameter of the allocator, which locks itself while it does so.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD) };
}

/// Does nothing: other allocators have no such setting.
#[cfg(not(target_env = "gnu"))]
pub fn set_mmap_threshold() {}
