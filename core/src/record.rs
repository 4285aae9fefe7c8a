//! What must survive a crash and is not in a session's own folder. Replaying all records gives the
//! open questions back.

use alloc::collections::BTreeMap;

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

/// The questions that are open after all these, in the order in which they were recorded.
pub fn replay<'a>(records: impl IntoIterator<Item = &'a Record>) -> BTreeMap<QuestionId, Question> {
    let mut open = BTreeMap::new();
    for record in records {
        match record {
            Record::Asked { question, state } => {
                open.insert(*question, state.clone());
            }
            Record::Closed { question, .. } => {
                open.remove(question);
            }
        }
    }
    open
}
