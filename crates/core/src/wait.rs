//! Waiting calls. A wait never changes the session: at its time limit only the wait ends.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::held::NotStarted;
use crate::id::{CallId, QuestionId, SessionId, TimerId};
use crate::message::ReturnedMessage;
use crate::time::{Millis, Mono};
use crate::timer::{self, Timer};

/// Way in which a call reaches a person when its session is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// The call never asks (`shell`: only the deadline counts).
    Never,
    /// The call asks if any person can be reached, but not through its own client.
    Elsewhere,
    /// The client of the call reaches a person (elicitation, a terminal).
    Here,
    /// The client of the call reaches a person when the call is answered with the question; it calls again
    /// with the answer. The time limit of the client does not run while the person thinks.
    ByReturning,
}

impl Asking {
    /// Returns whether the idleness of the session matters to this call.
    pub const fn asks(self) -> bool {
        match self {
            Asking::Never => false,
            Asking::Elsewhere | Asking::Here | Asking::ByReturning => true,
        }
    }

    /// Returns whether the client of the call reaches a person.
    pub const fn reaches_a_person(self) -> bool {
        match self {
            Asking::Never | Asking::Elsewhere => false,
            Asking::Here | Asking::ByReturning => true,
        }
    }
}

/// Waiting call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The call.
    pub call: CallId,
    /// Session that it waits for.
    pub session: SessionId,
    /// Way to a person.
    pub asking: Asking,
    /// Time at which the call is answered at the latest, whatever the session does.
    pub until: Option<Mono>,
    /// State of the session that ends the wait.
    pub goal: Goal,
    /// The owner of the session learns of its end by this call. A person who watches or kills the session of an
    /// agent does not learn of it on behalf of the agent.
    pub for_owner: bool,
    /// Answer that comes before the session. `None`: the session has been started, or needs no answer.
    pub answer: Option<AwaitedAnswer>,
}

/// Answer of a person that a call waits for before the command of its session is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedAnswer {
    /// The question.
    pub question: QuestionId,
    /// Way in which the call reaches a person who can answer.
    pub asking: Asking,
    /// Time at which the call is answered at the latest.
    pub until: Mono,
    /// The call named the session in order to wait for it, so it waits also while no person can be asked.
    pub waits_unasked: bool,
}

impl Wait {
    /// Wait of a call that asks nobody, has no time limit and does not report to the owner of the session.
    pub(crate) fn new(call: CallId, session: SessionId, goal: Goal) -> Self {
        Wait {
            call,
            session,
            asking: Asking::Never,
            until: None,
            goal,
            for_owner: false,
            answer: None,
        }
    }

    /// Question whose answer the call waits for.
    pub fn question(&self) -> Option<QuestionId> {
        self.answer.map(|answer| answer.question)
    }

    /// Time at which the call is answered at the latest, without an answer or after it.
    pub(crate) fn standby_end(&self) -> Option<Mono> {
        self.answer.map_or(self.until, |answer| Some(answer.until))
    }
}

/// State of a session that ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The command has been started.
    Started,
    /// The leader has ended, and if the tree is being killed, it is gone.
    Ended,
    /// The tree is gone.
    Gone,
    /// The tree is gone; this call, or one before it, was interrupted.
    Interrupted,
    /// A try of a condition has ended, and its tree is gone.
    Tried,
    /// As `Ended`, for a condition that is about the session.
    Probed,
}

/// Answer to a call. Interfaces read everything else from the session's view and its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The command runs (a detached start).
    Started(SessionId),
    /// The session or its leader has ended; see its view.
    Ended(SessionId),
    /// The session continues; the call ends.
    Running(SessionId, WhyRunning),
    /// A person answered no to the question with this idle time; the tree is gone.
    Declined(SessionId, Millis),
    /// The call was interrupted; the tree is gone.
    Cancelled(SessionId),
    /// The command could not be started.
    Failed(SessionId),
    /// The command was not started: a person has to answer the question, or has answered it.
    NotStarted(SessionId, QuestionId, NotStarted),
    /// The limits were moved, or the answer of a person was taken.
    Done,
    /// State of a timer, and the reason of this answer.
    Timer(Box<Timer>, timer::Why),
    /// Timers that have not ended.
    Timers(Vec<Timer>),
    /// Timers for display.
    TimersObserved(Vec<timer::ObservedTimer>),
    /// Timers that were made, in the order of the request.
    TimersMade(Vec<TimerId>),
    /// Number of timers that have not ended.
    TimersCounted(usize),
    /// Messages, oldest first, and the number of further unread ones.
    Messages(Vec<ReturnedMessage>, usize),
    /// The call breaks the contract and changed nothing.
    Refused(crate::request::Refusal),
}

impl Outcome {
    /// Returns whether this answer reports how a session ended.
    pub const fn reports_ending(&self) -> bool {
        matches!(
            self,
            Outcome::Ended(_) | Outcome::Declined(..) | Outcome::Cancelled(_) | Outcome::Failed(_)
        )
    }

    /// Session of this answer, if there is one.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Outcome::Started(id)
            | Outcome::Ended(id)
            | Outcome::Running(id, _)
            | Outcome::Declined(id, _)
            | Outcome::Cancelled(id)
            | Outcome::Failed(id) => Some(*id),
            Outcome::Done
            | Outcome::NotStarted(..)
            | Outcome::Timer(..)
            | Outcome::Timers(_)
            | Outcome::TimersObserved(_)
            | Outcome::TimersMade(_)
            | Outcome::TimersCounted(_)
            | Outcome::Messages(..)
            | Outcome::Refused(_) => None,
        }
    }
}

/// Reason of an answer while the session runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyRunning {
    /// The time limit of the client is near.
    Standby,
    /// The session was idle, and no person can be reached.
    NobodyToAsk,
    /// The session should be killed and does not die.
    SurvivesKill,
}

/// Update to a waiting call before its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// The session exists under this id (once, before anything else).
    Accepted(SessionId),
    /// A question was opened.
    Asked(QuestionId),
    /// The question was closed, for this reason.
    Closed(QuestionId, crate::question::Closing),
}
