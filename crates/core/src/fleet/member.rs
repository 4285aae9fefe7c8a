//! State machine of one daemon in the fleet: joining, heartbeats and looks. See the [module](super).

mod looks;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::clock::FleetClock;
use super::effect::{Answer, Beat, Effect, Event, Scope, Statement};
use super::row::{Claim, FleetRow, MachineId, MachineRow, Pace, ShardId, Standing};
use super::shards::Shards;
use super::version::Program;
use super::watch::Watch;
use super::{
    DUE_SOON, FAST_DEADLINE, HEARTBEAT_FAST, LOOK_RETRY_MAX, LOOK_ROWS_MAX, NEIGHBOURS,
    SLOW_AFTER_FENCE, STATEMENT_DEADLINE,
};
use crate::random::RandomSequence;
use crate::time::{Boot, Millis, Steady};

/// Facts about this daemon that do not change while it runs.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Id of the machine.
    pub machine: MachineId,
    /// Boot id of the kernel.
    pub boot: u128,
    /// True if a lock on the state folder proves that no other process of this boot has this id.
    pub is_locked: bool,
    /// Program.
    pub program: Program,
    /// Silence after which the sessions of this machine are lost.
    pub lost_after: Option<Millis>,
    /// Time without a failed look after which a machine that was fenced though it lived asks for its shard.
    pub return_after: Millis,
    /// Random bits.
    pub random: u64,
    /// Line of the fleet clock of the former daemon, if that ran in the same boot.
    pub boot_offset: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Outside,
    Joining,
    Entering { expected: Option<(Claim, u64)> },
    Joined,
    Leaving,
}

/// Other machine, as last seen.
#[derive(Clone, Debug)]
struct Known {
    row: MachineRow,
    watch: Watch,
    owns: bool,
    /// True if the daemon was told that it counts as dead.
    reported: bool,
    /// Time at which it had not answered a call; `None`: it has beaten since.
    unanswered: Option<Boot>,
}

impl Known {
    /// True if it cannot object to another owner of its shards.
    fn is_gone(&self) -> bool {
        self.row.standing != Standing::Member || self.watch.is_dead()
    }
}

/// Membership of one daemon.
#[derive(Clone, Debug)]
pub struct Member {
    identity: Identity,
    claim: Claim,
    random: RandomSequence,
    phase: Phase,
    heartbeat: u64,
    requests: u64,
    /// Number and time of the statement that is not answered.
    sent: Option<(u64, Boot, Statement)>,
    looked: Boot,
    /// Fastest pace that the observers may have read: the next heartbeat must come within its time, even if it says a
    /// slower one.
    promised: Pace,
    /// True if the observers were told that the pace is fast.
    rung: bool,
    next_look: Boot,
    /// Time by which another look is wanted than the one under way.
    look_by: Option<Boot>,
    next_wide: Boot,
    failures: u32,
    own: Option<Watch>,
    /// Claim and heartbeat of the process whose row this daemon took when it joined for the first time.
    predecessor: Option<(Claim, u64)>,
    /// True once this daemon was a member.
    has_joined: bool,
    known: BTreeMap<MachineId, Known>,
    fleet: Option<FleetRow>,
    /// Change of the fleet row that was decided.
    set_fleet: Option<FleetRow>,
    timeline: Option<u64>,
    /// Timeline in the last look, and the fleet time at which it last changed.
    server: Option<u64>,
    changed: Option<Steady>,
    clock: FleetClock,
    shards: Shards,
    soonest: Option<Steady>,
    waiting: bool,
    fenced: Option<Boot>,
    stable_since: Option<Boot>,
    /// Time of the next step, at the latest, unless this daemon stands still.
    next_step: Option<Boot>,
    /// Time at which this daemon noticed that it or its machine had stood still. No look that was sent since then is
    /// answered.
    paused: Option<Boot>,
}

