//! Model of the shared database: rows, row locks, atomic statements, a clock that jumps, and copies of older rows.

use std::collections::BTreeMap;

use abide_core::Millis;
use abide_core::fleet::clock::{by_database, due};
use abide_core::fleet::version::Version;
use abide_core::fleet::{
    Answer, DUE_SOON, DatabaseClock, FleetRow, Look, MachineId, MachineRow, Pace, Scope, ShardId,
    ShardRow, Standing, Statement,
};
use abide_core::time::Steady;

use crate::checks::Sabotage;

/// Timer: its shard and its number.
pub type Key = (ShardId, u64);
/// Epoch and number of the batch that wrote a row.
pub type Stamp = (u64, u64);

/// State of a timer and of the message about its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Live,
    Completed,
    /// A machine has claimed the message and delivers it.
    Telling,
    Seen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerRow {
    pub due: Steady,
    pub state: State,
    pub stamp: Stamp,
}

/// Change of one row in a batch.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    Make { total: Millis, decided: Steady },
    Set(State),
}

/// Transaction of a daemon: all or nothing, fenced.
#[derive(Clone, Debug)]
pub struct Batch {
    pub shard: ShardId,
    pub timeline: u64,
    pub pace: Pace,
    pub stamp: Stamp,
    pub changes: Vec<(u64, Change)>,
}

#[derive(Clone, Debug)]
pub enum BatchAnswer {
    Committed(Vec<(u64, TimerRow)>),
    Fenced,
    TimeRefused,
}

/// Answer to the opening of a shard.
#[derive(Clone, Debug)]
pub struct Opened {
    pub rows: Vec<(u64, TimerRow)>,
    pub went_back: Steady,
}

#[derive(Clone, Debug)]
pub struct Rows {
    pub fleet: FleetRow,
    pub machines: BTreeMap<MachineId, MachineRow>,
    pub shards: BTreeMap<ShardId, ShardRow>,
    pub timers: BTreeMap<Key, TimerRow>,
}

pub struct Database {
    pub rows: Rows,
    pub timeline: u64,
    /// Clock of the server minus true time.
    pub clock_off: i64,
    /// Batches between their fence and their commit: the shard row is locked until then.
    pub locked: BTreeMap<ShardId, u64>,
    pub sabotage: Option<Sabotage>,
}

impl Database {
    pub fn new(sabotage: Option<Sabotage>) -> Self {
        Database {
            rows: Rows {
                fleet: FleetRow {
                    version: 1,
                    schema: 1,
                    oldest_writer: Version(0, 1, 0),
                    clock_ahead: 0,
                    reached: Steady(0),
                    members: 0,
                    timeline: 1,
                    went_back: Steady(0),
                },
                machines: BTreeMap::new(),
                shards: BTreeMap::new(),
                timers: BTreeMap::new(),
            },
            timeline: 1,
            clock_off: 0,
            locked: BTreeMap::new(),
            sabotage,
        }
    }

    pub fn clock(&self, time: u64) -> DatabaseClock {
        DatabaseClock(time.saturating_add_signed(self.clock_off))
    }

    /// Executes a statement of the membership.
    pub fn execute(&mut self, time: u64, from: MachineId, statement: &Statement) -> Answer {
        let clock = self.clock(time);
        let rows = &mut self.rows;
        match statement {
            Statement::Look => self.look(clock, from, &Scope::All, &[], false),
            Statement::Beat(beat) => {
                let row = rows.machines.get_mut(&from);
                let row = row.filter(|row| {
                    row.claim == beat.claim
                        && row.heartbeat < beat.heartbeat
                        && matches!(row.standing, Standing::Member | Standing::Left)
                });
                let heartbeat_written = row.is_some();
                if let Some(row) = row {
                    row.heartbeat = beat.heartbeat;
                    row.pace = beat.pace;
                    row.standing = beat.standing;
                    row.fleet_time = beat.fleet_time;
                    row.written = clock;
                }
                self.look(clock, from, &beat.scope, &beat.shards, heartbeat_written)
            }
            Statement::Enter {
                expected,
                claim,
                boot,
                heartbeat,
                lost_after,
            } => {
                let present = rows.machines.get(&from);
                let may_enter =
                    |row: &&MachineRow| matches!(row.standing, Standing::Member | Standing::Left);
                if present
                    .filter(may_enter)
                    .map(|row| (row.claim, row.heartbeat))
                    != *expected
                {
                    return Answer::Done(false);
                }
                let row = MachineRow {
                    id: from,
                    claim: *claim,
                    boot: *boot,
                    standing: Standing::Member,
                    heartbeat: *heartbeat,
                    pace: Pace::Slow,
                    fleet_time: None,
                    written: clock,
                    lost_after: *lost_after,
                };
                rows.machines.insert(from, row);
                rows.fleet.members += 1;
                Answer::Done(true)
            }
            Statement::Claim {
                shard,
                expected,
                silent,
                timeline,
                claim,
                epoch,
            } => {
                let present = rows.shards.get(shard).map(|row| (row.owner, row.epoch));
                let is_silent = match expected {
                    Some((owner, _)) if *owner != from => {
                        let row = rows.machines.get(owner);
                        row.map(|row| (row.claim, row.heartbeat)) == *silent
                    }
                    _ => true,
                };
                if present != *expected || !is_silent || *timeline != self.timeline {
                    return Answer::Done(false);
                }
                let row = ShardRow {
                    id: *shard,
                    owner: from,
                    epoch: *epoch,
                    claim: Some(*claim),
                };
                rows.shards.insert(*shard, row);
                Answer::Done(true)
            }
            Statement::HandBack { shard, epoch, to } => {
                let row = rows.shards.get_mut(shard);
                let row = row.filter(|row| (row.owner, row.epoch) == (from, *epoch));
                let done = row.is_some();
                if let Some(row) = row {
                    (row.owner, row.epoch, row.claim) = (*to, epoch + 1, None);
                }
                Answer::Done(done)
            }
            Statement::SetFleet { row, timeline } => {
                let is_next = row.version == rows.fleet.version + 1;
                let done = is_next && *timeline == self.timeline;
                if done {
                    let members = rows.fleet.members;
                    rows.fleet = row.clone();
                    rows.fleet.members = members;
                }
                Answer::Done(done)
            }
        }
    }

