//! State of a simulation: machines with their clocks, links to one database, and an event queue.

use std::collections::{BTreeMap, VecDeque};

use abide_core::Millis;
use abide_core::fleet::version::{Program, Version};
use abide_core::fleet::{Event, Identity, MachineId, RETURN_AFTER_DEFAULT, ShardId, Statement};
use abide_core::time::Boot;

use crate::checks::{Answer, Sabotage, Truths};
use crate::daemon::{Daemon, Wanted};
use crate::database::{Batch, BatchAnswer, Database, Opened, Rows, Stamp, TimerRow};
use crate::random_numbers::Random;

/// Deadline of a batch.
pub const DEADLINE: u64 = 5_000;
/// Copies of the rows that a replica may have, one a second.
const COPIES: usize = 240;

/// Index of a machine in the simulation. Its id can change.
pub type Place = usize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub no_requests: bool,
    pub no_answers: bool,
    /// Longest delay of one direction.
    pub delay: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The process is stopped; the boot clock continues (SIGSTOP, suspend).
    Process,
    /// The boot clock is stopped (a paused virtual machine).
    Machine,
}

pub struct Machine {
    pub id: MachineId,
    pub boot: u128,
    pub booted: u64,
    pub stood: u64,
    pub paused: Option<(u64, Pause)>,
    pub held: Vec<Happening>,
    pub daemon: Option<Daemon>,
    /// Number of daemons that ran here.
    pub life: u64,
    pub wake: u64,
    pub link: Link,
    pub boot_offset: Option<i64>,
    pub is_locked: bool,
    /// Statements and batches that were sent.
    pub sent: u64,
    pub loss: u64,
}

#[derive(Clone, Debug)]
pub enum Request {
    Statement(u64, Statement),
    Batch(Batch),
    Open(ShardId, u64, Vec<(u64, TimerRow)>),
    Read(ShardId, Stamp),
}

#[derive(Clone, Debug)]
pub enum Reply {
    Statement(u64, abide_core::fleet::Answer),
    Batch(Stamp, BatchAnswer),
    Opened(ShardId, u64, Option<Opened>),
    Read(Stamp, Vec<(u64, TimerRow)>),
    /// Deadline, or broken connection.
    Lost(Request),
    /// Refused before it was sent.
    Unsent(Request),
}

/// Daemon that sent a request, and the connection it used.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    pub place: Place,
    pub life: u64,
    pub id: MachineId,
    pub connection: u64,
}

#[derive(Clone, Debug)]
pub enum Happening {
    Wake(Place, u64, u64),
    Request(Sender, Request),
    Commit(Sender, Batch),
    Reply(Place, u64, Reply),
    Asked(MachineId, ShardId),
    Notified(MachineId),
    Copy,
}

pub struct World {
    pub random: Random,
    pub aloud: bool,
    pub time: u64,
    order: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    pub database: Database,
    pub is_up: bool,
    pub connection: u64,
    copies: VecDeque<Rows>,
    pub machines: Vec<Machine>,
    pub truths: Truths,
    pub sabotage: Option<Sabotage>,
    pub effects: BTreeMap<&'static str, u64>,
    numbers: u64,
    /// Chance in percent that a batch holds its lock for a while, and that a message gets lost.
    pub slow_batches: u64,
    pub losses: u64,
    pub batch_time: u64,
    /// Whether the database can notify.
    pub has_bell: bool,
}

impl World {
    pub fn new(seed: u64, machines: usize, sabotage: Option<Sabotage>) -> Self {
        let mut world = World {
            random: Random::new(seed),
            aloud: false,
            time: 1_700_000_000_000,
            order: 0,
            queue: BTreeMap::new(),
            database: Database::new(sabotage),
            is_up: true,
            connection: 1,
            copies: VecDeque::new(),
            machines: Vec::new(),
            truths: Truths::default(),
            sabotage,
            effects: BTreeMap::new(),
            numbers: 0,
            slow_batches: 0,
            losses: 0,
            batch_time: 0,
            has_bell: true,
        };
        world.put(0, Happening::Copy);
        for _ in 0..machines {
            let id = MachineId(world.random.bits() >> 1);
            world.add(id);
        }
        world
    }

    pub fn add(&mut self, id: MachineId) -> Place {
        let machine = Machine {
            id,
            boot: 0,
            booted: 0,
            stood: 0,
            paused: None,
            held: Vec::new(),
            daemon: None,
            life: 0,
            wake: 0,
            link: Link {
                delay: 20,
                ..Link::default()
            },
            boot_offset: None,
            is_locked: true,
            sent: 0,
            loss: 0,
        };
        self.machines.push(machine);
        let place = self.machines.len() - 1;
        self.power_on(place);
        place
    }

    pub fn say(&self, line: impl FnOnce() -> String) {
        if self.aloud {
            println!("{:>9} {}", self.time - 1_700_000_000_000, line());
        }
    }

