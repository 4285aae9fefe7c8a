//! Statistics of sessions, computed from the sessions that the daemon knows.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use abide_api::{AgentSessions, SessionDay, SessionOutcomes, SessionStats};
use abide_core::Millis;
use abide_core::session::{End, Ending, Exit, Phase};
use abide_engine::SessionView;
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::timestamp::rfc3339;
use axum::extract::State as Shared;

use super::body::JsonResponse;
use super::problem::Problem;
use super::requester::Requester;
use super::state::State;
use super::timers::DAYS;

/// Statistics of all sessions that are kept.
pub async fn stats(
    Shared(state): Shared<State>,
    requester: Requester,
) -> Result<JsonResponse<SessionStats>, Problem> {
    let mut views = state.handle.published().sessions();
    views.retain(|view| view.visible_to(requester.agent.as_ref()));
    let now = SystemClock.now().wall.0;
    Ok(JsonResponse(summarize(
        &views,
        now.saturating_sub(DAYS * 86_400_000),
    )))
}

/// Counts all sessions; days before `since` (Unix milliseconds) are left out of the list of days.
fn summarize(views: &[Arc<SessionView>], since: u64) -> SessionStats {
    let mut total = Counts::default();
    let mut days: BTreeMap<String, SessionOutcomes> = BTreeMap::new();
    let mut agents: BTreeMap<&str, Counts> = BTreeMap::new();
    for view in views {
        let outcome = outcome(view);
        total.add(outcome.as_ref());
        agents
            .entry(&view.state.agent.0)
            .or_default()
            .add(outcome.as_ref());
        if let Some(ended) = outcome.filter(|ended| ended.at >= since) {
            let day = rfc3339(ended.at)[..10].to_owned();
            *(ended.counter)(days.entry(day).or_default()) += 1;
        }
    }
    let mut agents: Vec<_> = agents.into_iter().collect();
    agents.sort_by_key(|(_, counts)| Reverse(counts.sessions()));
    SessionStats {
        running: total.running,
        outcomes: total.outcomes,
        run_total: total.run.as_secs_f64(),
        bytes_total: total.bytes,
        days: days
            .into_iter()
            .map(|(day, outcomes)| SessionDay { day, outcomes })
            .collect(),
        agents: agents
            .into_iter()
            .map(|(agent, counts)| AgentSessions {
                agent: agent.to_owned(),
                running: counts.running,
                outcomes: counts.outcomes,
                run_total: counts.run.as_secs_f64(),
            })
            .collect(),
    }
}

/// Field that counts outcomes of one kind.
type Counter = fn(&mut SessionOutcomes) -> &mut u64;

struct Outcome {
    counter: Counter,
    /// Time of the end, in Unix milliseconds.
    at: u64,
    run: Millis,
    bytes: u64,
}

/// Outcome of a session. `None`: a process of it may be alive.
fn outcome(view: &SessionView) -> Option<Outcome> {
    match &view.state.phase {
        Phase::Ended { ending } => Some(Outcome {
            counter: counter(ending),
            at: view.state.created.0 + ending.duration.0,
            run: ending.duration,
            bytes: ending.bytes,
        }),
        Phase::Failed { at, .. } => Some(Outcome {
            counter: |all| &mut all.failed,
            at: at.0,
            run: Millis(0),
            bytes: 0,
        }),
        Phase::Starting | Phase::Running { .. } | Phase::Leftover { .. } => None,
    }
}

fn counter(ending: &Ending) -> Counter {
    match ending.end {
        End::Exited if ending.exit == Some(Exit::Code(0)) => |all| &mut all.succeeded,
        End::Exited | End::Signaled | End::OutOfMemory => |all| &mut all.failed,
        End::Deadline
        | End::IdleDeclined
        | End::User
        | End::Agent
        | End::Inactivity
        | End::Sandbox => |all| &mut all.stopped,
        End::Lost => |all| &mut all.lost,
    }
}

#[derive(Default)]
struct Counts {
    running: u64,
    outcomes: SessionOutcomes,
    run: Millis,
    bytes: u64,
}

impl Counts {
    fn add(&mut self, outcome: Option<&Outcome>) {
        let Some(outcome) = outcome else {
            self.running += 1;
            return;
        };
        *(outcome.counter)(&mut self.outcomes) += 1;
        self.run.0 += outcome.run.0;
        self.bytes += outcome.bytes;
    }

    fn sessions(&self) -> u64 {
        let SessionOutcomes {
            succeeded,
            failed,
            stopped,
            lost,
        } = self.outcomes;
        self.running + succeeded + failed + stopped + lost
    }
}
