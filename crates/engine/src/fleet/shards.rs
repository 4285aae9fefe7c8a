//! Changes of the shards that this machine owns, as events of the core, and messages of other machines.

use std::sync::Arc;

use abide_core::Event;
use abide_core::record::LoadedShard;

use crate::fleet::Fleet;
use crate::handle::Handle;
use crate::store::{OpenedFleet, ShardChange, ShardRows};

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
        ShardChange::MessagesTaken(messages) => Event::MessagesTaken { messages },
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
