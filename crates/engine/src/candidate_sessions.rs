//! Sessions of an agent that could open a port for which it waits. Each running one may, so it keeps the wait open. Only
//! the failure of a server ends the wait: a session of the same conversation that was left running since, or the last one
//! that was started shortly before the wait began and ran then, or whose failure the conversation had not been told. An
//! older session was hardly started to open the port. A command whose ending is returned to its call, or that a call
//! started during the wait and waited for, is no server: the agent, or another conversation of it, works on while a timer
//! runs. A session that exits with code 0 has done its work, which may be to start the server elsewhere, and one that is
//! ended on purpose says nothing about the port. The exit codes of background processes are not known: all count as
//! failures.

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_core::session::{Phase, StartedBy};
use abide_core::{Agent, Conversation, Millis, SessionId, Wall};

use super::SessionView;

/// Longest time between the start of a session and the begin of the wait for a port that the session was started to open.
const STARTED_FOR_PORT: Millis = Millis::from_secs(600);

/// Candidate sessions that are running, and the server that failed last.
pub(super) struct CandidateSessions {
    agent: Agent,
    conversation: Option<Conversation>,
    since: Wall,
    alive: BTreeSet<SessionId>,
    /// Those of them of which only background processes are left.
    leftover: BTreeSet<SessionId>,
    /// Start of the last session of the conversation that was left running before the wait began.
    newest: Wall,
    last: Option<Arc<SessionView>>,
}

impl CandidateSessions {
    /// CandidateSessions of an agent of which this conversation has waited since then.
    pub fn new(agent: Agent, conversation: Option<Conversation>, since: Wall) -> Self {
        CandidateSessions {
            agent,
            conversation,
            since,
            alive: BTreeSet::new(),
            leftover: BTreeSet::new(),
            newest: Wall(0),
            last: None,
        }
    }

    /// Server that failed last, if no candidate is left.
    pub fn last_failed(&self) -> Option<&SessionView> {
        self.last.as_deref().filter(|_| self.alive.is_empty())
    }

    pub fn update_all(&mut self, mut all: Vec<Arc<SessionView>>) {
        self.alive
            .retain(|id| all.iter().any(|view| view.id == *id));
        all.sort_by_key(|view| ended_at(view));
        for view in &all {
            if self.may_be_server(view) && view.state.created <= self.since {
                self.newest = self.newest.max(view.state.created);
            }
        }
        for view in all {
            self.update(view);
        }
    }

    /// Updates the candidates from one session.
    pub fn update(&mut self, view: Arc<SessionView>) {
        let state = &view.state;
        if state.agent != self.agent || state.started_by.is_try() {
            return;
        }
        match state.phase {
            Phase::Starting | Phase::Running { .. } => {
                self.alive.insert(view.id);
            }
            Phase::Leftover { .. } => {
                self.alive.insert(view.id);
                self.leftover.insert(view.id);
            }
            Phase::Ended { .. } | Phase::Failed { .. } => {
                let ran = self.alive.remove(&view.id)
                    || ended_at(&view).is_some_and(|ended| ended > self.since);
                let is_early = state.created <= self.since;
                let before = Millis(self.since.0.saturating_sub(state.created.0));
                let is_server = match is_early {
                    true => state.created >= self.newest && before <= STARTED_FOR_PORT,
                    false => state.started_by == StartedBy::Terminal && state.unattended,
                };
                let has_failed = has_failed(&view) || self.leftover.remove(&view.id);
                if ran && is_server && has_failed && self.may_be_server(&view) {
                    self.last = Some(view);
                }
            }
        }
    }

    pub fn forget(&mut self, id: SessionId) {
        self.alive.remove(&id);
    }

    /// Returns whether the conversation has started a session and left it running: with `terminal_session`, or by another
    /// call if none returned its end.
    fn may_be_server(&self, view: &SessionView) -> bool {
        let state = &view.state;
        state.agent == self.agent
            && state.conversation == self.conversation
            && match state.started_by {
                StartedBy::Terminal => true,
                StartedBy::Call => state.unattended,
                StartedBy::Person | StartedBy::Timer(_) | StartedBy::Wait => false,
            }
    }
}

fn has_failed(view: &SessionView) -> bool {
    let is_failure = view.ending().map(|ending| ending.is_failure());
    is_failure.unwrap_or(matches!(view.state.phase, Phase::Failed { .. }))
}

