//! Settings of the daemon's memory allocator.

/// Blocks of so many bytes are taken and given back one by one.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 4 << 20;

/// Keeps large blocks out of the heap. Left to itself, the allocator puts ever larger ones into it once it
/// has seen one go, and tables that grow leave holes there that nobody fills: with a million timers a
/// tenth of the memory.
#[cfg(target_env = "gnu")]
pub fn keep_large_blocks_apart() {
    // SAFETY: sets a number of the allocator's, before there is a second thread.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
}

/// Other allocators have habits of their own.
#[cfg(not(target_env = "gnu"))]
pub fn keep_large_blocks_apart() {}
