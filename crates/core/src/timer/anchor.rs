//! Relation of the clock of the timers to the clocks of the machine.
//!
//! Deadlines of timers are in [`Steady`] time. Within one boot, steady time is boot time plus a constant, so setting
//! the system clock moves no deadline. Across a reboot, steady time is wall time minus a constant that was recorded
//! while both clocks were readable. The rules:
//!
//! 1. Same boot: boot time counts, whatever the wall clock says.
//! 2. Another boot: the wall clock counts, minus the recorded difference, but steady time never goes back behind a time
//!    that it is known to have reached. A difference that may have gone unrecorded (see 3) is subtracted, so that a
//!    timer is late by at most that much, and never early.
//! 3. While the daemon runs, a wall clock that differs by more than
//!    [`CLOCK_DISAGREEMENT`](crate::limit::CLOCK_DISAGREEMENT) moves the anchor, never a deadline.

use crate::limit;
use crate::time::{Boot, Now, Steady, Wall, signed_difference};

/// Recorded relation of the clocks: one row, regardless of the number of timers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anchor {
    /// Boot id at the time of the record.
    pub boot_id: u128,
    /// Steady time minus boot time, within that boot.
    pub boot_offset: i64,
    /// Wall time minus steady time.
    pub wall_offset: i64,
    /// Steady time that is known to have passed.
    pub reached: Steady,
}

impl Anchor {
    /// Anchor after a start of the daemon.
    pub fn at_start(kept: Option<Anchor>, boot_id: u128, now: Now) -> Anchor {
        let steady = match kept {
            None => now.wall.0,
            Some(kept) if kept.boot_id == boot_id && kept.steady(now.boot) >= kept.reached => {
                kept.steady(now.boot).0
            }
            Some(kept) => {
                let by_calendar = add(now.wall.0, kept.wall_offset.saturating_neg());
                let unnoticed = limit::CLOCK_DISAGREEMENT.0;
                by_calendar.saturating_sub(unnoticed).max(kept.reached.0)
            }
        };
        let wall_offset = signed_difference(now.wall.0, steady);
        // The two clocks are not read at the same instant, so the recorded difference stays until it is clearly
        // wrong.
        let noted = kept
            .filter(|kept| kept.boot_id == boot_id)
            .map(|kept| kept.wall_offset);
        let noted = noted.filter(|noted| !disagree(*noted, wall_offset));
        Anchor {
            boot_id,
            boot_offset: signed_difference(steady, now.boot.0),
            wall_offset: noted.unwrap_or(wall_offset),
            reached: Steady(steady),
        }
    }

    /// Steady time at this boot time.
    pub fn steady(&self, boot: Boot) -> Steady {
        Steady(add(boot.0, self.boot_offset))
    }

    /// Boot time at this steady time; zero if it was before the boot.
    pub fn boot(&self, steady: Steady) -> Boot {
        Boot(add(steady.0, self.boot_offset.saturating_neg()))
    }

    /// Wall time at this steady time, as far as it is known now.
    pub fn wall(&self, steady: Steady) -> Wall {
        Wall(add(steady.0, self.wall_offset))
    }

    /// Compares the wall clock with the anchor. Returns whether the anchor has changed and must be recorded.
    pub fn note(&mut self, now: Now) -> bool {
        let steady = self.steady(now.boot);
        let wall_offset = signed_difference(now.wall.0, steady.0);
        if !disagree(wall_offset, self.wall_offset) {
            return false;
        }
        self.wall_offset = wall_offset;
        self.reached = steady;
        true
    }
}

fn disagree(left: i64, right: i64) -> bool {
    left.abs_diff(right) > limit::CLOCK_DISAGREEMENT.0
}

fn add(time: u64, by: i64) -> u64 {
    time.saturating_add_signed(by)
}
