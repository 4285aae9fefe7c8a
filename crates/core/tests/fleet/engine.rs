//! Daemons of a world: they step, perform effects, and send batches.

use abide_core::fleet::{Effect, Event, MachineId, ShardId, Statement};
use abide_core::time::Boot;

use crate::checks::{Answer, Sabotage};
use crate::daemon::{Daemon, Flight, is_make};
use crate::database::{BatchAnswer, Opened, Stamp, TimerRow};
use crate::world::{DEADLINE, Happening, Place, Reply, Request, World};

impl World {
    pub fn daemon(&mut self, place: Place) -> &mut Daemon {
        self.machines[place].daemon.as_mut().expect("a daemon runs")
    }

    pub fn wake(&mut self, place: Place) {
        let boot = self.boot(place);
        let daemon = self.daemon(place);
        let late = |flight: &Flight| !flight.is_unknown && boot.0 >= flight.sent.0 + DEADLINE;
        if daemon.flight.as_ref().is_some_and(late) {
            self.lost_batch(place);
        }
        if self
            .daemon(place)
            .member
            .alarm()
            .is_some_and(|at| at <= boot)
        {
            self.step(place, Event::Tick);
        } else {
            self.work(place);
        }
    }

    pub fn step(&mut self, place: Place, event: Event) {
        let boot = self.boot(place);
        let Some(daemon) = &mut self.machines[place].daemon else {
            return;
        };
        let mut effects = Vec::new();
        daemon.member.step(boot, event, &mut effects);
        for effect in effects {
            self.perform(place, effect);
        }
        if self.machines[place].daemon.is_some() {
            self.work(place);
        }
    }

    pub fn perform(&mut self, place: Place, effect: Effect) {
        match effect {
            Effect::Send { request, statement } => {
                let is_adoption = matches!(
                    &statement,
                    Statement::Claim {
                        silent: Some(_),
                        ..
                    }
                );
                if is_adoption && self.sabotage == Some(Sabotage::NoAdoption) {
                    return;
                }
                self.request(place, Request::Statement(request, statement));
            }
            Effect::Load { shard, epoch } => {
                self.say(|| format!("{place} owns {:x} in epoch {epoch:x}", shard.0.0));
                let daemon = self.daemon(place);
                daemon.to_open.insert(shard, epoch);
                if let Some(loaded) = daemon.loaded.get_mut(&shard)
                    && loaded.epoch != Some(epoch)
                {
                    loaded.epoch = None;
                }
                let home = daemon.id;
                self.count(if shard.0 == home { "owned" } else { "adopted" });
            }
            Effect::Suspend { shard } => {
                let daemon = self.daemon(place);
                daemon.to_open.remove(&shard);
                if let Some(loaded) = daemon.loaded.get_mut(&shard) {
                    loaded.epoch = None;
                }
                self.count("suspended");
            }
            Effect::Drop { shard } => {
                self.say(|| format!("{place} drops {:x}", shard.0.0));
                let daemon = self.daemon(place);
                daemon.loaded.remove(&shard);
                daemon.to_open.remove(&shard);
                if let Some(flight) = &daemon.flight
                    && flight.batch.shard == shard
                    && flight.is_unknown
                {
                    let stamp = flight.batch.stamp;
                    self.request(place, Request::Read(shard, stamp));
                }
                self.forgive_losses();
                self.count("dropped");
            }
            Effect::NotifyMachine { machine } => {
                let link = self.machines[place].link;
                if self.has_bell && self.is_up && !link.no_requests {
                    let delay = 1 + self.random.below(link.delay + 1);
                    self.put(delay, Happening::Notified(machine));
                }
            }
            Effect::RequestHandBack { shard, owner } => {
                let link = self.machines[place].link;
                if self.is_up && !link.no_requests {
                    let delay = 10 + self.random.below(link.delay + 1);
                    self.put(delay, Happening::Asked(owner, shard));
                }
            }
            Effect::TakeNewIdentity => {
                self.say(|| format!("{place} takes a new identity"));
                self.count("new identity");
                self.kill(place);
                let id = MachineId(self.random.bits() >> 1);
                self.machines[place].id = id;
                self.start(place);
            }
            Effect::CannotJoin(_) => self.count("cannot join"),
            Effect::Expelled => self.count("expelled"),
            Effect::Joined => self.count("joined"),
            Effect::TimeSet => self.count("time set"),
            Effect::MachineSilent { machine, .. } => {
                self.say(|| format!("{place} finds {:x} dead", machine.0));
                self.count("found dead");
            }
            Effect::MachineUnanswered { .. } => self.count("unanswered"),
            Effect::MachineBack { .. } => self.count("found alive"),
        }
    }

