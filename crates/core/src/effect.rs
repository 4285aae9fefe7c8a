//! Effects: everything that the core may want done. Those of one event are performed in the order of [`Effect::rank`],
//! but some wait for a commit ([`Effect::waits_for_commit`]).

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::held::HeldCommand;
use crate::held_connection::ConnectionAnswer;
use crate::id::{Agent, CallId, MessageId, QuestionId, SessionId, TimerId};
use crate::question::Closing;
use crate::record::Record;
use crate::session::End;
use crate::time::{Millis, Mono};
use crate::timer::Until;
use crate::wait::Outcome;
pub use crate::wait::Update;

/// Output of [`Engine::step`](crate::Engine::step).
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "a field is named as what it is")]
pub enum Effect {
    /// Write a record durably before the effects of the same event that need a commit.
    Record(Record),
    /// Start the command of `call`.
    Start {
        /// The new session.
        session: SessionId,
        /// Call that has its directory, environment and input.
        call: CallId,
        /// Deadline that the keeper enforces.
        deadline: Option<Millis>,
    },
    /// Start a command that a person has approved.
    StartHeld {
        /// The new session, for which no keeper is reserved.
        session: SessionId,
        /// The command, with its directory, environment and input.
        held: Arc<HeldCommand>,
        /// Calls that wait for it.
        calls: Vec<CallId>,
    },
    /// Kill the tree: SIGTERM, and SIGKILL after the grace period.
    Kill {
        session: SessionId,
        /// Reason, which the keeper writes into the ending.
        end: End,
    },
    /// The session should have ended by now. Kill the tree without its keeper, unless the keeper answers.
    ForceKill {
        session: SessionId,
        /// Reason of the expected end.
        end: End,
    },
    /// Remove the directory of a session that has ended.
    Remove { session: SessionId },
    /// Move the deadline, counted from now.
    SetDeadline {
        session: SessionId,
        /// New deadline, from now on.
        deadline: Millis,
    },
    /// Store the limits that were moved, including the deadline, so that they survive the daemon.
    StoreLimits {
        session: SessionId,
        /// Idle limit.
        idle: Option<Millis>,
        /// Inactivity limit.
        inactivity: Option<Millis>,
        /// No question about its idleness is opened before then.
        unasked_until: Mono,
    },
    /// Answer with [`Event::OutputGrew`](crate::Event::OutputGrew) at once, with values read after this effect.
    QueryOutput { session: SessionId },
    /// Answer with [`Event::OutputGrew`](crate::Event::OutputGrew) as soon as there are more bytes than
    /// `beyond`. A later one replaces an earlier one.
    WatchOutput {
        session: SessionId,
        /// Number of bytes that are known.
        beyond: u64,
    },
    /// Answer connections of a sandbox that wait.
    AnswerConnection {
        session: SessionId,
        /// Number of the question at the network gate.
        number: u64,
        answer: ConnectionAnswer,
    },
    /// A question was opened: show it to people.
    Ask { question: QuestionId },
    /// A question was closed: remove it.
    Close {
        question: QuestionId,
        /// Reason of its closing.
        closing: Closing,
    },
    /// Tell a waiting call something before its answer.
    Tell {
        call: CallId,
        /// Content.
        update: Update,
    },
    /// Answer a call. The last effect of that call.
    Reply {
        call: CallId,
        /// Answer.
        outcome: Outcome,
        /// The answer reports the ending of a session to its owner: if it cannot be handed over, the core is told
        /// with [`Event::AnswerLost`](crate::Event::AnswerLost).
        tells_owner: Option<OwnerReport>,
    },
    /// Note in the directory of a session that its ending was reported, so that the next daemon does not report it again.
    MarkEndingDelivered { session: SessionId },
    /// Check whether the condition of a timer holds, at once and then on events or with back-off. Answer with
    /// [`Event::ConditionHeld`](crate::Event::ConditionHeld), or with
    /// [`Event::ConditionImpossible`](crate::Event::ConditionImpossible).
    Probe {
        timer: TimerId,
        /// Condition. `None`: the one that is known already.
        until: Option<Until>,
    },
    /// Stop checking for a while; the condition stays known.
    PauseProbe { timer: TimerId },
    /// Stop checking for good.
    StopProbe { timer: TimerId },
    /// A timer has changed: tell the followers.
    PublishTimer { timer: TimerId },
    /// A message waits for its agent, and no call delivers it: try the wakers.
    Posted {
        /// Receiver.
        agent: Agent,
        message: MessageId,
    },
    /// A session has changed, or is gone: publish that.
    Publish { session: SessionId },
    /// These messages were seen: tell the followers.
    PublishSeen { numbers: Vec<u64> },
}

