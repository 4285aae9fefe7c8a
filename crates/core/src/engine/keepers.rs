//! Reports of keepers. A keeper that reconnects repeats its earlier reports, so every handler here is idempotent.

use alloc::vec::Vec;

use super::session_state::IdleTimer;
use super::{Engine, Step};
use crate::effect::Effect;
use crate::id::SessionId;
use crate::session::{Ending, Phase};
use crate::time::Mono;

impl Engine {
    pub(super) fn started(&mut self, step: &mut Step<'_>, id: SessionId) {
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        if entry.session.phase != Phase::Starting {
            return;
        }
        entry.session.phase = Phase::Running {
            quiet_since: step.now.mono,
            ending: entry.kill_reason,
        };
        let moved = entry.deadline_after_start.take();
        entry.deadline = moved.or_else(|| Some(step.now.mono + entry.limit?));
        let kill_reason = entry.kill_reason;
        entry.killed = kill_reason.map(|_| step.now.mono);
        if let Some(at) = moved {
            step.push(Effect::SetDeadline {
                session: id,
                deadline: at.since(step.now.mono),
            });
            self.store_limits(step, id);
        }
        if let Some(end) = kill_reason {
            step.push(Effect::Kill { session: id, end });
        }
        self.held_started(step, id);
        self.phase_changed(step, id);
    }

    pub(super) fn start_failed(&mut self, step: &mut Step<'_>, id: SessionId, failed: Phase) {
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        if entry.session.phase != Phase::Starting {
            return;
        }
        entry.session.phase = failed;
        self.running -= 1;
        self.held_started(step, id);
        self.phase_changed(step, id);
    }

    pub(super) fn output_grew(
        &mut self,
        step: &mut Step<'_>,
        id: SessionId,
        bytes: u64,
        reported: Mono,
    ) {
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        let Phase::Running { quiet_since, .. } = &mut entry.session.phase else {
            return;
        };
        *quiet_since = reported.max(*quiet_since);
        let more = bytes > entry.session.bytes;
        if more {
            entry.session.bytes = bytes;
            step.push(Effect::Publish { session: id });
        }
        // First the inactivity limit: a session that it closes gets no question.
        self.inactivity_query_answered(step, id);
        match self.sessions.get(&id).map(|entry| entry.idle_timer) {
            Some(IdleTimer::Looking) => self.idle_query_answered(step, id),
            Some(IdleTimer::Asked { .. }) if more => {
                self.withdraw(step, id);
                self.rearm_idle_timer(step, id);
            }
            Some(IdleTimer::Off | IdleTimer::Armed { .. }) => self.rearm_idle_timer(step, id),
            Some(IdleTimer::Asked { .. }) | None => {}
        }
    }

    pub(super) fn exited(
        &mut self,
        step: &mut Step<'_>,
        id: SessionId,
        ending: Ending,
        empty: bool,
    ) {
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        match (&entry.session.phase, entry.kill_reason) {
            (Phase::Starting, Some(end)) if !empty => {
                step.push(Effect::Kill { session: id, end });
            }
            (Phase::Starting | Phase::Running { .. }, _) => {}
            (Phase::Leftover { .. }, _) if empty => return self.emptied(step, id),
            (Phase::Leftover { .. } | Phase::Ended { .. } | Phase::Failed { .. }, _) => return,
        }
        entry.session.bytes = entry.session.bytes.max(ending.bytes);
        entry.session.phase = if empty {
            Phase::Ended { ending }
        } else {
            Phase::Leftover { ending }
        };
        self.running -= 1;
        let agent = entry.session.agent.clone();
        let is_try = entry.session.started_by.is_try();
        let is_awaited = is_try || self.has_owner_waiting(id);
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        entry.session.unattended = !is_awaited;
        entry.session.end_heard = Some(step.now.wall);
        let is_for_timer = self.is_awaited_by_timer(step.now, id, &agent);
        self.phase_changed(step, id);
        let before = self.posted.len();
        self.report_ending(step, id, is_awaited);
        if is_for_timer {
            self.delay_posted(step, before);
        }
        self.try_exited(step, id);
    }

    pub(super) fn emptied(&mut self, step: &mut Step<'_>, id: SessionId) {
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        let Phase::Leftover { ending } = &entry.session.phase else {
            return;
        };
        entry.session.phase = Phase::Ended {
            ending: ending.clone(),
        };
        entry.session.unattended = true;
        self.phase_changed(step, id);
    }

    /// Answers the calls that wait for a process tree that does not die. Calls that arrive later wait again: the tree
    /// may have died by then, and if not, the keeper reports it again.
    pub(super) fn survives_kill(&mut self, step: &mut Step<'_>, id: SessionId) {
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        entry.survives_kill = true;
        let entry = &*entry;
        let answers: Vec<_> = (entry.waits.iter())
            .filter_map(|call| Some((*call, self.waits.get(call)?)))
            .filter_map(|(call, wait)| Some((call, entry.outcome_if_tree_survives(wait)?)))
            .collect();
        for (call, outcome) in answers {
            self.end_wait_with(step, call, outcome);
        }
        self.rearm_overdue_timer(id);
        self.rearm_idle_timer(step, id);
    }

    /// Publishes a new phase, answers the calls that waited for it and rearms the timers of the session. An open
    /// question is withdrawn, because it was about the phase before.
    fn phase_changed(&mut self, step: &mut Step<'_>, id: SessionId) {
        self.withdraw(step, id);
        step.push(Effect::Publish { session: id });
        self.answer_waits(step, id);
        self.rearm_overdue_timer(id);
        self.rearm_idle_timer(step, id);
    }
}