impl Member {
    /// Member that has not joined yet.
    pub fn new(identity: Identity) -> Self {
        let mut member = Member {
            claim: Claim(0),
            random: RandomSequence(identity.random),
            phase: Phase::Outside,
            heartbeat: 0,
            requests: 0,
            sent: None,
            looked: Boot(0),
            promised: Pace::Slow,
            rung: false,
            next_look: Boot(0),
            look_by: None,
            next_wide: Boot(0),
            failures: 0,
            own: None,
            predecessor: None,
            has_joined: false,
            known: BTreeMap::new(),
            fleet: None,
            set_fleet: None,
            timeline: None,
            server: None,
            changed: None,
            clock: FleetClock::new(identity.boot_offset),
            shards: Shards::default(),
            soonest: None,
            waiting: false,
            fenced: None,
            stable_since: None,
            next_step: None,
            paused: None,
            identity,
        };
        member.claim = Claim(member.random.next());
        member
    }

    /// Fleet time.
    pub fn clock(&self) -> &FleetClock {
        &self.clock
    }

    /// True if this daemon is a member.
    pub fn is_joined(&self) -> bool {
        self.phase == Phase::Joined
    }

    /// True if the last statement was not answered.
    pub fn is_unanswered(&self) -> bool {
        self.failures > 0
    }

    /// Shards that this daemon owns, with their epochs, as far as it knows.
    pub fn owned(&self) -> impl Iterator<Item = (ShardId, u64)> {
        self.shards.owned()
    }

    /// Fleet time at which the database was last known to have lost commits. What was due before is told with the mark
    /// that it may be a repetition. It can rise, so it is asked when a message is told.
    pub fn went_back(&self) -> Option<Steady> {
        self.fleet.as_ref().map(|fleet| fleet.went_back)
    }

    /// Timeline of the server at the last look. A batch is part of it: after a new connection, none is sent before a
    /// look was answered.
    pub fn timeline(&self) -> Option<u64> {
        self.timeline
    }

    /// Time of the next [`Event::Tick`].
    pub fn alarm(&self) -> Option<Boot> {
        if self.phase == Phase::Outside {
            return None;
        }
        if let Some((_, at, statement)) = &self.sent {
            return Some(*at + self.deadline(statement));
        }
        let fast_from = self.soonest.and_then(|soonest| {
            self.clock
                .boot(Steady(soonest.0.saturating_sub(DUE_SOON.0)))
        });
        let flapping_until = self.fenced.map_or(Boot(0), |at| at + SLOW_AFTER_FENCE);
        let earliest = (self.looked + HEARTBEAT_FAST).max(flapping_until);
        let fast_from = fast_from.map(|from| from.max(earliest));
        Some(fast_from.map_or(self.next_look, |from| from.min(self.next_look)))
    }

    /// Takes an event. Effects are appended in the order in which they must be carried out.
    pub fn step(&mut self, now: Boot, event: Event, effects: &mut Vec<Effect>) {
        if self
            .next_step
            .is_some_and(|at| now.since(at) > HEARTBEAT_FAST)
        {
            self.paused = Some(now);
        }
        match event {
            Event::Tick => self.tick(now),
            Event::Join => self.look_again(Phase::Joining, now),
            Event::Leave => self.leave(now),
            Event::Answered { request, answer } => self.answered(now, request, answer, effects),
            Event::Failed { request } => {
                if self.sent.as_ref().is_some_and(|sent| sent.0 == request) {
                    self.failed(now);
                }
            }
            Event::Due { soonest, waiting } => {
                let before = self.own_pace(now);
                (self.soonest, self.waiting) = (soonest, waiting);
                if before == Pace::Slow && self.own_pace(now) == Pace::Fast {
                    self.look_by(now);
                }
            }
            Event::Fenced { shard, epoch } => {
                self.shards.lost(shard, epoch);
                self.look_by(now);
            }
            Event::BatchUnknown { shard, epoch } => {
                self.shards.doubted(self.identity.machine, shard, epoch);
                self.look_by(now);
            }
            Event::Unanswered { machine } => self.unanswered(now, machine, effects),
            Event::TimeRefused => self.look_by(now),
            Event::Notified => self.look_by(self.looked + HEARTBEAT_FAST),
            Event::HandBackRequested { shard } => {
                self.shards.requested(shard);
                self.look_by(now);
            }
        }
        self.send(now, effects);
        self.next_step = self.alarm().map(|at| at.max(now));
    }

    fn tick(&mut self, now: Boot) {
        match &self.sent {
            Some((_, at, statement)) if now.since(*at) >= self.deadline(statement) => {
                self.failed(now);
            }
            Some(_) => {}
            None if self.own_pace(now) == Pace::Fast => {
                self.next_look = self.next_look.min(self.looked + HEARTBEAT_FAST);
            }
            None => {}
        }
    }

