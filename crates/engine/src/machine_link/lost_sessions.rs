//! Messages to the owners of sessions that are lost with their machine. The machine cannot tell them, so another one does:
//! the first that writes the loss into the row of the session.

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_core::fleet::MachineId;
use abide_core::fleet::session::{Loss, Reach};
use abide_core::{Agent, Event};

use super::machines::OtherMachines;
use crate::Handle;
use crate::store::StoreFault;

/// Tells owners until the daemon stops.
pub async fn run(machines: Arc<OtherMachines>, handle: Handle) {
    let Some(mut states) = handle.fleet().map(crate::fleet::Fleet::watch) else {
        return;
    };
    // Machines whose sessions are done. One that is back and lost again is looked at again.
    let mut done = BTreeSet::new();
    while states.changed().await.is_ok() {
        let lost = machines.lost_machines();
        done.retain(|id| lost.contains(id));
        for id in lost {
            if !done.contains(&id) && tell_owners(&machines, &handle, id).await.is_ok() {
                done.insert(id);
            }
        }
    }
}

async fn tell_owners(
    machines: &OtherMachines,
    handle: &Handle,
    id: MachineId,
) -> Result<(), StoreFault> {
    let away = || StoreFault::Unwritable("the database cannot be reached".into());
    let table = machines.table().await.ok_or_else(away)?;
    for row in table.unended(id).await? {
        let is_called = row.facts.started_by.is_none() && !row.facts.by_person;
        let is_lost = is_lost(machines.reach(&row));
        let Some(loss) = machines.loss(&row).filter(|_| is_called && is_lost) else {
            continue;
        };
        if table.set_ending(&row, &format!("[{loss}]")).await? {
            let (session, agent) = (row.id, Agent(row.agent.into()));
            handle
                .send_event(Event::LostElsewhere { session, agent })
                .await;
        }
    }
    Ok(())
}

/// True for a session that its own machine does not tell of. A machine that was started again does.
fn is_lost(reach: Reach) -> bool {
    matches!(reach, Reach::Lost(Loss::Person | Loss::Ephemeral))
}

impl OtherMachines {
    /// Other machines of which it is sure that what runs there is lost.
    fn lost_machines(&self) -> Vec<MachineId> {
        let state = self.state();
        let others = (state.machines.values())
            .map(|machine| &machine.row)
            .filter(|row| Some(row.id) != state.own);
        let lost = others.filter(|row| is_lost(self.reach_of(row.id, row.boot)));
        lost.map(|row| row.id).collect()
    }
}
