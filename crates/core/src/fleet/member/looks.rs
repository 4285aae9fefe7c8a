//! Conclusions from a look: who lives, what time it is, whether this daemon is a member, and which shards to claim.

use alloc::vec::Vec;

use super::{Known, Member, Phase, next};
use crate::fleet::clock::{Advice, Peer, by_database};
use crate::fleet::effect::Effect;
use crate::fleet::row::{Look, MachineId, MachineRow, Pace, ShardId, Standing};
use crate::fleet::version::may_write;
use crate::fleet::watch::Watch;
use crate::fleet::{HEARTBEAT_FAST, WIDE_LOOK_EVERY};
use crate::time::Boot;

impl Member {
    pub(super) fn looked(&mut self, sent: Boot, now: Boot, look: Look, effects: &mut Vec<Effect>) {
        if let Err(refusal) = may_write(self.identity.program, &look.fleet) {
            self.phase = Phase::Outside;
            return effects.push(Effect::CannotJoin(refusal));
        }
        if self.fleet.as_ref().map(|fleet| fleet.members) != Some(look.fleet.members) && !look.wide
        {
            self.next_wide = now;
        }
        if look.wide {
            self.next_wide = sent + WIDE_LOOK_EVERY;
            let listed = |id: &MachineId| look.machines.iter().any(|row| row.id == *id);
            self.known.retain(|id, _| listed(id));
        }
        self.observe(sent, now, &look, effects);
        self.notice_timeline(now, &look);
        self.tell_time(sent, now, &look, effects);
        if let Some(row) = look.own.as_ref().filter(|_| look.heartbeat_written) {
            self.promised = row.pace;
        }
        let is_fast = self.promised == Pace::Fast && look.heartbeat_written;
        if is_fast && !self.rung {
            let observers = self.observers();
            effects.extend(observers.map(|machine| Effect::NotifyMachine { machine }));
        }
        self.rung = is_fast;
        let every = self.pace(now).min(self.promised.every());
        let regular = sent + every;
        self.next_look = self.look_by.map_or(regular, |by| by.min(regular)).max(now);
        if !self.is_own_row_fine(sent, now, &look, effects) {
            return;
        }
        let is_same_timeline = look.timeline == look.fleet.timeline;
        if self.timeline.replace(look.timeline) != Some(look.timeline) {
            // The newest batches may be missing: the epoch is claimed again, and they are written again.
            self.shards.doubt_all(effects);
        }
        let time = self.clock.now(now).max(self.changed);
        let is_recorded =
            is_same_timeline && look.fleet.went_back >= self.changed.unwrap_or_default();
        if !is_recorded && let Some(time) = time {
            let by_database = by_database(look.database_clock, &look.fleet);
            let row = self.set_fleet.get_or_insert_with(|| next(&look.fleet));
            row.timeline = look.timeline;
            row.went_back = row.went_back.max(time).max(by_database);
        }
        if self.phase == Phase::Joined && is_same_timeline && self.clock.is_settled() {
            self.judge(now, &look, effects);
            self.paused.take_if(|at| sent >= *at);
        }
        self.fleet = Some(look.fleet);
        self.look_when_decided(now);
    }

    /// Takes note of another server. The others have lost their connections too, and need time. This daemon may know
    /// best how late it was: one that starts after the loss has only the older rows.
    fn notice_timeline(&mut self, now: Boot, look: &Look) {
        let before = self.server.replace(look.timeline);
        if before.unwrap_or(look.fleet.timeline) == look.timeline {
            return;
        }
        if before.is_some() {
            self.changed = self.changed.max(self.clock.now(now));
        }
        self.interrupt();
    }

    pub(super) fn interrupt(&mut self) {
        let watches = self.known.values_mut().map(|known| &mut known.watch);
        watches.chain(&mut self.own).for_each(Watch::interrupt);
    }

