//! Calls of the interfaces: requests, and the end of calls.

use alloc::format;
use alloc::string::String;

use super::people::Given;
use super::session_state::SessionState;
use super::{Engine, Step};
use crate::effect::{Effect, Update};
use crate::id::{Agent, CallId, SessionId};
use crate::limit;
use crate::request::{Caller, Refusal, Request, Run};
use crate::session::{End, Phase, Session, StartedBy};
use crate::time::Millis;
use crate::wait::{Goal, Outcome, Wait};

/// Refusal of a start for which the interface has reserved no id.
pub(super) fn no_id() -> Refusal {
    Refusal::TooMany("no id is reserved for the session; try again".into())
}

/// New limits for a running session.
struct Limits {
    deadline: Option<Millis>,
    idle: Option<Millis>,
    inactivity: Option<Millis>,
}

impl Engine {
    /// Handles a call. Every refusal comes before the first change. If a call with this id is already waiting, the
    /// new one is ignored, because the older one will be answered.
    pub(super) fn called(
        &mut self,
        step: &mut Step<'_>,
        call: CallId,
        caller: Caller,
        reserved: Option<SessionId>,
        request: Request,
    ) {
        let is_waiting = self.waits.contains_key(&call) || self.standby_calls.contains(call);
        if is_waiting || self.outbox.reads(call) {
            return;
        }
        let wait = |session, asking, standby: Option<Millis>, goal| Wait {
            asking,
            until: standby.map(|standby| step.now.mono + standby),
            for_owner: self.is_owner(session, &caller),
            ..Wait::new(call, session, goal)
        };
        let taken = match request {
            Request::Run(run) => self.run(step, call, caller, reserved, run),
            Request::Try(once) => self.try_once(step, call, caller.agent, reserved, once),
            Request::Join {
                session,
                asking,
                standby,
            } => {
                let wait = wait(session, asking, standby, Goal::Ended);
                self.join_session(step, &caller.agent, wait)
            }
            Request::JoinStart {
                session,
                asking,
                standby,
            } => {
                let wait = wait(session, asking, standby, Goal::Started);
                self.join_held(step, &caller.agent, wait)
            }
            Request::Probe { session } => {
                let wait = Wait::new(call, session, Goal::Probed);
                self.join_session(step, &caller.agent, wait)
            }
            Request::Kill { session, end } => {
                let owner = self.is_owner(session, &caller);
                self.kill(step, call, &caller.agent, owner, session, end)
            }
            Request::Extend {
                session,
                deadline,
                idle,
                inactivity,
            } => {
                let limits = Limits {
                    deadline,
                    idle,
                    inactivity,
                };
                self.extend(step, call, &caller.agent, session, limits)
            }
            Request::Answer {
                question,
                answer,
                quiet_for,
                because,
                key,
            } => {
                let given = Given {
                    answer,
                    quiet_for,
                    because,
                    key,
                };
                self.answered(step, call, &caller.agent, question, given)
            }
            Request::Timer(request) => self.timer_called(step, call, caller, request),
            Request::ReadMessages {
                standby,
                most,
                known,
            } => self.read_messages(step, call, caller, standby, most, &known),
        };
        if let Err(refusal) = taken {
            step.reply(call, Outcome::Refused(refusal));
        }
    }

    /// Waits for a session, or for a command that may not be started yet.
    fn join_session(
        &mut self,
        step: &mut Step<'_>,
        caller: &Option<Agent>,
        wait: Wait,
    ) -> Result<(), Refusal> {
        let session = wait.session;
        if self.held.contains_key(&session) || self.not_started.contains_key(&session) {
            return self.join_held(step, caller, wait);
        }
        self.visible_to(caller, session)?;
        // A person joins with a way to be asked only a session that `abide run` has started for that person.
        let for_owner = wait.for_owner || (caller.is_none() && wait.asking.asks());
        self.wait_for(step, Wait { for_owner, ..wait })
    }

