//! Limits and defaults of the engine. Limits of one module stand in that module.

use crate::time::Millis;

/// Calls waiting at once.
pub const WAITS: usize = 16_384;
/// Sessions whose leader runs at once.
pub const RUNNING_SESSIONS: usize = 16_384;
/// Sessions known at once, ended ones included. Retention keeps far below it.
pub const SESSIONS: usize = 262_144;
/// Ended sessions that are kept at most, however young and small they are.
pub const KEPT_SESSIONS: usize = 98_304;
/// Closed questions remembered, so that a late answer is told who was first.
pub const CLOSED_QUESTIONS: usize = 1_024;
/// Idle limit of `execute_command` and `abide run` if none is given.
pub const IDLE_DEFAULT: Millis = Millis::from_secs(60);
/// A call that can be answered with a question asks so long before its client's limit, if the command is
/// quiet then: enough for the keeper to say when the last output came.
pub const ASK_BEFORE_CUT: Millis = Millis::from_secs(2);
/// Inactivity after which a terminal session is closed, where none is given.
pub const INACTIVITY_DEFAULT: Millis = Millis::from_secs(300);
/// Hard limit of `shell` where none is given.
pub const DEADLINE_DEFAULT: Millis = Millis::from_secs(100);
/// Time after the deadline at which the daemon ends a session whose keeper does not answer.
pub const FORCE_AFTER_DEADLINE: Millis = Millis(500);
/// Time after a kill at which the daemon ends a session whose keeper does not answer.
pub const FORCE_AFTER_KILL: Millis = Millis::from_secs(1);
/// Time until the daemon tries that again.
pub const FORCE_AGAIN: Millis = Millis::from_secs(5);
/// Timers that have not ended, of all agents.
pub const TIMERS: usize = 4_000_000;
/// Agents that own timers or messages.
pub const AGENTS: usize = 65_536;
/// Ended timers remembered here; older ones are in the database.
pub const ENDED_TIMERS: usize = 4_096;
/// Timers that complete in one turn; the rest of a crowd waits for the next, so that calls get
/// their turn too.
pub const DUE_AT_ONCE: usize = 512;
/// Timers made by one call.
pub const TIMERS_AT_ONCE: usize = 10_000;
/// Timers in one page of a list.
pub const TIMERS_LISTED: usize = 1_000;
/// Ids listed for a caller that named an unknown one.
pub const IDS_LISTED: usize = 20;
/// Messages handed out at once.
pub const MESSAGES_AT_ONCE: usize = 100;
/// After a failed commit, so long until what is due is tried again.
pub const COMMIT_RETRY: Millis = Millis::from_secs(1);
/// After a start, so long those who waited for a session before may take to come back for how it
/// ended; then its owner is told by a message.
pub const TAKE_UP: Millis = Millis::from_secs(2);
/// After a conversation's last connection ended, or the daemon started, so long its client may take to
/// connect again; then another conversation of the agent may get its messages.
pub const RECONNECT: Millis = Millis::from_secs(5);
/// So long a message is kept for a conversation that is closed and that a waker can resume.
pub const RESUME: Millis = Millis::from_secs(24 * 3_600);
/// Maximum drift between the calendar and the machine's clock before the anchor is moved.
pub const CLOCK_DISAGREEMENT: Millis = Millis::from_secs(1);