    /// Takes note of the heartbeats of the others.
    fn observe(&mut self, sent: Boot, now: Boot, look: &Look, effects: &mut Vec<Effect>) {
        let mut by = None;
        for row in &look.machines {
            let known = self.known.entry(row.id).or_insert_with(|| Known {
                row: row.clone(),
                watch: Watch::new(row, now),
                owns: false,
                reported: false,
                unanswered: None,
            });
            // A heartbeat that the first look after a call finds may be older than the call.
            let may_be_old = known.unanswered.is_some_and(|at| known.watch.last <= at);
            let is_alive = known.watch.look(row, sent, now);
            known.row.clone_from(row);
            known.owns = look.shards.iter().any(|shard| shard.owner == row.id);
            let is_told = known.reported || known.unanswered.is_some();
            if is_alive && is_told && !may_be_old {
                (known.reported, known.unanswered) = (false, None);
                effects.push(Effect::MachineBack { machine: row.id });
            } else if may_be_old {
                effects.push(Effect::NotifyMachine { machine: row.id });
                by = Some(now + HEARTBEAT_FAST);
            } else if row.standing == Standing::Member && known.watch.is_dead() && !known.reported {
                known.reported = true;
                effects.push(Effect::MachineSilent {
                    machine: row.id,
                    since: known.watch.since,
                });
            }
        }
        if let Some(by) = by {
            self.look_by = Some(self.look_by.map_or(by, |before| before.min(by)));
        }
    }

    fn tell_time(&mut self, sent: Boot, now: Boot, look: &Look, effects: &mut Vec<Effect>) {
        let peers: Vec<Peer<'_>> = (look.machines.iter())
            .map(|row| (row, self.known.get(&row.id)))
            .map(|(row, known)| Peer {
                row,
                may_live: known.is_some_and(|known| !known.is_gone()),
            })
            .collect();
        let before = self.clock.now(now);
        let advice = self.clock.look(sent, now, look, &peers);
        // A boot clock that stood still is behind.
        let forward = before.zip(self.clock.now(now));
        if forward.is_some_and(|(before, now)| now.since(before) > HEARTBEAT_FAST) {
            self.paused = Some(now);
        }
        match advice {
            Advice::Keep => {}
            Advice::Moved => effects.push(Effect::TimeSet),
            Advice::Correct(clock_ahead) => {
                let mut row = next(&look.fleet);
                row.clock_ahead = clock_ahead;
                row.reached = row.reached.max(self.clock.now(now).unwrap_or_default());
                self.set_fleet = Some(row);
            }
        }
    }

    /// Decides what the row of this machine means. Returns whether this daemon is a member, or leaves.
    fn is_own_row_fine(
        &mut self,
        sent: Boot,
        now: Boot,
        look: &Look,
        effects: &mut Vec<Effect>,
    ) -> bool {
        if self.phase == Phase::Leaving {
            self.phase = Phase::Outside;
            self.drop_all(effects);
            return false;
        }
        let Some(row) = &look.own else {
            self.phase = Phase::Entering { expected: None };
            return false;
        };
        match row.standing {
            Standing::Forgotten => return self.take_new_identity(effects),
            Standing::Revoked => {
                self.phase = Phase::Outside;
                self.drop_all(effects);
                effects.push(Effect::Expelled);
                return false;
            }
            Standing::Member | Standing::Left => {}
        }
        match row.claim == self.claim {
            true => self.own_row_is_claimed(now, row, look.heartbeat_written, effects),
            false => self.own_row_is_taken(sent, now, row, effects),
        }
    }

    /// Handles that the row of this machine has the claim of this daemon.
    fn own_row_is_claimed(
        &mut self,
        now: Boot,
        row: &MachineRow,
        heartbeat_written: bool,
        effects: &mut Vec<Effect>,
    ) -> bool {
        match self.phase {
            Phase::Joined if !heartbeat_written => {
                // Every number is sent once, so another process has written this one.
                return self.take_new_identity(effects);
            }
            Phase::Joined => {}
            Phase::Joining | Phase::Entering { .. } | Phase::Outside | Phase::Leaving => {
                self.heartbeat = self.heartbeat.max(row.heartbeat);
                self.phase = Phase::Joined;
                self.has_joined = true;
                self.own = None;
                self.next_look = now;
                effects.push(Effect::Joined);
                // So that the others list this machine within a second.
                let observers = self.observers();
                effects.extend(observers.map(|machine| Effect::NotifyMachine { machine }));
            }
        }
        true
    }