    /// Sends what the engine of a daemon has to send, and sets its alarm.
    pub fn work(&mut self, place: Place) {
        let boot = self.boot(place);
        let true_time = self.time;
        let by_database = self.sabotage == Some(Sabotage::DatabaseTime);
        let ahead = self.database.clock_off;
        let daemon = self.daemon(place);
        if let Some(shown) = daemon.member.clock().shown(boot) {
            assert!(
                shown >= daemon.shown,
                "CHECK forward: shown time of {place} runs back"
            );
            daemon.shown = shown;
        }
        let boot_offset = daemon.member.clock().boot_offset();
        if daemon.opening.is_none()
            && let Some((shard, epoch)) = daemon.to_open.first_key_value()
        {
            let (shard, epoch) = (*shard, *epoch);
            daemon.opening = Some((shard, epoch));
            let newest = daemon.newest.get(&shard).cloned().unwrap_or_default();
            let forgets = self.sabotage == Some(Sabotage::ForgetNewest);
            let newest = if forgets {
                Vec::new()
            } else {
                newest.into_iter().collect()
            };
            self.request(place, Request::Open(shard, epoch, newest));
        }
        let daemon = self.daemon(place);
        let batch_boot = match boot_offset {
            Some(boot_offset) if by_database => Boot(
                true_time
                    .saturating_add_signed(ahead)
                    .saturating_add_signed(-boot_offset),
            ),
            _ => boot,
        };
        if let Some(batch) = daemon.next_batch(batch_boot) {
            if let Some(flight) = &mut daemon.flight {
                flight.sent = boot;
            }
            self.request(place, Request::Batch(batch));
        }
        self.machines[place].boot_offset = boot_offset;
        if let Some(event) = self.daemon(place).due_event(boot) {
            return self.step(place, event);
        }
        self.schedule(place);
    }

    pub fn schedule(&mut self, place: Place) {
        let boot = self.boot(place);
        let Some(daemon) = &self.machines[place].daemon else {
            return;
        };
        let flight = match &daemon.flight {
            Some(flight) if !flight.is_unknown => Some(Boot(flight.sent.0 + DEADLINE)),
            Some(_) => None,
            None => daemon.alarm(),
        };
        let next = flight.into_iter().chain(daemon.member.alarm()).min();
        let machine = &mut self.machines[place];
        machine.wake += 1;
        let (life, wake) = (machine.life, machine.wake);
        if let Some(next) = next {
            // Timers of the kernel are a little late.
            let delay = next.0.saturating_sub(boot.0).max(1);
            self.put(delay, Happening::Wake(place, life, wake));
        }
    }

    pub fn replied(&mut self, place: Place, reply: Reply) {
        match reply {
            Reply::Statement(request, answer) => {
                self.step(place, Event::Answered { request, answer });
            }
            Reply::Lost(Request::Statement(request, _))
            | Reply::Unsent(Request::Statement(request, _)) => {
                self.step(place, Event::Failed { request });
            }
            Reply::Batch(stamp, answer) => self.batch_answered(place, stamp, answer),
            Reply::Lost(Request::Batch(batch)) => {
                if self.is_flying(place, batch.stamp) {
                    self.lost_batch(place);
                }
            }
            Reply::Unsent(Request::Batch(batch)) => {
                if self.is_flying(place, batch.stamp) {
                    self.refuse_flight(place);
                    self.schedule_later(place);
                }
            }
            Reply::Opened(shard, epoch, opened) => self.opened(place, shard, epoch, opened),
            Reply::Lost(Request::Open(..)) | Reply::Unsent(Request::Open(..)) => {
                self.daemon(place).opening = None;
                self.schedule_later(place);
            }
            Reply::Read(stamp, rows) => {
                if self.is_flying(place, stamp) || self.is_unknown(place, stamp) {
                    self.resolve(place, &rows);
                    self.work(place);
                }
            }
            Reply::Lost(Request::Read(shard, stamp))
            | Reply::Unsent(Request::Read(shard, stamp)) => {
                if self.is_unknown(place, stamp) {
                    self.request(place, Request::Read(shard, stamp));
                }
            }
        }
    }

    /// Waits for the next event instead of trying again in the same instant.
    pub fn schedule_later(&mut self, place: Place) {
        self.schedule(place);
        let machine = &mut self.machines[place];
        machine.wake += 1;
        let (life, wake) = (machine.life, machine.wake);
        self.put(500, Happening::Wake(place, life, wake));
    }

    pub fn is_flying(&mut self, place: Place, stamp: Stamp) -> bool {
        let flight = self.daemon(place).flight.as_ref();
        flight.is_some_and(|flight| flight.batch.stamp == stamp && !flight.is_unknown)
    }

    pub fn is_unknown(&mut self, place: Place, stamp: Stamp) -> bool {
        let flight = self.daemon(place).flight.as_ref();
        flight.is_some_and(|flight| flight.batch.stamp == stamp && flight.is_unknown)
    }

