//! Requests about timers, and their answers.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Kind, Status};
use crate::id::{Key, TimerId};
use crate::time::Millis;

/// Request about timers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "a field is named as what it is")]
pub enum Request {
    /// Create a timer; stand by on it, unless it is a mission.
    Create(Create),
    /// Create many timers and stand by on none.
    CreateMany(Vec<Create>),
    /// Stand by again on a timer.
    Continue {
        timer: TimerId,
        /// New remaining time, counted from now.
        remaining: Option<Millis>,
        /// Standby of the call. `None`: until the end.
        standby: Option<Millis>,
        /// Time limit of the client: the call is answered before it.
        client_limit: Option<Millis>,
        /// Idempotency key of the call, recorded if the call sets the remaining time.
        key: Option<Key>,
    },
    /// Stop, cancel, pause or resume a timer.
    Act {
        timer: TimerId,
        act: Act,
        /// Reason that the caller gives.
        stop_reason: Option<Arc<str>>,
        /// Idempotency key of the call. Only the key of the last change is recorded.
        key: Option<Key>,
    },
    /// Read one timer.
    Read {
        /// The caller asked for this timer, which updates [`Timer::checked`](super::Timer::checked).
        asks: bool,
        timer: TimerId,
    },
    /// List the timers that have not ended, in the order of their creation.
    List {
        /// The caller asked for each of these timers, which updates [`Timer::checked`](super::Timer::checked).
        asks: bool,
        /// Only timers created after this one.
        after: Option<TimerId>,
        /// Maximum number of timers.
        most: usize,
    },
    /// Show timers, ended or not, in the given order. Unlike `Read`, this never updates
    /// [`Timer::checked`](super::Timer::checked).
    See {
        /// The timers; unknown ones are left out of the answer.
        timers: Vec<TimerId>,
    },
    /// Find the timer that an earlier call of the agent has created with this idempotency key.
    Keyed {
        /// The key.
        key: Key,
    },
    /// Count the timers that have not ended.
    Count,
}

impl Request {
    /// Returns whether the request changes something.
    pub const fn changes_something(&self) -> bool {
        match self {
            Request::Create(_)
            | Request::CreateMany(_)
            | Request::Continue { .. }
            | Request::Act { .. } => true,
            Request::Read { .. }
            | Request::List { .. }
            | Request::See { .. }
            | Request::Keyed { .. }
            | Request::Count => false,
        }
    }
}

/// Timer to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    /// Purpose.
    pub kind: Kind,
    /// Reason of the wait, or text of the mission.
    pub purpose: Arc<str>,
    /// Condition that completes the timer early, in the form that the interface wrote.
    pub until: Option<Arc<str>>,
    /// Total duration.
    pub total: Millis,
    /// Standby of the call. `None`: until the end.
    pub standby: Option<Millis>,
    /// Time limit of the client: the call is answered before it.
    pub client_limit: Option<Millis>,
    /// Answer as soon as the timer is created.
    pub detach: bool,
    /// Idempotency key: the same key never creates a second timer.
    pub key: Option<Key>,
}

/// Act on a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// End the timer without a message.
    Stop,
    /// Stop waiting; the timer continues in the background.
    Cancel,
    /// Pause for this time.
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

/// Reason of an answer about a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The timer was created, and the call does not stand by.
    Made,
    /// An earlier call with the same key has created the timer, and this one does not stand by.
    Joined,
    /// The timer has completed.
    Completed,
    /// The standby is over; the timer continues.
    StandbyOver,
    /// Another caller did this to the timer while the call stood by.
    Interrupted(Act),
    /// The request was carried out.
    Done(Act),
    /// The timer was only read.
    Looked,
    /// The timer had ended before.
    Ended,
}

/// Request that breaks the contract. It has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The timer does not exist or belongs to another agent.
    NotFound {
        /// The timer that was named.
        timer: TimerId,
        /// Some timers of the caller.
        known: Vec<TimerId>,
        /// Number of further timers.
        more: usize,
    },
    /// The state of the timer does not allow the act.
    NotAllowed {
        /// The timer.
        timer: TimerId,
        /// Requested act.
        attempt: &'static str,
        /// State of the timer.
        status: Status,
    },
    /// The same key was used for another timer.
    KeyReused(Key),
}
