//! Requests of the interfaces. All validation is the conversion into these types.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::held::Approval;
use crate::id::{Agent, Conversation, Key, QuestionId, SessionId};
use crate::message::About;
use crate::question::Answer;
use crate::session::{End, StartedBy};
use crate::time::Millis;
use crate::timer;
use crate::wait::Asking;

/// Call as the core sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "a field is named as what it is")]
pub enum Request {
    /// Start a command (or join the one already started under the same key) and wait for it.
    Run(Run),
    /// Run the command of a condition once, or join the try that runs already, and wait for its end.
    Try(Try),
    /// Wait (again) for a session that exists.
    Join {
        session: SessionId,
        /// Way in which this call reaches a person.
        asking: Asking,
        /// Time limit of the client: the call is answered before it.
        standby: Option<Millis>,
    },
    /// Wait until a command that a person must approve has been started.
    JoinStart {
        /// Session that the command will be.
        session: SessionId,
        /// Way in which this call reaches a person.
        asking: Asking,
        /// Time limit of the client: the call is answered before it.
        standby: Option<Millis>,
    },
    /// Wait for a session on behalf of a condition, which keeps the session active until the call is gone.
    Probe { session: SessionId },
    /// Kill the tree of a session; answered when it is gone.
    Kill {
        session: SessionId,
        /// Reason of the kill.
        end: End,
    },
    /// Move a session's limits, counted from now.
    Extend {
        session: SessionId,
        /// New deadline.
        deadline: Option<Millis>,
        /// New idle limit.
        idle: Option<Millis>,
        /// New inactivity limit; zero removes it.
        inactivity: Option<Millis>,
    },
    /// Answer of a person. The interface has made sure that it comes from a person.
    Answer {
        question: QuestionId,
        answer: Answer,
        /// After a yes: time during which no question about this session is opened.
        quiet_for: Option<Millis>,
        /// After a no: words for the agent.
        because: Option<Arc<str>>,
        /// Idempotency key: the answer that was taken under it is not refused when it comes again.
        key: Option<Key>,
    },
    /// Request about timers.
    Timer(timer::Request),
    /// Read unread messages; waits for one if there is none.
    ReadMessages {
        /// Time to wait.
        standby: Millis,
        /// Maximum number of messages.
        most: usize,
        /// Subjects that the caller learns of anyway. Messages about them count as seen together with the
        /// others, and are marked as known.
        known: Vec<About>,
    },
}

impl Request {
    /// Returns whether the answer is about a session, not about a timer, a message or a question.
    pub const fn is_about_session(&self) -> bool {
        match self {
            Request::Run(_)
            | Request::Try(_)
            | Request::Join { .. }
            | Request::JoinStart { .. }
            | Request::Probe { .. }
            | Request::Kill { .. }
            | Request::Extend { .. } => true,
            Request::Timer(_) | Request::ReadMessages { .. } | Request::Answer { .. } => false,
        }
    }
}

/// Command to be started, as far as the core needs to know it. Directory, environment and input are not part of
/// it, because no decision depends on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Command as given.
    pub command: Arc<str>,
    /// Deadline, enforced by the keeper.
    pub deadline: Option<Millis>,
    /// Idle limit. `None`: never ask.
    pub idle: Option<Millis>,
    /// Inactivity limit. `None`: none.
    pub inactivity: Option<Millis>,
    /// Way in which this call reaches a person.
    pub asking: Asking,
    /// Time limit of the client: the call is answered before it.
    pub standby: Option<Millis>,
    /// Answer when the command has started, without waiting for its end (`terminal_session`).
    pub detach: bool,
    /// Idempotency key.
    pub key: Option<Key>,
    /// A person must approve the command before it is started.
    pub approval: Option<Arc<Approval>>,
}

impl Run {
    /// Cause of the session that this call of an agent starts.
    pub(crate) const fn started_by(&self) -> StartedBy {
        match self.detach {
            true => StartedBy::Terminal,
            false => StartedBy::Call,
        }
    }
}

/// Try of a condition's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Try {
    /// Command as given.
    pub command: Arc<str>,
    /// Timer or wait that the try is for.
    pub started_by: StartedBy,
    /// Index among the commands of the condition; see [`Key::of_try`].
    pub key: Key,
    /// Deadline, enforced by the keeper.
    pub deadline: Millis,
}

/// Call that cannot be carried out. It has changed nothing, unless the variant says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such session, or it belongs to another agent.
    SessionNotFound(SessionId),
    /// No such question, or it was closed long ago.
    QuestionNotFound(QuestionId),
    /// The question was already answered or withdrawn.
    QuestionClosed(QuestionId, crate::question::Closing),
    /// The session has ended; only a running one can do this.
    SessionEnded(SessionId),
    /// The same key was used for another command, or with other arguments.
    KeyReused(Key),
    /// Refusal about a timer.
    Timer(timer::Refusal),
    /// The request could not be recorded, so nothing has changed.
    NotRecorded,
    /// The database is away, as the sentence says, so nothing has changed.
    DatabaseAway(String),
    /// Another machine has changed what the request was about, as the sentence says, so nothing has changed here.
    ChangedElsewhere(String),
    /// The database does not answer, as the sentence says. The request may have been recorded or not.
    OutcomeUnknown(String),
    /// Too many of something; the sentence names it and the limit.
    TooMany(String),
}

/// Caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Agent of the caller. `None`: a person at the command line, who sees the sessions of all agents.
    pub agent: Option<Agent>,
    /// Conversation of the agent, if known.
    pub conversation: Option<Conversation>,
}

impl Caller {
    /// A person at the command line.
    pub const PERSON: Self = Caller {
        agent: None,
        conversation: None,
    };
}
