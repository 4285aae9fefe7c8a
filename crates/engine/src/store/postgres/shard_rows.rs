//! Rows of one shard, as a daemon reads them when it begins to own the shard.

use std::ops::Range;
use std::sync::Arc;

use abide_core::fleet::ShardId;
use abide_core::id::IdPermutation;
use abide_core::message::StoredMessage;
use abide_core::timer::{StoredTimer, Timer, Until};
use abide_core::{HeldCommand, Key, Question, QuestionId, SessionId, TimerId};

use super::ownership::column;
use crate::store::deliveries::{self, ClientRow};
use crate::store::load::{self, Of};
use crate::store::query::Query;
use crate::store::{StoreFault, held};

/// Change of the shards that are in memory, for the event loop.
pub(crate) enum ShardChange {
    /// A shard was read.
    Loaded(Box<ShardRows>),
    /// Another machine owns a shard.
    Dropped(ShardId),
    /// Fleet time minus boot time has changed.
    TimeSet(i64),
    /// Numbers for new timers and messages.
    Numbers(Range<u64>),
}

/// Rows of a shard that are not over.
#[derive(Default)]
pub(crate) struct ShardRows {
    /// Shard.
    pub shard: Option<ShardId>,
    /// Sentence for conditional timers, if another machine has made the shard, which is away.
    pub note: Option<Arc<str>>,
    /// Timers that have not ended.
    pub timers: Vec<StoredTimer>,
    /// Conditions of the timers.
    pub conditions: Vec<(TimerId, Until)>,
    /// Timers that ended last, oldest first. Only of the own shard.
    pub ended: Vec<(Timer, Option<Key>)>,
    /// Messages that have not been seen.
    pub messages: Vec<StoredMessage>,
    /// Open questions. Only of the own shard: questions are about sessions, which stay on their machine.
    pub questions: Vec<(QuestionId, Question)>,
    /// Commands that a person has approved and whose start is not recorded. Only of the own shard.
    pub approved: Vec<(QuestionId, SessionId, HeldCommand)>,
    /// Clients of all agents. Only of the own shard.
    pub clients: Vec<ClientRow>,
}

/// Reads a shard.
pub(super) fn read(
    db: &dyn Query,
    shard: ShardId,
    note: Option<Arc<str>>,
    id_permutation: IdPermutation,
) -> Result<ShardRows, StoreFault> {
    let of = Of::Shard(column(shard));
    let (timers, conditions) = load::timers(db, id_permutation, of)?;
    let mut rows = ShardRows {
        shard: Some(shard),
        note,
        timers,
        conditions,
        ended: Vec::new(),
        messages: load::messages(db, of)?,
        questions: Vec::new(),
        approved: Vec::new(),
        clients: Vec::new(),
    };
    if rows.note.is_none() {
        rows.ended = load::ended(db, id_permutation, of)?;
        rows.questions = load::open_questions(db, of)?;
        rows.approved = held::approved(db, of)?;
        rows.clients = deliveries::clients(db, of)?;
    }
    Ok(rows)
}
