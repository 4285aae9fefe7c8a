//! What touches the system: clocks, disk, processes.

pub mod facts;
pub mod log;
