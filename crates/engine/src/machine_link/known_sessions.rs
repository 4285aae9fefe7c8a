//! Sessions of other machines as they were read last: for lists while the database is away, and to find the machine of a
//! session, which stays the same.

use std::collections::BTreeMap;
use std::sync::Mutex;

use abide_core::fleet::MachineId;
use abide_core::{Agent, SessionId};

use crate::lock::lock;
use crate::store::{DirectoryRow, DirectoryState};

/// Rows that are kept.
const MAX_ROWS: usize = 4_000;

/// Choice of sessions.
#[derive(Clone, Copy)]
pub(super) struct Choice<'a> {
    /// Only those of this agent.
    pub agent: Option<&'a Agent>,
    /// Also those that have ended.
    pub include_ended: bool,
}

impl Choice<'_> {
    fn is_met_by(self, row: &DirectoryRow) -> bool {
        let is_own = self.agent.is_none_or(|agent| *row.agent == *agent.0);
        let is_alive = match row.facts.state {
            DirectoryState::Running | DirectoryState::Background => true,
            DirectoryState::Ended | DirectoryState::Failed => false,
        };
        is_own && (self.include_ended || is_alive)
    }
}

/// Rows as they were read last.
#[derive(Default)]
pub(super) struct KnownSessions(Mutex<BTreeMap<(MachineId, SessionId), DirectoryRow>>);

impl KnownSessions {
    /// Takes note of the rows that were read for a choice. Those that are missing are gone.
    pub fn note(&self, choice: Choice<'_>, read: &[DirectoryRow]) {
        let mut known = lock(&self.0);
        known.retain(|_, row| !choice.is_met_by(row));
        if known.len() + read.len() > MAX_ROWS {
            known.clear();
        }
        known.extend(read.iter().map(|row| ((row.machine, row.id), row.clone())));
    }

    /// Takes note of one row.
    pub fn note_one(&self, row: &DirectoryRow) {
        let mut known = lock(&self.0);
        if known.len() >= MAX_ROWS {
            known.clear();
        }
        known.insert((row.machine, row.id), row.clone());
    }

    pub fn find(&self, id: SessionId) -> Option<DirectoryRow> {
        let known = lock(&self.0);
        let row = known.values().find(|row| row.id == id);
        row.cloned()
    }

    /// Rows of a choice, newest first.
    pub fn chosen(&self, choice: Choice<'_>) -> Vec<DirectoryRow> {
        let known = lock(&self.0);
        let rows = known.values().filter(|row| choice.is_met_by(row));
        let mut rows: Vec<DirectoryRow> = rows.cloned().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.as_of));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::DirectoryFacts;

    fn row(id: u64, agent: &str, state: DirectoryState) -> DirectoryRow {
        DirectoryRow {
            machine: MachineId(1),
            id: SessionId::from_bits(id),
            boot: 0,
            agent: agent.into(),
            name: None,
            command: "make".into(),
            facts: DirectoryFacts {
                state,
                created_at: 0,
                ended_at: None,
                last_activity: 0,
                left: Vec::new(),
                exit_code: None,
                signal: None,
                end: None,
                cwd: "/".into(),
                pty: false,
                bytes: 0,
                started_by: None,
                by_person: false,
                error: None,
            },
            as_of: id,
            told_until: id,
        }
    }

    #[test]
    fn row_that_a_later_list_lacks_is_gone_and_others_stay() {
        let all = Choice {
            agent: None,
            include_ended: true,
        };
        let alive = Choice {
            agent: None,
            include_ended: false,
        };
        let known = KnownSessions::default();
        let (one, two) = (
            row(1, "ann", DirectoryState::Running),
            row(2, "bob", DirectoryState::Ended),
        );
        known.note(all, &[one.clone(), two.clone()]);
        assert_eq!(known.chosen(all), [two.clone(), one.clone()]);
        assert_eq!(known.chosen(alive), [one]);
        let ann = Agent("ann".into());
        let of_ann = Choice {
            agent: Some(&ann),
            include_ended: false,
        };
        known.note(of_ann, &[]);
        assert_eq!(known.chosen(all), [two]);
    }
}
