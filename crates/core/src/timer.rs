//! Durable countdowns. A timer has a total duration of its own; a call that stands by on it can leave at
//! any time without changing it.
//!
//! The entry of a timer is small, because there may be millions: texts of agents are passed on to the
//! record and are read back from there.

mod anchor;
mod request;
mod standing;
mod table;

use alloc::sync::Arc;

use crate::id::{Agent, Conversation, Key, TimerId};
use crate::time::{Millis, Steady, Wall};

pub use anchor::Anchor;
pub use request::{Act, Create, Refusal, Request, Why};
pub(crate) use standing::{Standby, Standing};
pub(crate) use table::{Due, Found, Timers, not_allowed};

/// Purpose of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something should become true soon; its agent stands by.
    Waiting,
    /// Something is to be done later; its agent is woken.
    Mission,
}

impl Kind {
    /// The word used in results and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Waiting => "waiting",
            Kind::Mission => "mission",
        }
    }
}

/// Expectation that somebody waits for a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The agent waits, or may wait.
    Front,
    /// The agent has given up waiting; the timer runs on and its end is a message.
    Background,
}

/// State of a timer as callers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The timer counts down.
    Running(Place),
    /// Nothing elapses.
    Paused {
        /// Place of the timer after the pause.
        back_to: Place,
        /// When it goes on by itself.
        until: Steady,
    },
    /// The timer has completed. Final.
    Completed {
        /// Cause of the completion.
        by: By,
        /// Delay after the due time.
        late: Millis,
    },
    /// Somebody stopped it. Final.
    Stopped,
}

impl Status {
    /// The word used in results and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Status::Running(Place::Front) => "running",
            Status::Running(Place::Background) => "running_background",
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

/// Cause of the completion of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The total duration is over.
    Time,
    /// The condition holds.
    Condition,
    /// The condition can no longer hold.
    Impossible,
}

impl By {
    /// The word used in results and records.
    pub const fn as_str(self) -> &'static str {
        match self {
            By::Time => "time",
            By::Condition => "condition",
            By::Impossible => "impossible",
        }
    }
}

/// The condition of a timer, and on whose behalf it is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Until {
    /// The condition, as its door wrote it.
    pub condition: Arc<str>,
    /// Whose timer it is.
    pub agent: Agent,
    /// When the timer was made.
    pub since: Wall,
}

/// A timer as it stood at one moment. `remaining` and what has elapsed make up `total`, always.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timer {
    /// Id.
    pub id: TimerId,
    /// Number under which it is recorded.
    pub number: u64,
    /// Whose it is.
    pub agent: Agent,
    /// The conversation that made it.
    pub conversation: Option<Conversation>,
    /// The agent asked to be woken by it: a mission, or a wait that was cancelled into the
    /// background.
    pub wakes: bool,
    /// Purpose.
    pub kind: Kind,
    /// State.
    pub status: Status,
    /// Total duration.
    pub total: Millis,
    /// Remaining time.
    pub remaining: Millis,
    /// When somebody last asked for it.
    pub checked: Wall,
    /// When it goes on by itself, where it is paused.
    pub pause_until: Option<Wall>,
    /// The timer has a condition and can end early.
    pub conditional: bool,
}

/// A timer, seen by somebody who looks on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// State of the timer.
    pub timer: Timer,
    /// A call stands by on it.
    pub standing_by: bool,
}

impl Timer {
    /// Elapsed part of the total duration.
    pub fn elapsed(&self) -> Millis {
        self.total.less(self.remaining)
    }
}

/// Durable fact about a timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The timer was made.
    Created {
        /// Number of the timer.
        number: u64,
        /// Id of the timer.
        id: TimerId,
        /// Whose it is.
        agent: Agent,
        /// The conversation that made it.
        conversation: Option<Conversation>,
        /// Purpose.
        kind: Kind,
        /// The reason or the mission.
        text: Arc<str>,
        /// The condition that ends it early, as its door wrote it.
        until: Option<Arc<str>>,
        /// The key it was made under.
        key: Option<Key>,
        /// Total duration.
        total: Millis,
        /// When it is due.
        due: Steady,
        /// Standby of its first call.
        standby: Option<Millis>,
        /// When it was made.
        at: Wall,
    },
    /// The timer was paused, resumed or moved.
    Changed {
        /// Number of the timer.
        number: u64,
        /// New state.
        state: State,
        /// Standby of the call that did this.
        standby: Option<Millis>,
        /// Why, as the caller said.
        reason: Option<Arc<str>>,
        /// When its agent last asked for it.
        checked: Wall,
    },
    /// The timer has ended.
    Ended {
        /// Number of the timer.
        number: u64,
        /// Id of the timer.
        id: TimerId,
        /// `Completed` or `Stopped`.
        status: Status,
        /// Total duration.
        total: Millis,
        /// Remaining time at the end.
        remaining: Millis,
        /// Cause of the end, as observed or as the caller said.
        reason: Option<Arc<str>>,
        /// When its agent last asked for it.
        checked: Wall,
        /// When.
        at: Wall,
    },
    /// The call of this name did something to it.
    Acted {
        /// Number of the timer.
        number: u64,
        /// The name.
        key: Key,
    },
    /// The note that ties deadlines to clocks.
    Anchored(Anchor),
}

/// Recorded state of a timer that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Total duration.
    pub total: Millis,
    /// Course: running or paused.
    pub course: Course,
    /// Place while it runs, or after the pause.
    pub place: Place,
}

/// Course of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// The timer counts down.
    Running {
        /// When it is due.
        due: Steady,
    },
    /// The timer is paused.
    Paused {
        /// Remaining time.
        remaining: Millis,
        /// When it goes on by itself.
        until: Steady,
    },
}

/// A timer read back at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTimer {
    /// Number of the timer.
    pub number: u64,
    /// Whose it is.
    pub agent: Agent,
    /// The conversation that made it.
    pub conversation: Option<Conversation>,
    /// Purpose.
    pub kind: Kind,
    /// Recorded state.
    pub state: State,
    /// When somebody last asked for it.
    pub checked: Wall,
    /// The key it was made under.
    pub key: Option<Key>,
    /// The timer has a condition.
    pub conditional: bool,
}
