//! Simulated probes: a condition holds, or becomes impossible, at random.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use abide_core::timer::{Observation, Until};
use abide_core::{Event, TimerId};
use tokio::sync::mpsc;

use super::Dice;
use super::disk::Disk;
use crate::seams::ProbeControl;

/// Probes of one life of the daemon. The conditions themselves are in the database.
pub struct SimProbes {
    known: Mutex<BTreeMap<TimerId, Until>>,
    active: Mutex<BTreeSet<TimerId>>,
    events: mpsc::Sender<Event>,
    disk: Arc<Disk>,
    dice: Dice,
}

impl SimProbes {
    pub fn new(
        dice: Dice,
        disk: Arc<Disk>,
        events: mpsc::Sender<Event>,
        conditions: Vec<(TimerId, Until)>,
    ) -> Arc<Self> {
        Arc::new(SimProbes {
            known: Mutex::new(conditions.into_iter().collect()),
            active: Mutex::default(),
            events,
            disk,
            dice,
        })
    }

    /// Decides one of the watched conditions.
    pub async fn decide(&self) {
        let active: Vec<TimerId> = self.active.lock().unwrap().iter().copied().collect();
        let Some(timer) = self.dice.pick(&active) else {
            return;
        };
        self.active.lock().unwrap().remove(&timer);
        let event = match self.dice.chance(20) {
            true => Event::ConditionImpossible {
                timer,
                why: Observation::new("simulated"),
            },
            false => Event::ConditionHeld {
                timer,
                seen: Observation::new("simulated"),
            },
        };
        let _ = self.events.send(event).await;
    }
}

impl ProbeControl for SimProbes {
    fn start(&self, timer: TimerId, until: Option<Until>) {
        if let Some(until) = until {
            let sql = "SELECT count(*) FROM timer WHERE id = ?";
            let rows = self.disk.count(sql, [timer.to_string()]);
            assert_eq!(rows, 1, "{timer} is probed before it is durable");
            self.known.lock().unwrap().insert(timer, until);
        }
        if self.known.lock().unwrap().contains_key(&timer) {
            self.active.lock().unwrap().insert(timer);
        }
    }

    fn pause(&self, timer: TimerId) {
        self.active.lock().unwrap().remove(&timer);
    }

    fn remove(&self, timer: TimerId) {
        self.active.lock().unwrap().remove(&timer);
        self.known.lock().unwrap().remove(&timer);
    }

    fn last_seen(&self, _: TimerId) -> Option<String> {
        None
    }
}
