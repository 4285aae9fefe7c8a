//! Model of a daemon: the real membership, and a small engine that creates, completes and delivers timers in batches.

use std::collections::BTreeMap;

use abide_core::Millis;
use abide_core::fleet::{ADOPTED_GRACE, Event, Identity, MachineId, Member, ShardId};
use abide_core::time::{Boot, Steady};

use crate::database::{Batch, Change, Opened, Stamp, State, TimerRow};

/// Timer in the memory of a daemon.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    pub row: TimerRow,
    /// Another daemon may have delivered its completion.
    pub repeated: bool,
}

/// Shard in the memory of a daemon.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Epoch in which batches can be sent; `None` while ownership is in doubt or the shard is being opened.
    pub epoch: Option<u64>,
    pub grace: Millis,
    pub timers: BTreeMap<u64, Local>,
}

/// Batch that has no answer yet.
#[derive(Clone, Debug)]
pub struct Flight {
    pub batch: Batch,
    pub sent: Boot,
    /// Its outcome is unknown and has to be looked up.
    pub is_unknown: bool,
}

/// Request of a user to create a timer.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub number: u64,
    pub total: Millis,
}

pub struct Daemon {
    pub id: MachineId,
    pub member: Member,
    pub loaded: BTreeMap<ShardId, Loaded>,
    /// Newest rows of each shard that are known to be committed, written here or read. They survive the loss of the
    /// shard, and are written again where the database has lost them.
    pub newest: BTreeMap<ShardId, BTreeMap<u64, TimerRow>>,
    pub batches: u64,
    pub flight: Option<Flight>,
    /// Shard that is being opened, with its epoch.
    pub opening: Option<(ShardId, u64)>,
    pub to_open: BTreeMap<ShardId, u64>,
    pub wanted: Vec<Wanted>,
    pub told_due: Option<Option<Steady>>,
    pub shown: Steady,
}

/// Maximum number of changes in one batch.
const BATCH: usize = 8;

/// Completion that is delivered to a user.
pub struct Telling {
    pub shard: ShardId,
    pub number: u64,
    pub repeated: bool,
}

impl Daemon {
    pub fn new(identity: Identity) -> Self {
        Daemon {
            id: identity.machine,
            member: Member::new(identity),
            loaded: BTreeMap::new(),
            newest: BTreeMap::new(),
            batches: 0,
            flight: None,
            opening: None,
            to_open: BTreeMap::new(),
            wanted: Vec::new(),
            told_due: None,
            shown: Steady(0),
        }
    }

    /// Next batch, if one can be sent.
    pub fn next_batch(&mut self, now: Boot) -> Option<Batch> {
        if self.flight.is_some() {
            return None;
        }
        let time = self.member.clock().now(now)?;
        let home = ShardId(self.id);
        for (shard, loaded) in &self.loaded {
            let Some(epoch) = loaded.epoch else { continue };
            let mut changes = Vec::new();
            if *shard == home && self.member.clock().is_settled() {
                for wanted in self.wanted.drain(..) {
                    let (total, decided) = (wanted.total, time);
                    changes.push((wanted.number, Change::Make { total, decided }));
                }
            }
            for (number, local) in &loaded.timers {
                let next = match local.row.state {
                    State::Live if time >= local.row.due + loaded.grace => State::Completed,
                    State::Completed => State::Telling,
                    State::Telling => State::Seen,
                    State::Live | State::Seen => continue,
                };
                changes.push((*number, Change::Set(next)));
            }
            changes.truncate(BATCH.max(changes.iter().filter(|c| is_make(c)).count()));
            if !changes.is_empty() {
                self.batches += 1;
                let batch = Batch {
                    shard: *shard,
                    timeline: self.member.timeline()?,
                    pace: self.member.own_pace(now),
                    stamp: (epoch, self.batches),
                    changes,
                };
                self.flight = Some(Flight {
                    batch: batch.clone(),
                    sent: now,
                    is_unknown: false,
                });
                return Some(batch);
            }
        }
        None
    }

