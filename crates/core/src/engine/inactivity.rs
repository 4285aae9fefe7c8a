//! Inactivity timer: a session without output, input and readers for too long is closed. Age alone does
//! not end a session, and time during which the machine sleeps does not count.
//!
//! While a call waits for a session, reads from it or writes to it, the timer does not run.

use super::session_state::InactivityTimer;
use super::{Alarm, Engine, Step};
use crate::effect::Effect;
use crate::id::SessionId;
use crate::session::End;

impl Engine {
    /// Sets the inactivity timer from the state of the session. Called after every change of its waits, its
    /// limit or its last activity.
    pub(super) fn rearm_inactivity_timer(&mut self, step: &Step<'_>, id: SessionId) {
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        let next = match (entry.inactivity_timer, entry.inactive_at()) {
            (_, None) => InactivityTimer::Off,
            (InactivityTimer::Looking, Some(_)) => InactivityTimer::Looking,
            (InactivityTimer::Off | InactivityTimer::Armed { .. }, Some(at)) => {
                InactivityTimer::Armed {
                    at: at.max(step.now.mono),
                }
            }
        };
        if let InactivityTimer::Armed { at } = entry.inactivity_timer {
            self.alarms.remove(&(at, Alarm::Inactive(id)));
        }
        if let InactivityTimer::Armed { at } = next {
            self.alarms.insert((at, Alarm::Inactive(id)));
        }
        entry.inactivity_timer = next;
    }

    /// Handles the timer: the keeper is asked for the last activity, which the engine may not know yet.
    pub(super) fn inactivity_due(&mut self, step: &mut Step<'_>, id: SessionId) {
        if let Some(entry) = self.sessions.get_mut(&id) {
            entry.inactivity_timer = InactivityTimer::Looking;
            step.push(Effect::QueryOutput { session: id });
        }
    }

    /// Handles the answer of the keeper about the last activity.
    pub(super) fn inactivity_query_answered(&mut self, step: &mut Step<'_>, id: SessionId) {
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        let looked = entry.inactivity_timer == InactivityTimer::Looking;
        if looked {
            entry.inactivity_timer = InactivityTimer::Off;
        }
        if looked && entry.inactive_at().is_some_and(|at| at <= step.now.mono) {
            self.request_kill(step, id, End::Inactivity);
        } else {
            self.rearm_inactivity_timer(step, id);
        }
    }

    /// Notes that a call waited, read or wrote until now.
    pub(super) fn note_use(&mut self, step: &Step<'_>, id: SessionId) {
        if let Some(entry) = self.sessions.get_mut(&id) {
            entry.last_use = step.now.mono;
        }
        self.rearm_inactivity_timer(step, id);
    }
}