    /// State of a machine, for the trace of a simulation.
    pub fn describe(&self, place: Place) -> String {
        let Some(daemon) = &self.machines[place].daemon else {
            return format!("{place} has no daemon");
        };
        let time = daemon.member.clock().now(self.boot(place));
        let late = time.map(|time| self.time as i64 - time.0 as i64);
        let (flight, loaded) = (&daemon.flight, &daemon.loaded);
        format!(
            "{place} {:x} joined {} behind {late:?} settled {} flight {flight:?} opening {:?} {:?} loaded {loaded:?}",
            daemon.id.0,
            daemon.member.is_joined(),
            daemon.member.clock().is_settled(),
            daemon.opening,
            daemon.to_open,
        )
    }

    pub fn count(&mut self, what: &'static str) {
        *self.effects.entry(what).or_default() += 1;
    }

    pub fn counted(&self, what: &str) -> u64 {
        self.effects.get(what).copied().unwrap_or(0)
    }

    pub fn put(&mut self, delay: u64, happening: Happening) {
        self.order += 1;
        self.queue
            .insert((self.time + delay, self.order), happening);
    }

    pub fn boot(&self, place: Place) -> Boot {
        let machine = &self.machines[place];
        let standing = match machine.paused {
            Some((since, Pause::Machine)) => self.time - since,
            _ => 0,
        };
        Boot(self.time - machine.booted - machine.stood - standing)
    }

    // Actions of people and hardware.

    pub fn power_on(&mut self, place: Place) {
        let boot = u128::from(self.random.bits());
        let uptime = 10_000 + self.random.below(1_000_000);
        let machine = &mut self.machines[place];
        machine.boot = boot;
        machine.booted = self.time - uptime;
        machine.stood = 0;
        machine.boot_offset = None;
        self.start(place);
    }

    /// Starts a daemon.
    pub fn start(&mut self, place: Place) {
        let random = self.random.bits();
        let machine = &mut self.machines[place];
        machine.life += 1;
        let identity = Identity {
            machine: machine.id,
            boot: machine.boot,
            is_locked: machine.is_locked,
            program: Program {
                version: Version(0, 1, 0),
                schema: 1,
            },
            lost_after: None,
            return_after: RETURN_AFTER_DEFAULT,
            random,
            boot_offset: machine.boot_offset,
        };
        machine.daemon = Some(Daemon::new(identity));
        self.say(|| format!("{place} starts"));
        self.step(place, Event::Join);
    }

    /// Kills the daemon; the machine keeps running.
    pub fn kill(&mut self, place: Place) {
        self.say(|| format!("{place} daemon dies"));
        let machine = &mut self.machines[place];
        machine.daemon = None;
        machine.held.clear();
        machine.paused = None;
        machine.loss = self.time;
        self.forgive_losses();
        self.excuse_clock();
    }

    pub fn power_off(&mut self, place: Place) {
        self.kill(place);
        self.count("machine lost");
        self.machines[place].boot = 0;
    }

    pub fn pause(&mut self, place: Place, pause: Pause) {
        if self.machines[place].paused.is_none() && self.machines[place].daemon.is_some() {
            self.say(|| format!("{place} pauses: {pause:?}"));
            self.machines[place].paused = Some((self.time, pause));
            self.excuse_clock();
        }
    }

    pub fn resume(&mut self, place: Place) {
        let machine = &mut self.machines[place];
        let Some((since, pause)) = machine.paused.take() else {
            return;
        };
        if pause == Pause::Machine {
            machine.stood += self.time - since;
        }
        let held = std::mem::take(&mut machine.held);
        self.say(|| format!("{place} resumes"));
        for happening in held {
            self.put(0, happening);
        }
        self.schedule(place);
    }

    /// Sets the boot clock of a machine forward or back.
    pub fn boot_clock_leaps(&mut self, place: Place, by: i64) {
        let machine = &mut self.machines[place];
        machine.booted = machine.booted.saturating_add_signed(-by);
        self.schedule(place);
    }

    /// Copies disk and id of a machine into a new one that starts.
    pub fn clone_machine(&mut self, place: Place) -> Place {
        self.say(|| format!("{place} is cloned"));
        self.add(self.machines[place].id)
    }

    pub fn leap(&mut self, by: i64) {
        self.say(|| format!("database clock leaps by {by}"));
        self.database.clock_off += by;
        self.truths.tolerance = self.truths.tolerance.max(1_000);
        self.excuse_clock();
    }

    /// Stops the server. Requests in flight and uncommitted transactions are lost.
    pub fn crash_database(&mut self) {
        self.say(|| "database goes down".into());
        self.is_up = false;
        self.connection += 1;
        self.database.locked.clear();
        self.excuse_clock();
    }

    pub fn start_database(&mut self) {
        self.say(|| "database comes up".into());
        self.is_up = true;
    }

