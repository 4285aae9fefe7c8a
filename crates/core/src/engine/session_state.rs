//! State of one session in the engine: its public part, its waits and its timers.

use alloc::collections::BTreeSet;

use crate::id::{CallId, QuestionId};
use crate::limit;
use crate::session::{End, Ending, Phase, Session};
use crate::time::{Millis, Mono};
use crate::wait::{Asking, Goal, Outcome, Wait, WhyRunning};

/// Session with everything that the engine knows about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionState {
    pub session: Session,
    pub waits: BTreeSet<CallId>,
    /// Number of waits that ask a person when the session is idle.
    pub askers: usize,
    /// Number of these that reach a person through their own client.
    pub here: usize,
    /// Time at which the last of these began to wait.
    pub asker_since: Mono,
    /// Calls that can be answered with the question itself, each with its latest time to ask: shortly before the
    /// limit of its client.
    pub cuts: BTreeSet<(Mono, CallId)>,
    pub idle_timer: IdleTimer,
    /// Quiet time before this moment does not count, because a person or the agent extended the session.
    pub idle_counts_from: Mono,
    pub inactivity_timer: InactivityTimer,
    /// Time of the last call that waited, read or wrote.
    pub last_use: Mono,
    /// Idle time in the question that a person answered with no.
    pub declined_idle: Option<Millis>,
    /// Reason of the kill, once it is decided. The kill is sent once, and only when there is something to
    /// kill; again only if the tree did not die.
    pub kill_reason: Option<End>,
    /// The tree was killed and did not die.
    pub survives_kill: bool,
    /// The session was started by an earlier daemon: its waits may come back.
    pub found: bool,
    pub ending_report: EndingReport,
    /// Deadline with which the session is started, from its start on.
    pub limit: Option<Millis>,
    /// Deadline that was moved before the command had started.
    pub deadline_after_start: Option<Mono>,
    /// Deadline.
    pub deadline: Option<Mono>,
    /// Time of the decision to kill.
    pub killed: Option<Mono>,
    /// Time at which the daemon checks that the keeper has ended the session.
    pub overdue: Option<Mono>,
}

/// Idle timer of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleTimer {
    /// Not running: there is no idle limit, or nothing to ask about.
    Off,
    /// Runs until then, as far as is known.
    Armed { at: Mono },
    /// May have expired: the keeper is being asked for the last activity.
    Looking,
    /// Expired, and a question is open.
    Asked {
        question: QuestionId,
        /// Time at which the calls that wait for the answer are released. `None`: no call waits, or a
        /// person can be reached.
        hand_over_at: Option<Mono>,
    },
}

impl IdleTimer {
    /// Time of the alarm.
    pub fn alarm(self) -> Option<Mono> {
        match self {
            IdleTimer::Off | IdleTimer::Looking => None,
            IdleTimer::Armed { at } => Some(at),
            IdleTimer::Asked { hand_over_at, .. } => hand_over_at,
        }
    }
}

/// Report of a session's ending to its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndingReport {
    /// The session has not ended, or nothing reports its ending.
    NotYet,
    /// The session has ended, and its ending is to be reported by the answer that the owner waits for, or else by a
    /// message.
    Owed,
    /// Answers have reported it.
    Told {
        /// Number of these answers, without those that were lost. What an earlier daemon has reported counts as one.
        answers: usize,
    },
    /// A message reports it.
    Posted,
}

/// Inactivity timer of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InactivityTimer {
    /// Not running: a call waits, or there is no limit.
    Off,
    /// Runs until then, as far as is known.
    Armed { at: Mono },
    /// May have expired: the keeper is being asked for the last activity.
    Looking,
}

impl SessionState {
    pub fn new(session: Session) -> Self {
        SessionState {
            session,
            waits: BTreeSet::new(),
            askers: 0,
            here: 0,
            asker_since: Mono::default(),
            cuts: BTreeSet::new(),
            idle_timer: IdleTimer::Off,
            idle_counts_from: Mono::default(),
            inactivity_timer: InactivityTimer::Off,
            last_use: Mono::default(),
            declined_idle: None,
            kill_reason: None,
            survives_kill: false,
            found: false,
            ending_report: EndingReport::NotYet,
            limit: None,
            deadline_after_start: None,
            deadline: None,
            killed: None,
            overdue: None,
        }
    }

    pub fn question(&self) -> Option<QuestionId> {
        match self.idle_timer {
            IdleTimer::Asked { question, .. } => Some(question),
            IdleTimer::Off | IdleTimer::Armed { .. } | IdleTimer::Looking => None,
        }
    }

    /// Returns whether the leader runs or is being started.
    pub fn leader_runs(&self) -> bool {
        matches!(self.session.phase, Phase::Starting | Phase::Running { .. })
    }

