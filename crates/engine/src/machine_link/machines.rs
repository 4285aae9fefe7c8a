//! The other machines of the fleet, for a daemon that has the fleet secret: who they are, links to them, and the
//! directory of their sessions.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_core::fleet::rights::{Caller, Denied, Right, decide};
use abide_core::fleet::row::{Claim, Introduction, Standing};
use abide_core::fleet::{Event, MachineId, rights};
use abide_core::{Agent, QuestionId, SessionId};
use tokio::sync::{mpsc, oneshot};

use super::carrier::{CalledLink, Carrier};
use super::connections::Connections;
use super::directory::FlushRequest;
use super::key::{FleetSecret, KeyFault, MachineKey};
use super::known_sessions::{Choice, KnownSessions};
use super::ssh::SshLinks;
use super::tls;
use crate::Handle;
use crate::clock::pause;
use crate::config::Paths;
use crate::fleet::{Fleet, FleetState, Machine};
use crate::lock::lock;
use crate::secret;
use crate::store::{DirectoryRow, FrameTable, PostgresAddress, TimerElsewhere, TimerMarks};

/// Time that a read of the database may take.
const DATABASE: Duration = Duration::from_secs(5);
/// Time that a list, or a search for the owner of an id, waits for the database.
const LIST: Duration = Duration::from_secs(1);
/// Time that an answer may wait for the directory.
const FLUSH: Duration = Duration::from_secs(2);
/// Requests to write the directory that may be queued.
const MAX_FLUSHES: usize = 64;

/// Reason why a machine cannot be called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotCall {
    /// The database cannot be reached, so no machine can.
    #[error(
        "the database cannot be reached, so machine {0} cannot be called; sessions here are not affected"
    )]
    Database(String),
    /// The database cannot be reached, so it is not known which machine has a session.
    #[error(
        "session '{0}' is not on this machine, and the database cannot be reached to find it on another; try again later"
    )]
    NotFound(SessionId),
    /// The machine does not answer.
    #[error(
        "machine {0} cannot be reached; its sessions may go on there: try again later, or see `abide machine list`"
    )]
    Silent(String),
    /// The row of the machine is not vouched for.
    #[error("machine {0} is not vouched for by the fleet secret; run `abide fleet join` there")]
    Unknown(String),
    /// A person expelled it.
    #[error("machine {0} was revoked or forgotten")]
    Expelled(String),
    /// The other side did not prove that it has the key of the machine, or does not accept that of this one.
    #[error("machine {0} and this one do not accept each other's key: {1}")]
    Refused(String, String),
}

/// Word of a person about a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersonsWord {
    /// Sessions that ran on it are lost.
    Lost,
    /// The machine does not come back: it is not listed any more.
    Forgotten,
    /// The key of the machine has no rights any more.
    Revoked,
}

impl PersonsWord {
    /// True if the row of the machine has the word.
    fn is_in(self, machine: &Machine) -> bool {
        match self {
            PersonsWord::Lost => machine.declared_lost,
            PersonsWord::Forgotten => machine.row.standing == Standing::Forgotten,
            PersonsWord::Revoked => machine.row.standing == Standing::Revoked,
        }
    }
}

/// Reason why a word about a machine is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotSay {
    /// There is no such machine.
    #[error("no machine of the fleet has this name; `abide machine list` lists them")]
    NoMachine,
    /// The name is that of this machine.
    #[error("this is the machine itself; `abide fleet leave` leaves the fleet")]
    Own,
    /// The machine answers.
    #[error(
        "the machine answers, so its sessions are not lost; stop its daemon first, or use `abide machine revoke`"
    )]
    Alive,
    /// The database cannot be reached.
    #[error("the database cannot be reached; try again later")]
    Database,
}

/// Machine that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownMachine {
    pub id: MachineId,
    pub name: String,
    /// Labels, which nothing vouches for.
    pub labels: Vec<String>,
    pub(super) key: tls::PublicKey,
    /// Claim of its daemon, another one after a restart.
    pub(super) claim: Claim,
}

/// Row of a machine, as it says who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntroducedMachine {
    /// Id, name, key and code.
    pub introduction: Introduction,
    /// Relation to the fleet.
    pub standing: Standing,
    pub labels: Vec<String>,
    /// Claim of its daemon.
    pub claim: Claim,
}

/// Links of this machine, and what has to be served for them.
pub struct StartedLinks {
    pub machines: Arc<OtherMachines>,
    /// Links that other machines open.
    pub called: mpsc::Receiver<CalledLink>,
    /// Takes the links that `abide relay` brings.
    pub relayed: mpsc::Sender<CalledLink>,
    /// Requests to write the directory, for [`run`](super::directory::run).
    pub flush_requests: mpsc::Receiver<FlushRequest>,
}

