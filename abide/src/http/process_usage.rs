//! CPU time and memory of this process.

use rustix::process::Pid;

use abide_session::proc;

/// CPU time and memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessUsage {
    /// Resident memory, in bytes.
    pub memory: u64,
    /// CPU time, in seconds.
    pub cpu_seconds: f64,
}

/// Reads the CPU time and memory of this process.
pub fn process_usage() -> ProcessUsage {
    let me = rustix::process::getpid();
    proc::stat(Pid::as_raw(Some(me))).map_or_else(ProcessUsage::default, |stat| ProcessUsage {
        memory: stat.resident_pages * abide_session::facts::page_size(),
        cpu_seconds: stat.cpu_ticks as f64 / abide_session::facts::ticks_per_second() as f64,
    })
}
