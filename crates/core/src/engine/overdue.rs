//! Backstop behind keepers, for a session that should have ended at its deadline or by a kill and has not.
//! The keeper enforces both. If it does not even answer, the daemon kills the tree itself.

use super::session_state::SessionState;
use super::{Alarm, Engine, Step};
use crate::effect::Effect;
use crate::id::SessionId;
use crate::limit;
use crate::session::{End, Phase};
use crate::time::Mono;

impl SessionState {
    /// Latest time at which the session should have ended, and the reason.
    fn due(&self) -> Option<(Mono, End)> {
        let killed = self.killed.map(|at| at + limit::FORCE_AFTER_KILL);
        let killed = killed.zip(self.kill_reason).filter(|_| !self.survives_kill);
        let limit = self
            .deadline
            .map(|at| (at + limit::FORCE_AFTER_DEADLINE, End::Deadline));
        match self.session.phase {
            // A command can stop its keeper before the keeper has reported its start.
            Phase::Starting | Phase::Running { .. } => [killed, limit]
                .into_iter()
                .flatten()
                .min_by_key(|due| due.0),
            Phase::Leftover { .. } => killed,
            Phase::Ended { .. } | Phase::Failed { .. } => None,
        }
    }
}

impl Engine {
    /// Sets the alarm for a session that should end. Called after every change of that time.
    pub(super) fn rearm_overdue_timer(&mut self, id: SessionId) {
        let at = self
            .sessions
            .get(&id)
            .and_then(SessionState::due)
            .map(|due| due.0);
        self.set_overdue(id, at);
    }

    fn set_overdue(&mut self, id: SessionId, at: Option<Mono>) {
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        if let Some(before) = entry.overdue {
            self.alarms.remove(&(before, Alarm::Overdue(id)));
        }
        if let Some(at) = at {
            self.alarms.insert((at, Alarm::Overdue(id)));
        }
        entry.overdue = at;
    }

    /// Handles a session that should have ended: the keeper has not reported it and may not be working.
    pub(super) fn overdue(&mut self, step: &mut Step<'_>, id: SessionId) {
        let due = self.sessions.get(&id).and_then(SessionState::due);
        let again = due.map(|(_, end)| {
            step.push(Effect::ForceKill { session: id, end });
            step.now.mono + limit::FORCE_AGAIN
        });
        self.set_overdue(id, again);
    }
}