/// Other machines of the fleet.
pub struct OtherMachines {
    pub(super) handle: Handle,
    fleet: Fleet,
    pub(super) carrier: Arc<Carrier>,
    pub(super) ssh: SshLinks,
    pub(super) key: MachineKey,
    secret: FleetSecret,
    revoked: RevokedKeys,
    flushes: mpsc::Sender<FlushRequest>,
    connections: Connections,
    known_sessions: KnownSessions,
}

impl OtherMachines {
    /// Starts the links of this machine. `None`: it has no fleet secret.
    pub fn start(
        paths: &Paths,
        handle: &Handle,
        fleet: Fleet,
    ) -> Result<Option<StartedLinks>, KeyFault> {
        let Some(secret) = FleetSecret::load(&paths.fleet_secret())? else {
            return Ok(None);
        };
        let key = MachineKey::load_or_create(&paths.machine_key())?;
        let config = handle.config();
        let address = config.store.as_deref().and_then(|url| {
            let address = PostgresAddress::parse(url, config.ca_file.clone());
            address.ok()
        });
        let Some(address) = address else {
            return Ok(None);
        };
        let address = address.following(paths.config.clone());
        let (carrier, called) = Carrier::start(address, fleet.clone());
        let (flushes, flush_requests) = mpsc::channel(MAX_FLUSHES);
        let relayed = carrier.called_links();
        let machines = Arc::new(OtherMachines {
            handle: handle.clone(),
            fleet,
            carrier,
            ssh: SshLinks::new(),
            key,
            secret,
            revoked: RevokedKeys::open(paths.revoked_keys()),
            flushes,
            connections: Connections::default(),
            known_sessions: KnownSessions::default(),
        });
        tokio::spawn(machines.clone().keep_introduced());
        Ok(Some(StartedLinks {
            machines,
            called,
            relayed,
            flush_requests,
        }))
    }

    /// Fleet as this daemon knows it.
    pub fn state(&self) -> Arc<FleetState> {
        self.fleet.state()
    }

    /// Name of this machine.
    pub fn own_name(&self) -> String {
        self.state().own_name.clone()
    }

    /// Unused connections to other machines.
    pub(super) fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Connection to the database; `None` at once if it is known to be away.
    pub(super) async fn table(&self) -> Option<Arc<FrameTable>> {
        match self.state().is_database_away {
            true => None,
            false => self.carrier.table(DATABASE).await,
        }
    }

    /// Keeps the name, the key and the code of this machine in its row, and remembers the keys of machines that were
    /// revoked, though they never call.
    async fn keep_introduced(self: Arc<Self>) {
        let mut states = self.fleet.watch();
        let mut named_otherwise = None;
        loop {
            let state = states.borrow_and_update().clone();
            self.remember_revoked(&state);
            let own = state.own.and_then(|own| state.machines.get(&own));
            if let Some(own) = own.filter(|_| state.is_joined) {
                let other = (own.name != state.own_name).then(|| own.name.clone());
                if let Some(other) = other.as_ref().filter(|_| other != named_otherwise) {
                    tracing::warn!(
                        "the row of this machine in the database says {other}; its name, {}, is written again",
                        state.own_name
                    );
                }
                named_otherwise = other;
                self.introduce(own, &state.own_name).await;
            }
            if states.changed().await.is_err() {
                return;
            }
        }
    }

    fn remember_revoked(&self, state: &FleetState) {
        let revoked = state.machines.values().filter(|machine| {
            machine.row.standing == Standing::Revoked && self.secret.vouches_for(machine)
        });
        for key in revoked.filter_map(|machine| machine.public_key) {
            self.revoked.add(key);
        }
    }

    /// Writes the introduction of this machine into its row if the row differs. Only its own name is signed, because
    /// rights name machines and the row can be forged.
    async fn introduce(&self, own: &Machine, name: &str) {
        let wanted = self.secret.introduce(own.row.id, name, &self.key);
        let is_named = own.name == wanted.name;
        let has_proof = own.mac == Some(wanted.mac) && own.public_key == Some(wanted.key);
        // A machine that is back says itself what became of its sessions.
        if is_named && has_proof && !own.declared_lost {
            return;
        }
        // A fault is followed by the next look, which shows the same row again.
        if let Some(table) = self.table().await {
            let _ = table
                .introduce(&wanted.name, &wanted.key, &wanted.mac)
                .await;
        }
    }

