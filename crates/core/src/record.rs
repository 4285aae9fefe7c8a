//! What must survive a crash and is not in a session's own folder. Replaying all records gives the
//! open questions back.

use alloc::collections::BTreeMap;

use alloc::vec::Vec;

use crate::id::{Key, QuestionId, Shuffle};
use crate::message;
use crate::question::{Closing, Question};
use crate::time::Wall;
use crate::timer;

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
    /// Something about a timer.
    Timer(timer::Record),
    /// Something about messages.
    Message(message::Record),
}

/// Timers and messages as the database has them at the start of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredState {
    /// How numbers become ids in this database.
    pub shuffle: Shuffle,
    /// Names the machine's present boot.
    pub boot_id: u128,
    /// The note that tied deadlines to clocks.
    pub anchor: Option<timer::Anchor>,
    /// The number that the next timer takes.
    pub next_timer: u64,
    /// The number that the next message takes.
    pub next_message: u64,
    /// Timers that have not ended.
    pub timers: Vec<timer::StoredTimer>,
    /// The timers that ended last, oldest first, each with the key it was made under.
    pub ended: Vec<(timer::Timer, Option<Key>)>,
    /// Messages that have not been seen.
    pub messages: Vec<message::StoredMessage>,
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
            Record::Timer(_) | Record::Message(_) => {}
        }
    }
    open
}
