//! Reports of keepers. A keeper that reconnects repeats its earlier reports, so every handler here is idempotent.

use alloc::vec::Vec;

use super::session_state::IdleTimer;
use super::{Engine, Turn};
use crate::effect::Effect;
use crate::id::SessionId;
use crate::session::{Ending, Phase};
use crate::time::Mono;

impl Engine {
    pub(super) fn started(&mut self, turn: &mut Turn<'_>, id: SessionId) {
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        if entry.session.phase != Phase::Starting {
            return;
        }
        entry.session.phase = Phase::Running {
            quiet_since: turn.now.mono,
            ending: entry.kill_reason,
        };
        let held = entry.held_deadline.take();
        entry.deadline = held.or_else(|| Some(turn.now.mono + entry.limit?));
        let kill_reason = entry.kill_reason;
        entry.killed = kill_reason.map(|_| turn.now.mono);
        if let Some(at) = held {
            turn.push(Effect::SetDeadline {
                session: id,
                deadline: at.since(turn.now.mono),
            });
            self.keep_limits(turn, id);
        }
        if let Some(end) = kill_reason {
            turn.push(Effect::Kill { session: id, end });
        }
        self.phase_changed(turn, id);
    }

    pub(super) fn start_failed(&mut self, turn: &mut Turn<'_>, id: SessionId, failed: Phase) {
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        if entry.session.phase != Phase::Starting {
            return;
        }
        entry.session.phase = failed;
        self.running -= 1;
        self.phase_changed(turn, id);
    }

    pub(super) fn grew(&mut self, turn: &mut Turn<'_>, id: SessionId, bytes: u64, reported: Mono) {
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
            turn.push(Effect::Publish { session: id });
        }
        // First the inactivity limit: a session that it closes gets no question.
        self.activity_reported(turn, id);
        match self.sessions.get(&id).map(|entry| entry.idle_timer) {
            Some(IdleTimer::Looking) => self.looked(turn, id),
            Some(IdleTimer::Asked { .. }) if more => {
                self.withdraw(turn, id);
                self.rearm_idle_timer(turn, id);
            }
            Some(IdleTimer::Off | IdleTimer::Armed { .. }) => self.rearm_idle_timer(turn, id),
            Some(IdleTimer::Asked { .. }) | None => {}
        }
    }

    pub(super) fn exited(
        &mut self,
        turn: &mut Turn<'_>,
        id: SessionId,
        ending: Ending,
        empty: bool,
    ) {
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        match (&entry.session.phase, entry.kill_reason) {
            (Phase::Starting, Some(end)) if !empty => {
                turn.push(Effect::Kill { session: id, end });
            }
            (Phase::Starting | Phase::Running { .. }, _) => {}
            (Phase::Leftover { .. }, _) if empty => return self.emptied(turn, id),
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
        let conversation = entry.session.conversation.clone();
        let is_try = entry.session.started_by.is_try();
        let attended = is_try || self.has_owner_waiting(id);
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        entry.session.unattended = !attended;
        if !attended && entry.found && turn.now.mono < self.take_up_until {
            self.ending_undelivered(turn, id);
        }
        self.phase_changed(turn, id);
        self.ending_awaited(id);
        if !attended && !self.is_ending_undelivered(id) {
            self.left_alone(turn, agent, conversation, id);
        }
        self.try_exited(turn, id);
    }

    pub(super) fn emptied(&mut self, turn: &mut Turn<'_>, id: SessionId) {
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
        self.phase_changed(turn, id);
    }

    /// Answers the calls that wait for a process tree that does not die. Calls that arrive later wait again: the tree
    /// may have died by then, and if not, the keeper reports it again.
    pub(super) fn undying(&mut self, turn: &mut Turn<'_>, id: SessionId) {
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        entry.undying = true;
        let entry = &*entry;
        let answers: Vec<_> = (entry.waits.iter())
            .filter_map(|call| Some((*call, self.waits.get(call)?)))
            .filter_map(|(call, wait)| Some((call, entry.verdict_on_the_undying(wait)?)))
            .collect();
        for (call, outcome) in answers {
            self.reply(turn, call, outcome);
        }
        self.rearm_overdue_timer(id);
        self.rearm_idle_timer(turn, id);
    }

    /// Publishes a new phase, answers the calls that waited for it and rearms the timers of the session. An open
    /// question is withdrawn, because it was about the phase before.
    fn phase_changed(&mut self, turn: &mut Turn<'_>, id: SessionId) {
        self.withdraw(turn, id);
        turn.push(Effect::Publish { session: id });
        self.answer_waits(turn, id);
        self.rearm_overdue_timer(id);
        self.rearm_idle_timer(turn, id);
    }
}
