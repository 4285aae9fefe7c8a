//! What must survive a crash and is not in a session's own folder. Replaying all records gives the
//! open questions back.

use crate::id::QuestionId;
use crate::question::{Closing, Question};
use crate::time::Wall;

/// A durable fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A question was put.
    Asked {
        /// Its id.
        question: QuestionId,
        /// What it asks.
        state: Question,
    },
    /// A question was closed.
    Closed {
        /// Its id.
        question: QuestionId,
        /// How.
        closing: Closing,
        /// When.
        at: Wall,
    },
}
