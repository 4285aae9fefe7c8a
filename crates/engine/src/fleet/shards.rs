//! Changes of the shards that this machine owns, as events of the core, and messages of other machines.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use abide_core::record::LoadedShard;
use abide_core::request::Caller;
use abide_core::{Agent, Event};
use tokio::sync::oneshot;

use crate::clients::ConnectedReaders;
use crate::clock::pause;
use crate::fleet::{Fleet, FleetState};
use crate::handle::Handle;
use crate::store::{OpenedFleet, ShardChange, ShardRows};

/// Time that a call waits for the messages of other machines.
const SEARCH: Duration = Duration::from_secs(1);

/// Passes changes on to the event loop until the daemon stops.
pub(crate) async fn forward(mut opened: OpenedFleet, handle: Handle) {
    for change in std::mem::take(&mut opened.first_changes) {
        pass_on(change, &opened.fleet, &handle).await;
    }
    while let Some(change) = opened.changes.recv().await {
        pass_on(change, &opened.fleet, &handle).await;
    }
}

async fn pass_on(change: ShardChange, fleet: &Fleet, handle: &Handle) {
    let event = match change {
        ShardChange::Loaded(rows) => return loaded(*rows, handle).await,
        ShardChange::Dropped(shard) => {
            let is_home = fleet.state().own == Some(shard.0);
            Event::ShardDropped { shard, is_home }
        }
        ShardChange::TimeSet(boot_offset) => Event::FleetTimeSet { boot_offset },
        ShardChange::MessagesTaken(messages, done) => {
            handle.send_event(Event::MessagesTaken { messages }).await;
            let _ = done.map(|done| done.send(()));
            return;
        }
        ShardChange::MessagesGone(numbers) => Event::MessagesGone { numbers },
        ShardChange::Deadlines(deadlines) => Event::DeadlinesRead { deadlines },
        ShardChange::NumbersReplaced(block) => Event::NumbersReplaced { block },
        ShardChange::Numbers(block) => Event::NumbersReserved { block },
    };
    handle.send_event(event).await;
}

async fn loaded(rows: ShardRows, handle: &Handle) {
    let open = rows.open;
    // Conditions are about the machine that made them.
    if rows.note.is_none() {
        for (timer, until) in open.conditions {
            handle.prober().register(timer, until);
        }
        handle.clients().load(open.clients);
    }
    let loaded = LoadedShard {
        shard: rows.shard,
        note: rows.note,
        rows: open.stored,
        may_be_told_elsewhere: rows.may_be_told_elsewhere,
    };
    handle
        .send_event(Event::ShardLoaded(Box::new(loaded)))
        .await;
    for (question, state) in open.questions {
        handle
            .send_event(Event::QuestionLoaded { question, state })
            .await;
    }
    for (question, session, held) in open.approved {
        let is_started = handle.published().session(session).is_some();
        let refused = match is_started {
            true => None,
            false => handle.refusal(question, &held),
        };
        let held = Arc::new(held);
        handle
            .send_event(Event::Approved {
                question,
                session,
                held,
                refused,
            })
            .await;
    }
}

/// Takes the messages that other machines have for agents which are connected here, at every heartbeat.
pub(crate) async fn take_messages(fleet: Fleet, handle: Handle) {
    let mut state = fleet.watch();
    while state.changed().await.is_ok() {
        let is_shared = state.borrow_and_update().has_others();
        if !is_shared {
            continue;
        }
        let waiting = fleet.due().waiting;
        let waiting = waiting.iter().map(|agent| agent.0.to_string()).collect();
        let readers = handle.clients().connected_readers(waiting);
        if !readers.agents.is_empty() || !readers.waiting.is_empty() {
            handle.store().take_messages(readers, None);
        }
    }
}

impl Handle {
    /// Takes the messages that other machines have for an agent that calls here without a connection. Those of connected
    /// agents come with the heartbeats, so that their calls do not wait for the database. True if the event loop is told
    /// of some. Does nothing if there are no other machines, or the database is away.
    pub async fn take_messages_of(&self, caller: &Caller) -> bool {
        let state = self.fleet().map(Fleet::state);
        let is_shared = |state: &Arc<FleetState>| {
            let is_away = state.is_database_away || self.store().trouble().is_some();
            state.is_joined && !is_away && state.has_others()
        };
        let is_connected = |agent: &Agent| {
            let connected = self.clients().connected_agents();
            connected.contains(&*agent.0)
        };
        let Some(agent) = caller
            .agent
            .as_ref()
            .filter(|agent| state.is_some_and(|state| is_shared(&state)) && !is_connected(agent))
        else {
            return false;
        };
        let search = async {
            let has_some = self.store_reader().has_messages_elsewhere(agent).await;
            if !has_some.unwrap_or_default() {
                return false;
            }
            let conversation = caller.conversation.iter();
            let readers = ConnectedReaders {
                agents: BTreeSet::new(),
                waiting: BTreeSet::from([agent.0.to_string()]),
                conversations: conversation
                    .map(|conversation| (agent.0.to_string(), conversation.clone()))
                    .collect(),
            };
            let (done, taken) = oneshot::channel();
            self.store().take_messages(readers, Some(done));
            taken.await.is_ok()
        };
        tokio::select! {
            are_taken = search => are_taken,
            () = pause(SEARCH) => false,
        }
    }
}