    fn run(
        &mut self,
        step: &mut Step<'_>,
        call: CallId,
        caller: Caller,
        reserved: Option<SessionId>,
        run: Run,
    ) -> Result<(), Refusal> {
        let started_by = match caller.agent {
            Some(_) => run.started_by(),
            None => StartedBy::Person,
        };
        let agent = caller.agent.unwrap_or_else(|| self.default_agent.clone());
        let conversation = caller.conversation;
        let named_key = run.key.as_ref().map(|key| (agent.clone(), key.name()));
        let known_session = named_key.and_then(|key| self.session_by_key.get(&key).copied());
        let session = known_session.or(reserved).ok_or_else(no_id)?;
        let goal = match run.detach {
            true => Goal::Started,
            false => Goal::Ended,
        };
        let wait = Wait {
            asking: run.asking,
            until: run.standby.map(|standby| step.now.mono + standby),
            for_owner: true,
            ..Wait::new(call, session, goal)
        };
        if let Some(first) = known_session.and_then(|id| self.session(id)) {
            return match run.key {
                Some(key) if !key.repeats(&first.keys, &first.command, &run.command) => {
                    Err(Refusal::KeyReused(key.name()))
                }
                _ => self.wait_for(step, wait),
            };
        }
        if let Some((question, session)) = self.held_under_key(&agent, &run)? {
            let asking = run.approval.map_or(run.asking, |approval| approval.asking);
            let wait = Wait { session, ..wait };
            return self.join_question(step, question, asking, false, wait);
        }
        if let Some(approval) = run.approval.clone() {
            return self.hold(step, wait, agent, conversation, run, approval);
        }
        let session = Session {
            started_by,
            idle: run.idle,
            inactivity: run.inactivity,
            ..Session::starting(
                agent,
                conversation,
                run.command,
                run.key.into_iter().collect(),
                step.now.wall,
            )
        };
        self.start(step, wait, session, run.deadline)
    }

    /// Starts a session under the id in `wait`; the call waits for it.
    pub(super) fn start(
        &mut self,
        step: &mut Step<'_>,
        wait: Wait,
        session: Session,
        deadline: Option<Millis>,
    ) -> Result<(), Refusal> {
        let (id, call) = (wait.session, wait.call);
        self.has_room_to_run(id)?;
        self.has_room_to_wait()?;
        self.keep_starting(step, id, session, deadline);
        self.begin_wait(wait);
        step.push(Effect::Start {
            session: id,
            call,
            deadline,
        });
        step.push(Effect::Publish { session: id });
        step.push(Effect::Tell {
            call,
            update: Update::Accepted(id),
        });
        Ok(())
    }

    /// Adds a session that is about to be started.
    pub(super) fn keep_starting(
        &mut self,
        step: &Step<'_>,
        id: SessionId,
        session: Session,
        deadline: Option<Millis>,
    ) {
        let mut entry = SessionState::new(session);
        entry.limit = deadline;
        entry.deadline = deadline.map(|limit| step.now.mono + limit);
        self.keep(id, entry);
        self.rearm_overdue_timer(id);
    }

    pub(super) fn has_room_to_run(&self, id: SessionId) -> Result<(), Refusal> {
        let sentence: String = if self.running >= limit::RUNNING_SESSIONS {
            let limit = limit::RUNNING_SESSIONS;
            format!("too many sessions are running (limit {limit}); end some of them")
        } else if self.sessions.len() >= limit::SESSIONS {
            let limit = limit::SESSIONS;
            format!("too many sessions are kept (limit {limit}); lower keep_days or keep_bytes")
        } else if self.sessions.contains_key(&id) {
            format!("the id {id} is in use; try again")
        } else {
            return Ok(());
        };
        Err(Refusal::TooMany(sentence))
    }

    fn kill(
        &mut self,
        step: &mut Step<'_>,
        call: CallId,
        caller: &Option<Agent>,
        for_owner: bool,
        session: SessionId,
        end: End,
    ) -> Result<(), Refusal> {
        if self.kill_held(step, call, caller, session) {
            return Ok(());
        }
        let wait = Wait {
            for_owner,
            ..Wait::new(call, session, Goal::Gone)
        };
        if let Some(outcome) = self.visible_to(caller, session)?.outcome_now(&wait) {
            self.answer_ended_wait(step, &wait, outcome);
            return Ok(());
        }
        self.has_room_to_wait()?;
        self.request_kill(step, session, end);
        self.begin_wait(wait);
        Ok(())
    }

