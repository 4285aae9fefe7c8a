//! Decision to kill the process tree of a session. The keeper carries it out; `overdue` watches over that.

use super::{Engine, Step};
use crate::effect::Effect;
use crate::id::SessionId;
use crate::session::{End, Phase};

impl Engine {
    /// Decides to kill the process tree. Only the first decision counts, and the kill is sent once.
    pub(super) fn request_kill(&mut self, step: &mut Step<'_>, id: SessionId, end: End) {
        self.withdraw(step, id);
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        if entry.kill_reason.is_none() {
            let kill = Effect::Kill { session: id, end };
            match &mut entry.session.phase {
                Phase::Starting => {}
                Phase::Running { ending, .. } => {
                    *ending = Some(end);
                    step.push(kill);
                }
                Phase::Leftover { .. } => step.push(kill),
                Phase::Ended { .. } | Phase::Failed { .. } => return,
            }
            entry.kill_reason = Some(end);
            entry.killed = Some(step.now.mono);
            step.push(Effect::Publish { session: id });
        } else if entry.survives_kill {
            // The keeper tries again and reports that the tree does not die, which answers the new call.
            step.push(Effect::Kill { session: id, end });
        }
        self.rearm_overdue_timer(id);
        self.rearm_idle_timer(step, id);
    }
}