    fn look(
        &self,
        clock: DatabaseClock,
        from: MachineId,
        scope: &Scope,
        shards: &[ShardId],
        heartbeat_written: bool,
    ) -> Answer {
        let rows = &self.rows;
        let is_read = |id: MachineId| match scope {
            Scope::All => id != from,
            Scope::Machines(ids) => ids.contains(&id),
        };
        let is_shard_read = |row: &ShardRow| {
            let wide = *scope == Scope::All;
            wide || row.owner == from || is_read(row.owner) || shards.contains(&row.id)
        };
        Answer::Looked(Box::new(Look {
            fleet: rows.fleet.clone(),
            database_clock: clock,
            timeline: self.timeline,
            heartbeat_written,
            own: rows.machines.get(&from).cloned(),
            machines: (rows.machines.values())
                .filter(|row| is_read(row.id))
                .cloned()
                .collect(),
            shards: (rows.shards.values())
                .filter(|row| is_shard_read(row))
                .copied()
                .collect(),
            wide: *scope == Scope::All,
        }))
    }

    /// Returns whether the machine owns the shard in this epoch.
    pub fn owns(&self, from: MachineId, shard: ShardId, epoch: u64) -> bool {
        let row = self.rows.shards.get(&shard);
        self.sabotage == Some(Sabotage::NoFence)
            || row.is_some_and(|row| (row.owner, row.epoch) == (from, epoch))
    }

    /// Writes a batch whose fence holds. One that makes a timer that is due soon also writes the fast pace.
    pub fn commit(&mut self, time: u64, from: MachineId, batch: &Batch) -> BatchAnswer {
        let now = by_database(self.clock(time), &self.rows.fleet);
        let mut written = Vec::new();
        for (number, change) in &batch.changes {
            let present = self.rows.timers.get(&(batch.shard, *number));
            let (due, state) = match *change {
                Change::Make { total, decided } => {
                    let by_machine = Some(decided + total);
                    let is_checked = self.sabotage != Some(Sabotage::NoTimeCheck);
                    let due = if is_checked {
                        due(decided, now, total)
                    } else {
                        by_machine
                    };
                    match due {
                        Some(due) => (due, State::Live),
                        None => return BatchAnswer::TimeRefused,
                    }
                }
                Change::Set(state) => {
                    let present = present.expect("a batch changes rows that exist");
                    assert!(
                        state != State::Completed || present.state == State::Live,
                        "CHECK once: timer {:?} completes twice",
                        (batch.shard, number)
                    );
                    (present.due, state)
                }
            };
            let stamp = batch.stamp;
            written.push((*number, TimerRow { due, state, stamp }));
        }
        let is_soon = |row: &TimerRow| row.state == State::Live && row.due <= now + DUE_SOON;
        if let Some(machine) = self.rows.machines.get_mut(&from)
            && batch.pace == Pace::Fast
            && written.iter().any(|(_, row)| is_soon(row))
        {
            machine.pace = Pace::Fast;
        }
        for (number, row) in &written {
            self.rows.timers.insert((batch.shard, *number), *row);
        }
        BatchAnswer::Committed(written)
    }

    /// Opens a shard for its owner: rewrites rows that the database lost, and reads the rows that have not ended.
    pub fn open(&mut self, shard: ShardId, newest: &[(u64, TimerRow)]) -> Opened {
        for (number, row) in newest {
            let present = self.rows.timers.get(&(shard, *number));
            if present.is_none_or(|present| present.stamp < row.stamp) {
                self.rows.timers.insert((shard, *number), *row);
            }
        }
        Opened {
            rows: self.read(shard),
            went_back: self.rows.fleet.went_back,
        }
    }

    pub fn read(&self, shard: ShardId) -> Vec<(u64, TimerRow)> {
        (self.rows.timers.range((shard, 0)..=(shard, u64::MAX)))
            .map(|((_, number), row)| (*number, *row))
            .collect()
    }
}