    /// Handles that the row of this machine has the claim of another process: enters once that one has ended.
    fn own_row_is_taken(
        &mut self,
        sent: Boot,
        now: Boot,
        row: &MachineRow,
        effects: &mut Vec<Effect>,
    ) -> bool {
        // The lock of the state folder said that this process had ended, so it has a copy of the folder. It was first.
        let predecessor = self.predecessor.filter(|_| self.has_joined);
        if predecessor
            .is_some_and(|(claim, heartbeat)| row.claim == claim && row.heartbeat > heartbeat)
        {
            return self.take_new_identity(effects);
        }
        let expected = Some((row.claim, row.heartbeat));
        let same_boot = self.identity.is_locked && row.boot == self.identity.boot;
        self.phase = Phase::Joining;
        if same_boot || row.standing == Standing::Left {
            self.phase = Phase::Entering { expected };
        } else if let Some(watch) = &mut self.own {
            if watch.look(row, sent, now) {
                return self.take_new_identity(effects);
            }
            if watch.is_dead() {
                self.phase = Phase::Entering { expected };
            }
        } else {
            self.own = Some(Watch::new(row, now));
        }
        false
    }

    fn take_new_identity(&mut self, effects: &mut Vec<Effect>) -> bool {
        self.phase = Phase::Outside;
        self.drop_all(effects);
        effects.push(Effect::TakeNewIdentity);
        false
    }

    pub(super) fn drop_all(&mut self, effects: &mut Vec<Effect>) {
        let dropped = self.shards.drop_all();
        effects.extend(dropped.map(|shard| Effect::Drop { shard }));
    }

    /// Decides about every shard in the look.
    fn judge(&mut self, now: Boot, look: &Look, effects: &mut Vec<Effect>) {
        let me = self.identity.machine;
        for row in &look.shards {
            let owner = self.known.get(&row.owner);
            let is_gone = match owner {
                Some(known) => known.is_gone(),
                None => look.wide && row.owner != me,
            };
            let silent = owner.map(|known| (known.row.claim, known.row.heartbeat));
            let was_fenced = self
                .shards
                .judge(me, row, is_gone.then_some(silent), effects);
            // A machine that was paused is back for good, as one that starts again; its network is not in doubt.
            if was_fenced && self.paused.is_none() {
                self.fenced = Some(now);
                self.stable_since = Some(now);
            }
            let is_away = row.id.0 == me && row.owner != me && !is_gone;
            let stable = self.identity.return_after;
            let is_stable = (self.stable_since).is_some_and(|from| now.since(from) >= stable);
            let may_ask = self.fenced.is_none() || is_stable;
            if is_away && may_ask && self.shards.may_ask(now) {
                effects.push(Effect::RequestHandBack {
                    shard: row.id,
                    owner: row.owner,
                });
                // The request goes with the next look.
                self.look_by(now);
            }
        }
        if look.wide && !look.shards.iter().any(|row| row.id.0 == me) {
            self.shards.create(ShardId(me), effects);
        }
    }

    /// Moves the next look to the time at which a silent machine can be found dead.
    fn look_when_decided(&mut self, now: Boot) {
        let late = |known: &&Known| known.owns && known.watch.is_late();
        let decided = self
            .known
            .values()
            .filter(late)
            .map(|known| known.watch.next_look());
        let own = self.own.iter().map(Watch::next_look);
        if let Some(at) = decided.chain(own).min() {
            self.next_look = self.next_look.min(at.max(now));
        }
    }
}
