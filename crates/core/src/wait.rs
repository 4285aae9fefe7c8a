//! A call that waits. A wait never touches what it waits for: when its patience runs out, the wait
//! ends, and nothing else.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::id::{CallId, QuestionId, SessionId, TimerId};
use crate::message::Told;
use crate::time::{Millis, Mono};
use crate::timer::{self, Timer};

/// Whether, and through what, this call can reach a person when its session is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// It never asks (`shell`: the hard limit is all there is).
    Never,
    /// It asks where any person can be reached; this call itself reaches none.
    Elsewhere,
    /// The call's own door reaches a person (elicitation, a terminal).
    Here,
    /// The call's own door reaches a person by answering the call with the question; the client calls
    /// again with the answer. The client's call limit does not run while the person thinks.
    ByReturning,
}

impl Asking {
    /// Whether the session's idleness matters to this call at all.
    pub const fn asks(self) -> bool {
        match self {
            Asking::Never => false,
            Asking::Elsewhere | Asking::Here | Asking::ByReturning => true,
        }
    }

    /// Whether the call's own door reaches a person.
    pub const fn reaches_a_person(self) -> bool {
        match self {
            Asking::Never | Asking::Elsewhere => false,
            Asking::Here | Asking::ByReturning => true,
        }
    }
}

/// A pending wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The call to answer.
    pub call: CallId,
    /// What it waits for.
    pub session: SessionId,
    /// Its way to a person.
    pub asking: Asking,
    /// When it must be answered at the latest, whatever the session does.
    pub until: Option<Mono>,
    /// What ends it.
    pub goal: Goal,
    /// Whether the session's owner hears by this call how it ended. A person who looks on, or who
    /// ends an agent's session, does not hear it for the agent.
    pub for_owner: bool,
}

/// What a wait waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// That the command has been started.
    Started,
    /// That the leader has ended (and, where the tree is being killed, that it is gone).
    Ended,
    /// That the tree is gone.
    Gone,
    /// That the tree is gone, since this call was interrupted.
    Interrupted,
    /// That a try of a condition has ended and its tree is gone.
    Tried,
}

/// How a call is answered. The door reads everything else from the session's view and log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command runs (a detached start).
    Started(SessionId),
    /// The session is over, or its leader is: see its view.
    Ended(SessionId),
    /// It goes on; the call does not.
    Running(SessionId, WhyRunning),
    /// A person said no after being told this idle time; the tree is gone.
    Declined(SessionId, Millis),
    /// The call was interrupted; the tree is gone.
    Cancelled(SessionId),
    /// It could not be run at all.
    Failed(SessionId),
    /// The limits were moved, or the answer was taken.
    Done,
    /// How a timer stands, and why that is told now.
    Timer(Box<Timer>, timer::Why),
    /// Timers that have not ended.
    Timers(Vec<Timer>),
    /// Timers as they are to be seen.
    TimersSeen(Vec<timer::Seen>),
    /// The timers that were made, in the order in which they were asked for.
    TimersMade(Vec<TimerId>),
    /// So many have not ended.
    TimersCounted(usize),
    /// So many were stopped.
    TimersStopped(usize),
    /// Messages, oldest first, and how many more are unread.
    Messages(Vec<Told>, usize),
    /// The call breaks the contract and changed nothing.
    Refused(crate::request::Refusal),
}

impl Outcome {
    /// The session it speaks of, where it speaks of one.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Outcome::Started(id)
            | Outcome::Ended(id)
            | Outcome::Running(id, _)
            | Outcome::Declined(id, _)
            | Outcome::Cancelled(id)
            | Outcome::Failed(id) => Some(*id),
            Outcome::Done
            | Outcome::Timer(..)
            | Outcome::Timers(_)
            | Outcome::TimersSeen(_)
            | Outcome::TimersMade(_)
            | Outcome::TimersStopped(_)
            | Outcome::TimersCounted(_)
            | Outcome::Messages(..)
            | Outcome::Refused(_) => None,
        }
    }
}

/// Why a call is answered while its session runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyRunning {
    /// The client's own call limit is near.
    Standby,
    /// It was idle, and nobody can be asked.
    NobodyToAsk,
    /// It should be killed, and does not die.
    Undying,
}

/// What a wait is told before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The session exists under this id (told once, before anything else).
    Accepted(SessionId),
    /// A question was put.
    Asked(QuestionId),
    /// The question no longer matters.
    Closed(QuestionId),
}
