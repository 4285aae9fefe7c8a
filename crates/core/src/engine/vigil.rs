//! Inactivity: a session that has neither output nor input nor a reader for too long is closed. Age
//! alone ends nothing, and time during which the machine sleeps is not counted.
//!
//! A call that waits for a session, reads from it or writes to it joins it for as long as that takes:
//! while anybody has joined, the clock does not run.

use super::session_state::Vigil;
use super::{Alarm, Engine, Turn};
use crate::effect::Effect;
use crate::id::SessionId;
use crate::session::End;

impl Engine {
    /// Brings the clock of a session's inactivity into line with everything else. Called after
    /// whatever may have changed who is there, the limit, or the last sign of life.
    pub(super) fn keep_vigil(&mut self, turn: &Turn<'_>, id: SessionId) {
        let Some(kept) = self.sessions.get_mut(&id) else {
            return;
        };
        let next = match (kept.vigil, kept.inactive_at()) {
            (_, None) => Vigil::Off,
            (Vigil::Looking, Some(_)) => Vigil::Looking,
            (Vigil::Off | Vigil::Armed { .. }, Some(at)) => Vigil::Armed {
                at: at.max(turn.now.mono),
            },
        };
        if let Vigil::Armed { at } = kept.vigil {
            self.alarms.remove(&(at, Alarm::Inactive(id)));
        }
        if let Vigil::Armed { at } = next {
            self.alarms.insert((at, Alarm::Inactive(id)));
        }
        kept.vigil = next;
    }

    /// It has been inactive for too long as far as the engine knows; the keeper knows better.
    pub(super) fn look_for_life(&mut self, turn: &mut Turn<'_>, id: SessionId) {
        if let Some(kept) = self.sessions.get_mut(&id) {
            kept.vigil = Vigil::Looking;
            turn.push(Effect::Look { session: id });
        }
    }

    /// The keeper has told of the last sign of life.
    pub(super) fn sign_of_life(&mut self, turn: &mut Turn<'_>, id: SessionId) {
        let Some(kept) = self.sessions.get_mut(&id) else {
            return;
        };
        let looked = kept.vigil == Vigil::Looking;
        if looked {
            kept.vigil = Vigil::Off;
        }
        if looked && kept.inactive_at().is_some_and(|at| at <= turn.now.mono) {
            self.request_kill(turn, id, End::Inactivity);
        } else {
            self.keep_vigil(turn, id);
        }
    }

    /// Somebody was there until now.
    pub(super) fn attended(&mut self, turn: &Turn<'_>, id: SessionId) {
        if let Some(kept) = self.sessions.get_mut(&id) {
            kept.attended = turn.now.mono;
        }
        self.keep_vigil(turn, id);
    }
}