    /// Checks a machine, by its row at this moment.
    pub async fn known(&self, id: MachineId) -> Result<KnownMachine, CannotCall> {
        let shown = self.shown_name(id);
        let rows = self.rows(&shown).await?;
        // No machine answers one that is out, which would look like silence of all.
        let own = self.state().own;
        let own = rows.iter().find(|row| Some(row.introduction.id) == own);
        if let Some(own) = own
            && is_out(own.standing)
        {
            return Err(CannotCall::Expelled(own.introduction.name.clone()));
        }
        let row = rows.into_iter().find(|row| row.introduction.id == id);
        row.ok_or(CannotCall::Unknown(shown))
            .and_then(|row| self.check(row))
    }

    /// Machines with this name or label that are vouched for, the named one alone if there is one.
    pub async fn chosen(&self, name_or_label: &str) -> Result<Vec<KnownMachine>, CannotCall> {
        let rows = self.rows(name_or_label).await?;
        let known = rows.into_iter().filter_map(|row| self.check(row).ok());
        let known: Vec<_> = known.collect();
        let named = known.iter().find(|machine| machine.name == name_or_label);
        if let Some(named) = named {
            return Ok(vec![named.clone()]);
        }
        let has_label = |machine: &KnownMachine| {
            let mut labels = machine.labels.iter();
            labels.any(|label| label == name_or_label)
        };
        Ok(known.into_iter().filter(has_label).collect())
    }

    async fn rows(&self, shown: &str) -> Result<Vec<IntroducedMachine>, CannotCall> {
        let read = async { self.table().await?.machines().await.ok() };
        let rows = within(DATABASE, read).await;
        rows.ok_or_else(|| CannotCall::Database(shown.to_owned()))
    }

    fn check(&self, row: IntroducedMachine) -> Result<KnownMachine, CannotCall> {
        let IntroducedMachine {
            introduction,
            standing,
            labels,
            claim,
        } = row;
        let is_revoked = self.revoked.contains(&introduction.key);
        match self.secret.check(&introduction, standing) {
            Caller::Known { .. } if !is_revoked => Ok(KnownMachine {
                id: introduction.id,
                name: introduction.name,
                labels,
                key: introduction.key,
                claim,
            }),
            Caller::Unknown => Err(CannotCall::Unknown(introduction.name)),
            Caller::Known { .. } | Caller::Expelled => {
                if standing == Standing::Revoked {
                    self.revoked.add(introduction.key);
                }
                Err(CannotCall::Expelled(introduction.name))
            }
        }
    }

    /// Name of a machine for a sentence.
    pub fn shown_name(&self, id: MachineId) -> String {
        let state = self.state();
        let machine = state.machines.get(&id);
        machine.map_or_else(|| format!("{:016x}", id.0), |machine| machine.name.clone())
    }

    /// Decides whether a machine that has called has a right here.
    pub async fn decide(
        &self,
        rights: &rights::Rights,
        right: Right,
        machine: &KnownMachine,
    ) -> Result<(), Denied> {
        // What only shows something does not wait for the database: the link of a machine that is revoked is closed.
        if right == Right::See {
            return self.decide_by_last_look(rights, right, machine);
        }
        // The row is read again: the machine may have been revoked since it opened the link.
        let caller = match self.known(machine.id).await {
            Ok(now) if now.key == machine.key && now.name == machine.name => Caller::Known {
                name: &machine.name,
            },
            Err(CannotCall::Expelled(_)) => Caller::Expelled,
            Ok(_) | Err(_) => Caller::Unknown,
        };
        decide(rights, right, &caller)
    }

    /// The same by the rows as they were read last, for input that must not wait for the database.
    pub fn decide_by_last_look(
        &self,
        rights: &rights::Rights,
        right: Right,
        machine: &KnownMachine,
    ) -> Result<(), Denied> {
        let caller = match self.is_expelled(&self.state(), machine) {
            true => Caller::Expelled,
            false => Caller::Known {
                name: &machine.name,
            },
        };
        decide(rights, right, &caller)
    }

    /// Waits until a machine that has called is revoked or forgotten.
    pub async fn until_expelled(&self, machine: &KnownMachine) {
        let mut states = self.fleet.watch();
        let is_expelled = |state: &Arc<FleetState>| self.is_expelled(state, machine);
        if states.wait_for(is_expelled).await.is_err() {
            std::future::pending().await
        }
    }

    /// True if the machine was revoked or forgotten. One that has just joined is not in the state yet.
    fn is_expelled(&self, state: &FleetState, machine: &KnownMachine) -> bool {
        let row = state.machines.get(&machine.id);
        let standing = row.map_or(Standing::Member, |row| row.row.standing);
        is_out(standing) || self.revoked.contains(&machine.key)
    }

