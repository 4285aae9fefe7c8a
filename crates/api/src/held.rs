//! Commands that the policy refuses, or that a person has to allow.

use abide_core::{QuestionId, SessionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;
use crate::{Id, SandboxedBy, Session};

/// Fields of the result of a command that was not started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NotStartedResult {
    pub status: NotStartedStatus,
    /// Question that a person has to answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question_id: Option<Id<QuestionId>>,
    /// Session that a held command will be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Id<SessionId>>,
    /// Name of the rule that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// `null`: nothing was run.
    pub sandboxed_by: Option<SandboxedBy>,
    /// Promises that the sandbox does not keep.
    pub sandbox_gaps: Vec<String>,
}

words! {
    /// Status of a command that was not started: refused by a rule or a person, held until a person says yes, expired because
    /// nobody answered within a day, or withdrawn with its call.
    NotStartedStatus {
        Refused = "refused",
        Held = "held",
        Expired = "expired",
        Withdrawn = "withdrawn",
    };
}

/// Result of a tool that starts commands.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum StartsCommand<T> {
    /// The command was started.
    Started(T),
    /// The command was not started.
    NotStarted(NotStartedResult),
}

/// Response to a kill.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Killed {
    /// The session has ended.
    Session(Box<Session>),
    /// The command waited for the answer of a person and will not be started.
    Withdrawn(NotStartedResult),
}

/// Command of a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuestionCommand {
    /// Working directory.
    pub folder: String,
    /// Part of the command line that asks.
    pub part: String,
    /// Rule that asks. Empty: the text itself is the reason.
    pub rule: String,
    /// Reason of the question.
    pub why: String,
    /// Answers that can be given.
    pub answers: Vec<AnswerOffer>,
}

/// Answer that can be given to a question about a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AnswerOffer {
    /// `once`, `this agent`, `always here`, `always` or `no`.
    pub answer: String,
    /// Rules that the answer adds, as TOML. Empty: none.
    pub adds: String,
}
