//! Something a person must decide.

use alloc::collections::{BTreeMap, VecDeque};

use crate::id::{Agent, QuestionId, SessionId};
use crate::limit;
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

/// All open questions, and the last that were closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Questions {
    open: BTreeMap<QuestionId, Question>,
    closed: BTreeMap<QuestionId, (Closing, Option<Agent>)>,
    /// The closed ones, oldest first.
    order: VecDeque<QuestionId>,
    seed: u64,
}

impl Questions {
    pub fn new(seed: u64) -> Self {
        Questions {
            open: BTreeMap::new(),
            closed: BTreeMap::new(),
            order: VecDeque::new(),
            seed,
        }
    }

    pub fn get(&self, id: QuestionId) -> Option<&Question> {
        self.open.get(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (QuestionId, &Question)> {
        self.open.iter().map(|(&id, state)| (id, state))
    }

    pub fn len(&self) -> usize {
        self.open.len()
    }

    pub fn remembered(&self) -> usize {
        self.closed.len()
    }

    /// How a question was closed, and whose it was.
    pub fn closed(&self, id: QuestionId) -> Option<&(Closing, Option<Agent>)> {
        self.closed.get(&id)
    }

    pub fn open(&mut self, state: Question) -> QuestionId {
        let id = self.mint();
        self.open.insert(id, state);
        id
    }

    pub fn reopen(&mut self, id: QuestionId, state: Question) {
        self.open.insert(id, state);
    }

    /// Forgets an open question but for how it was closed; the oldest such memory makes room.
    pub fn close(&mut self, id: QuestionId, closing: Closing, owner: Option<Agent>) {
        if self.open.remove(&id).is_none() {
            return;
        }
        if self.order.len() == limit::CLOSED_QUESTIONS
            && let Some(oldest) = self.order.pop_front()
        {
            self.closed.remove(&oldest);
        }
        self.order.push_back(id);
        self.closed.insert(id, (closing, owner));
    }

    /// The next id of the sequence (splitmix64) that names nothing yet.
    fn mint(&mut self) -> QuestionId {
        loop {
            self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut bits = self.seed;
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let id = QuestionId::from_bits(bits ^ (bits >> 31));
            if !self.open.contains_key(&id) && !self.closed.contains_key(&id) {
                return id;
            }
        }
    }
}
