//! Everything the core may want done. Performed in order: record, act, publish, reply.

use crate::id::{Agent, CallId, MessageId, QuestionId, SessionId, TimerId};
use crate::record::Record;
use crate::session::End;
use crate::time::{Millis, Mono};
use crate::timer::Until;
pub use crate::wait::Notice as Update;
use crate::wait::Outcome;

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Must survive a crash before anything below it in the same turn is done.
    Record(Record),
    /// Start the command that `call` brought.
    Start {
        /// The new session.
        session: SessionId,
        /// Where its folder, environment and input are to be found.
        call: CallId,
        /// Hard limit for the keeper to enforce.
        deadline: Option<Millis>,
    },
    /// Kill the tree: ask it to end, and after a grace make it.
    Kill {
        /// Which session.
        session: SessionId,
        /// Why; the keeper writes it into the ending.
        end: End,
    },
    /// The session should have ended by now. Unless its keeper answers, end the tree without it.
    Force {
        /// Which session.
        session: SessionId,
        /// Why it should have.
        end: End,
    },
    /// Remove the folder of a session that is over.
    Remove {
        /// Which session.
        session: SessionId,
    },
    /// Move the hard limit, counted from now.
    SetDeadline {
        /// Which session.
        session: SessionId,
        /// From now.
        deadline: Millis,
    },
    /// Write down the limits that were moved, the hard one too, so that they outlive the daemon.
    KeepLimits {
        /// Which session.
        session: SessionId,
        /// Its idle limit.
        idle: Option<Millis>,
        /// Its limit of inactivity.
        inactivity: Option<Millis>,
        /// Nobody is to be asked about its idleness before then.
        unasked_until: Mono,
    },
    /// Answer with [`Event::Grew`](crate::Event::Grew) at once, with a reading taken after this.
    Look {
        /// Which session.
        session: SessionId,
    },
    /// Answer with [`Event::Grew`](crate::Event::Grew) as soon as there are more bytes than
    /// `beyond`. A later one replaces an earlier one.
    Watch {
        /// Which session.
        session: SessionId,
        /// How many are known.
        beyond: u64,
    },
    /// The question is open: show it wherever a person can see it.
    Ask {
        /// Which.
        question: QuestionId,
    },
    /// It is closed: take it away.
    Close {
        /// Which.
        question: QuestionId,
        /// How it was closed.
        closing: crate::question::Closing,
    },
    /// Tell a waiting call something before its answer.
    Tell {
        /// Which call.
        call: CallId,
        /// What.
        update: Update,
    },
    /// Answer a call. The last effect that names it.
    Reply {
        /// Which call.
        call: CallId,
        /// How.
        outcome: Outcome,
    },
    /// Look whether what a timer waits for holds, at once and then by events or gently; answer with
    /// [`Event::Held`](crate::Event::Held), or with
    /// [`Event::ConditionImpossible`](crate::Event::ConditionImpossible).
    Probe {
        /// Which timer.
        timer: TimerId,
        /// The condition. `None`: the one that is known already.
        until: Option<Until>,
    },
    /// Stop looking for a while; the condition stays known.
    Rest {
        /// Which timer.
        timer: TimerId,
    },
    /// Stop looking, for good.
    Unprobe {
        /// Which timer.
        timer: TimerId,
    },
    /// A timer has changed: tell those who follow.
    PublishTimer {
        /// Which.
        timer: TimerId,
    },
    /// A message waits for its agent, and no call is telling it: try every other way.
    Posted {
        /// To whom.
        agent: Agent,
        /// Which.
        message: MessageId,
    },
    /// The session's view has changed: publish it.
    Publish {
        /// Which session.
        session: SessionId,
    },
}

impl Effect {
    /// The place of this effect in its turn: record, act, ask, publish, tell, reply.
    pub const fn rank(&self) -> u8 {
        match self {
            Effect::Record(_) => 0,
            Effect::Start { .. }
            | Effect::Kill { .. }
            | Effect::Force { .. }
            | Effect::Remove { .. }
            | Effect::SetDeadline { .. }
            | Effect::KeepLimits { .. }
            | Effect::Look { .. }
            | Effect::Watch { .. }
            | Effect::Probe { .. }
            | Effect::Rest { .. }
            | Effect::Unprobe { .. } => 1,
            Effect::Ask { .. } | Effect::Close { .. } => 2,
            Effect::Publish { .. } | Effect::PublishTimer { .. } | Effect::Posted { .. } => 3,
            Effect::Tell { .. } => 4,
            Effect::Reply { .. } => 5,
        }
    }
}