    /// Boot time at which a timer in memory is due.
    pub fn alarm(&self) -> Option<Boot> {
        let due = (self.loaded.values())
            .filter(|loaded| loaded.epoch.is_some())
            .flat_map(|loaded| {
                let live = |local: &&Local| local.row.state == State::Live;
                let timers = loaded.timers.values().filter(live);
                timers.map(move |local| local.row.due + loaded.grace)
            });
        due.min().and_then(|due| self.member.clock().boot(due))
    }

    /// Event for the membership if the next deadline has changed. What is not committed yet counts: the machine must
    /// beat fast before anybody relies on the timer.
    pub fn due_event(&mut self, now: Boot) -> Option<Event> {
        let time = self.member.clock().now(now)?;
        let live = |local: &&Local| local.row.state == State::Live;
        let timers = self.loaded.values().flat_map(|l| l.timers.values());
        let live = timers.filter(live).map(|local| local.row.due);
        let flying = self.flight.iter().flat_map(|flight| &flight.batch.changes);
        let flying = flying.filter_map(|(_, change)| match change {
            Change::Make { total, decided } => Some(*decided + *total),
            Change::Set(_) => None,
        });
        let wanted = self.wanted.iter().map(|wanted| time + wanted.total);
        let soonest = live.chain(flying).chain(wanted).min();
        if self.told_due == Some(soonest) {
            return None;
        }
        self.told_due = Some(soonest);
        Some(Event::Due {
            soonest,
            waiting: false,
        })
    }

    /// Applies the rows of a committed batch in memory. Returns the completions to deliver now.
    pub fn committed(&mut self, shard: ShardId, rows: &[(u64, TimerRow)]) -> Vec<Telling> {
        let newest = self.newest.entry(shard).or_default();
        let mut told = Vec::new();
        let Some(loaded) = self.loaded.get_mut(&shard) else {
            // The owner finds the undelivered completions and delivers them.
            let rows = rows.iter().filter(|(_, row)| row.state != State::Telling);
            newest.extend(rows.copied());
            return told;
        };
        newest.extend(rows.iter().copied());
        let went_back = self.member.went_back().unwrap_or_default();
        for (number, row) in rows {
            let local = loaded.timers.entry(*number).or_insert(Local {
                row: *row,
                repeated: false,
            });
            local.row = *row;
            if row.state == State::Telling {
                told.push(Telling {
                    shard,
                    number: *number,
                    repeated: local.repeated || row.due <= went_back,
                });
            }
        }
        told
    }

    /// Loads the rows of a shard that was opened. A shard that stayed in memory is newer than its rows. Another
    /// daemon may have delivered timers that were due before the database lost commits, so those are marked as
    /// repeated.
    pub fn opened(&mut self, shard: ShardId, epoch: u64, opened: &Opened) {
        let known = self.newest.entry(shard).or_default();
        let loaded = self.loaded.entry(shard).or_default();
        loaded.epoch = Some(epoch);
        loaded.grace = match shard.0 == self.id {
            true => Millis(0),
            false => ADOPTED_GRACE,
        };
        for (number, row) in &opened.rows {
            let is_mine = known.get(number) == Some(row);
            if row.state != State::Telling {
                known.insert(*number, *row);
            }
            let local = loaded.timers.entry(*number).or_insert_with(|| {
                let mut local = Local {
                    row: *row,
                    repeated: false,
                };
                if row.state == State::Telling && !is_mine {
                    local.row.state = State::Completed;
                    local.repeated = true;
                }
                local
            });
            local.repeated |= row.due <= opened.went_back;
        }
    }

    pub fn stamp_of_flight(&self) -> Option<(ShardId, Stamp)> {
        let flight = self.flight.as_ref()?;
        Some((flight.batch.shard, flight.batch.stamp))
    }
}

pub fn is_make(change: &(u64, Change)) -> bool {
    matches!(change.1, Change::Make { .. })
}
