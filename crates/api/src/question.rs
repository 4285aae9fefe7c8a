//! Questions to people.

use abide_core::{QuestionId, SessionId, Subject};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;
use crate::{Id, QuestionCommand};

words! {
    /// Subject of a question. `idle`: the session is idle, wait longer? `command`: the command was not started, may it run?
    /// `connection`: a connection of its sandbox waits, may it go on?
    QuestionAbout {
        Idle = "idle",
        Command = "command",
        Connection = "connection",
    };
}

impl From<&Subject> for QuestionAbout {
    fn from(subject: &Subject) -> Self {
        match subject {
            Subject::Idle { .. } => QuestionAbout::Idle,
            Subject::Command { .. } => QuestionAbout::Command,
            Subject::Connection { .. } => QuestionAbout::Connection,
        }
    }
}

/// A decision that only a person can take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Question {
    /// Id of the question.
    pub question_id: Id<QuestionId>,
    /// Session that the question is about.
    pub session_id: Id<SessionId>,
    /// The question.
    pub question: String,
    /// `idle`: the session is idle, wait longer? `command`: the command was not started, may it run? `connection`: a
    /// connection of its sandbox waits, may it go on?
    pub about: QuestionAbout,
    /// Command of the session.
    pub command: String,
    /// Agent that owns the session.
    pub agent: String,
    /// Working directory of the command.
    pub cwd: String,
    /// Seconds without output after which the question was asked.
    pub idle: f64,
    /// Seconds that the command had run then; in the output of `abide answer`, by now.
    pub running_for: f64,
    /// Last line of output.
    pub last_line: String,
    /// Activity in words: busy, sleeping, stopped or waiting for input.
    pub doing: String,
    /// True if the command waits for input.
    pub waiting_for_input: bool,
    /// Percent of one processor.
    pub cpu: u32,
    /// Time of the question, in Unix milliseconds.
    pub asked_at: u64,
    /// The whole question for people.
    pub text: String,
    /// Details of a question about a command that was not started, or about a connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<QuestionCommand>,
    /// Machine of the fleet that asks, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Time at which that machine said so, in Unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<u64>,
}

/// A question with the state of its session now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Question")]
pub struct QuestionDetails {
    #[serde(flatten)]
    pub question: Question,
    /// Seconds without output by now.
    pub idle_for: Option<f64>,
    /// Last lines of output.
    pub tail: Vec<String>,
}

/// Open questions, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Questions")]
pub struct QuestionPage {
    /// Questions of this page.
    pub questions: Vec<QuestionDetails>,
    /// `after` of the next page.
    pub next: Option<String>,
    /// Number of questions in all pages.
    pub total: usize,
    /// Questions that the client knows as open and that are closed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed: Vec<ClosedQuestion>,
}

/// A question that is not open any more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClosedQuestion {
    /// Id of the question.
    pub question_id: Id<QuestionId>,
    /// Answer, or `withdrawn`.
    pub closing: String,
}

/// A change of a question, as an event of the page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum QuestionEvent {
    /// The question is open.
    Open(Box<QuestionDetails>),
    /// The question was answered or withdrawn.
    Closed(ClosedQuestion),
}

impl QuestionEvent {
    /// Id of the question.
    pub fn id(&self) -> QuestionId {
        match self {
            QuestionEvent::Open(details) => details.question.question_id.0,
            QuestionEvent::Closed(closed) => closed.question_id.0,
        }
    }
}

/// An answer that was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Answered {
    /// Id of the question.
    pub question_id: Id<QuestionId>,
    /// `idle`, `command` or `connection`.
    pub about: QuestionAbout,
    /// `yes` or `no`; about a command or a connection `once`, `this agent`, `always here`, `always` or `no`.
    pub answer: String,
}
