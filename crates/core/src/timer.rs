//! Durable countdowns. A timer has its own total duration; a call that stands by on it can leave at any time without
//! changing it.
//!
//! The entry of a timer is small, because there may be millions: texts of agents go to the record and are read from
//! the database when needed.

mod anchor;
mod request;
mod standby_calls;
mod table;

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::id::{Agent, Conversation, Key, SessionId, TimerId};
use crate::time::{Millis, Steady, Wall};
use crate::words::words;

pub use anchor::Anchor;
pub use request::{Act, Create, Refusal, Request, Why};
pub(crate) use standby_calls::{Standby, StandbyCalls};
pub(crate) use table::{Due, Found, Origin, Slot, Timers, not_allowed};

words! {
    /// Purpose of a timer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kind {
        /// The agent waits for something that should become true soon, and stands by.
        Waiting = "waiting",
        /// The agent has a task for later, and is woken for it.
        Mission = "mission",
    }
}

/// Mode of a running timer: a call waits for it, or its completion is a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// The agent waits, or may wait again.
    Foreground,
    /// The agent has given up waiting; the timer continues and its completion is a message.
    Background,
}

/// State of a timer as callers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The timer counts down.
    Running(WaitMode),
    /// The timer is paused: its remaining time does not change.
    Paused {
        /// Wait mode after the pause.
        back_to: WaitMode,
        /// Time at which the timer resumes by itself.
        until: Steady,
    },
    /// The timer has completed. Final.
    Completed {
        /// Cause of the completion.
        by: CompletedBy,
        /// Delay after the due time.
        late: Millis,
    },
    /// The agent or a person stopped the timer. Final.
    Stopped,
}

impl Status {
    /// The word used in results and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Status::Running(WaitMode::Foreground) => "running",
            Status::Running(WaitMode::Background) => "running_background",
            Status::Paused { .. } => "paused",
            Status::Completed { .. } => "completed",
            Status::Stopped => "stopped",
        }
    }

    /// Returns whether the state is final.
    pub const fn is_final(self) -> bool {
        match self {
            Status::Completed { .. } | Status::Stopped => true,
            Status::Running(_) | Status::Paused { .. } => false,
        }
    }
}

words! {
    /// Cause of the completion of a timer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CompletedBy {
        /// The total duration has elapsed.
        Time = "time",
        /// The condition holds.
        Condition = "condition",
        /// The condition can no longer hold.
        Impossible = "impossible",
    }
}

/// Observation of the condition of a timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Text for the agent: what was observed, or the reason why the condition can no longer hold.
    pub text: Arc<str>,
    /// Sessions whose end decided the condition.
    pub ended_sessions: Vec<SessionId>,
}

impl Observation {
    /// Observation that no session's end decided.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Observation {
            text: text.into(),
            ended_sessions: Vec::new(),
        }
    }
}

/// Condition of a timer, with the context in which it is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Until {
    /// Condition in the form that the interface wrote.
    pub condition: Arc<str>,
    /// Owner of the timer.
    pub agent: Agent,
    /// Conversation that created the timer.
    pub conversation: Option<Conversation>,
    /// Sessions that ended after this time may be the reason why the condition can no longer hold: the creation of the
    /// timer, or earlier if its owner has not been told of a failed session.
    pub since: Wall,
}

/// Snapshot of a timer. `remaining` plus the elapsed time is always `total`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timer {
    /// Id.
    pub id: TimerId,
    /// Number of the timer in the records.
    pub number: u64,
    /// Owner of the timer.
    pub agent: Agent,
    /// Conversation that created the timer.
    pub conversation: Option<Conversation>,
    /// The agent asked to be woken by this timer: it is a mission, or a wait that was cancelled into the background.
    pub wakes: bool,
    /// Purpose.
    pub kind: Kind,
    /// State.
    pub status: Status,
    /// Total duration.
    pub total: Millis,
    /// Remaining time.
    pub remaining: Millis,
    /// Time at which the agent or a person last asked for the timer.
    pub checked: Wall,
    /// Time at which a paused timer resumes by itself.
    pub pause_until: Option<Wall>,
    /// The timer has a condition and can end early.
    pub conditional: bool,
}

