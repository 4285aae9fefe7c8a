//! Fleet time: one time for all machines, counted on boot clocks.
//!
//! Deadlines of a fleet are in fleet time ([`Steady`]). The *boot offset* of a daemon is fleet time minus its boot clock,
//! which stays the same while the machine runs. The rules:
//!
//! 1. A boot offset is always a lower bound: what is read from the database is taken to be as old as the answer.
//! 2. Start: with the boot offset of the former daemon of the same boot; else from a living machine (rule 3); else, where
//!    all others are dead, from the clock of the database minus `clock_ahead`, but not behind what was reached.
//! 3. Forward: a machine whose boot clock stood still takes the time of another one that agrees with the database.
//!    Database time is used to count from the other's heartbeat to the own look, and believed only after the other's
//!    next heartbeat has shown that the database clock did not leap in between.
//! 4. Off by more than a second: if a machine whose newer heartbeat agrees with the database is there, the database is
//!    right. An offset behind it follows rule 3. An offset ahead of it is lowered, and the shown time stands still
//!    meanwhile. If there is none, the database clock has leapt: `clock_ahead` is corrected by compare-and-set, and boot
//!    offsets stay.
//!    A machine that is alone follows its boot clock.
//! 5. While it is off, a daemon claims nothing, and the database refuses to make timers ([`due`]).
//!
//! No calendar of any machine is asked. A leap of the database clock while no daemon runs cannot be told from time that
//! passed.

use alloc::collections::BTreeMap;

use super::STATEMENT_DEADLINE;
use super::row::{Claim, DatabaseClock, FleetRow, Look, MachineId, MachineRow};

use crate::limit::CLOCK_DISAGREEMENT;
use crate::time::{Boot, Millis, Steady, signed_difference};

/// Clock of one daemon.
#[derive(Clone, Debug, Default)]
pub struct FleetClock {
    boot_offset: Option<i64>,
    floor: Steady,
    samples: BTreeMap<MachineId, Sample>,
    doubt: Option<Doubt>,
}

/// Heartbeat of another machine beside a reading of the database clock: a boot offset to be confirmed by its next
/// heartbeat.
#[derive(Clone, Copy, Debug)]
struct Sample {
    claim: Claim,
    heartbeat: u64,
    fleet_time: Steady,
    written: DatabaseClock,
    read: DatabaseClock,
    boot_offset: i64,
}

/// The database clock differs from the boot offset.
#[derive(Clone, Debug)]
struct Doubt {
    looks: u32,
    /// Difference. Another one is another leap, about which older heartbeats say nothing.
    off: i64,
    /// Heartbeats when it was noticed: only newer ones are evidence.
    heartbeats: BTreeMap<MachineId, (Claim, u64)>,
}

/// Other machine in a look.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// Row.
    pub row: &'a MachineRow,
    /// True if it may be alive.
    pub may_live: bool,
}

/// Consequence of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// None.
    Keep,
    /// The boot offset was changed.
    Moved,
    /// `clock_ahead` has to be corrected to this value.
    Correct(i64),
}

impl FleetClock {
    /// Clock with the boot offset of the former daemon, if that ran in the same boot.
    pub fn new(boot_offset: Option<i64>) -> Self {
        FleetClock {
            boot_offset,
            ..FleetClock::default()
        }
    }

    /// Fleet time by which timers are completed; `None` until it is known.
    pub fn now(&self, boot: Boot) -> Option<Steady> {
        self.boot_offset.map(|offset| at(offset, boot))
    }

    /// Fleet time for display, which never runs back.
    pub fn shown(&self, boot: Boot) -> Option<Steady> {
        self.now(boot).map(|now| now.max(self.floor))
    }

    /// Boot offset, to be kept for the next daemon of this boot.
    pub fn boot_offset(&self) -> Option<i64> {
        self.boot_offset
    }

    /// Boot time at this fleet time.
    pub fn boot(&self, time: Steady) -> Option<Boot> {
        self.boot_offset
            .map(|offset| Boot(time.0.saturating_add_signed(offset.saturating_neg())))
    }

    /// True if the time is known and does not differ from that of the database.
    pub fn is_settled(&self) -> bool {
        self.boot_offset.is_some() && self.doubt.is_none()
    }