/// Time at which the end of a session's command was heard, else its end: a command that has ended when the wait begins,
/// but is not known to have, still counts as running then.
fn ended_at(view: &SessionView) -> Option<Wall> {
    let ending = view.ending()?;
    let end = Wall(view.state.created.0.saturating_add(ending.duration.0));
    Some(view.state.end_heard.unwrap_or(end))
}

#[cfg(test)]
mod tests {
    use abide_core::{End, Exit, Mono, TimerId};

    use super::*;

    const SINCE: Wall = Wall(10_000);

    fn runs(bits: u64, created: u64) -> SessionView {
        let phase = Phase::Running {
            quiet_since: Mono(0),
            ending: None,
        };
        SessionView::of_test(SessionId::from_bits(bits), Wall(created), phase)
    }

    fn ended(bits: u64, created: u64, duration: u64) -> SessionView {
        runs(bits, created).ended_after(Millis(duration))
    }

    fn unattended(mut view: SessionView) -> SessionView {
        view.state.unattended = true;
        view
    }

    fn waited_for(mut view: SessionView) -> SessionView {
        view.state.started_by = StartedBy::Call;
        view
    }

    /// Session that ended last after these updates, if no candidate is left.
    fn last_after(views: impl IntoIterator<Item = SessionView>) -> Option<u64> {
        let mut candidates = CandidateSessions::new(Agent("ann".into()), None, SINCE);
        for view in views {
            candidates.update(Arc::new(view));
        }
        let last = candidates.last_failed()?;
        Some(last.id.0.bits())
    }

    #[test]
    fn session_that_ran_when_wait_began_counts_when_it_has_ended() {
        assert_eq!(last_after([runs(1, 9_000)]), None);
        assert_eq!(
            last_after([runs(1, 9_000), ended(1, 9_000, 1_001)]),
            Some(1)
        );
        // The next daemon finds the session only after it has ended.
        assert_eq!(last_after([ended(1, 9_000, 1_001)]), Some(1));
        assert_eq!(last_after([ended(1, 9_000, 500)]), None);
        // It had ended when the wait began, but that was heard later.
        let mut late = ended(1, 9_000, 999);
        late.state.end_heard = Some(Wall(10_002));
        assert_eq!(last_after([late]), Some(1));
    }

    #[test]
    fn session_started_later_counts_unless_a_call_returned_its_ending() {
        let later = || [runs(1, 11_000), ended(1, 11_000, 5)];
        assert_eq!(last_after(later()), None);
        assert_eq!(last_after(later().map(unattended)), Some(1));
    }

    #[test]
    fn command_that_a_call_waited_for_counts_only_if_no_call_returned_its_ending() {
        let called = || [runs(1, 9_000), ended(1, 9_000, 2_000)].map(waited_for);
        assert_eq!(last_after(called()), None);
        assert_eq!(last_after(called().map(unattended)), Some(1));
    }

    #[test]
    fn server_that_was_given_limits_counts() {
        let limited = [runs(1, 9_000), ended(1, 9_000, 2_000)].map(|mut view| {
            view.deadline = Some(Millis(100_000));
            view.state.idle = Some(Millis(60_000));
            view
        });
        assert_eq!(last_after(limited), Some(1));
    }

    #[test]
    fn session_that_succeeded_or_was_ended_on_purpose_does_not_count() {
        let over = |exit, end| {
            let ending = abide_core::Ending {
                exit: Some(exit),
                end,
                duration: Millis(2_000),
                bytes: 0,
                dropped: 0,
            };
            let phase = Phase::Ended { ending };
            SessionView::of_test(SessionId::from_bits(1), Wall(9_000), phase)
        };
        for (exit, end) in [
            (Exit::Code(0), End::Exited),
            (Exit::Signal(9), End::Agent),
            (Exit::Signal(15), End::Inactivity),
        ] {
            assert_eq!(last_after([runs(1, 9_000), over(exit, end)]), None);
        }
        let killed = over(Exit::Signal(11), End::Signaled);
        assert_eq!(last_after([runs(1, 9_000), killed]), Some(1));
        // A server in the background of a command that succeeded.
        let done = over(Exit::Code(0), End::Exited);
        let mut left = done.clone();
        if let Phase::Ended { ending } = done.state.phase.clone() {
            left.state.phase = Phase::Leftover { ending };
        }
        assert_eq!(last_after([left, done]), Some(1));
    }