/// Report of a session's ending to its owner by an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerReport {
    /// The first one: when it is handed over, that is noted as [`Effect::MarkEndingDelivered`] says.
    First,
    /// Another answer has reported it before.
    Repeated,
}

impl Effect {
    /// Returns whether this effect waits for the commit of everything that was decided up to now.
    ///
    /// Keepers record sessions. So what acts on a session does not wait, and neither does the answer to a call for
    /// which `about_session` is true (see [`Request::is_about_session`](crate::Request::is_about_session)). Timers,
    /// messages and questions are rows of the database, so everything else waits.
    pub fn waits_for_commit(&self, about_session: impl FnOnce(CallId) -> bool) -> bool {
        match self {
            Effect::Start { .. }
            | Effect::ForceKill { .. }
            | Effect::Remove { .. }
            | Effect::SetDeadline { .. }
            | Effect::StoreLimits { .. }
            | Effect::QueryOutput { .. }
            | Effect::WatchOutput { .. }
            | Effect::AnswerConnection { .. }
            | Effect::Publish { .. } => false,
            // The answer of a person waits for the attempt to record it, and is carried out even if that fails.
            Effect::Kill { end, .. } => matches!(end, End::IdleDeclined),
            Effect::Close { closing, .. } => {
                matches!(closing, Closing::Answered(_) | Closing::Expired)
            }
            // A crash after this must not start the command again.
            Effect::StartHeld { .. } => true,
            Effect::Tell { update, .. } => match update {
                Update::Accepted(_) | Update::Closed(_, Closing::Withdrawn) => false,
                Update::Asked(_) | Update::Closed(_, Closing::Answered(_) | Closing::Expired) => {
                    true
                }
            },
            // The question must be durable before the agent is told of it.
            Effect::Reply {
                outcome: Outcome::NotStarted(..),
                ..
            } => true,
            Effect::Reply { call, outcome, .. } => {
                // No messages were taken, so nothing was decided.
                let nothing = matches!(outcome, Outcome::Messages(told, 0) if told.is_empty());
                !nothing && !about_session(*call)
            }
            Effect::Record(_)
            | Effect::Ask { .. }
            | Effect::Probe { .. }
            | Effect::PauseProbe { .. }
            | Effect::StopProbe { .. }
            | Effect::PublishTimer { .. }
            | Effect::PublishSeen { .. }
            | Effect::Posted { .. }
            | Effect::MarkEndingDelivered { .. } => true,
        }
    }

    /// Position of this effect among those of its event: record, act, ask, publish, tell, reply, mark.
    pub const fn rank(&self) -> u8 {
        match self {
            Effect::Record(_) => 0,
            Effect::Start { .. }
            | Effect::StartHeld { .. }
            | Effect::Kill { .. }
            | Effect::ForceKill { .. }
            | Effect::Remove { .. }
            | Effect::SetDeadline { .. }
            | Effect::StoreLimits { .. }
            | Effect::QueryOutput { .. }
            | Effect::WatchOutput { .. }
            | Effect::AnswerConnection { .. }
            | Effect::Probe { .. }
            | Effect::PauseProbe { .. }
            | Effect::StopProbe { .. } => 1,
            Effect::Ask { .. } | Effect::Close { .. } => 2,
            Effect::Publish { .. }
            | Effect::PublishTimer { .. }
            | Effect::PublishSeen { .. }
            | Effect::Posted { .. } => 3,
            Effect::Tell { .. } => 4,
            Effect::Reply { .. } => 5,
            Effect::MarkEndingDelivered { .. } => 6,
        }
    }
}