    /// Takes the result of a look. `peers` are the other machines in it.
    pub fn look(&mut self, sent: Boot, answered: Boot, look: &Look, peers: &[Peer<'_>]) -> Advice {
        let before = self.boot_offset;
        let offered = self.sample(answered, look, peers);
        let by_database = signed_difference(database_time(look), answered.0);
        match self.boot_offset {
            None => {
                let waits = peers
                    .iter()
                    .any(|peer| peer.may_live && peer.row.fleet_time.is_some());
                self.boot_offset = offered.map(|(offset, _)| offset);
                if self.boot_offset.is_none() && look.wide && !waits {
                    let reached = (peers.iter().map(|peer| peer.row).chain(&look.own))
                        .filter_map(|row| row.fleet_time)
                        .fold(look.fleet.reached, Steady::max);
                    self.boot_offset =
                        Some(by_database.max(signed_difference(reached.0, answered.0)));
                }
            }
            Some(offset) => {
                if let Some((offered, true)) = offered
                    && offered > offset + STEP
                {
                    self.boot_offset = Some(offered);
                }
            }
        }
        let advice = self.compare(sent, answered, look, peers);
        if advice == Advice::Keep && self.boot_offset != before {
            return Advice::Moved;
        }
        advice
    }

    /// Compares the boot offset with the database (rule 4).
    fn compare(&mut self, sent: Boot, answered: Boot, look: &Look, peers: &[Peer<'_>]) -> Advice {
        let Some(offset) = self.boot_offset else {
            return Advice::Keep;
        };
        let highest = signed_difference(database_time(look), at(offset, sent).0);
        let lowest = signed_difference(database_time(look), at(offset, answered).0);
        if lowest <= LIMIT && highest >= -LIMIT {
            self.doubt = None;
            return Advice::Keep;
        }
        let same_leap = |doubt: &Doubt| doubt.off >= lowest - LIMIT && doubt.off <= highest + LIMIT;
        let doubt = self.doubt.take().filter(same_leap);
        let doubt = self.doubt.insert(doubt.unwrap_or_else(|| Doubt {
            looks: 0,
            off: highest,
            heartbeats: BTreeMap::new(),
        }));
        doubt.looks += 1;
        let (mut waits, mut database_is_right) = (false, false);
        for peer in peers.iter().filter(|peer| peer.may_live) {
            let row = peer.row;
            let noticed = (doubt.heartbeats.entry(row.id)).or_insert((row.claim, row.heartbeat));
            let Some(fleet_time) = row.fleet_time else {
                continue;
            };
            // A lower number comes from a database that lost commits, and is no news.
            if noticed.0 != row.claim {
                *noticed = (row.claim, row.heartbeat);
            }
            if row.heartbeat > noticed.1 {
                database_is_right |= agrees(row, fleet_time, &look.fleet);
            } else {
                waits = true;
            }
        }
        if database_is_right {
            if highest < -LIMIT {
                self.floor = self.floor.max(at(offset, answered));
                self.boot_offset = Some(signed_difference(database_time(look), answered.0));
                self.doubt = None;
            }
            return Advice::Keep;
        }
        // A slow answer would make the correction inexact.
        if waits || doubt.looks < 2 || answered.since(sent) > CLOCK_DISAGREEMENT {
            return Advice::Keep;
        }
        Advice::Correct(look.fleet.clock_ahead.saturating_add(highest))
    }

    /// Collects samples and returns the highest boot offset that was confirmed, and whether its machine agrees with the
    /// database (rule 3).
    fn sample(&mut self, answered: Boot, look: &Look, peers: &[Peer<'_>]) -> Option<(i64, bool)> {
        let mut best = None;
        for row in peers.iter().map(|peer| peer.row) {
            let Some(fleet_time) = row.fleet_time else {
                self.samples.remove(&row.id);
                continue;
            };
            let old = self.samples.get(&row.id);
            if let Some(old) = old
                && old.claim == row.claim
            {
                if row.heartbeat == old.heartbeat {
                    continue;
                }
                if row.heartbeat > old.heartbeat && old.is_confirmed(row, fleet_time) {
                    best = best.max(Some((
                        old.boot_offset,
                        agrees(row, fleet_time, &look.fleet),
                    )));
                }
            }
            let read = look.database_clock;
            let passed = signed_difference(read.0, row.written.0).max(0);
            let now = fleet_time.0.saturating_add_signed(passed);
            let sample = Sample {
                claim: row.claim,
                heartbeat: row.heartbeat,
                fleet_time,
                written: row.written,
                read,
                boot_offset: signed_difference(now, answered.0),
            };
            self.samples.insert(row.id, sample);
        }
        best
    }
}

impl Sample {
    /// True if the next heartbeat shows that the database clock ran evenly around the reading.
    fn is_confirmed(&self, row: &MachineRow, fleet_time: Steady) -> bool {
        let database = signed_difference(row.written.0, self.written.0);
        let fleet = signed_difference(fleet_time.0, self.fleet_time.0);
        database.abs_diff(fleet) <= CLOCK_DISAGREEMENT.0
            && (self.written..=row.written).contains(&self.read)
    }
}

/// Deadline of a timer that is made in a batch, or `None` if the time of the machine cannot be right.
///
/// The database evaluates this when it carries out the batch. `decided` is the fleet time at which the machine sent it.
/// The boot clock of a machine that was paused is behind, so the later of the two times counts.
pub fn due(decided: Steady, database: Steady, total: Millis) -> Option<Steady> {
    let longest = STATEMENT_DEADLINE + CLOCK_DISAGREEMENT;
    let is_behind = database.since(decided) > longest;
    let is_ahead = decided.since(database) > CLOCK_DISAGREEMENT;
    (!is_behind && !is_ahead).then(|| decided.max(database) + total)
}

/// Fleet time by the clock of the database.
pub fn by_database(clock: DatabaseClock, fleet: &FleetRow) -> Steady {
    Steady(
        clock
            .0
            .saturating_add_signed(fleet.clock_ahead.saturating_neg()),
    )
}

/// Least step forward: smaller ones are delays of the network.
const STEP: i64 = 100;
const LIMIT: i64 = CLOCK_DISAGREEMENT.0 as i64;

/// True if a heartbeat was sent at the time that the database had.
fn agrees(row: &MachineRow, fleet_time: Steady, fleet: &FleetRow) -> bool {
    signed_difference(by_database(row.written, fleet).0, fleet_time.0).abs() <= LIMIT
}

fn database_time(look: &Look) -> u64 {
    by_database(look.database_clock, &look.fleet).0
}

fn at(boot_offset: i64, boot: Boot) -> Steady {
    Steady(boot.0.saturating_add_signed(boot_offset))
}
