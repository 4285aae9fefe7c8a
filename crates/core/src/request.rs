//! What a door may ask for. All validation is the conversion into these types.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::id::{Agent, Conversation, Key, QuestionId, SessionId};
use crate::message::About;
use crate::question::Answer;
use crate::session::{End, StartedBy};
use crate::time::Millis;
use crate::timer;
use crate::wait::Asking;

/// A call, as the core sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Start a command (or join the one already started under the same key) and wait for it.
    Run(Run),
    /// Run the command of a condition once, or join the try that runs already, and wait for its end.
    Try(Try),
    /// Wait (again) for a session that exists.
    Join {
        /// Which.
        session: SessionId,
        /// How this call waits.
        asking: Asking,
        /// The client's own call limit: answer before it.
        standby: Option<Millis>,
    },
    /// End a session's tree; answered when it is gone.
    Kill {
        /// Which.
        session: SessionId,
        /// On whose behalf.
        end: End,
    },
    /// Move a session's limits, counted from now.
    Extend {
        /// Which.
        session: SessionId,
        /// New hard limit.
        deadline: Option<Millis>,
        /// New idle limit.
        idle: Option<Millis>,
        /// New limit of inactivity; zero takes it away.
        inactivity: Option<Millis>,
    },
    /// A person's answer. The door has already made sure that it comes from a person.
    Answer {
        /// Which question.
        question: QuestionId,
        /// What was said.
        answer: Answer,
        /// After a yes: for how long not to ask about this session again, however quiet it is.
        quiet_for: Option<Millis>,
    },
    /// Something about timers.
    Timer(timer::Request),
    /// Unread messages; waits for one where there is none.
    ReadMessages {
        /// For how long.
        standby: Millis,
        /// At most so many.
        most: usize,
        /// What the caller is told of anyway. Messages about it count as seen together with the
        /// others, and are marked as known.
        known: Vec<About>,
    },
}

/// What the core needs to know of a command that is to be started. The folder, environment and
/// input travel beside it: they decide nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The command as given.
    pub command: Arc<str>,
    /// The hard limit, enforced by the keeper.
    pub deadline: Option<Millis>,
    /// The idle limit. `None`: never ask.
    pub idle: Option<Millis>,
    /// How long it may go without output, input or a reader. `None`: for ever.
    pub inactivity: Option<Millis>,
    /// How this call waits.
    pub asking: Asking,
    /// The client's own call limit: answer before it.
    pub standby: Option<Millis>,
    /// Answer as soon as it has started, without waiting for its end.
    pub detach: bool,
    /// The idempotency key.
    pub key: Option<Key>,
}

/// One try of a condition's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Try {
    /// The command as given.
    pub command: Arc<str>,
    /// What it is tried for.
    pub started_by: StartedBy,
    /// Which of the condition's commands it is; see [`Key::of_try`].
    pub key: Key,
    /// The hard limit, enforced by the keeper.
    pub deadline: Millis,
}

/// A call that breaks the contract. It has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such session, or it is another agent's.
    SessionNotFound(SessionId),
    /// No such question was ever asked, or it was closed long ago.
    QuestionNotFound(QuestionId),
    /// Somebody else answered first, or it was withdrawn.
    QuestionClosed(QuestionId, crate::question::Closing),
    /// The session has ended; only a running one can do this.
    SessionEnded(SessionId),
    /// The same key was used for another command.
    KeyReused(Key),
    /// Something about a timer that is not so.
    Timer(timer::Refusal),
    /// It could not be recorded, so it has not happened.
    NotRecorded,
    /// Too many of something; the sentence says of what, and the limit.
    TooMany(String),
}

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The agent it speaks for. A person at the command line sees every agent's things: `None`.
    pub agent: Option<Agent>,
    /// The agent's conversation that it speaks in, where it has one.
    pub conversation: Option<Conversation>,
}

impl Caller {
    /// A person at the command line.
    pub const PERSON: Self = Caller {
        agent: None,
        conversation: None,
    };
}