    /// True if the machine counts as dead.
    pub fn is_silent(&self, id: MachineId) -> bool {
        self.state().is_silent(id)
    }

    /// Waits until the machine counts as dead.
    pub async fn until_silent(&self, id: MachineId) {
        let mut states = self.fleet.watch();
        if states.wait_for(|state| state.is_silent(id)).await.is_err() {
            std::future::pending().await
        }
    }

    /// Records what a person says of another machine.
    pub async fn say(&self, name: &str, word: PersonsWord) -> Result<(), CannotSay> {
        let state = self.state();
        let machine = state.named(name).ok_or(CannotSay::NoMachine)?;
        // Without the database it is not known which machines answer.
        let table = self.table().await.ok_or(CannotSay::Database)?;
        match word {
            _ if Some(machine.row.id) == state.own => return Err(CannotSay::Own),
            PersonsWord::Lost | PersonsWord::Forgotten if machine.is_alive() => {
                return Err(CannotSay::Alive);
            }
            PersonsWord::Lost | PersonsWord::Forgotten | PersonsWord::Revoked => {}
        }
        let said = table.say(machine.row.id, word).await;
        said.map_err(|_| CannotSay::Database)?;
        if let (PersonsWord::Revoked, Some(key)) = (word, machine.public_key) {
            self.revoked.add(key);
        }
        // All machines look soon, and the next list of this one has the word.
        let others = state.machines.values().filter(|other| other.is_alive());
        table.ring(others.map(|other| other.row.id)).await;
        self.fleet.send(Event::Notified).await;
        let mut states = self.fleet.watch();
        let id = machine.row.id;
        let is_shown =
            |state: &Arc<FleetState>| state.machines.get(&id).is_none_or(|of| word.is_in(of));
        within(FLUSH, async {
            states.wait_for(is_shown).await.ok().map(drop)
        })
        .await;
        Ok(())
    }

    /// True if the row of a machine is vouched for, as it was read last.
    pub fn is_vouched_for(&self, machine: &Machine) -> bool {
        self.secret.vouches_for(machine)
    }

    /// Waits until the directory has what has changed here, so that another machine finds it there. If the database is
    /// slow, the directory follows later.
    pub async fn flush_directory(&self) {
        let (request, written) = oneshot::channel();
        let flushed = async {
            if self.flushes.send(request).await.is_ok() {
                let _ = written.await;
            }
        };
        tokio::select! {
            () = flushed => {}
            () = pause(FLUSH) => {}
        }
    }

    /// Session of another machine with this id; while the database is away, as it was read last. Ids are random, so
    /// there is one at most, unless a row is forged.
    pub async fn session(&self, id: SessionId) -> Result<Option<DirectoryRow>, CannotCall> {
        let read = async { self.table().await?.directory_entry(id).await.ok() };
        match within(LIST, read).await {
            Some(mut found) => {
                self.date(&mut found);
                let found = found.into_iter().next();
                found
                    .iter()
                    .for_each(|row| self.known_sessions.note_one(row));
                Ok(found)
            }
            None => match self.known_sessions.find(id) {
                Some(row) => Ok(Some(row)),
                None => Err(CannotCall::NotFound(id)),
            },
        }
    }

    /// Text about the end of a session of another machine.
    pub(super) async fn ending(&self, row: &DirectoryRow) -> Option<String> {
        let read = async { self.table().await?.ending(row).await.ok()? };
        within(LIST, read).await
    }

    /// Other machine that has a session, or holds the command that will be this session. A session stays on its machine, so
    /// one that was found is not looked for again.
    pub async fn session_machine(&self, id: SessionId) -> Result<Option<MachineId>, CannotCall> {
        if let Some(row) = self.known_sessions.find(id) {
            return Ok(Some(row.machine));
        }
        if let Some(row) = self.session(id).await? {
            return Ok(Some(row.machine));
        }
        let read = async { self.table().await?.held_command_owner(id).await.ok() };
        Ok(within(LIST, read).await.flatten())
    }

    /// Machine of an open question that is not here.
    pub async fn question_owner(&self, id: QuestionId) -> Option<MachineId> {
        let read = async { self.table().await?.question_owner(id).await.ok() };
        within(LIST, read).await?
    }

    /// Machine that owns a timer which is not here.
    pub async fn timer_owner(&self, number: u64) -> Option<MachineId> {
        let read = async { self.table().await?.timer_owner(number).await.ok() };
        within(LIST, read).await?
    }