    /// Takes note that a machine does not answer calls. A look at once finds the heartbeats from before; then it is asked
    /// to beat, which shows whether it is alive.
    fn unanswered(&mut self, now: Boot, machine: MachineId, effects: &mut Vec<Effect>) {
        let Some(known) = self.known.get_mut(&machine) else {
            return;
        };
        if known.unanswered.is_some() || known.is_gone() {
            return;
        }
        known.unanswered = Some(now);
        effects.push(Effect::MachineUnanswered { machine });
        self.look_by(now);
    }

    fn look_by(&mut self, by: Boot) {
        self.next_look = self.next_look.min(by);
        self.look_by = Some(self.look_by.map_or(by, |before| before.min(by)));
    }

    fn leave(&mut self, now: Boot) {
        match self.phase {
            Phase::Joined => self.look_again(Phase::Leaving, now),
            Phase::Outside | Phase::Joining | Phase::Entering { .. } | Phase::Leaving => {
                self.phase = Phase::Outside;
            }
        }
    }

    fn look_again(&mut self, phase: Phase, now: Boot) {
        self.phase = phase;
        self.own = None;
        self.next_look = now;
        self.next_wide = now;
    }

    /// Repeats with a random delay that grows, so that a thousand daemons do not come back in the same instant.
    fn failed(&mut self, now: Boot) {
        self.sent = None;
        self.failures = self.failures.saturating_add(1);
        self.stable_since = None;
        let limit = match self.promised {
            Pace::Fast => HEARTBEAT_FAST,
            Pace::Slow => LOOK_RETRY_MAX,
        };
        let longest = (100 << self.failures.min(6)).min(limit.0);
        let delay = 100 + self.random.next() % longest;
        self.next_look = now + Millis(delay);
        self.set_fleet = None;
        // The row may have changed since it was read: a person may have revoked this machine.
        if let Phase::Entering { .. } = self.phase {
            self.phase = Phase::Joining;
        }
        self.shards.forget_decisions();
        self.interrupt();
    }

    fn answered(&mut self, now: Boot, request: u64, answer: Answer, effects: &mut Vec<Effect>) {
        let Some((_, sent, statement)) = self.sent.take_if(|sent| sent.0 == request) else {
            return;
        };
        self.failures = 0;
        self.stable_since.get_or_insert(now);
        match (statement, answer) {
            (Statement::Look | Statement::Beat(_), Answer::Looked(look)) => {
                self.looked(sent, now, *look, effects);
            }
            (
                Statement::Claim {
                    shard,
                    epoch,
                    claim,
                    ..
                },
                Answer::Done(true),
            ) => self.shards.won(shard, epoch, claim, effects),
            (Statement::Enter { .. }, Answer::Done(_)) => self.look_again(Phase::Joining, now),
            (Statement::HandBack { to, .. }, Answer::Done(true)) => {
                effects.push(Effect::NotifyMachine { machine: to });
                self.next_look = now;
            }
            (_, Answer::Done(_) | Answer::Looked(_)) => {
                self.next_look = now;
            }
        }
    }

    /// Sends the next statement if none is under way.
    fn send(&mut self, now: Boot, effects: &mut Vec<Effect>) {
        if self.sent.is_some() || self.phase == Phase::Outside {
            return;
        }
        let random = Claim(self.random.next());
        let decided = self.next_decided(random);
        let Some(statement) = decided.or_else(|| self.next_look(now)) else {
            return;
        };
        if let Statement::HandBack { shard, .. } = statement {
            effects.push(Effect::Drop { shard });
        }
        self.requests += 1;
        self.sent = Some((self.requests, now, statement.clone()));
        effects.push(Effect::Send {
            request: self.requests,
            statement,
        });
    }

    fn next_decided(&mut self, random: Claim) -> Option<Statement> {
        if let Phase::Entering { expected } = self.phase {
            self.heartbeat = self.heartbeat.max(expected.map_or(0, |row| row.1)) + 1;
            if !self.has_joined {
                self.predecessor = expected;
            }
            return Some(Statement::Enter {
                expected,
                claim: self.claim,
                boot: self.identity.boot,
                heartbeat: self.heartbeat,
                lost_after: self.identity.lost_after,
            });
        }
        let timeline = self.timeline?;
        if let Some(row) = self.set_fleet.take() {
            return Some(Statement::SetFleet { row, timeline });
        }
        self.shards.next_statement(random, timeline)
    }

