//! Events of other machines: while a client follows, the database is asked every second for sessions of other machines
//! that have changed, for their questions, and for a change of their timers.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use abide_api::Nothing;
use abide_core::fleet::MachineId;
use abide_core::{Agent, SessionId};
use abide_engine::Handle;
use abide_engine::clock::pause;
use abide_engine::machine_link::OtherMachines;
use abide_engine::store::TimerMarks;

use super::hub::Channel;
use crate::fleet;

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// Time by which rows can become visible later than the clock in them says, in milliseconds.
const OVERLAP: u64 = 10_000;

/// Follows the other machines until the channel is gone.
pub async fn follow(handle: Handle, channel: Weak<Channel>) {
    let Some(machines) = handle.other_machines().cloned() else {
        return;
    };
    let mut follower = Follower {
        machines,
        sessions: HashMap::new(),
        since: None,
        machines_seen: BTreeMap::new(),
        questions: fleet::QuestionFollower::new(handle.clone()),
        timers: None,
        handle,
    };
    while let Some(channel) = channel.upgrade() {
        if channel.has_clients() {
            follower.look(&channel).await;
        }
        drop(channel);
        pause(EVERY).await;
    }
}

struct Follower {
    handle: Handle,
    machines: Arc<OtherMachines>,
    /// Clock of the database in the newest row of each session that was sent.
    sessions: HashMap<SessionId, u64>,
    /// Newest such clock, at most that of the database at the last look; `None` before the first look, which sends nothing.
    since: Option<u64>,
    /// Machines that answer, and those that a person has declared lost.
    machines_seen: BTreeMap<MachineId, (bool, bool)>,
    questions: fleet::QuestionFollower,
    /// Marks of the timers at the last look.
    timers: Option<TimerMarks>,
}

impl Follower {
    async fn look(&mut self, channel: &Channel) {
        self.look_at_machines(channel);
        self.look_at_sessions(channel).await;
        self.look_at_timers(channel).await;
        // Last, because other machines are called for it.
        self.look_at_questions(channel).await;
    }

    /// A list of timers is read again as a whole: its pages are of all machines.
    async fn look_at_timers(&mut self, channel: &Channel) {
        let Some(marks) = self.machines.timer_marks().await else {
            return;
        };
        let before = self.timers.replace(marks);
        if before.is_some_and(|before| before != marks) {
            channel.send(None, "timers_changed", &Nothing {});
        }
    }

    /// A machine that becomes silent changes the state of all its sessions: clients load them again.
    fn look_at_machines(&mut self, channel: &Channel) {
        let state = self.machines.state();
        let seen: BTreeMap<_, _> = (state.machines.iter())
            .map(|(id, machine)| (*id, (machine.is_alive(), machine.declared_lost)))
            .collect();
        let before = std::mem::replace(&mut self.machines_seen, seen);
        if !before.is_empty() && before != self.machines_seen {
            channel.send(None, "reset", &Nothing {});
        }
    }

    async fn look_at_sessions(&mut self, channel: &Channel) {
        let from = self.since.map_or(0, |since| since.saturating_sub(OVERLAP));
        let Some((clock, changed)) = fleet::changed_sessions(&self.handle, from).await else {
            return;
        };
        if clock < from {
            // The clock of the database was set back, so what was written since then was not read.
            (self.since, self.sessions) = (None, HashMap::new());
            channel.send(None, "reset", &Nothing {});
            return;
        }
        let is_first = self.since.is_none();
        let newest = changed.iter().map(|(written, _)| *written).max();
        self.since = Some(next_since(self.since, newest, clock));
        for (written, session) in changed {
            let id = session.summary.session_id.0;
            let is_new = self.sessions.insert(id, written) != Some(written);
            if is_new && !is_first {
                let agent = Agent(session.agent.as_str().into());
                channel.send(Some(agent), "session", &session);
            }
        }
        let since = self.since.unwrap_or_default().saturating_sub(OVERLAP);
        self.sessions.retain(|_, written| *written >= since);
    }

    async fn look_at_questions(&mut self, channel: &Channel) {
        for (agent, event) in self.questions.look().await {
            channel.send(Some(agent), "question", &event);
        }
    }
}

/// Time up to which rows were read. Rows from before the clock was set back are of a time that is still to come: what is
/// written until then must be read, too.
fn next_since(since: Option<u64>, newest: Option<u64>, clock: u64) -> u64 {
    since.max(newest).unwrap_or_default().min(clock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_of_a_time_to_come_does_not_hide_those_that_are_written_before_it() {
        assert_eq!(next_since(None, None, 100), 0);
        assert_eq!(next_since(Some(90), Some(95), 100), 95);
        assert_eq!(next_since(Some(90), None, 100), 90);
        assert_eq!(next_since(None, Some(5_000), 100), 100);
    }
}