    /// Timer of another machine that an agent made with this key.
    pub async fn timer_with_key(&self, agent: &Agent, key: &str) -> Option<TimerElsewhere> {
        let read = async { self.table().await?.timer_with_key(agent, key).await.ok() };
        within(LIST, read).await?
    }

    /// Other machines that have open questions, as far as the database knows.
    pub async fn question_machines(&self) -> Vec<MachineId> {
        let read = async { self.table().await?.question_machines().await.ok() };
        within(LIST, read).await.unwrap_or_default()
    }

    /// Number of open questions of other machines that answer, of one agent or all; none if the database is away.
    pub async fn open_question_count(&self, agent: Option<&Agent>) -> usize {
        let read = async {
            let table = self.carrier.connected()?;
            table.open_question_counts(agent).await.ok()
        };
        let counts = within(LIST, read).await.unwrap_or_default();
        let alive = counts
            .iter()
            .filter(|(machine, _)| !self.is_silent(*machine));
        alive.map(|(_, count)| count).sum()
    }

    /// Open questions of other machines. `None`: the database cannot be reached.
    pub async fn open_questions(&self) -> Option<Vec<QuestionId>> {
        self.table().await?.open_questions().await.ok()
    }

    /// Marks that change with the timers of other machines. `None`: the database cannot be reached.
    pub async fn timer_marks(&self) -> Option<TimerMarks> {
        self.table().await?.timer_marks().await.ok()?
    }

    /// Time of the database, and sessions of other machines whose rows were written after this time of it. `None`: it
    /// cannot be reached.
    pub async fn changed_sessions(&self, from: u64) -> Option<(u64, Vec<DirectoryRow>)> {
        let table = self.table().await?;
        let (clock, mut rows) = table.changed_directory(from).await.ok()?;
        self.date(&mut rows);
        Some((clock, rows))
    }

    /// Notes up to which time rows that were read now are right, by the heartbeats of their machines.
    fn date(&self, rows: &mut [DirectoryRow]) {
        let state = self.state();
        for row in rows {
            let machine = state.machines.get(&row.machine);
            let written = machine.map_or(0, |machine| machine.row.written.0);
            row.told_until = row.as_of.max(written);
        }
    }

    /// Sessions of other machines, newest first; while the database is away, as they were read last.
    pub async fn sessions(&self, agent: Option<&Agent>, include_ended: bool) -> Vec<DirectoryRow> {
        let choice = Choice {
            agent,
            include_ended,
        };
        let read = async {
            let table = self.table().await?;
            table.directory(agent, include_ended).await.ok()
        };
        match within(LIST, read).await {
            Some(mut rows) => {
                self.date(&mut rows);
                self.known_sessions.note(choice, &rows);
                rows
            }
            None => self.known_sessions.chosen(choice),
        }
    }
}

/// True if a person has expelled the machine.
fn is_out(standing: Standing) -> bool {
    matches!(standing, Standing::Revoked | Standing::Forgotten)
}

/// Value that was read, if it comes within a time.
async fn within<T>(time: Duration, read: impl Future<Output = Option<T>>) -> Option<T> {
    tokio::select! {
        read = read => read,
        () = pause(time) => None,
    }
}

/// Keys of machines that were revoked. They are remembered here, because the database can be changed back.
struct RevokedKeys {
    path: PathBuf,
    keys: Mutex<BTreeSet<String>>,
}

impl RevokedKeys {
    fn open(path: PathBuf) -> Self {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let keys = text.lines().map(str::to_owned).collect();
        RevokedKeys {
            path,
            keys: Mutex::new(keys),
        }
    }

    fn contains(&self, key: &[u8; 32]) -> bool {
        let keys = lock(&self.keys);
        keys.contains(&secret::hex(key))
    }

    fn add(&self, key: [u8; 32]) {
        let mut keys = lock(&self.keys);
        if !keys.insert(secret::hex(&key)) {
            return;
        }
        let text: String = keys.iter().map(|key| format!("{key}\n")).collect();
        if let Err(fault) = secret::write(&self.path, &text) {
            tracing::warn!("cannot store the key of a revoked machine: {fault}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revoked_key_is_remembered_by_the_next_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("revoked");
        let first = RevokedKeys::open(path.clone());
        assert!(!first.contains(&[1; 32]));
        first.add([1; 32]);
        first.add([2; 32]);
        let second = RevokedKeys::open(path);
        assert!(second.contains(&[1; 32]) && second.contains(&[2; 32]));
        assert!(!second.contains(&[3; 32]));
    }
}
