//! Membership of one daemon in a fleet: many machines that share one database.
//!
//! Like the engine, nothing here does I/O or reads a clock. [`Member::step`] takes the time and an [`Event`] and
//! returns [`Effect`]s. The daemon sends the statements, at most one at a time, and passes the answers back.
//!
//! ```text
//!            Join                      own row is free              own row is mine
//!  Outside ───────► Joining (look) ─────────────────► Entering ───────────────► Joined
//!     ▲                │    ▲                                                  │   │
//!     │                │    └──── own row is gone, or another process has it ──┘   │ Leave
//!     │                └─ another process beats under my id: TakeNewIdentity       ▼
//!     └──────────────────────────────────────────────────────────────────────── Leaving
//! ```
//!
//! - **Heartbeat.** A joined daemon raises a number in its own row, every second while something it owns is due soon,
//!   else every five. The same statement reads the rows of the next three machines in the ring of ids, so one statement
//!   is all that an idle daemon costs. Every number is sent once: a database that already has it under the daemon's
//!   claim has it from a clone.
//! - **Death** is an observation on the boot clock of the observer ([`watch`]): a heartbeat that did not rise over
//!   three answered looks and for [`SILENCE_FAST`] or [`SILENCE_SLOW`]. A look that fails proves nothing, and no database clock or calendar is asked. A machine that
//!   begins to beat fast notifies its observers, where the database can notify; else they see it at their next look.
//! - **Adoption.** A shard is the timers, messages and questions that were made on one machine. A row names its owner
//!   and an epoch. The first observer sets itself as the owner with a higher epoch, by compare-and-set. Every batch
//!   locks that row and compares owner and epoch, so a former owner writes nothing.
//! - **One rule repairs doubt**: a row that names this daemon as owner, but not with the claim it holds, is claimed
//!   again with a higher epoch. It covers restarts, hand-backs, lost answers and databases that lost commits.
//! - **Hand-back.** A machine whose shard was adopted asks the owner for it: at once after a start or a
//!   pause, else once its connection is stable.
//! - **Fleet time** ([`clock`]) is counted on boot clocks. The clock of the database only starts it.
//! - **A database that lost commits** (a promoted replica, a restored backup) shows another timeline. The first daemon
//!   that sees it records the time in the fleet row before anything is claimed. Messages about timers due before that
//!   time are marked as repeated, because another machine may have told them in what was lost.

pub mod clock;
pub mod effect;
pub mod member;
pub mod rights;
pub mod row;
pub mod session;
mod shards;
pub mod version;
pub mod watch;

pub use clock::FleetClock;
pub use effect::{Answer, Beat, Effect, Event, Scope, Statement};
pub use member::{Identity, Member};
pub use row::{
    Claim, DatabaseClock, FleetRow, Look, MachineId, MachineRow, Pace, ShardId, ShardRow, Standing,
};

use crate::time::Millis;

/// Time between heartbeats while something is due soon.
pub const HEARTBEAT_FAST: Millis = Millis(1_000);
/// Time between heartbeats otherwise.
pub const HEARTBEAT_SLOW: Millis = Millis(5_000);
/// Time that a fast heartbeat must stand still until its machine counts as dead.
pub const SILENCE_FAST: Millis = Millis(3_000);
/// Time that a slow heartbeat must stand still until its machine counts as dead.
pub const SILENCE_SLOW: Millis = Millis(12_500);
/// Answered looks that must have seen the same heartbeat.
pub const SILENT_LOOKS: u32 = 3;
/// Time before the next deadline at which a daemon begins to beat fast.
pub const DUE_SOON: Millis = Millis(15_000);
/// Living machines that each machine looks at.
pub const NEIGHBOURS: usize = 3;
/// Maximum number of rows in a look that is not wide. Dead neighbours are part of it, so that their return is noticed.
pub const LOOK_ROWS_MAX: usize = 16;
/// Time between looks at all machines.
pub const WIDE_LOOK_EVERY: Millis = Millis(60_000);
/// Time for which a machine that was fenced though it ran publishes the slow pace.
pub const SLOW_AFTER_FENCE: Millis = Millis(3_600_000);
/// Time without a failed look after which such a machine asks for its shard, unless it is configured.
pub const RETURN_AFTER_DEFAULT: Millis = Millis(60_000);
/// Time after which a request for a hand-back is repeated.
pub const REQUEST_AGAIN: Millis = Millis(5_000);
/// Deadline of a statement of the membership.
pub const STATEMENT_DEADLINE: Millis = Millis(5_000);
/// Deadline of a heartbeat that promises the next one within a second, unless three have failed.
pub const FAST_DEADLINE: Millis = Millis(1_500);
/// Time that other machines have to reconnect after a look failed here, before their silence counts.
pub const RECONNECT_AFTER_FAULT: Millis = Millis(STATEMENT_DEADLINE.0 + LOOK_RETRY_MAX.0);
/// Longest time until a failed look is repeated.
pub const LOOK_RETRY_MAX: Millis = Millis(5_000);
/// Time that an adopter waits after a deadline. The times of two machines differ by less, so nothing is early.
pub const ADOPTED_GRACE: Millis = crate::limit::CLOCK_DISAGREEMENT;
