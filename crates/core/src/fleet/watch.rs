//! Observation of another machine: how long its heartbeat has stood still, on the boot clock of the observer.
//!
//! The time of a look is an interval: the rows were read between sending and answer. Silence is counted from the
//! *answer* of the first look that saw the heartbeat to the *sending* of the last one, so it is never overestimated.
//! Between two looks the database may have been away for the other machine too. So silence counts only while looks
//! follow each other as closely as the heartbeats should, and begins again after a wider gap. An observer that looks
//! more slowly looks faster as soon as a heartbeat is missing.

use super::row::{Claim, MachineRow, Pace, Standing};
use super::{RECONNECT_AFTER_FAULT, SILENT_LOOKS};
use crate::time::{Boot, Millis};

/// Observation of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Claim of the process that beats.
    pub claim: Claim,
    /// Newest heartbeat.
    pub heartbeat: u64,
    /// Pace that it promised.
    pub pace: Pace,
    /// Relation to the fleet.
    pub standing: Standing,
    /// Answer of the look from which silence counts.
    pub since: Boot,
    /// Looks that saw this heartbeat since then.
    looks: u32,
    /// Sending of the last look that saw it.
    pub last: Boot,
    /// True if a heartbeat is missing.
    is_late: bool,
}

impl Watch {
    /// First observation.
    pub fn new(row: &MachineRow, answered: Boot) -> Self {
        Watch {
            claim: row.claim,
            heartbeat: row.heartbeat,
            pace: row.pace,
            standing: row.standing,
            since: answered,
            looks: 1,
            last: answered,
            is_late: false,
        }
    }

    /// Takes the result of another look. Returns whether the machine has shown life since the last one.
    ///
    /// A lower number under the same claim is no life: the database lost commits.
    pub fn look(&mut self, row: &MachineRow, sent: Boot, answered: Boot) -> bool {
        let is_alive = row.claim != self.claim || row.heartbeat > self.heartbeat;
        if self.looks == 0 {
            *self = Watch::new(
                row,
                Boot(answered.0.saturating_add(RECONNECT_AFTER_FAULT.0)),
            );
            return is_alive;
        }
        if is_alive {
            *self = Watch::new(row, answered);
            return true;
        }
        let every = row.pace.every();
        let is_late = self.is_late || sent.since(self.since) >= every;
        let gap = sent.since(self.last).0 > every.0 * 3 / 2;
        if gap && !self.is_dead() {
            *self = Watch::new(row, answered);
            self.is_late = is_late;
        } else {
            self.heartbeat = row.heartbeat;
            self.pace = row.pace;
            self.standing = row.standing;
            self.looks = self.looks.saturating_add(1);
            self.last = self.last.max(sent);
            self.is_late = is_late;
        }
        false
    }

    /// A look failed: the machine may have been silent for the same reason, and needs time to reconnect. Observation
    /// begins again.
    pub fn interrupt(&mut self) {
        if !self.is_dead() {
            self.looks = 0;
            self.is_late = false;
        }
    }

    /// Time that the heartbeat is known to have stood still.
    pub fn silence(&self) -> Millis {
        self.last.since(self.since)
    }

    /// True if the machine counts as dead.
    pub fn is_dead(&self) -> bool {
        self.looks >= SILENT_LOOKS && self.silence() >= self.pace.silence()
    }

    /// True if a heartbeat is missing, though the machine does not count as dead yet.
    pub fn is_late(&self) -> bool {
        self.is_late && !self.is_dead()
    }

    /// Time of the next look that counts.
    pub fn next_look(&self) -> Boot {
        let left = self.pace.silence().saturating_sub(self.silence());
        let wait = left.min(self.pace.every());
        Boot(self.last.0.saturating_add(wait.0))
    }
}
