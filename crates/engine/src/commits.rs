//! Commits of what the core decides, while the event loop goes on.
//!
//! [`Effect::waits_for_commit`] says which effects wait. One commit is in flight at a time, and what is decided meanwhile
//! is the next one; if the first fails, both are undone.

use std::collections::HashMap;
use std::sync::Arc;

use abide_core::{CallId, Effect, Engine, Millis, Mono, Outcome, Record, Refusal};
use tokio::sync::oneshot;

use crate::event_loop::OpenCall;
use crate::store::{AfterFault, Store, StoreFault};

/// Records and effects that gather during a commit before the loop takes no more calls and events, those of sessions
/// included.
const MAX_GATHERED: usize = 8_192;
/// Time that calls wait for a commit of unknown outcome, from its begin. It includes the deadline of a transaction and
/// some attempts to connect again, so that a short failure of the database delays an answer and does not change it.
pub(super) const LONGEST_DOUBT: Millis = Millis::from_secs(30);

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
    /// Effects that wait for it.
    effects: Vec<Effect>,
    began_at: Mono,
    /// True if the store has to find out how the commit ended.
    is_settling: bool,
    /// True if the calls that wait for it were told that its outcome is not known.
    is_doubt_told: bool,
}

pub(super) enum FinishedCommit {
    /// The records are durable: these effects waited for that.
    Succeeded(Vec<Effect>),
    /// Nothing was written. The effects of both generations are to be undone.
    Failed(StoreFault, Vec<Effect>),
    /// The store has to find out whether the records are durable, which can take as long as the database is away. It
    /// counts as in flight until then, and what is decided meanwhile is refused. Calls wait for it for a limited time.
    Unknown(StoreFault),
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
    pub fn begin(&mut self, engine: &mut Engine, now: Mono) -> Option<Vec<Effect>> {
        if self.in_flight.is_some() {
            return None;
        }
        let Generation { records, effects } = std::mem::take(&mut self.gathering);
        engine.begin_commit();
        if records.is_empty() {
            engine.commit_succeeded();
            return Some(effects);
        }
        self.in_flight = Some(InFlight {
            done: self.store.commit(records),
            effects,
            began_at: now,
            is_settling: false,
            is_doubt_told: false,
        });
        None
    }

    /// Takes the effects that have gathered, to be undone, if it is not known how the commit in flight ends.
    pub fn take_effects_to_undo(&mut self) -> Option<Vec<Effect>> {
        let Generation { records, effects } = &self.gathering;
        let any = !records.is_empty() || !effects.is_empty();
        (any && self.is_settling()).then(|| std::mem::take(&mut self.gathering).effects)
    }

    /// Time at which the calls that wait for a commit of unknown outcome are told so.
    pub fn doubt_is_told_at(&self) -> Option<Mono> {
        let in_flight = self.in_flight.as_ref()?;
        let waits = in_flight.is_settling && !in_flight.is_doubt_told;
        waits.then_some(in_flight.began_at + LONGEST_DOUBT)
    }

    /// Calls that wait for the commit in flight, which has been in doubt for too long, and the sentence for them. Its
    /// effects stay, and find these calls answered.
    pub fn tell_doubt(&mut self) -> (Vec<CallId>, Refusal) {
        let fault = StoreFault::no_answer();
        let sentence = self.store.refusal(&fault);
        let refusal = Refusal::OutcomeUnknown(sentence.unwrap_or_else(|| fault.to_string()));
        let Some(in_flight) = &mut self.in_flight else {
            return (Vec::new(), refusal);
        };
        in_flight.is_doubt_told = true;
        let replies = in_flight.effects.iter();
        let waiting = replies.filter_map(|effect| match effect {
            Effect::Reply { call, .. } => Some(*call),
            _ => None,
        });
        (waiting.collect(), refusal)
    }

    /// Gives the reason to calls that are refused because the database is away.
    pub fn explain_refusals(&self, effects: &mut [Effect], fault: &StoreFault) {
        let Some(trouble) = self.store.refusal(fault) else {
            return;
        };
        for effect in effects {
            if let Effect::Reply { outcome, .. } = effect
                && *outcome == Outcome::Refused(Refusal::NotRecorded)
            {
                *outcome = Outcome::Refused(match fault {
                    StoreFault::Stale(_) => Refusal::ChangedElsewhere(trouble.clone()),
                    _ => Refusal::DatabaseAway(trouble.clone()),
                });
            }
        }
    }

    /// Waits until the commit in flight is finished; for ever if there is none. Can be cancelled and called again.
    pub async fn finished(&mut self) -> Result<FinishedCommit, StoreFault> {
        let Some(in_flight) = &mut self.in_flight else {
            return std::future::pending().await;
        };
        let result = (&mut in_flight.done).await;
        let Some(InFlight {
            mut effects,
            began_at,
            ..
        }) = self.in_flight.take()
        else {
            return std::future::pending().await;
        };
        let gone = |_| StoreFault::Broken("its writer has ended".into());
        let Err(fault) = result.map_err(gone)? else {
            return Ok(FinishedCommit::Succeeded(effects));
        };
        match fault.after_commit() {
            AfterFault::Unknown => {
                self.in_flight = Some(InFlight {
                    done: self.store.settle(),
                    effects,
                    began_at,
                    is_settling: true,
                    is_doubt_told: false,
                });
                Ok(FinishedCommit::Unknown(fault))
            }
            // The state on disk is known, and commands need no database.
            AfterFault::NothingWritten => {
                effects.append(&mut std::mem::take(&mut self.gathering).effects);
                Ok(FinishedCommit::Failed(fault, effects))
            }
            AfterFault::Broken => Err(fault),
        }
    }

    pub fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// True if the store has to find out how the commit in flight ended.
    pub fn is_settling(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|of| of.is_settling)
    }

    /// True if no more may gather before the commit in flight is finished.
    pub fn is_full(&self) -> bool {
        let Generation { records, effects } = &self.gathering;
        self.in_flight.is_some() && records.len() + effects.len() >= MAX_GATHERED
    }
}
