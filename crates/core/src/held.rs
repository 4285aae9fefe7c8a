//! Held commands: commands of agents that are started only if a person says yes.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::id::{Agent, Conversation, Key, SessionId};
use crate::policy::Choice;
use crate::session::StartedBy;
use crate::time::Millis;
use crate::wait::Asking;

/// Command that waits for the answer of a person, with everything that is needed to start it later, by another daemon
/// too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldCommand {
    /// Agent that wants to run it.
    pub agent: Agent,
    /// Conversation of the agent.
    pub conversation: Option<Conversation>,
    /// Cause of its start.
    pub started_by: StartedBy,
    /// Command as given.
    pub command: Arc<str>,
    /// Deadline, from its start on.
    pub deadline: Option<Millis>,
    /// Idle limit.
    pub idle: Option<Millis>,
    /// Inactivity limit.
    pub inactivity: Option<Millis>,
    /// Idempotency keys of the calls that want it: one that is replayed leads to the same session.
    pub keys: Vec<Key>,
    /// Reason of the question.
    pub approval: Arc<Approval>,
}

/// Reason why a person has to approve a command, and the rest of its launch data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// Directory, environment and input, in an encoding of the daemon.
    pub launch: Arc<[u8]>,
    /// Way in which the call reaches a person who can answer.
    pub asking: Asking,
    /// Working directory, for the person.
    pub folder: Arc<str>,
    /// Part of the command line that asks.
    pub part: Arc<str>,
    /// Rule that asks. Empty: the text itself is the reason.
    pub rule: Arc<str>,
    /// Reason in words.
    pub why: Arc<str>,
    /// Answers that can be given, each with the rules that it adds, in the encoding of the daemon.
    pub offers: Vec<(Choice, Arc<str>)>,
    /// Only the page, a terminal or the command line can say yes.
    pub person_only: bool,
}

/// Reason why a command was not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotStarted {
    /// The question is open; the command is started when a person says yes.
    Held(WhyHeld),
    /// A person said no, with these words.
    Declined(Option<Arc<str>>),
    /// A person said yes, but the rules or the settings refuse the command by then, for this reason.
    Refused(Arc<str>),
    /// No person answered within a day.
    Expired,
    /// The call was interrupted before a person answered.
    Withdrawn,
    /// The agent has withdrawn it before a person answered.
    Killed,
    /// No person can answer now, and the question could not be stored for one who comes later.
    NotStored,
}

impl NotStarted {
    /// True if the owner is sent a message about it, unless a call tells it.
    pub(crate) const fn tells_owner(&self) -> bool {
        match self {
            NotStarted::Held(_)
            | NotStarted::Declined(_)
            | NotStarted::Refused(_)
            | NotStarted::Expired => true,
            NotStarted::Withdrawn | NotStarted::Killed | NotStarted::NotStored => false,
        }
    }
}

/// Reason why a call does not wait for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyHeld {
    /// No person can be reached now.
    NobodyToAsk,
    /// The time limit of the call is near.
    Standby,
}

/// Durable fact about a held command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A person said yes. The command is to be started.
    Approved {
        /// Session of the command.
        session: SessionId,
    },
    /// A person said no, or the rules refuse what a person allowed.
    Declined {
        /// Words of the person, or the reason of the refusal.
        because: Option<Arc<str>>,
    },
    /// A person said yes, but the rules or the settings refused the command when a daemon was about to start it.
    Refused {
        /// Reason.
        because: Arc<str>,
    },
    /// The command was started, or could not be.
    Started,
}
