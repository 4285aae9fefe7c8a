//! Records: facts that must survive a crash and are not in the directory of a session. A replay of all
//! records gives the open questions.

use alloc::sync::Arc;

use alloc::vec::Vec;
use core::ops::Range;

use crate::fleet::ShardId;
use crate::held;
use crate::id::{IdPermutation, Key, QuestionId};
use crate::message;
use crate::question::{Closing, Question};
use crate::time::{Steady, Wall};
use crate::timer;

/// Durable fact.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "a field is named as what it is")]
pub enum Record {
    /// A question was opened.
    Asked {
        question: QuestionId,
        state: Question,
    },
    /// A question was closed.
    Closed {
        question: QuestionId,
        closing: Closing,
        /// Idempotency key of the answer.
        key: Option<Key>,
        at: Wall,
    },
    /// Fact about the held command of a question.
    Held {
        question: QuestionId,
        record: held::Record,
    },
    Timer(timer::Record),
    Message(message::Record),
}

impl Record {
    /// Question that it is about.
    pub(crate) const fn question(&self) -> Option<QuestionId> {
        match self {
            Record::Asked { question, .. }
            | Record::Closed { question, .. }
            | Record::Held { question, .. } => Some(*question),
            Record::Timer(_) | Record::Message(_) => None,
        }
    }
}

/// Ids, clocks and numbers as the database has them at the start of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredState {
    /// Permutation that makes ids of numbers in this database.
    pub id_permutation: IdPermutation,
    /// Boot id of the machine.
    pub boot_id: u128,
    /// Relation of deadlines to clocks.
    pub anchor: Option<timer::Anchor>,
    /// Numbers for new timers.
    pub timer_numbers: Range<u64>,
    /// Numbers for new messages.
    pub message_numbers: Range<u64>,
}

/// Timers and messages that a daemon reads when it starts, or when it begins to own a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredRows {
    /// Timers that have not ended.
    pub timers: Vec<timer::StoredTimer>,
    /// Timers that ended last, oldest first, each with the key under which it was made.
    pub ended: Vec<(timer::Timer, Option<Key>)>,
    /// Messages that have not been seen.
    pub messages: Vec<message::StoredMessage>,
    /// Fleet time until which the database may have lost commits: what was told of timers that were due by then may be
    /// missing from it.
    pub went_back: Steady,
}

/// Shard of a fleet, as a daemon reads it when it begins to own the shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedShard {
    /// Shard.
    pub shard: ShardId,
    /// Sentence for conditional timers that complete by time, if the machine that made the shard is away; `None`: this
    /// machine has made it.
    pub note: Option<Arc<str>>,
    /// Timers and messages of the shard.
    pub rows: StoredRows,
    /// True if the machine that made the shard was not seen since the database lost commits: it may still write to the
    /// server that was replaced, and tell there what is told here.
    pub may_be_told_elsewhere: bool,
}
