//! The backstop behind keepers: a session that should have ended, at its hard limit or by a kill, and has not. Its keeper
//! sees to both; should it not even answer, the world ends the tree itself.

use super::session_state::SessionState;
use super::{Alarm, Engine, Turn};
use crate::effect::Effect;
use crate::id::SessionId;
use crate::limit;
use crate::session::{End, Phase};
use crate::time::Mono;

impl SessionState {
    /// When it should have ended at the latest, and why.
    fn due(&self) -> Option<(Mono, End)> {
        let killed = self.killed.map(|at| at + limit::KILL_GRACE);
        let killed = killed.zip(self.kill_reason).filter(|_| !self.undying);
        let limit = self
            .deadline
            .map(|at| (at + limit::LIMIT_GRACE, End::Deadline));
        match self.session.phase {
            // A command can stop its keeper before that has said that it runs.
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
    /// Sets the alarm for a session that should end. Called after whatever may have changed when that is.
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

    /// It should have ended, and no keeper has said so. The world finds out whether the keeper is at work.
    pub(super) fn overdue(&mut self, turn: &mut Turn<'_>, id: SessionId) {
        let due = self.sessions.get(&id).and_then(SessionState::due);
        let again = due.map(|(_, end)| {
            turn.push(Effect::Force { session: id, end });
            turn.now.mono + limit::FORCE_AGAIN
        });
        self.set_overdue(id, again);
    }
}
