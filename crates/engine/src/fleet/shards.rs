//! Changes of the shards that this machine owns, as events of the core, and messages of other machines.

use std::sync::Arc;

use abide_core::Event;
use abide_core::record::LoadedShard;

use crate::fleet::Fleet;
use crate::handle::Handle;
use crate::store::{OpenedFleet, ShardChange, ShardRows};

/// Passes changes on to the event loop until the daemon stops.
pub(crate) async fn forward(mut opened: OpenedFleet, handle: Handle) {
    while let Some(change) = opened.changes.recv().await {
        match change {
            ShardChange::Loaded(rows) => loaded(*rows, &handle).await,
            ShardChange::Dropped(shard) => {
                let is_home = opened.fleet.state().own == Some(shard.0);
                let dropped = Event::ShardDropped { shard, is_home };
                handle.send_event(dropped).await;
            }
            ShardChange::TimeSet(ahead_of_boot) => {
                handle
                    .send_event(Event::FleetTimeSet { ahead_of_boot })
                    .await;
            }
            ShardChange::MessagesTaken(messages) => {
                handle.send_event(Event::MessagesTaken { messages }).await;
            }
            ShardChange::MessagesGone(numbers) => {
                handle.send_event(Event::MessagesGone { numbers }).await;
            }
            ShardChange::Deadlines(deadlines) => {
                handle.send_event(Event::DeadlinesRead { deadlines }).await;
            }
            ShardChange::Numbers(block) => {
                handle.send_event(Event::NumbersReserved { block }).await;
            }
        }
    }
}

async fn loaded(rows: ShardRows, handle: &Handle) {
    let Some(shard) = rows.shard else { return };
    // Conditions are about the machine that made them.
    if rows.note.is_none() {
        for (timer, until) in rows.conditions {
            handle.prober().register(timer, until);
        }
        handle.clients().load(rows.clients);
    }
    let loaded = LoadedShard {
        shard,
        note: rows.note,
        timers: rows.timers,
        ended: rows.ended,
        messages: rows.messages,
        went_back: rows.went_back,
        may_be_told_elsewhere: rows.may_be_told_elsewhere,
    };
    handle
        .send_event(Event::ShardLoaded(Box::new(loaded)))
        .await;
    for (question, state) in rows.questions {
        handle
            .send_event(Event::QuestionLoaded { question, state })
            .await;
    }
    for (question, session, held) in rows.approved {
        let held = Arc::new(held);
        handle
            .send_event(Event::Approved {
                question,
                session,
                held,
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
            handle.store().take_messages(readers);
        }
    }
}