    #[test]
    fn session_of_a_person_does_not_count() {
        let by_person = |mut view: SessionView| {
            view.state.started_by = StartedBy::Person;
            view
        };
        let all = [runs(1, 9_000), ended(1, 9_000, 2_000)].map(by_person);
        assert_eq!(last_after(all), None);
    }

    #[test]
    fn command_that_a_call_waited_for_and_that_was_started_later_does_not_count() {
        let later = [runs(1, 11_000), ended(1, 11_000, 5)].map(waited_for);
        assert_eq!(last_after(later.map(unattended)), None);
    }

    #[test]
    fn session_of_another_conversation_keeps_the_wait_open_and_does_not_end_it() {
        let other = |mut view: SessionView| {
            view.state.conversation = Some(Conversation("two".into()));
            view
        };
        let others = || [runs(2, 9_000), ended(2, 9_000, 2_000)].map(other);
        assert_eq!(last_after(others().map(unattended)), None);
        let server = || [runs(1, 9_000), ended(1, 9_000, 1_500)];
        let [begun, over] = others();
        assert_eq!(
            last_after([begun.clone()].into_iter().chain(server())),
            None
        );
        let all = [begun].into_iter().chain(server()).chain([over]);
        assert_eq!(last_after(all), Some(1));
    }

    #[test]
    fn session_that_runs_keeps_the_wait_open() {
        let server = || [runs(1, 9_000), ended(1, 9_000, 2_000)];
        let other = [runs(2, 11_000)];
        assert_eq!(last_after(other.into_iter().chain(server())), None);
        let over = [runs(2, 11_000), ended(2, 11_000, 5)];
        assert_eq!(last_after(over.into_iter().chain(server())), Some(1));
    }

    #[test]
    fn sessions_of_other_agents_and_tries_do_not_count() {
        let mut other = runs(1, 9_000);
        other.state.agent = Agent("bob".into());
        let mut of_condition = runs(2, 9_000);
        of_condition.state.started_by = StartedBy::Timer(TimerId::from_bits(1));
        let server = [runs(3, 9_000), ended(3, 9_000, 2_000)];
        let all = [other, of_condition].into_iter().chain(server);
        assert_eq!(last_after(all), Some(3));
    }

    #[test]
    fn update_all_returns_the_session_that_ended_last() {
        let mut candidates = CandidateSessions::new(Agent("ann".into()), None, SINCE);
        let all = [ended(1, 9_000, 4_000), ended(2, 9_500, 2_000)];
        candidates.update_all(all.map(Arc::new).to_vec());
        let last = candidates.last_failed().expect("none is left");
        assert_eq!(last.id, SessionId::from_bits(2));
    }

    #[test]
    fn session_that_was_hardly_started_for_the_port_does_not_end_the_wait() {
        let failed = |views: [SessionView; 2], later: SessionView| {
            let since = Wall(SINCE.0 + STARTED_FOR_PORT.0);
            let mut candidates = CandidateSessions::new(Agent("ann".into()), None, since);
            candidates.update_all(views.map(Arc::new).to_vec());
            candidates.update(Arc::new(later));
            candidates.last_failed().map(|last| last.id)
        };
        let duration = 2 * STARTED_FOR_PORT.0;
        // Another session was started after it, and has done its work.
        let (early, late) = (SINCE.0 + 1, SINCE.0 + 2);
        let mut done = runs(2, late);
        done.state.phase = Phase::Ended {
            ending: abide_core::Ending {
                exit: Some(Exit::Code(0)),
                end: End::Exited,
                duration: Millis(1),
                bytes: 0,
                dropped: 0,
            },
        };
        let after_another = failed([runs(1, early), done.clone()], ended(1, early, duration));
        assert_eq!(after_another, None);
        // It had run for long when the wait began.
        let old = failed(
            [runs(1, SINCE.0 - 1), done.clone()],
            ended(1, SINCE.0 - 1, duration),
        );
        assert_eq!(old, None);
        done.state.started_by = StartedBy::Person;
        let only = failed([runs(1, early), done], ended(1, early, duration));
        assert_eq!(only, Some(SessionId::from_bits(1)));
    }
}
