//! Timers as they were read last, for answers while a server that is shared by machines is away.

use std::collections::BTreeMap;
use std::sync::Mutex;

use abide_core::TimerId;
use abide_core::time::Wall;

use super::read::TimerRow;
use crate::clock::{Clock, SystemClock};
use crate::lock::lock;

/// Rows that are kept.
const MAX_ROWS: usize = 4_000;

#[derive(Default)]
pub(super) struct KnownTimers(Mutex<Known>);

#[derive(Default)]
struct Known {
    rows: BTreeMap<TimerId, TimerRow>,
    /// Time of the last read.
    read: Option<Wall>,
}

impl KnownTimers {
    /// Takes note of rows that were read now.
    pub fn note<'a>(&self, rows: impl Iterator<Item = &'a TimerRow>) {
        let mut known = lock(&self.0);
        known.read = Some(SystemClock.now().wall);
        for row in rows {
            if known.rows.len() >= MAX_ROWS {
                known.rows.clear();
            }
            known.rows.insert(row.id, row.clone());
        }
    }

    pub fn find(&self, id: TimerId) -> Option<TimerRow> {
        lock(&self.0).rows.get(&id).cloned()
    }

    /// Timers of an agent, or of all, that had not ended, and the time of the last read.
    pub fn active(&self, agent: Option<&str>) -> (Vec<TimerRow>, Option<Wall>) {
        let known = lock(&self.0);
        let active = known
            .rows
            .values()
            .filter(|row| row.ended.is_none() && agent.is_none_or(|agent| agent == row.agent));
        (active.cloned().collect(), known.read)
    }
}
