//! Relation of a timer's deadline to the clocks of a machine.
//!
//! Deadlines are kept in [`Steady`] time. While a machine is up, steady time is boot time plus a
//! constant, so that setting the calendar moves nothing. Boot time ends with the boot; across one,
//! steady time is the calendar less a constant that was noted while both were known. The rule:
//!
//! 1. Same boot: boot time counts, whatever the calendar says.
//! 2. Another boot: the calendar counts, corrected by how far it was off when last noted, but
//!    steady time never goes back behind a moment it is known to have reached. What may have gone
//!    unnoticed (below) is taken off, so that a timer is at most that late, and never early.
//! 3. While running, a calendar that disagrees by more than
//!    [`CLOCK_DISAGREEMENT`](crate::limit::CLOCK_DISAGREEMENT) moves the note, never a deadline.

use crate::limit;
use crate::time::{Boot, Now, Steady, Wall};

/// The note that is kept: one row, however many timers there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anchor {
    /// Which boot it was taken in.
    pub boot_id: u128,
    /// Steady time less boot time, within that boot.
    pub ahead_of_boot: i64,
    /// The calendar less steady time.
    pub wall_ahead: i64,
    /// A moment that steady time is known to have reached.
    pub reached: Steady,
}

impl Anchor {
    /// The note to go by after a start.
    pub fn at_start(kept: Option<Anchor>, boot_id: u128, now: Now) -> Anchor {
        let steady = match kept {
            None => now.wall.0,
            Some(kept) if kept.boot_id == boot_id && kept.steady(now.boot) >= kept.reached => {
                kept.steady(now.boot).0
            }
            Some(kept) => {
                let by_calendar = add(now.wall.0, kept.wall_ahead.saturating_neg());
                let unnoticed = limit::CLOCK_DISAGREEMENT.0;
                by_calendar.saturating_sub(unnoticed).max(kept.reached.0)
            }
        };
        let wall_ahead = less(now.wall.0, steady);
        // Two clocks are never read in the same moment; what was noted stands until they disagree.
        let noted = kept
            .filter(|kept| kept.boot_id == boot_id)
            .map(|kept| kept.wall_ahead);
        let noted = noted.filter(|noted| !disagree(*noted, wall_ahead));
        Anchor {
            boot_id,
            ahead_of_boot: less(steady, now.boot.0),
            wall_ahead: noted.unwrap_or(wall_ahead),
            reached: Steady(steady),
        }
    }

    /// Steady time at a reading of boot time.
    pub fn steady(&self, boot: Boot) -> Steady {
        Steady(add(boot.0, self.ahead_of_boot))
    }

    /// Boot time at a moment of steady time; zero where that lies before the boot.
    pub fn boot(&self, steady: Steady) -> Boot {
        Boot(add(steady.0, self.ahead_of_boot.saturating_neg()))
    }

    /// Calendar time at that moment, as far as is known now.
    pub fn wall(&self, steady: Steady) -> Wall {
        Wall(add(steady.0, self.wall_ahead))
    }

    /// Takes note of the calendar. Returns whether the note has changed and must be kept.
    pub fn note(&mut self, now: Now) -> bool {
        let steady = self.steady(now.boot);
        let wall_ahead = less(now.wall.0, steady.0);
        if !disagree(wall_ahead, self.wall_ahead) {
            return false;
        }
        self.wall_ahead = wall_ahead;
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

fn less(left: u64, right: u64) -> i64 {
    i64::try_from(i128::from(left) - i128::from(right)).unwrap_or(if left > right {
        i64::MAX
    } else {
        i64::MIN
    })
}
