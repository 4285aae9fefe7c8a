//! What touches the system: clocks, disk, processes.

pub mod log;