    fn next_look(&mut self, now: Boot) -> Option<Statement> {
        if now < self.next_look {
            return None;
        }
        self.looked = now;
        self.look_by = None;
        let standing = match self.phase {
            Phase::Joining | Phase::Entering { .. } | Phase::Outside => {
                return Some(Statement::Look);
            }
            Phase::Joined => Standing::Member,
            Phase::Leaving => Standing::Left,
        };
        self.heartbeat += 1;
        let pace = self.own_pace(now);
        self.promised = self.promised.min(pace);
        Some(Statement::Beat(Beat {
            heartbeat: self.heartbeat,
            claim: self.claim,
            pace,
            standing,
            fleet_time: self.clock.now(now),
            scope: self.scope(now),
            shards: self.shards.ids(self.identity.machine),
        }))
    }

    /// All machines once a minute, and while a neighbour is late or the time is in doubt; else the neighbours, with the
    /// dead ones between them.
    fn scope(&self, now: Boot) -> Scope {
        let is_late = self
            .known
            .values()
            .any(|known| known.owns && known.watch.is_late());
        if now >= self.next_wide || is_late || !self.clock.is_settled() {
            return Scope::All;
        }
        let mut living = 0;
        let arc = self.ring().take(LOOK_ROWS_MAX).take_while(|known| {
            let enough = living >= NEIGHBOURS;
            living += usize::from(!known.is_gone());
            !enough
        });
        Scope::Machines(arc.map(|known| known.row.id).collect())
    }

    /// Other machines in the order of their ids, beginning behind this one.
    fn ring(&self) -> impl Iterator<Item = &Known> {
        let me = self.identity.machine;
        let behind = (core::ops::Bound::Excluded(me), core::ops::Bound::Unbounded);
        (self.known.range(behind))
            .chain(self.known.range(..me))
            .map(|(_, known)| known)
    }

    /// Machines that look at this one, the nearest first.
    fn observers(&self) -> impl Iterator<Item = MachineId> {
        let ring: Vec<&Known> = self.ring().collect();
        let living = ring.into_iter().rev().filter(|known| !known.is_gone());
        let nearest: Vec<MachineId> = living.take(NEIGHBOURS).map(|known| known.row.id).collect();
        nearest.into_iter()
    }

    /// Pace that the others may rely on. A batch that makes a timer writes it into the row of the machine, if it is fast
    /// and the timer is due within [`DUE_SOON`].
    pub fn own_pace(&self, now: Boot) -> Pace {
        if !self.may_beat_fast(now) {
            return Pace::Slow;
        }
        let is_due = (self.soonest.zip(self.clock.now(now)))
            .is_some_and(|(soonest, time)| soonest.since(time) <= DUE_SOON);
        if is_due || self.waiting {
            Pace::Fast
        } else {
            Pace::Slow
        }
    }

    /// False for some time after this machine was fenced though it lived.
    pub fn may_beat_fast(&self, now: Boot) -> bool {
        self.fenced
            .is_none_or(|at| now.since(at) >= SLOW_AFTER_FENCE)
    }

    /// Time between looks: that of the own heartbeats, or that of the next living machine if it is shorter.
    fn pace(&self, now: Boot) -> Millis {
        let next = self.ring().find(|known| !known.is_gone() || known.owns);
        let next = next.map_or(Pace::Slow, |known| known.watch.pace);
        let hurries = self.phase != Phase::Joined || !self.clock.is_settled();
        if hurries || next == Pace::Fast {
            return HEARTBEAT_FAST;
        }
        self.own_pace(now).every()
    }

    /// Patience with the statement that was sent.
    fn deadline(&self, statement: &Statement) -> Millis {
        match statement {
            Statement::Beat(_) if self.promised == Pace::Fast && self.failures < 3 => FAST_DEADLINE,
            _ => STATEMENT_DEADLINE,
        }
    }
}

fn next(fleet: &FleetRow) -> FleetRow {
    FleetRow {
        version: fleet.version + 1,
        ..fleet.clone()
    }
}
