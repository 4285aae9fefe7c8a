//! Every limit has a name, and all of them are here.

use crate::time::Millis;

/// Calls waiting at once.
pub const WAITS: usize = 16_384;
/// Sessions whose leader runs at once.
pub const RUNNING_SESSIONS: usize = 16_384;
/// Sessions known at once, ended ones included. Retention keeps far below it.
pub const SESSIONS: usize = 262_144;
/// Closed questions remembered, so that a late answer is told who was first.
pub const CLOSED_QUESTIONS: usize = 1_024;
/// Idle limit of `execute_command` where none is given.
pub const IDLE_DEFAULT: Millis = Millis::from_secs(60);
/// Hard limit of `shell` where none is given.
pub const DEADLINE_DEFAULT: Millis = Millis::from_secs(100);