/// Snapshot of a timer for an observer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedTimer {
    /// State of the timer.
    pub timer: Timer,
    /// A call stands by on the timer.
    pub standing_by: bool,
}

impl Timer {
    /// Elapsed part of the total duration.
    pub fn elapsed(&self) -> Millis {
        self.total.saturating_sub(self.remaining)
    }
}

/// Durable fact about a timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The timer was created.
    Created(Created),
    /// The timer was paused, resumed or continued with another remaining time.
    Changed(Changed),
    /// The timer has ended.
    Ended(Ended),
    /// The call with this idempotency key has changed the timer.
    #[expect(missing_docs, reason = "a field is named as what it is")]
    Acted { number: u64, key: Key },
    /// The anchor between timers and clocks has changed.
    Anchored(Anchor),
}

/// Record of a new timer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "a field is named as what it is")]
pub struct Created {
    pub number: u64,
    pub id: TimerId,
    pub agent: Agent,
    pub conversation: Option<Conversation>,
    pub kind: Kind,
    /// Reason of the wait, or text of the mission.
    pub purpose: Arc<str>,
    /// Condition that completes the timer early, in the form that the interface wrote.
    pub until: Option<Arc<str>>,
    pub key: Option<Key>,
    pub total: Millis,
    /// Time at which the timer is due.
    pub due: Steady,
    /// Standby of its first call.
    pub standby: Option<Millis>,
    pub at: Wall,
}

/// Record of a change of a timer that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "a field is named as what it is")]
pub struct Changed {
    pub number: u64,
    pub state: State,
    /// Standby of the call that changed the timer.
    pub standby: Option<Millis>,
    pub change: Change,
    /// Reason given with cancel, pause or resume.
    pub reason: Option<Arc<str>>,
    pub at: Wall,
    /// Time at which the timer was last asked for.
    pub checked: Wall,
}

/// Record of the end of a timer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "a field is named as what it is")]
pub struct Ended {
    pub number: u64,
    pub id: TimerId,
    /// `Completed` or `Stopped`.
    pub status: Status,
    pub total: Millis,
    pub remaining: Millis,
    pub stop_reason: Option<Arc<str>>,
    /// Last observation of the condition.
    pub seen: Option<Observation>,
    /// Time at which the timer was last asked for.
    pub checked: Wall,
    pub at: Wall,
}

words! {
    /// Change of a timer that has not ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Change {
        /// A call stood by again, perhaps with another remaining time.
        Continued = "continued",
        /// Calls stopped waiting for the timer, which runs in the background.
        Cancelled = "cancelled",
        /// Paused by a call.
        Paused = "paused",
        /// Resumed by a call.
        Resumed = "resumed",
        /// Resumed because the pause was over.
        ResumedByItself = "resumed_by_itself",
    }
}

/// Recorded state of a timer that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Total duration.
    pub total: Millis,
    /// Countdown, which may be paused.
    pub countdown: Countdown,
    /// Wait mode while it runs, or after the pause.
    pub wait_mode: WaitMode,
}

/// Countdown of a timer that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Countdown {
    /// The timer counts down.
    Running {
        /// Time at which the timer is due.
        due: Steady,
    },
    /// The timer is paused.
    Paused {
        /// Remaining time.
        remaining: Millis,
        /// Time at which the timer resumes by itself.
        until: Steady,
    },
}

/// Timer that was read from the database at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTimer {
    /// Number of the timer.
    pub number: u64,
    /// Owner of the timer.
    pub agent: Agent,
    /// Conversation that created the timer.
    pub conversation: Option<Conversation>,
    /// Purpose.
    pub kind: Kind,
    /// Recorded state.
    pub state: State,
    /// Time at which the timer was last asked for.
    pub checked: Wall,
    /// Idempotency key of the creation.
    pub key: Option<Key>,
    /// The timer has a condition.
    pub conditional: bool,
}