    pub fn batch_answered(&mut self, place: Place, stamp: Stamp, answer: BatchAnswer) {
        if !self.is_flying(place, stamp) {
            return;
        }
        let shard = self
            .daemon(place)
            .flight
            .as_ref()
            .map(|f| f.batch.shard)
            .expect("a flight");
        match answer {
            BatchAnswer::Committed(rows) => self.settle(place, shard, &rows),
            BatchAnswer::Fenced => {
                self.count("fenced");
                self.refuse_flight(place);
                let epoch = stamp.0;
                if let Some(loaded) = self.daemon(place).loaded.get_mut(&shard)
                    && loaded.epoch == Some(epoch)
                {
                    loaded.epoch = None;
                }
                return self.step(place, Event::Fenced { shard, epoch });
            }
            BatchAnswer::TimeRefused => {
                self.count("time refused");
                self.refuse_flight(place);
                return self.step(place, Event::TimeRefused);
            }
        }
        self.work(place);
    }

    pub fn settle(&mut self, place: Place, shard: ShardId, rows: &[(u64, TimerRow)]) {
        let time = self.time;
        let marks = self.sabotage != Some(Sabotage::NoMark);
        let daemon = self.daemon(place);
        let flight = daemon.flight.take().expect("a flight");
        let told = daemon.committed(shard, rows);
        for (number, _) in flight.batch.changes.iter().filter(|change| is_make(change)) {
            self.truths.answered((shard, *number), Answer::Made);
        }
        for telling in told {
            let key = (telling.shard, telling.number);
            self.truths.told(key, time, telling.repeated && marks);
        }
    }

    /// The batch was certainly not carried out: the calls in it are refused.
    pub fn refuse_flight(&mut self, place: Place) {
        let Some(flight) = self.daemon(place).flight.take() else {
            return;
        };
        for (number, _) in flight.batch.changes.iter().filter(|change| is_make(change)) {
            self.truths
                .answered((flight.batch.shard, *number), Answer::Refused);
        }
    }

    /// The outcome of the batch is unknown.
    pub fn lost_batch(&mut self, place: Place) {
        if self.sabotage == Some(Sabotage::RefuseUnknown) {
            return self.refuse_flight(place);
        }
        self.count("unknown");
        let flight = self.daemon(place).flight.as_mut().expect("a flight");
        flight.is_unknown = true;
        let (shard, epoch) = (flight.batch.shard, flight.batch.stamp.0);
        let daemon = self.daemon(place);
        match daemon.loaded.get_mut(&shard) {
            Some(loaded) if loaded.epoch.is_none_or(|now| now == epoch) => loaded.epoch = None,
            // The epoch is over, so the rows tell.
            _ => {
                let stamp = daemon.stamp_of_flight().expect("a flight").1;
                return self.request(place, Request::Read(shard, stamp));
            }
        }
        self.step(place, Event::BatchUnknown { shard, epoch });
    }

    pub fn opened(&mut self, place: Place, shard: ShardId, epoch: u64, opened: Option<Opened>) {
        let daemon = self.daemon(place);
        daemon.opening = None;
        let Some(wanted) = daemon.to_open.get(&shard).copied() else {
            return self.work(place);
        };
        if wanted != epoch {
            return self.work(place);
        }
        daemon.to_open.remove(&shard);
        let is_unknown = |flight: &Flight| {
            flight.is_unknown && flight.batch.shard == shard && flight.batch.stamp.0 >= epoch
        };
        if daemon.flight.as_ref().is_some_and(is_unknown) {
            // Read before the next claim, so the rows do not tell yet.
            return self.work(place);
        }
        let Some(opened) = opened else {
            return self.step(place, Event::Fenced { shard, epoch });
        };
        if let Some(flight) = &daemon.flight
            && flight.batch.shard == shard
            && flight.is_unknown
        {
            self.resolve(place, &opened.rows);
        }
        self.daemon(place).opened(shard, epoch, &opened);
        self.work(place);
    }

    /// Decides by the stamps in the rows what became of a batch.
    pub fn resolve(&mut self, place: Place, rows: &[(u64, TimerRow)]) {
        let flight = self.daemon(place).flight.clone().expect("a flight");
        let (shard, stamp) = (flight.batch.shard, flight.batch.stamp);
        let mine: Vec<_> = rows
            .iter()
            .filter(|(_, row)| row.stamp == stamp)
            .copied()
            .collect();
        if !mine.is_empty() {
            return self.settle(place, shard, &mine);
        }
        self.daemon(place).flight = None;
        for (number, _) in flight.batch.changes.iter().filter(|change| is_make(change)) {
            // Another owner may have written the row since.
            let is_there = rows.iter().any(|(there, _)| there == number);
            let answer = if is_there {
                Answer::Made
            } else {
                Answer::Refused
            };
            self.truths.answered((shard, *number), answer);
        }
    }
}