    fn extend(
        &mut self,
        step: &mut Step<'_>,
        call: CallId,
        caller: &Option<Agent>,
        session: SessionId,
        limits: Limits,
    ) -> Result<(), Refusal> {
        let entry = self.visible_to(caller, session)?;
        if !entry.leader_runs() || entry.kill_reason.is_some() {
            return Err(Refusal::SessionEnded(session));
        }
        if let Some(deadline) = limits.deadline {
            self.set_deadline(step, session, deadline);
        }
        if let Some(limit) = limits.inactivity {
            if let Some(entry) = self.sessions.get_mut(&session) {
                entry.session.inactivity = (limit != Millis(0)).then_some(limit);
            }
            self.note_use(step, session);
        }
        if let Some(idle) = limits.idle {
            self.withdraw(step, session);
            if let Some(entry) = self.sessions.get_mut(&session) {
                entry.session.idle = Some(idle);
            }
            self.restart_idle_timer(step, session);
        }
        if limits
            .deadline
            .or(limits.idle)
            .or(limits.inactivity)
            .is_some()
        {
            self.store_limits(step, session);
        }
        step.push(Effect::Publish { session });
        step.reply(call, Outcome::Done);
        Ok(())
    }

    /// Stores the changed limits of a session, so that they survive the daemon.
    pub(super) fn store_limits(&self, step: &mut Step<'_>, session: SessionId) {
        if let Some(moved) = self.session(session) {
            step.push(Effect::StoreLimits {
                session,
                idle: moved.idle,
                inactivity: moved.inactivity,
                unasked_until: moved.unasked_until,
            });
        }
    }

    /// Sets the deadline, counted from now. A keeper that is still starting gets it after the start.
    fn set_deadline(&mut self, step: &mut Step<'_>, session: SessionId, deadline: Millis) {
        match self.sessions.get_mut(&session) {
            Some(entry) if entry.session.phase == Phase::Starting => {
                entry.deadline_after_start = Some(step.now.mono + deadline);
                entry.deadline = entry.deadline_after_start;
            }
            Some(entry) => {
                entry.deadline = Some(step.now.mono + deadline);
                step.push(Effect::SetDeadline { session, deadline });
            }
            None => {}
        }
        self.rearm_overdue_timer(session);
    }

    /// Returns whether an answer to this caller counts as a report to the owner of the session: the caller is an
    /// agent in the conversation that started it or wants to, or that conversation is not known.
    fn is_owner(&self, session: SessionId, caller: &Caller) -> bool {
        let started_in = match self.held_command(session) {
            Some(held) => held.conversation.as_ref(),
            None => self.session(session).and_then(|s| s.conversation.as_ref()),
        };
        let is_same = started_in.is_none() || started_in == caller.conversation.as_ref();
        caller.agent.is_some() && is_same
    }

    /// Session that this caller may see: its own, or any if the caller is a person at the command line.
    fn visible_to(
        &self,
        caller: &Option<Agent>,
        session: SessionId,
    ) -> Result<&SessionState, Refusal> {
        let own =
            |entry: &&SessionState| caller.as_ref().is_none_or(|me| *me == entry.session.agent);
        (self.sessions.get(&session).filter(own)).ok_or(Refusal::SessionNotFound(session))
    }

    /// Ends the wait of a call whose client is gone. The session and an open question stay.
    pub(super) fn caller_gone(&mut self, step: &mut Step<'_>, call: CallId) {
        self.reader_gone(step, call);
        if let Some(wait) = self.end_wait(step, call) {
            if let Some(question) = wait.question() {
                return self.release_if_stranded(step, question);
            }
            self.owner_stopped_waiting(step, wait.session);
            self.release_stranded(step, wait.session);
            self.rearm_idle_timer(step, wait.session);
            self.try_left(step, &wait);
        }
    }

    /// Kills the session because a person interrupted the call that waits for it.
    pub(super) fn interrupted(&mut self, step: &mut Step<'_>, call: CallId) {
        self.wait_interrupted(step, call);
        let Some(wait) = self.waits.get_mut(&call) else {
            return;
        };
        if let Some(question) = wait.question() {
            return self.withdraw_held(step, call, question);
        }
        wait.goal = Goal::Interrupted;
        let id = wait.session;
        if let Some(entry) = self.sessions.get_mut(&id).filter(|s| s.leader_runs()) {
            entry.session.interrupted = true;
            self.request_kill(step, id, End::User);
        }
    }
}
