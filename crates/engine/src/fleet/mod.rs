//! This daemon as a member of a fleet: many machines that share one database.
//!
//! `abide_core::fleet` decides; the runner sends its statements over a connection of its own and tells the writer which
//! shards this machine owns. A daemon without PostgreSQL has no fleet.

mod identity;
mod runner;
pub(crate) mod shards;
mod statements;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use abide_core::Agent;
use abide_core::fleet::{MachineId, MachineRow, ShardId, Standing};
use abide_core::time::{Boot, Millis, Steady};
use tokio::sync::{Notify, mpsc, watch};

pub use identity::MachineIdentity;
pub(crate) use runner::{Runner, RunnerParts};
pub(crate) use statements::bell;

use crate::clients::Clients;
use crate::clock::{Clock, SystemClock, pause};
use crate::machine_link::OtherMachines;

/// Events that may be queued for the membership.
const MAX_EVENTS: usize = 1_024;
/// Time for which a daemon that stops waits for the database.
const LEAVING: Duration = Duration::from_secs(1);

/// Fleet as this daemon knows it. Cheap to clone.
#[derive(Clone)]
pub struct Fleet {
    state: watch::Receiver<Arc<FleetState>>,
    /// Notified when a heartbeat finds a frame for this machine.
    frame_waits: Arc<Notify>,
    events: mpsc::Sender<abide_core::fleet::Event>,
    due: Arc<watch::Sender<Due>>,
    /// Links to the other machines, once they are started. Without a fleet secret there are none.
    others: Arc<OnceLock<Arc<OtherMachines>>>,
    /// Clients of this machine, once they are known.
    clients: Arc<OnceLock<Arc<Clients>>>,
}

/// Reason for fast heartbeats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// Earliest deadline of a timer.
    pub soonest: Option<Steady>,
    /// Agents with calls that wait for messages, which may come from other machines.
    pub waiting: BTreeSet<Agent>,
}

/// Knowledge about the fleet at one time.
#[derive(Clone, Debug, Default)]
pub struct FleetState {
    pub own: Option<MachineId>,
    /// Name of this machine, also before it has joined.
    pub own_name: String,
    /// True if this daemon is a member.
    pub is_joined: bool,
    /// True if the database has not answered the last statement of the membership.
    pub is_database_away: bool,
    /// Machines, this one included, once it has joined.
    pub machines: BTreeMap<MachineId, Machine>,
    /// Owner of each shard that was seen, where it is not the machine that made the shard.
    pub adopted: BTreeMap<ShardId, MachineId>,
    /// True if a batch may say that this machine beats fast.
    pub may_beat_fast: bool,
    /// True if another machine had unread messages of agents that are connected or wait here, at the last heartbeat.
    pub has_messages_elsewhere: bool,
    /// Fleet time minus boot time, once it is known.
    pub boot_offset: Option<i64>,
    /// Sentence about a membership that does not work.
    pub trouble: Option<String>,
    /// True if this machine has stored a new identity, with which the daemon has to start again.
    pub has_new_identity: bool,
}

impl FleetState {
    /// Fleet time now, once it is known.
    pub fn now(&self) -> Option<Steady> {
        let boot = SystemClock.now().boot;
        self.boot_offset
            .map(|offset| Steady(boot.0.saturating_add_signed(offset)))
    }

    /// Machine with this name that was not removed. One that was revoked counts only if no other has the name, which
    /// it has if it was installed again.
    pub fn named(&self, name: &str) -> Option<&Machine> {
        let named = self
            .machines
            .values()
            .filter(|machine| machine.name == name && machine.row.standing != Standing::Forgotten);
        named.min_by_key(|machine| machine.row.standing == Standing::Revoked)
    }

    /// Name that this machine had to give up, because another machine had it. `configured` is the one in the configuration.
    pub fn taken_name(&self, configured: Option<&str>) -> Option<&str> {
        let is_changed = configured != Some(&*self.own_name);
        identity::taken_name(&self.own_name, self.own?).filter(|_| is_changed)
    }

    /// True if the machine counts as dead, or does not answer calls.
    pub fn is_silent(&self, id: MachineId) -> bool {
        let machine = self.machines.get(&id);
        machine.is_some_and(|machine| !machine.is_alive())
    }

    /// True if there is another machine that has not left.
    pub fn has_others(&self) -> bool {
        let mut all = self.machines.values();
        all.any(|machine| {
            Some(machine.row.id) != self.own && machine.row.standing == Standing::Member
        })
    }
}

/// Machine of the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Row, as it was read last.
    pub row: MachineRow,
    pub name: String,
    pub labels: Vec<String>,
    /// Version of its program.
    pub version: String,
    /// Public key, as its row says it.
    pub public_key: Option<[u8; 32]>,
    /// Message authentication code of its row.
    pub mac: Option<[u8; 32]>,
    /// True if a person has said that the sessions which ran on it are lost.
    pub declared_lost: bool,
    /// Time of the boot clock here at which the row was read.
    pub read: Boot,
    /// Time of the boot clock here since which its heartbeat stands still, if it counts as dead.
    pub silent_since: Option<Boot>,
    /// True if it has not answered a call since its last heartbeat, though it does not count as dead.
    pub is_unanswered: bool,
}

