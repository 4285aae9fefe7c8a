//! Shards that one daemon owns, and what it decided about them at the last look.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::REQUEST_AGAIN;
use super::effect::{Effect, Statement};
use super::row::{Claim, MachineId, ShardId, ShardRow};
use crate::time::Boot;

/// Ownership of one shard.
#[derive(Clone, Copy, Debug)]
struct Owned {
    epoch: u64,
    claim: Option<Claim>,
}

impl Owned {
    fn is_in(&self, row: &ShardRow) -> bool {
        (self.epoch, self.claim) == (row.epoch, row.claim)
    }
}

/// Statement that has to be sent about a shard.
#[derive(Clone, Copy, Debug)]
enum Decision {
    Claim {
        expected: Option<(MachineId, u64)>,
        silent: Option<(Claim, u64)>,
    },
    HandBack {
        epoch: u64,
        to: MachineId,
    },
}

/// Shards of one daemon.
#[derive(Clone, Debug, Default)]
pub(super) struct Shards {
    owned: BTreeMap<ShardId, Owned>,
    /// Shards whose timers are in memory, owned or in doubt, with the last epoch in which they were owned.
    loaded: BTreeMap<ShardId, u64>,
    decided: BTreeMap<ShardId, Decision>,
    requested: BTreeSet<ShardId>,
    /// Highest epoch that was seen of each shard. A database that lost commits must not lead to the same epoch twice.
    highest: BTreeMap<ShardId, u64>,
    asked: Option<Boot>,
}

impl Shards {
    pub(super) fn owned(&self) -> impl Iterator<Item = (ShardId, u64)> {
        self.owned
            .iter()
            .map(|(shard, owned)| (*shard, owned.epoch))
    }

    /// Shards to look at.
    pub(super) fn ids(&self, me: MachineId) -> Vec<ShardId> {
        let adopted = self.loaded.keys().copied().filter(|shard| shard.0 != me);
        adopted.chain([ShardId(me)]).collect()
    }

    /// Takes a row of a look. `gone` is given if the owner cannot object, with its last heartbeat if it has a row.
    /// Returns whether another machine has become the owner though this one lives.
    pub(super) fn judge(
        &mut self,
        me: MachineId,
        row: &ShardRow,
        gone: Option<Option<(Claim, u64)>>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let highest = self.highest.entry(row.id).or_default();
        *highest = row.epoch.max(*highest);
        self.decided.remove(&row.id);
        let owned = self.owned.get(&row.id);
        if row.owner == me && owned.is_some_and(|owned| owned.is_in(row)) {
            if self.requested.remove(&row.id) && row.id.0 != me {
                let (epoch, to) = (row.epoch, row.id.0);
                self.decided
                    .insert(row.id, Decision::HandBack { epoch, to });
            }
            return false;
        }
        let was_owned = self.owned.remove(&row.id).is_some();
        self.requested.remove(&row.id);
        // A higher epoch: others may have changed the rows. A lower one: the database lost commits, and what is in
        // memory is newer than the rows. If the owner in the row lives, it will claim a higher one.
        let was_fenced = (self.loaded.get(&row.id)).is_some_and(|epoch| row.epoch > *epoch);
        let may_claim = row.owner == me || gone.is_some();
        if was_fenced {
            self.loaded.remove(&row.id);
            effects.push(Effect::Drop { shard: row.id });
        } else if was_owned {
            effects.push(Effect::Suspend { shard: row.id });
        }
        if may_claim {
            let expected = Some((row.owner, row.epoch));
            let silent = gone.flatten();
            self.decided
                .insert(row.id, Decision::Claim { expected, silent });
        }
        was_fenced && row.owner != me
    }

    /// The shard of this machine does not exist.
    pub(super) fn create(&mut self, shard: ShardId, effects: &mut Vec<Effect>) {
        if self.owned.remove(&shard).is_some() {
            effects.push(Effect::Suspend { shard });
        }
        let (expected, silent) = (None, None);
        self.decided
            .insert(shard, Decision::Claim { expected, silent });
    }

    /// A claim has succeeded.
    pub(super) fn won(
        &mut self,
        shard: ShardId,
        epoch: u64,
        claim: Claim,
        effects: &mut Vec<Effect>,
    ) {
        let claim = Some(claim);
        self.highest.insert(shard, epoch);
        self.owned.insert(shard, Owned { epoch, claim });
        self.loaded.insert(shard, epoch);
        effects.push(Effect::Load { shard, epoch });
    }

    /// A batch was fenced. The next look decides whether another machine is the owner.
    pub(super) fn lost(&mut self, shard: ShardId, epoch: u64) {
        if self
            .owned
            .get(&shard)
            .is_some_and(|owned| owned.epoch == epoch)
        {
            self.owned.remove(&shard);
            self.decided.remove(&shard);
        }
    }

    /// The outcome of a batch is unknown: the shard is claimed again at once.
    pub(super) fn doubted(&mut self, me: MachineId, shard: ShardId, epoch: u64) {
        if self
            .owned
            .get(&shard)
            .is_none_or(|owned| owned.epoch != epoch)
        {
            return;
        }
        self.owned.remove(&shard);
        let (expected, silent) = (Some((me, epoch)), None);
        self.decided
            .insert(shard, Decision::Claim { expected, silent });
    }

    /// The database may have lost commits: everything is claimed again at the next look.
    pub(super) fn doubt_all(&mut self, effects: &mut Vec<Effect>) {
        let doubted = core::mem::take(&mut self.owned);
        effects.extend(doubted.into_keys().map(|shard| Effect::Suspend { shard }));
        self.decided.clear();
    }

    pub(super) fn requested(&mut self, shard: ShardId) {
        if self.owned.contains_key(&shard) {
            self.requested.insert(shard);
        }
    }

    /// True if it is time to ask for the own shard.
    pub(super) fn may_ask(&mut self, now: Boot) -> bool {
        let is_time = self.asked.is_none_or(|at| now.0 >= at.0 + REQUEST_AGAIN.0);
        if is_time {
            self.asked = Some(now);
        }
        is_time
    }

    pub(super) fn forget_decisions(&mut self) {
        self.decided.clear();
    }

    pub(super) fn drop_all(&mut self) -> impl Iterator<Item = ShardId> {
        let loaded = core::mem::take(&mut self.loaded);
        *self = Shards::default();
        loaded.into_keys()
    }

    /// Next statement that was decided.
    pub(super) fn next_statement(&mut self, claim: Claim, timeline: u64) -> Option<Statement> {
        let (shard, decision) = self.decided.pop_first()?;
        Some(match decision {
            Decision::Claim { expected, silent } => Statement::Claim {
                shard,
                expected,
                silent,
                timeline,
                claim,
                epoch: self.next_epoch(shard, timeline),
            },
            Decision::HandBack { epoch, to } => {
                self.owned.remove(&shard);
                self.loaded.remove(&shard);
                Statement::HandBack { shard, epoch, to }
            }
        })
    }

    /// Epoch that no owner of any timeline has had: one that lost an adoption with its commits may still believe in it.
    fn next_epoch(&self, shard: ShardId, timeline: u64) -> u64 {
        let highest = self.highest.get(&shard).copied().unwrap_or(0);
        (highest + 1).max(timeline << 32)
    }
}
