//! Durable countdowns. A timer has a total duration of its own; whoever stands by on it does so for
//! as long as it likes and changes nothing by going away.
//!
//! What is kept here for each timer is small, since there may be millions: the texts that agents
//! write pass through into the record and are read back from there.

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

/// What a timer is for.
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

/// Whether anybody means to wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Its agent does, or may.
    Front,
    /// Its agent has given up waiting; it runs on and tells by a message.
    Background,
}

/// Where a timer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It counts down.
    Running(Place),
    /// Nothing elapses.
    Paused {
        /// Where it goes on.
        back_to: Place,
        /// When it goes on by itself.
        until: Steady,
    },
    /// It has come to its end. Final.
    Completed {
        /// What brought the end.
        by: By,
        /// How long after it was due.
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

    /// Whether it is final.
    pub const fn is_final(self) -> bool {
        match self {
            Status::Completed { .. } | Status::Stopped => true,
            Status::Running(_) | Status::Paused { .. } => false,
        }
    }
}

/// What brought a timer to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Its total duration is over.
    Time,
    /// What it waited for holds.
    Condition,
    /// What it waited for can no longer come.
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
    /// Its id.
    pub id: TimerId,
    /// Its number, under which it is recorded.
    pub number: u64,
    /// Whose it is.
    pub agent: Agent,
    /// The conversation that made it.
    pub conversation: Option<Conversation>,
    /// Whether its agent asked to be woken by it: a mission, or a wait that was cancelled into the
    /// background.
    pub wakes: bool,
    /// What it is for.
    pub kind: Kind,
    /// Where it stands.
    pub status: Status,
    /// How long it runs in all.
    pub total: Millis,
    /// How much of that is left.
    pub remaining: Millis,
    /// When somebody last asked for it.
    pub checked: Wall,
    /// When it goes on by itself, where it is paused.
    pub pause_until: Option<Wall>,
    /// Whether it ends early when something holds.
    pub conditional: bool,
}

/// A timer, seen by somebody who looks on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// How it stands.
    pub timer: Timer,
    /// Whether a call stands by on it.
    pub standing_by: bool,
}

impl Timer {
    /// How much of the total has passed.
    pub fn elapsed(&self) -> Millis {
        self.total.less(self.remaining)
    }
}

/// What is recorded of a timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// It was made.
    Created {
        /// Its number.
        number: u64,
        /// Its id.
        id: TimerId,
        /// Whose it is.
        agent: Agent,
        /// The conversation that made it.
        conversation: Option<Conversation>,
        /// What it is for.
        kind: Kind,
        /// The reason or the mission.
        text: Arc<str>,
        /// The condition that ends it early, as its door wrote it.
        until: Option<Arc<str>>,
        /// The key it was made under.
        key: Option<Key>,
        /// How long it runs.
        total: Millis,
        /// When it is due.
        due: Steady,
        /// How long its first call stands by.
        standby: Option<Millis>,
        /// When it was made.
        at: Wall,
    },
    /// It runs on, or not, in another way.
    Changed {
        /// Its number.
        number: u64,
        /// How it stands now.
        state: State,
        /// How long the call that did this stands by.
        standby: Option<Millis>,
        /// Why, as the caller said.
        reason: Option<Arc<str>>,
        /// When its agent last asked for it.
        checked: Wall,
    },
    /// It is over.
    Ended {
        /// Its number.
        number: u64,
        /// Its id.
        id: TimerId,
        /// `Completed` or `Stopped`.
        status: Status,
        /// How long it was to run.
        total: Millis,
        /// How much of that was left.
        remaining: Millis,
        /// What ended it, as seen or as the caller said.
        reason: Option<Arc<str>>,
        /// When its agent last asked for it.
        checked: Wall,
        /// When.
        at: Wall,
    },
    /// The call of this name did something to it.
    Acted {
        /// Its number.
        number: u64,
        /// The name.
        key: Key,
    },
    /// The note that ties deadlines to clocks.
    Anchored(Anchor),
}

/// How a timer that has not ended stands, as it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// How long it runs in all.
    pub total: Millis,
    /// Whether it counts down.
    pub course: Course,
    /// Where it runs, or will when it goes on.
    pub place: Place,
}

/// Whether a timer counts down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// It does.
    Running {
        /// When it is due.
        due: Steady,
    },
    /// It does not.
    Paused {
        /// What is left.
        remaining: Millis,
        /// When it goes on by itself.
        until: Steady,
    },
}

/// A timer read back at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTimer {
    /// Its number.
    pub number: u64,
    /// Whose it is.
    pub agent: Agent,
    /// The conversation that made it.
    pub conversation: Option<Conversation>,
    /// What it is for.
    pub kind: Kind,
    /// How it stood.
    pub state: State,
    /// When somebody last asked for it.
    pub checked: Wall,
    /// The key it was made under.
    pub key: Option<Key>,
    /// Whether it has a condition.
    pub conditional: bool,
}
