//! Drives the membership: sends its statements over a connection of its own, at most one at a time, and carries out its
//! effects.

use std::collections::{BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use abide_core::fleet::effect::{Effect, Event, Statement};
use abide_core::fleet::version::{Program, WriteRefusal};
use abide_core::fleet::{Answer, Identity, MachineId, Member, RETURN_AFTER_DEFAULT, Standing};
use abide_core::time::Boot;
use tokio::sync::{Notify, mpsc, watch};

use super::identity::{read_boot_offset, write_boot_offset};
use super::statements::{self, Read, Sql};
use super::{
    Due, Fleet, FleetState, Introduction, MAX_EVENTS, Machine, MachineIdentity, Ownership,
};
use crate::clients::Clients;
use crate::clock::{Clock, SystemClock, TimerFd, boot_id};
use crate::config::Paths;
use crate::entropy;
use crate::machine_link::{self, FleetSecret};
use crate::store::{Link, PostgresAddress, PostgresStatement, SCHEMA_VERSION};

/// Parts that a runner needs.
pub(crate) struct RunnerParts {
    pub address: PostgresAddress,
    pub paths: Paths,
    pub identity: MachineIdentity,
    pub introduction: Introduction,
    /// Writer, which is told what it may write.
    pub ownership: mpsc::Sender<Ownership>,
}

/// Statement that is being carried out.
type PendingStatement = Pin<Box<dyn Future<Output = FinishedStatement> + Send>>;

/// Statement that was carried out or has failed, its connection if that is usable, and the answer.
type FinishedStatement = (u64, Statement, Option<Arc<Link>>, Option<Read>);

/// Membership of this daemon and its connection.
pub(crate) struct Runner {
    parts: RunnerParts,
    member: Member,
    events: mpsc::Receiver<Event>,
    due: watch::Receiver<Due>,
    published: watch::Sender<Arc<FleetState>>,
    link: Option<Arc<Link>>,
    pending: Option<PendingStatement>,
    /// Notified when another machine has begun to beat fast, or when a shard was requested or handed back.
    rung: Arc<Notify>,
    /// Notified when a heartbeat finds a frame for this machine.
    frame_waits: Arc<Notify>,
    /// Clients of this machine, once they are known.
    clients: Arc<OnceLock<Arc<Clients>>>,
    /// SQL to send before the next statement.
    extra: VecDeque<Sql>,
    /// Machines to notify after it: a shard was requested from them.
    requested: Vec<MachineId>,
    boot_offset: Option<i64>,
    told_due: Option<Event>,
    /// Rows that cannot be read, and that were logged.
    unreadable: BTreeSet<String>,
    /// True if the daemon stops.
    is_leaving: bool,
}

impl Runner {
    /// Runner, and the handle by which the daemon uses it.
    pub fn new(parts: RunnerParts) -> (Self, Fleet) {
        let (sender, events) = mpsc::channel(MAX_EVENTS);
        let (due_sender, due) = watch::channel(Due::default());
        let state = FleetState {
            own: Some(parts.identity.id),
            own_name: parts.identity.name.clone(),
            ..FleetState::default()
        };
        let (published, state) = watch::channel(Arc::new(state));
        let frame_waits = Arc::<Notify>::default();
        let clients = Arc::<OnceLock<_>>::default();
        let fleet = Fleet {
            state,
            frame_waits: frame_waits.clone(),
            events: sender,
            due: Arc::new(due_sender),
            others: Arc::default(),
            clients: clients.clone(),
        };
        let boot_offset = read_boot_offset(&parts.paths, boot_id());
        let runner = Runner {
            member: member(&parts, boot_offset),
            parts,
            events,
            due,
            published,
            link: None,
            pending: None,
            rung: Arc::default(),
            frame_waits,
            clients,
            extra: VecDeque::new(),
            requested: Vec::new(),
            boot_offset,
            told_due: None,
            unreadable: BTreeSet::new(),
            is_leaving: false,
        };
        (runner, fleet)
    }

    /// Runs until the daemon drops its handle, or has left.
    pub async fn run(mut self) {
        let Ok(alarm) = TimerFd::at_boot_time() else {
            let why = "the system refused a timer for the membership of the fleet";
            return self.publish(|state| state.trouble = Some(why.into()));
        };
        self.step(Event::Join).await;
        loop {
            let at = self.member.alarm();
            if self.is_leaving && at.is_none() {
                return self.publish(|state| state.is_joined = false);
            }
            tokio::select! {
                biased;
                answered = finished(&mut self.pending) => self.answered(answered).await,
                event = self.events.recv() => match event {
                    Some(event) => self.step(event).await,
                    None => return,
                },
                Ok(()) = self.due.changed() => {
                    let event = self.due_event();
                    self.step(event).await;
                }
                () = self.rung.notified() => self.step(Event::Notified).await,
                () = alarm.until(at) => self.step(Event::Tick).await,
            }
        }
    }

    fn due_event(&mut self) -> Event {
        let due = self.due.borrow_and_update().clone();
        let has_others = self.published.borrow().has_others();
        Event::Due {
            // A machine that is alone has no observers, and one heartbeat every five seconds is enough.
            soonest: due.soonest.filter(|_| has_others),
            waiting: !due.waiting.is_empty() && has_others,
        }
    }

    /// Handles a statement that was carried out, or failed.
    async fn answered(&mut self, finished: FinishedStatement) {
        let (request, statement, link, read) = finished;
        (self.pending, self.link) = (None, link);
        let Some(read) = read else {
            return self.step(Event::Failed { request }).await;
        };
        if statement == Statement::Look && self.has_other_secret(&read) {
            self.member = member(&self.parts, self.boot_offset);
            return self.cannot_join(format!(
                "the fleet secret of this machine is not the one of the fleet at {}; join with that secret (`abide fleet join`), or name another \
                 schema in `store`",
                self.parts.address.shown()
            ));
        }
        for owner in std::mem::take(&mut self.requested) {
            self.notify_machine(owner);
        }
        self.note(&statement, &read);
        if read.has_frame {
            self.frame_waits.notify_one();
        }
        let answer = read.answer;
        self.step(Event::Answered { request, answer }).await;
        let due = self.due_event();
        if self.told_due.as_ref() != Some(&due) {
            self.told_due = Some(due.clone());
            self.step(due).await;
        }
        for shard in read.requested {
            self.step(Event::HandBackRequested { shard }).await;
        }
    }

    /// True if this machine is new and its secret vouches for no member of the fleet, though they have keys: two fleets
    /// use one schema by mistake.
    fn has_other_secret(&self, read: &Read) -> bool {
        let own = self.parts.identity.id;
        let is_new = !read.machines.iter().any(|machine| machine.row.id == own);
        let mut members = read
            .machines
            .iter()
            .filter(|machine| machine.row.standing == Standing::Member && machine.mac.is_some());
        let Some(first) = members.next().filter(|_| is_new) else {
            return false;
        };
        match FleetSecret::load(&self.parts.paths.fleet_secret()) {
            Ok(Some(secret)) => !members
                .chain([first])
                .any(|other| secret.vouches_for(other)),
            Ok(None) | Err(_) => false,
        }
    }

    /// Takes note of the parts of an answer that the core does not know.
    fn note(&mut self, statement: &Statement, read: &Read) {
        let Answer::Looked(look) = &read.answer else {
            return;
        };
        for row in &read.unreadable {
            if self.unreadable.insert(row.clone()) {
                tracing::error!(
                    "{row} in the database has an invalid value, and is passed over until it is repaired"
                );
            }
        }
        if *statement == Statement::Look {
            self.avoid_taken_name(read);
        }
        let may_beat_fast = self.member.may_beat_fast(SystemClock.now().boot);
        self.publish(|state| {
            if look.wide {
                let listed = |id: &_| read.machines.iter().any(|machine| machine.row.id == *id);
                state.machines.retain(|id, _| listed(id));
                state.adopted.clear();
            }
            for machine in &read.machines {
                let before = state.machines.get(&machine.row.id);
                let mut machine = machine.clone();
                if let Some(before) = before {
                    machine.silent_since = before.silent_since;
                    machine.is_unanswered = before.is_unanswered;
                }
                state.machines.insert(machine.row.id, machine);
            }
            for row in &look.shards {
                match row.owner == row.id.0 {
                    true => state.adopted.remove(&row.id),
                    false => state.adopted.insert(row.id, row.owner),
                };
            }
            state.may_beat_fast = may_beat_fast;
            state.has_messages_elsewhere = read.has_messages;
        });
    }

    /// Takes another name if a machine that is not this one has it.
    fn avoid_taken_name(&mut self, read: &Read) {
        let identity = &mut self.parts.identity;
        let is_taken = read.machines.iter().any(|machine| {
            machine.row.id != identity.id
                && machine.name == identity.name
                && matches!(machine.row.standing, Standing::Member | Standing::Left)
        });
        if !is_taken {
            return;
        }
        let before = identity.name.clone();
        match identity.rename(&self.parts.paths) {
            Ok(()) => tracing::warn!(
                "another machine of the fleet is called {before}; this one is {} now",
                self.parts.identity.name
            ),
            Err(fault) => tracing::warn!("cannot store another name: {fault}"),
        }
        let identity = &self.parts.identity;
        self.parts.introduction.mac = machine_link::proof(&self.parts.paths, identity).mac;
        let name = identity.name.clone();
        self.publish(|state| state.own_name = name);
    }

    async fn step(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.is_leaving |= event == Event::Leave;
        self.member
            .step(SystemClock.now().boot, event, &mut effects);
        let is_away = self.member.is_unanswered();
        if self.published.borrow().is_database_away != is_away {
            self.publish(|state| state.is_database_away = is_away);
        }
        for effect in &effects {
            if let Effect::RequestHandBack { shard, owner } = effect {
                let schema = &self.parts.address.schema;
                let request = statements::request_hand_back(schema, *shard, *owner);
                self.extra.push_back(request);
                self.requested.push(*owner);
            }
        }
        self.send(&mut effects);
        for effect in effects {
            self.perform(effect).await;
        }
    }

    /// Carries out the statements among the effects.
    fn send(&mut self, effects: &mut Vec<Effect>) {
        effects.retain(|effect| {
            let Effect::Send { request, statement } = effect else {
                return true;
            };
            // A statement that is not finished when the next one begins has taken too long: its connection is dropped.
            if self.pending.take().is_some() {
                self.link = None;
            }
            let mut sql = std::mem::take(&mut self.extra);
            let RunnerParts {
                address,
                identity,
                introduction,
                ..
            } = &self.parts;
            let agents = self.clients.get().map(|clients| clients.connected_agents());
            let agents = agents.unwrap_or_default();
            let waiting = self.due.borrow().waiting.clone();
            let waiting = waiting.iter().map(|agent| agent.0.to_string()).collect();
            let schema = &address.schema;
            let own = (identity, introduction);
            sql.push_back(statements::sql(schema, own, agents, waiting, statement));
            self.pending = Some(Box::pin(carry_out(
                address.clone(),
                self.link.clone(),
                self.rung.clone(),
                self.parts.identity.id,
                *request,
                statement.clone(),
                sql,
            )));
            false
        });
    }

    async fn perform(&mut self, effect: Effect) {
        match effect {
            // Done before the others.
            Effect::Send { .. } | Effect::RequestHandBack { .. } => {}
            Effect::Load { shard, epoch } => {
                let timeline = self.member.timeline().unwrap_or_default();
                let load = Ownership::Load {
                    shard,
                    epoch,
                    timeline,
                };
                self.tell_time().await;
                self.tell(load).await;
            }
            Effect::Suspend { shard } => self.tell(Ownership::Suspend(shard)).await,
            Effect::Drop { shard } => self.tell(Ownership::Drop(shard)).await,
            Effect::NotifyMachine { machine } => self.notify_machine(machine),
            Effect::MachineSilent { machine, since } => {
                tracing::warn!("machine {} does not answer", self.name(machine));
                self.publish_machine(machine, |machine| machine.silent_since = Some(since));
            }
            Effect::MachineUnanswered { machine } => {
                tracing::warn!("machine {} does not answer a call", self.name(machine));
                self.publish_machine(machine, |machine| machine.is_unanswered = true);
            }
            Effect::MachineBack { machine } => {
                tracing::info!("machine {} answers again", self.name(machine));
                self.publish_machine(machine, |machine| {
                    machine.silent_since = None;
                    machine.is_unanswered = false;
                });
            }
            Effect::TimeSet => self.tell_time().await,
            Effect::Joined => self.publish(|state| {
                state.is_joined = true;
                state.trouble = None;
            }),
            Effect::TakeNewIdentity => self.take_new_identity(),
            Effect::CannotJoin(refusal) => {
                let why = match refusal {
                    WriteRefusal::TooOld { needed } => format!(
                        "the fleet needs abide {needed} or later, and this is {}; install that",
                        statements::own_version()
                    ),
                    WriteRefusal::Migrate { from, to } => format!(
                        "the tables have version {from}, and this abide writes {to}; start it again"
                    ),
                };
                self.cannot_join(why);
            }
            Effect::Expelled => {
                self.cannot_join(format!(
                    "a person has revoked this machine; to join as a new one, remove `machine` and `machine-key` in {} \
                     and run `abide stop`",
                    self.parts.paths.state.display()
                ));
            }
        }
    }

    /// Has another machine look soon. The notification is sent beside the statements: transactions that notify commit
    /// one after the other in the whole server. A fault is ignored, because the machine looks later by itself.
    fn notify_machine(&self, machine: MachineId) {
        if let Some(link) = self.link.clone() {
            tokio::spawn(async move { drop(link.notify(&statements::bell(machine)).await) });
        }
    }

    fn cannot_join(&self, why: String) {
        tracing::error!("this machine is not part of the fleet: {why}");
        self.publish(|state| {
            state.is_joined = false;
            state.trouble = Some(why);
        });
    }

    /// Stores a new identity, with which the daemon starts again: all its parts use one id while they run.
    fn take_new_identity(&self) {
        let name = &self.parts.identity.name;
        match MachineIdentity::make(&self.parts.paths, Some(name)) {
            Ok(_) => {
                tracing::warn!(
                    "another machine has the id of this one, or a person has removed it; this one takes a new id"
                );
                self.publish(|state| {
                    state.is_joined = false;
                    state.has_new_identity = true;
                });
            }
            Err(fault) => self.cannot_join(format!("cannot store a new identity: {fault}")),
        }
    }

    /// Tells the fleet time if it has changed, and stores it for the next daemon.
    async fn tell_time(&mut self) {
        let boot_offset = self.member.clock().boot_offset();
        let told = self.published.borrow().boot_offset;
        let Some(boot_offset) = boot_offset.filter(|boot_offset| told != Some(*boot_offset)) else {
            return;
        };
        self.boot_offset = Some(boot_offset);
        if let Err(fault) = write_boot_offset(&self.parts.paths, boot_id(), boot_offset) {
            tracing::warn!("cannot store the fleet time, so the next start takes longer: {fault}");
        }
        self.publish(|state| state.boot_offset = Some(boot_offset));
        self.tell(Ownership::TimeSet(boot_offset)).await;
    }

    async fn tell(&mut self, ownership: Ownership) {
        // The writer ends with the daemon.
        let _ = self.parts.ownership.send(ownership).await;
    }

    fn name(&self, machine: MachineId) -> String {
        let state = self.published.borrow();
        let machine = state.machines.get(&machine);
        machine.map_or_else(|| "?".into(), |machine| machine.name.clone())
    }

    fn publish_machine(&self, machine: MachineId, change: impl FnOnce(&mut Machine)) {
        self.publish(|state| {
            state.machines.get_mut(&machine).map(change);
        });
    }

    fn publish(&self, change: impl FnOnce(&mut FleetState)) {
        self.published.send_modify(|state| {
            let mut next = FleetState::clone(state);
            change(&mut next);
            *state = Arc::new(next);
        });
    }
}

fn member(parts: &RunnerParts, boot_offset: Option<i64>) -> Member {
    Member::new(Identity {
        machine: parts.identity.id,
        boot: boot_id(),
        // The daemon holds the lock of its state folder.
        is_locked: true,
        program: Program {
            version: statements::own_version(),
            schema: SCHEMA_VERSION,
        },
        lost_after: parts.introduction.lost_after,
        return_after: parts
            .introduction
            .return_after
            .unwrap_or(RETURN_AFTER_DEFAULT),
        random: entropy::bits(),
        boot_offset,
    })
}

/// Waits for the statement under way; for ever if there is none.
async fn finished(pending: &mut Option<PendingStatement>) -> FinishedStatement {
    match pending {
        Some(pending) => pending.await,
        None => std::future::pending().await,
    }
}

/// Carries out a statement, which is the last of `sql`, on a new connection if there is none.
async fn carry_out(
    address: PostgresAddress,
    link: Option<Arc<Link>>,
    rung: Arc<Notify>,
    me: MachineId,
    request: u64,
    statement: Statement,
    sql: VecDeque<Sql>,
) -> FinishedStatement {
    let link = match link.filter(|link| !link.is_closed()) {
        Some(link) => link,
        None => match address.connect_notified(Some(rung)).await {
            Ok(link) => {
                // A database that does not notify is looked at as often as without.
                let _ = link.listen(&statements::bell(me)).await;
                Arc::new(link)
            }
            Err(_) => return (request, statement, None, None),
        },
    };
    let mut answer = Vec::new();
    for sql in sql {
        let text = PostgresStatement {
            sql: sql.text.clone(),
            params: sql.params(),
        };
        match link.query_until_dropped(&text, sql.is_repeated).await {
            Ok(last) => answer = last,
            Err(_) => return (request, statement, None, None),
        }
    }
    let now: Boot = SystemClock.now().boot;
    match statements::read(me, &statement, &answer, now) {
        Ok(read) => (request, statement, Some(link), Some(read)),
        Err(fault) => {
            tracing::error!("{fault}");
            (request, statement, Some(link), None)
        }
    }
}
