//! Requests about timers, and their answers.

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
        /// Remaining time from now on.
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
        /// Act.
        act: Act,
        /// Why, as the caller says.
        reason: Option<Arc<str>>,
        /// Names the call, where it may be said again: the last that was done is remembered.
        key: Option<Key>,
    },
    /// Look at one.
    Read {
        /// The caller asked for this timer, which is noted.
        asks: bool,
        /// At which.
        timer: TimerId,
    },
    /// Look at those that have not ended, in the order in which they were made.
    List {
        /// The caller asked for each of these timers, as when one is read.
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
    /// Count the timers that have not ended.
    Count,
    /// Stop all of the caller's timers that have not ended.
    StopAll {
        /// Why, as the caller says.
        reason: Option<Arc<str>>,
    },
}

impl Request {
    /// Returns whether the request changes something.
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
    /// Purpose.
    pub kind: Kind,
    /// The reason or the mission.
    pub text: Arc<str>,
    /// The condition that ends it early, as its door wrote it.
    pub until: Option<Arc<str>>,
    /// Total duration.
    pub total: Millis,
    /// Standby of the call. `None`: until the end.
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
    /// End the timer without a message.
    Stop,
    /// Nobody waits any more; it runs on.
    Cancel,
    /// Nothing elapses for so long.
    Pause(Millis),
    /// Continue a paused timer.
    Resume,
}

impl Act {
    /// Name of the act.
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
    /// The timer was made, and the call does not stand by.
    Made,
    /// The timer has completed.
    Completed,
    /// The standby is over; the timer runs on.
    StandbyOver,
    /// Somebody else did this to it while the call stood by.
    Interrupted(Act),
    /// The request was carried out.
    Done(Act),
    /// The timer was only read.
    Looked,
    /// The timer had ended before.
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
        /// Number of further timers.
        more: usize,
    },
    /// The state of the timer does not allow the act.
    NotAllowed {
        /// Which timer.
        timer: TimerId,
        /// Requested act.
        attempt: &'static str,
        /// State of the timer.
        status: Status,
    },
    /// The same key was used for another timer.
    KeyReused(Key),
}
