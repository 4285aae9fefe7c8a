//! Events of other machines: while a client follows, the database is asked every second for sessions of other machines
//! that have changed and for their questions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use abide_api::{Id, Nothing, QuestionEvent};
use abide_core::fleet::MachineId;
use abide_core::{Agent, QuestionId, SessionId};
use abide_engine::Handle;
use abide_engine::clock::pause;
use abide_engine::machine_link::OtherMachines;

use super::hub::Channel;
use crate::fleet;

/// Time between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// Time by which rows can become visible later than the clock in them says, in milliseconds.
const OVERLAP: u64 = 10_000;

/// Follows the other machines until the channel is gone.
pub async fn follow(handle: Handle, channel: Weak<Channel>) {
    let Some(machines) = handle.other_machines().cloned() else {
        return;
    };
    let mut follower = Follower {
        handle,
        machines,
        sessions: HashMap::new(),
        since: None,
        machines_seen: BTreeMap::new(),
        questions: None,
    };
    while let Some(channel) = channel.upgrade() {
        if channel.has_clients() {
            follower.look(&channel).await;
        }
        drop(channel);
        pause(EVERY).await;
    }
}

struct Follower {
    handle: Handle,
    machines: Arc<OtherMachines>,
    /// Clock of the database in the newest row of each session that was sent.
    sessions: HashMap<SessionId, u64>,
    /// Newest such clock; `None` before the first look, which sends nothing.
    since: Option<u64>,
    /// Machines that answer, and those that a person has declared lost.
    machines_seen: BTreeMap<MachineId, (bool, bool)>,
    /// Open questions with their agents; `None` before the first look.
    questions: Option<BTreeMap<QuestionId, Option<Agent>>>,
}

impl Follower {
    async fn look(&mut self, channel: &Channel) {
        self.look_at_machines(channel);
        self.look_at_sessions(channel).await;
        self.look_at_questions(channel).await;
    }

    /// A machine that becomes silent changes the state of all its sessions: clients load them again.
    fn look_at_machines(&mut self, channel: &Channel) {
        let state = self.machines.state();
        let seen: BTreeMap<_, _> = (state.machines.iter())
            .map(|(id, machine)| (*id, (machine.is_alive(), machine.declared_lost)))
            .collect();
        let before = std::mem::replace(&mut self.machines_seen, seen);
        if !before.is_empty() && before != self.machines_seen {
            channel.send(None, "reset", &Nothing {});
        }
    }

    async fn look_at_sessions(&mut self, channel: &Channel) {
        let from = self.since.map_or(0, |since| since.saturating_sub(OVERLAP));
        let Some(changed) = fleet::changed_sessions(&self.handle, from).await else {
            return;
        };
        let is_first = self.since.is_none();
        let newest = changed.iter().map(|(written, _)| *written).max();
        self.since = Some(self.since.max(newest).unwrap_or_default());
        for (written, session) in changed {
            let id = session.summary.session_id.0;
            let is_new = self.sessions.insert(id, written) != Some(written);
            if is_new && !is_first {
                let agent = Agent(session.agent.as_str().into());
                channel.send(Some(agent), "session", &session);
            }
        }
        let since = self.since.unwrap_or_default().saturating_sub(OVERLAP);
        self.sessions.retain(|_, written| *written >= since);
    }

    async fn look_at_questions(&mut self, channel: &Channel) {
        let Some(open) = self.machines.open_questions().await else {
            return;
        };
        let open: BTreeSet<QuestionId> = open.into_iter().collect();
        let Some(known) = &mut self.questions else {
            self.questions = Some(open.into_iter().map(|id| (id, None)).collect());
            return;
        };
        let closed: Vec<QuestionId> = known
            .keys()
            .filter(|id| !open.contains(id))
            .copied()
            .collect();
        for id in closed {
            let agent = known.remove(&id).flatten();
            let closing = self.handle.store_reader().question_closing(id).await;
            let event = QuestionEvent::Closed {
                question_id: Id(id),
                closing: match closing {
                    Ok(Some((_, closing))) => closing,
                    Ok(None) | Err(_) => String::new(),
                },
            };
            channel.send(agent, "question", &event);
        }
        if open.iter().all(|id| known.contains_key(id)) {
            return;
        }
        for question in fleet::questions(&self.handle, None).await {
            let id = question["question_id"]
                .as_str()
                .and_then(|id| id.parse().ok());
            let agent = question["agent"].as_str().map(|agent| Agent(agent.into()));
            if let Some(id) = id
                && !known.contains_key(&id)
            {
                let mut event = question;
                event["state"] = "open".into();
                channel.send(agent.clone(), "question", &event);
                known.insert(id, agent);
            }
        }
        // A row that its machine does not list is not asked for again.
        for id in open {
            known.entry(id).or_default();
        }
    }
}
