//! abide runs commands, keeps terminal sessions and waits, on behalf of AI agents.

pub mod config;
pub mod daemon;
pub mod door;
pub mod keeper;
pub mod world;
