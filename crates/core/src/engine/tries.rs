//! Tries: sessions that run the command of a condition. A try exists only for its condition: the engine kills its
//! whole tree when the condition no longer waits for it, its ending causes no message, and only the latest try of a
//! condition is kept.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::calls::no_id;
use super::session_state::SessionState;
use super::{Engine, Step};
use crate::effect::Effect;
use crate::id::{Agent, CallId, Key, SessionId, TimerId};
use crate::request::{Refusal, Try};
use crate::session::{End, Phase, Session, StartedBy};
use crate::time::Wall;
use crate::timer::{Found, Status, Timer, not_allowed};
use crate::wait::{Goal, Wait};

impl Engine {
    /// Returns whether a session is a try.
    fn is_try(&self, id: SessionId) -> bool {
        self.session(id)
            .is_some_and(|session| session.started_by.is_try())
    }

    /// Runs the command of a condition once, or joins the try that already runs under the same key.
    pub(super) fn try_once(
        &mut self,
        step: &mut Step<'_>,
        call: CallId,
        caller: Option<Agent>,
        reserved: Option<SessionId>,
        once: Try,
    ) -> Result<(), Refusal> {
        self.may_try(step, once.started_by)?;
        let agent = caller.unwrap_or_else(|| self.default_agent.clone());
        let name = (agent.clone(), once.key.clone());
        let earlier = self.session_by_key.get(&name).copied();
        let over = |id: &SessionId| self.sessions.get(id).is_none_or(has_ended);
        let running = earlier.filter(|id| !over(id));
        let wait = Wait {
            for_owner: true,
            ..Wait::new(call, running.or(reserved).ok_or_else(no_id)?, Goal::Tried)
        };
        if running.is_some() {
            return self.wait_for(step, wait);
        }
        self.has_room_to_run(wait.session)?;
        self.has_room_to_wait()?;
        if let Some(earlier) = earlier {
            self.remove(step, earlier);
        }
        let session = Session {
            started_by: once.started_by,
            ..Session::starting(agent, None, once.command, [once.key].into(), step.now.wall)
        };
        self.start(step, wait, session, Some(once.deadline))
    }

    /// Refuses a try unless its timer counts down: the request may arrive just after the timer was stopped or paused.
    fn may_try(&self, step: &Step<'_>, started_by: StartedBy) -> Result<(), Refusal> {
        let StartedBy::Timer(id) = started_by else {
            return Ok(());
        };
        let timer = match self.timers.find(&None, id)? {
            Found::Live(slot) => self.view(step.now, slot, id)?,
            Found::Ended(timer) => timer,
        };
        match timer.status {
            Status::Running(_) => Ok(()),
            Status::Paused { .. } | Status::Completed { .. } | Status::Stopped => {
                Err(not_allowed(&timer, "try").into())
            }
        }
    }

    /// Kills a try when no condition waits for it any more.
    pub(super) fn try_left(&mut self, step: &mut Step<'_>, wait: &Wait) {
        let id = wait.session;
        let tried = |call| {
            self.waits
                .get(call)
                .is_some_and(|wait| wait.goal == Goal::Tried)
        };
        let wanted = (self.sessions.get(&id)).is_some_and(|entry| entry.waits.iter().any(tried));
        if wait.goal == Goal::Tried && !wanted {
            self.request_kill(step, id, End::Agent);
        }
    }

    /// Kills the processes that the command of a try left running.
    pub(super) fn try_exited(&mut self, step: &mut Step<'_>, id: SessionId) {
        let left = |entry: &SessionState| matches!(entry.session.phase, Phase::Leftover { .. });
        if self.is_try(id) && self.sessions.get(&id).is_some_and(left) {
            self.request_kill(step, id, End::Agent);
        }
    }

    /// Kills the tries of a timer that has ended or was paused.
    pub(super) fn end_tries(&mut self, step: &mut Step<'_>, timer: &Timer) {
        if !timer.conditional {
            return;
        }
        let prefix = Key::of_tries(timer.id);
        let first = (timer.agent.clone(), prefix.clone());
        let tries: Vec<SessionId> = (self.session_by_key.range(first..))
            .take_while(|((agent, key), _)| *agent == timer.agent && key.0.starts_with(&*prefix.0))
            .map(|(_, id)| *id)
            .collect();
        for id in tries {
            self.request_kill(step, id, End::Agent);
        }
    }

    /// Handles the tries of the previous daemon: keeps one whose timer counts down, kills one that no timer waits
    /// for, and removes the earlier tries of a condition, whose folders remain if the daemon died between two tries.
    pub(super) fn tries_recovered(&mut self, step: &mut Step<'_>) {
        type Rank = (bool, Wall, SessionId);
        let mut latest: BTreeMap<(Agent, Key), Rank> = BTreeMap::new();
        let mut tries = Vec::new();
        for (id, entry) in &self.sessions {
            let session = &entry.session;
            let Some(key) = session
                .keys
                .first()
                .cloned()
                .filter(|_| session.started_by.is_try())
            else {
                continue;
            };
            let name = (session.agent.clone(), key);
            let rank = (!has_ended(entry), session.created, *id);
            let best = latest.entry(name.clone()).or_insert(rank);
            *best = rank.max(*best);
            tries.push((name, *id));
        }
        for (name, (runs, _, id)) in &latest {
            self.session_by_key.insert(name.clone(), *id);
            if *runs && !self.is_awaited(step, *id) {
                self.request_kill(step, *id, End::Agent);
            }
        }
        for (name, id) in tries {
            let earlier = latest.get(&name).is_some_and(|(_, _, last)| *last != id);
            if earlier && self.sessions.get(&id).is_some_and(has_ended) {
                self.remove(step, id);
            }
        }
    }

    /// Returns whether the timer of a recovered try will join it.
    fn is_awaited(&self, step: &Step<'_>, id: SessionId) -> bool {
        let Some(session) = self.session(id) else {
            return false;
        };
        let StartedBy::Timer(_) = session.started_by else {
            return false;
        };
        let counts_down = self.may_try(step, session.started_by).is_ok();
        counts_down && !matches!(session.phase, Phase::Leftover { .. })
    }

    /// Removes an ended session and its folder.
    fn remove(&mut self, step: &mut Step<'_>, id: SessionId) {
        self.forgotten(step, &[id]);
        step.push(Effect::Remove { session: id });
    }
}

fn has_ended(entry: &SessionState) -> bool {
    entry.session.phase.is_final()
}

impl Key {
    /// Key of the try of one command in the condition of a timer or a wait. The key keeps a condition from running
    /// the same command twice at once.
    pub fn of_try(owner: impl core::fmt::Display, command: usize) -> Key {
        Key(alloc::format!("try:{owner}:{command}").into())
    }

    /// Prefix of the keys of all tries of a timer.
    fn of_tries(timer: TimerId) -> Key {
        Key(alloc::format!("try:{timer}:").into())
    }
}
