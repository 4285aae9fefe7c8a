//! What may be asked of timers, and how it is answered.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Kind, Status};
use crate::id::{Key, TimerId};
use crate::time::Millis;

/// A call about timers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Make a timer; stand by on it, unless it is a mission.
    Create(Create),
    /// Make many at once and stand by on none.
    CreateMany(Vec<Create>),
    /// Stand by again.
    Continue {
        /// On which.
        timer: TimerId,
        /// What shall remain from now on.
        remaining: Option<Millis>,
        /// For how long.
        standby: Option<Millis>,
        /// The client's own call limit: answer before it.
        patience: Option<Millis>,
    },
    /// Do something to a timer.
    Act {
        /// To which.
        timer: TimerId,
        /// What.
        act: Act,
        /// Why, as the caller says.
        reason: Option<Arc<str>>,
        /// Names the call, where it may be said again: the last that was done is remembered.
        key: Option<Key>,
    },
    /// Look at one.
    Read {
        /// Whether this is somebody's asking for it, which is noted.
        asks: bool,
        /// At which.
        timer: TimerId,
    },
    /// Look at those that have not ended, in the order in which they were made.
    List {
        /// Whether this is somebody's asking for each of them, as reading one is.
        asks: bool,
        /// Only those made after this one.
        after: Option<TimerId>,
        /// At most so many.
        most: usize,
    },
    /// Look on at some, ended or not, in the order given. Unlike reading, this is nobody's asking.
    See {
        /// At which; those that are not known any more are left out.
        timers: Vec<TimerId>,
    },
    /// How many have not ended.
    Count,
    /// Stop all of the caller's timers that have not ended.
    StopAll {
        /// Why, as the caller says.
        reason: Option<Arc<str>>,
    },
}

impl Request {
    /// Whether it does more than look.
    pub const fn changes_something(&self) -> bool {
        match self {
            Request::Create(_)
            | Request::CreateMany(_)
            | Request::Continue { .. }
            | Request::Act { .. }
            | Request::StopAll { .. } => true,
            Request::Read { .. } | Request::List { .. } | Request::See { .. } | Request::Count => {
                false
            }
        }
    }
}

/// A timer to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    /// What it is for.
    pub kind: Kind,
    /// The reason or the mission.
    pub text: Arc<str>,
    /// The condition that ends it early, as its door wrote it.
    pub until: Option<Arc<str>>,
    /// How long it runs.
    pub total: Millis,
    /// How long the call stands by. `None`: to the end.
    pub standby: Option<Millis>,
    /// The client's own call limit: answer before it.
    pub patience: Option<Millis>,
    /// Answer as soon as it is made.
    pub detach: bool,
    /// The same key never makes a second one.
    pub key: Option<Key>,
}

/// Something done to a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// It is over, and tells nobody.
    Stop,
    /// Nobody waits any more; it runs on.
    Cancel,
    /// Nothing elapses for so long.
    Pause(Millis),
    /// It goes on now.
    Resume,
}

impl Act {
    /// What the act is called.
    pub const fn as_str(self) -> &'static str {
        match self {
            Act::Stop => "stop",
            Act::Cancel => "cancel",
            Act::Pause(_) => "pause",
            Act::Resume => "resume",
        }
    }
}

/// Why a call about a timer is answered now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was made, and the call does not stand by.
    Made,
    /// It has completed.
    Completed,
    /// The standby is over; the timer runs on.
    StandbyOver,
    /// Somebody else did this to it while the call stood by.
    Interrupted(Act),
    /// What the call asked for was done.
    Done(Act),
    /// It was only looked at.
    Looked,
    /// It had ended before.
    Ended,
}

/// A call that breaks the contract. It has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such timer, or it is another agent's.
    NotFound {
        /// The one that was named.
        timer: TimerId,
        /// Some of those that there are.
        known: Vec<TimerId>,
        /// How many more there are.
        more: usize,
    },
    /// Its state does not allow it.
    NotAllowed {
        /// Which timer.
        timer: TimerId,
        /// What was to be done.
        attempt: &'static str,
        /// How it stands.
        status: Status,
    },
    /// The same key was used for another timer.
    KeyReused(Key),
}