impl Machine {
    /// True if it is a member that does not count as dead.
    pub fn is_alive(&self) -> bool {
        let is_silent = self.silent_since.is_some() || self.is_unanswered;
        self.row.standing == Standing::Member && !is_silent
    }
}

/// Name and proof of a machine that its row carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Introduction {
    pub labels: Vec<String>,
    /// Silence after which the sessions of this machine are lost.
    pub lost_after: Option<Millis>,
    /// Time without trouble after which this machine asks for timers that others took over though it lived.
    pub return_after: Option<Millis>,
    pub public_key: Option<[u8; 32]>,
    /// Message authentication code over id, name and key under the fleet secret.
    pub mac: Option<[u8; 32]>,
}

impl Fleet {
    /// State at present.
    pub fn state(&self) -> Arc<FleetState> {
        self.state.borrow().clone()
    }

    /// Receiver that is notified of every change.
    pub fn watch(&self) -> watch::Receiver<Arc<FleetState>> {
        self.state.clone()
    }

    /// Other machines, to which there are links. `None`: this machine has no fleet secret.
    pub fn others(&self) -> Option<&Arc<OtherMachines>> {
        self.others.get()
    }

    /// Sets the other machines, once.
    pub fn set_others(&self, machines: Arc<OtherMachines>) {
        let _ = self.others.set(machines);
    }

    /// Sets the clients of this machine, once. Heartbeats say which agents are connected.
    pub(crate) fn set_clients(&self, clients: Arc<Clients>) {
        let _ = self.clients.set(clients);
    }

    /// Waits until a heartbeat finds a frame for this machine.
    pub(crate) async fn frame_waits(&self) {
        self.frame_waits.notified().await;
    }

    /// Waits until this machine has a new identity; for ever if the membership ends before.
    pub(crate) async fn new_identity(&self) {
        let mut state = self.state.clone();
        if state
            .wait_for(|state| state.has_new_identity)
            .await
            .is_err()
        {
            std::future::pending().await
        }
    }

    /// Passes an event to the membership.
    pub(crate) async fn send(&self, event: abide_core::fleet::Event) {
        // The receiver ends with the daemon.
        let _ = self.events.send(event).await;
    }

    /// Tells the membership what is due next.
    pub(crate) fn set_due(&self, due: Due) {
        self.due.send_if_modified(|known| {
            let is_new = *known != due;
            *known = due;
            is_new
        });
    }

    pub(crate) fn due(&self) -> Due {
        self.due.borrow().clone()
    }

    /// Leaves in order, because the daemon stops: another machine takes over its timers at once. A database that does
    /// not answer is not waited for.
    pub(crate) async fn leave(&self) {
        if !self.state().is_joined {
            return;
        }
        self.send(abide_core::fleet::Event::Leave).await;
        let mut state = self.state.clone();
        tokio::select! {
            _ = state.wait_for(|state| !state.is_joined) => {}
            () = pause(LEAVING) => {}
        }
    }
}

/// Change of the shards that this machine may write, for the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// Owned in this epoch, on a server of this timeline.
    Load {
        shard: ShardId,
        epoch: u64,
        timeline: u64,
    },
    /// In doubt: nothing is written until the next load.
    Suspend(ShardId),
    /// Owned by another machine.
    Drop(ShardId),
    /// Fleet time minus boot time has changed.
    TimeSet(i64),
}

#[cfg(test)]
mod tests {
    use abide_core::fleet::{Claim, DatabaseClock, Pace};

    use super::*;

    fn machine(id: u64, standing: Standing) -> (MachineId, Machine) {
        let row = MachineRow {
            id: MachineId(id),
            claim: Claim(id),
            boot: 0,
            standing,
            heartbeat: 1,
            pace: Pace::Slow,
            fleet_time: None,
            written: DatabaseClock(0),
            lost_after: None,
        };
        let machine = Machine {
            row,
            name: "one".into(),
            labels: Vec::new(),
            version: "0.1.0".into(),
            public_key: None,
            mac: None,
            declared_lost: false,
            read: Boot(0),
            silent_since: None,
            is_unanswered: false,
        };
        (MachineId(id), machine)
    }

    #[test]
    fn name_is_of_the_machine_that_was_installed_again_and_not_of_the_revoked_one() {
        let named = |machines: Vec<(MachineId, Machine)>| {
            let state = FleetState {
                machines: machines.into_iter().collect(),
                ..FleetState::default()
            };
            state.named("one").map(|machine| machine.row.id.0)
        };
        let (forgotten, revoked) = (Standing::Forgotten, Standing::Revoked);
        let removed = || vec![machine(1, forgotten), machine(2, revoked)];
        assert_eq!(named(removed()), Some(2));
        for standing in [Standing::Member, Standing::Left] {
            let mut all = removed();
            all.push(machine(3, standing));
            assert_eq!(named(all), Some(3));
        }
        assert_eq!(named(vec![machine(1, forgotten)]), None);
    }
}