    /// Time at which to ask a person: at the idle limit, or shortly before the limit of a client whose call can be
    /// answered with the question, if the session will have been quiet for half the idle limit by then.
    pub fn idle_at(&self) -> Option<Mono> {
        match self.session.phase {
            Phase::Running {
                quiet_since,
                ending: None,
            } => {
                let idle = self.session.idle?;
                let since = quiet_since.max(self.idle_counts_from);
                let limit = (since + idle).max(self.session.unasked_until);
                let half = (since + Millis(idle.0 / 2)).max(self.session.unasked_until);
                let cut = self.cuts.first().map(|(at, _)| *at);
                Some(cut.filter(|at| *at >= half).unwrap_or(limit).min(limit))
            }
            Phase::Starting
            | Phase::Running { .. }
            | Phase::Leftover { .. }
            | Phase::Ended { .. }
            | Phase::Failed { .. } => None,
        }
    }

    /// Idle time that a question opened now states: the idle limit, or the quiet time in whole seconds if the limit
    /// is not reached yet.
    pub fn idle_time(&self, now: Mono) -> Millis {
        let limit = self.session.idle.unwrap_or_default();
        match self.session.phase {
            Phase::Running { quiet_since, .. }
                if now.since(quiet_since.max(self.idle_counts_from)) < limit =>
            {
                let quiet = now.since(quiet_since);
                Millis(quiet.0 / 1_000 * 1_000)
            }
            _ => limit,
        }
    }

    /// Time at which the inactivity limit is reached. `None` while a call waits, because a waiting call is activity.
    pub fn inactive_at(&self) -> Option<Mono> {
        match self.session.phase {
            Phase::Running {
                quiet_since,
                ending: None,
            } if self.waits.is_empty() => {
                Some(quiet_since.max(self.last_use) + self.session.inactivity?)
            }
            Phase::Starting
            | Phase::Running { .. }
            | Phase::Leftover { .. }
            | Phase::Ended { .. }
            | Phase::Failed { .. } => None,
        }
    }

    pub fn enter(&mut self, wait: &Wait) {
        self.waits.insert(wait.call);
        self.askers += usize::from(wait.asking.asks());
        self.here += usize::from(wait.asking.reaches_a_person());
        self.cuts.extend(cut(wait));
    }

    pub fn leave(&mut self, wait: &Wait) {
        self.waits.remove(&wait.call);
        self.askers -= usize::from(wait.asking.asks());
        self.here -= usize::from(wait.asking.reaches_a_person());
        if let Some(cut) = cut(wait) {
            self.cuts.remove(&cut);
        }
    }

    /// Answer to this wait in the present state; `None`: not yet.
    pub fn outcome_now(&self, wait: &Wait) -> Option<Outcome> {
        let id = wait.session;
        match (&self.session.phase, wait.goal) {
            (Phase::Failed { .. }, _) => Some(Outcome::Failed(id)),
            (Phase::Ended { ending }, goal) => Some(match (ending.end, goal) {
                (End::IdleDeclined, _) if wait.asking.asks() => {
                    let limit = self.session.idle.unwrap_or_default();
                    Outcome::Declined(id, self.declined_idle.unwrap_or(limit))
                }
                (End::User, Goal::Interrupted) => Outcome::Cancelled(id),
                _ => Outcome::Ended(id),
            }),
            (Phase::Running { .. }, Goal::Started) => Some(Outcome::Started(id)),
            (Phase::Leftover { .. }, Goal::Started) => Some(Outcome::Ended(id)),
            (Phase::Leftover { ending }, Goal::Ended | Goal::Probed) => {
                (!self.must_empty(ending)).then_some(Outcome::Ended(id))
            }
            (Phase::Starting | Phase::Running { .. }, _) => None,
            (Phase::Leftover { .. }, Goal::Gone | Goal::Interrupted | Goal::Tried) => None,
        }
    }

    /// Answer to this wait if the tree should be killed and does not die.
    pub fn outcome_if_tree_survives(&self, wait: &Wait) -> Option<Outcome> {
        let id = wait.session;
        match (&self.session.phase, wait.goal) {
            (Phase::Leftover { .. }, Goal::Interrupted) => Some(Outcome::Cancelled(id)),
            (Phase::Leftover { .. }, _) => Some(Outcome::Ended(id)),
            (Phase::Running { .. }, _) => Some(Outcome::Running(id, WhyRunning::SurvivesKill)),
            (Phase::Starting | Phase::Ended { .. } | Phase::Failed { .. }, _) => None,
        }
    }

    /// Returns whether the rest of the tree is being killed, so that waiting calls are answered only when it is
    /// gone and not before.
    fn must_empty(&self, ending: &Ending) -> bool {
        self.kill_reason.is_some() || ending.end.is_kill()
    }
}

/// Latest time to ask for a call that can be answered with the question.
fn cut(wait: &Wait) -> Option<(Mono, CallId)> {
    let until = wait.until.filter(|_| wait.asking == Asking::ByReturning)?;
    Some((
        Mono(until.0.saturating_sub(limit::ASK_BEFORE_CUT.0)),
        wait.call,
    ))
}
