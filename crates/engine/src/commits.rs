//! Commits of what the core decides, while the event loop goes on.
//!
//! [`Effect::waits_for_commit`] says which effects wait. One commit is in flight at a time, and what is decided meanwhile
//! is the next one; if the first fails, both are undone.

use std::collections::HashMap;
use std::sync::Arc;

use abide_core::{About, CallId, Effect, Engine, Record, SessionId, message};
use tokio::sync::oneshot;

use crate::event_loop::OpenCall;
use crate::store::{Store, StoreFault};

/// Records and effects that gather during a commit before the loop takes no more calls and events, those of sessions
/// included.
const MAX_GATHERED: usize = 8_192;

/// Commits of one event loop.
pub(super) struct Commits {
    store: Arc<dyn Store>,
    gathering: Generation,
    in_flight: Option<InFlight>,
}

/// Decisions between the begins of two commits.
#[derive(Default)]
struct Generation {
    records: Vec<Record>,
    /// Effects that wait for the commit.
    effects: Vec<Effect>,
}

/// Commit that the store works on.
struct InFlight {
    done: oneshot::Receiver<Result<(), StoreFault>>,
    after: AfterCommit,
}

/// Consequences of a commit that succeeded, or of changes that need none.
#[derive(Default)]
pub(super) struct AfterCommit {
    /// Effects that waited for it.
    pub effects: Vec<Effect>,
    /// Messages that were marked as seen.
    pub seen: Vec<u64>,
    /// Sessions whose ending a message reports.
    pub reported_sessions: Vec<SessionId>,
    /// Number of timers that have not ended.
    pub timers: usize,
}

impl AfterCommit {
    /// Facts about the state of the engine, to be published once `records` are durable.
    fn new(engine: &Engine, effects: Vec<Effect>, records: &[Record]) -> Self {
        let (mut seen, mut reported_sessions) = (Vec::new(), Vec::new());
        for record in records {
            match record {
                Record::Message(message::Record::Seen { numbers, .. }) => seen.extend(numbers),
                Record::Message(message::Record::Posted { content, .. }) => {
                    if let About::Session(session) = content.about {
                        reported_sessions.push(session);
                    }
                }
                Record::Message(message::Record::DeliveryBegun { .. })
                | Record::Held { .. }
                | Record::Timer(_)
                | Record::Asked { .. }
                | Record::Closed { .. } => {}
            }
        }
        AfterCommit {
            effects,
            seen,
            reported_sessions,
            timers: engine.counts().timers,
        }
    }
}

/// Commit that has finished.
pub(super) enum FinishedCommit {
    /// The records are durable.
    Succeeded(AfterCommit),
    /// Nothing was written. The effects of both generations are to be undone.
    Failed(StoreFault, Vec<Effect>),
}

impl Commits {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Commits {
            store,
            gathering: Generation::default(),
            in_flight: None,
        }
    }

    /// Takes the records, and the effects that wait for a commit, out of the effects of a turn.
    pub fn gather(&mut self, effects: &mut Vec<Effect>, calls: &HashMap<CallId, OpenCall>) {
        let about_session = |call| {
            let call = calls.get(&call);
            call.is_some_and(|call| call.about_session)
        };
        for effect in std::mem::take(effects) {
            match effect {
                Effect::Record(record) => self.gathering.records.push(record),
                effect if effect.waits_for_commit(about_session) => {
                    self.gathering.effects.push(effect)
                }
                effect => effects.push(effect),
            }
        }
    }

    /// Begins the next commit unless one is in flight. Returns what has gathered if there is nothing to commit.
    pub fn begin(&mut self, engine: &mut Engine) -> Option<AfterCommit> {
        if self.in_flight.is_some() {
            return None;
        }
        let Generation { records, effects } = std::mem::take(&mut self.gathering);
        engine.begin_commit();
        let after = AfterCommit::new(engine, effects, &records);
        if records.is_empty() {
            engine.commit_succeeded();
            return Some(after);
        }
        let done = self.store.commit(records);
        self.in_flight = Some(InFlight { done, after });
        None
    }

    /// Waits until the commit in flight is finished; for ever if there is none. Can be cancelled and called again.
    pub async fn finished(&mut self) -> Result<FinishedCommit, StoreFault> {
        let Some(in_flight) = &mut self.in_flight else {
            return std::future::pending().await;
        };
        let result = (&mut in_flight.done).await;
        let after = match self.in_flight.take() {
            Some(in_flight) => in_flight.after,
            None => AfterCommit::default(),
        };
        let gone = |_| StoreFault::Broken("its writer thread has ended".into());
        match result.map_err(gone)? {
            Ok(()) => Ok(FinishedCommit::Succeeded(after)),
            // Nothing was written, so the state on disk is known, and commands need no database.
            Err(
                fault @ (StoreFault::Unwritable(_)
                | StoreFault::Unopenable(_)
                | StoreFault::Damaged(_)),
            ) => {
                let mut effects = after.effects;
                effects.append(&mut std::mem::take(&mut self.gathering).effects);
                Ok(FinishedCommit::Failed(fault, effects))
            }
            Err(fault) => Err(fault),
        }
    }

    pub fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// True if no more may gather before the commit in flight is finished.
    pub fn is_full(&self) -> bool {
        let Generation { records, effects } = &self.gathering;
        self.in_flight.is_some() && records.len() + effects.len() >= MAX_GATHERED
    }
}
