//! Something a person must decide.

use crate::id::SessionId;
use crate::time::{Millis, Wall};

/// An open question. It is durable: it is recorded before anybody is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Which session it is about.
    pub session: SessionId,
    /// For how long the session had been idle when it was asked (its idle limit).
    pub idle: Millis,
    /// When it was asked.
    pub asked: Wall,
}

/// What a person said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Go on waiting.
    Yes,
    /// Give up: the tree is killed.
    No,
}

/// How a question was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// A person answered it.
    Answered(Answer),
    /// It no longer matters.
    Withdrawn,
}