    /// Replaces the rows by those that a replica had some seconds ago.
    pub fn promote(&mut self, seconds: usize) {
        let Some(at) = self.copies.len().checked_sub(1 + seconds) else {
            return;
        };
        self.say(|| format!("a replica is promoted that is {seconds} s behind"));
        self.crash_database();
        self.database.rows = self.copies[at].clone();
        self.copies.truncate(at + 1);
        self.database.timeline += 1;
        self.start_database();
        self.forgive_losses();
        self.excuse_clock();
    }

    /// A jump of the database clock that no daemon could observe counts as elapsed time for all.
    pub fn excuse_clock(&mut self) {
        let wrong = self.database.clock_off - self.database.rows.fleet.clock_ahead;
        let is_fit = |machine: &Machine| {
            let daemon = machine.daemon.as_ref();
            let knows = daemon.is_some_and(|daemon| daemon.member.clock().boot_offset().is_some());
            let is_cut = machine.link.no_requests || machine.link.no_answers;
            knows && machine.paused.is_none() && !is_cut
        };
        if wrong.abs() > 1_000 && !(self.is_up && self.machines.iter().any(is_fit)) {
            self.truths.tolerance = u64::MAX / 2;
        }
    }

    /// Marks timers that neither the database nor a daemon knows any more.
    pub fn forgive_losses(&mut self) {
        for (key, truth) in &mut self.truths.timers {
            if self.database.rows.timers.contains_key(key) {
                continue;
            }
            // The home machine and the owner write it again.
            let knows = |machine: &Machine| {
                machine.daemon.as_ref().is_some_and(|daemon| {
                    let newest = daemon.newest.get(&key.0);
                    let writes = daemon.id == key.0.0 || daemon.loaded.contains_key(&key.0);
                    writes && newest.is_some_and(|newest| newest.contains_key(&key.1))
                })
            };
            truth.may_be_lost |= !self.machines.iter().any(knows);
        }
    }

    /// A user creates a timer on a machine.
    pub fn make(&mut self, place: Place, total: u64) {
        let machine = &mut self.machines[place];
        if machine.paused.is_some() {
            return;
        }
        let Some(daemon) = &mut machine.daemon else {
            return;
        };
        self.numbers += 1;
        let (number, total) = (self.numbers, Millis(total));
        let home = ShardId(daemon.id);
        self.truths.call((home, number), self.time, total);
        let is_open = daemon
            .loaded
            .get(&home)
            .is_some_and(|home| home.epoch.is_some());
        if !is_open || !daemon.member.clock().is_settled() {
            // The database is unavailable, or this machine does not own its shard: the same error text.
            return self.truths.answered((home, number), Answer::Refused);
        }
        daemon.wanted.push(Wanted { number, total });
        let boot = self.boot(place);
        if let Some(event) = self.daemon(place).due_event(boot) {
            return self.step(place, event);
        }
        self.work(place);
    }

    // Time.

    pub fn run(&mut self, millis: u64) {
        let end = self.time + millis;
        while let Some(entry) = self.queue.first_entry() {
            if entry.key().0 > end {
                break;
            }
            self.time = entry.key().0;
            let happening = entry.remove();
            self.happen(happening);
        }
        self.time = end;
    }

    pub fn happen(&mut self, happening: Happening) {
        let place = match &happening {
            Happening::Wake(place, ..) | Happening::Reply(place, ..) => Some(*place),
            Happening::Asked(id, _) | Happening::Notified(id) => {
                let is_it =
                    |machine: &Machine| machine.daemon.as_ref().is_some_and(|d| d.id == *id);
                match self.machines.iter().position(is_it) {
                    Some(place) => Some(place),
                    None => return,
                }
            }
            Happening::Request(..) | Happening::Commit(..) | Happening::Copy => None,
        };
        if let Some(place) = place
            && self.machines[place].paused.is_some()
        {
            return self.machines[place].held.push(happening);
        }
        match happening {
            Happening::Wake(place, life, wake) => {
                let machine = &self.machines[place];
                if (machine.life, machine.wake) == (life, wake) && machine.daemon.is_some() {
                    self.wake(place);
                }
            }
            Happening::Request(sender, request) => self.arrive(sender, request),
            Happening::Commit(sender, batch) => {
                if sender.connection == self.connection {
                    self.database.locked.remove(&batch.shard);
                    self.commit(sender, &batch);
                }
            }
            Happening::Reply(place, life, reply) => {
                if self.machines[place].life == life && self.machines[place].daemon.is_some() {
                    self.replied(place, reply);
                }
            }
            Happening::Asked(_, shard) => {
                if let Some(place) = place {
                    self.step(place, Event::HandBackRequested { shard });
                }
            }
            Happening::Notified(_) => {
                if let Some(place) = place {
                    self.step(place, Event::Notified);
                }
            }
            Happening::Copy => {
                self.copies.push_back(self.database.rows.clone());
                if self.copies.len() > COPIES {
                    self.copies.pop_front();
                }
                self.put(1_000, Happening::Copy);
            }
        }
    }
}
