//! abide: runs commands, keeps terminal sessions and waits, on behalf of AI agents.
#![forbid(unsafe_code)]

pub mod door;
