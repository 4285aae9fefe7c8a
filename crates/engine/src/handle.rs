//! Handle on the event loop. An interface makes a call, gets updates about it and one outcome. Dropping a call only
//! ends the wait.

mod launch_options;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use abide_core::request::Caller;
use abide_core::session::{Phase, Session};
use abide_core::timer::Why;
use abide_core::{
    Agent, Asking, CallId, Conversation, Event, HeldCommand, Mono, Now, Outcome, QuestionId,
    Request, SessionId, SessionName,
};
use abide_output::secret_fingerprints::SecretFingerprints;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{mpsc, oneshot};

use crate::clients::{Client, Clients};
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, Paths};
use crate::fleet::Fleet;
use crate::keepers::Keepers;
use crate::live_config::LiveConfig;
use crate::lock::lock;
use crate::policy::PolicyStore;
use crate::policy::audit::AuditLog;
use crate::probe::Prober;
use crate::published_state::{PublishedState, QuestionView};
use crate::runtime::JudgeApproved;
use crate::sandbox_probe::SandboxProbe;
use crate::screens::Screens;
use crate::store::{Store, StoreReader, WakerRecord};
use abide_session::daemon_record::OpenRecord;
use abide_session::facts::{CpuSamples, Facts};
use abide_session::sandbox::RefusalRecord;

pub use abide_session::frame::Stdin;
pub use launch_options::{BeyondSettings, LaunchOptions};

/// Input of the loop.
pub enum Input {
    /// Call with the channel for its answer.
    Call(Box<Call>),
    /// Event for the core.
    Event(Event),
    /// The number of watchers has changed. It is read by the loop, since inputs can overtake each other.
    WatchersChanged,
    /// Request to finish the turn and stop. No session is touched.
    Stop,
}

/// Call on its way into the loop.
pub struct Call {
    pub(super) id: CallId,
    pub(super) caller: Caller,
    pub(super) request: Request,
    pub(super) launch: Option<LaunchOptions>,
    pub(super) reply: ReplyChannel,
}

/// Sending ends of the updates and the outcome of a call.
pub struct ReplyChannel {
    pub(super) updates: mpsc::Sender<CallUpdate>,
    pub(super) outcome: oneshot::Sender<Outcome>,
}

/// One step of a call, in order. `Done` is the last.
#[derive(Clone, Debug)]
pub enum CallStep {
    /// An update before the outcome.
    Update(CallUpdate),
    Done(Outcome),
}

/// An update about a call that is not done. Small, because each call gets a queue for several.
#[derive(Clone, Debug)]
pub enum CallUpdate {
    /// The call waits for this session.
    Accepted(SessionId),
    /// A question about the session was opened.
    Asked(Arc<QuestionView>),
    /// A question was answered or withdrawn.
    Closed(QuestionId),
}

/// Handle for calls into one daemon. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    inbox: mpsc::Sender<Input>,
    shared: Arc<Shared>,
}

/// State that all clones of a handle share.
struct Shared {
    parts: HandleParts,
    published: PublishedState,
    screens: Arc<Screens>,
    config: LiveConfig,
    next_call: AtomicU64,
    watchers: AtomicU32,
    secrets: Mutex<HashMap<SessionId, Arc<SecretFingerprints>>>,
    cpu_samples: Mutex<HashMap<SessionId, CpuSamples>>,
    attached: Mutex<HashMap<SessionId, u32>>,
    told_refusals: Mutex<HashMap<SessionId, RefusalRecord>>,
}

/// Components that a handle gives access to.
pub(super) struct HandleParts {
    pub paths: Paths,
    pub keepers: Arc<Keepers>,
    pub store_reader: StoreReader,
    pub prober: Arc<Prober>,
    pub clients: Arc<Clients>,
    pub store: Arc<dyn Store>,
    pub resend: mpsc::Sender<ResendRequest>,
    pub policy: PolicyStore,
    pub audit: AuditLog,
    pub fleet: Option<Fleet>,
    pub default_agent: Agent,
    pub sandbox_probe: SandboxProbe,
    pub judge: JudgeApproved,
}

#[cfg(test)]
impl HandleParts {
    /// Parts with these stores; there are no keepers, interfaces, conditions and rules.
    pub fn of_test(
        events: mpsc::Sender<Event>,
        store_reader: StoreReader,
        store: Arc<dyn Store>,
    ) -> Self {
        let nowhere = std::path::PathBuf::from("/nonexistent");
        HandleParts {
            paths: Paths::under(&nowhere),
            keepers: Keepers::new(nowhere.clone(), nowhere.clone(), 0, events.clone()),
            clients: Clients::new(Vec::new()),
            store_reader,
            prober: Prober::new(events, Arc::new(crate::web::Web::new(None))),
            store,
            resend: mpsc::channel(1).0,
            policy: PolicyStore::new(&nowhere.join("config.toml")),
            audit: AuditLog::new("/dev/null/audit".into()),
            fleet: None,
            default_agent: Agent::default(),
            sandbox_probe: SandboxProbe::new(nowhere.clone(), nowhere.clone()),
            judge: |_, _, _| None,
        }
    }
}

/// Request to deliver a message again.
#[derive(Clone, Copy, Debug)]
pub struct ResendRequest {
    pub message: u64,
}

/// Updates that are queued for a slow interface.
const UPDATE_QUEUE: usize = 32;

impl Handle {
    /// Handle on the loop that reads `inbox`.
    pub(super) fn new(inbox: mpsc::Sender<Input>, parts: HandleParts, config: Config) -> Self {
        let shared = Shared {
            published: PublishedState::default(),
            screens: Screens::new(parts.keepers.clone()),
            config: LiveConfig::new(&parts.paths.config, config),
            parts,
            next_call: AtomicU64::new(1),
            watchers: AtomicU32::new(0),
            secrets: Mutex::default(),
            cpu_samples: Mutex::default(),
            told_refusals: Mutex::default(),
            attached: Mutex::default(),
        };
        Handle {
            inbox,
            shared: Arc::new(shared),
        }
    }

    /// Published state of sessions and questions.
    pub fn published(&self) -> &PublishedState {
        &self.shared.published
    }

    /// Gives a session another name, or none. The name is stored before anything shows it.
    pub async fn rename_session(&self, id: SessionId, name: Option<SessionName>) -> io::Result<()> {
        let (keepers, stored) = (self.shared.parts.keepers.clone(), name.clone());
        let store = move || keepers.store_name(id, stored.as_ref());
        tokio::task::spawn_blocking(store)
            .await
            .map_err(io::Error::other)??;
        self.published().rename(id, name);
        Ok(())
    }

    /// Settings in force now.
    pub fn config(&self) -> Arc<Config> {
        self.shared.config.current()
    }

    /// Settings and the file that they come from.
    pub fn live_config(&self) -> &LiveConfig {
        &self.shared.config
    }

    /// Rules about commands of agents.
    pub fn policy(&self) -> &PolicyStore {
        &self.shared.parts.policy
    }

    /// Probe of the sandboxes that this machine can enforce.
    pub fn sandbox_probe(&self) -> &SandboxProbe {
        &self.shared.parts.sandbox_probe
    }

    /// Log of the decisions about commands.
    pub fn audit(&self) -> &AuditLog {
        &self.shared.parts.audit
    }

    /// Part of the record of a session that its agent was not told yet, and that counts as told now.
    pub fn take_untold_refusals(&self, id: SessionId, record: RefusalRecord) -> RefusalRecord {
        let mut told = lock(&self.shared.told_refusals);
        match told.insert(id, record.clone()) {
            Some(earlier) => record.since(&earlier),
            None => record,
        }
    }

    pub fn paths(&self) -> &Paths {
        &self.shared.parts.paths
    }

    /// Keepers, to read from and write to a terminal directly.
    pub fn keepers(&self) -> &Keepers {
        &self.shared.parts.keepers
    }

    /// Reader of stored timers and messages.
    pub fn store_reader(&self) -> &StoreReader {
        &self.shared.parts.store_reader
    }

    /// Store, for records that the loop does not decide.
    pub fn store(&self) -> &dyn Store {
        &*self.shared.parts.store
    }

    /// Agent that gives no name: `default`, or `default@machine` where names are valid on many machines.
    pub fn default_agent(&self) -> &Agent {
        &self.shared.parts.default_agent
    }

    /// Agent of this name. One that calls itself `default` has none.
    pub fn agent_called(&self, name: &str) -> Agent {
        match *name == *Agent::default().0 {
            true => self.shared.parts.default_agent.clone(),
            false => Agent(name.into()),
        }
    }

    /// Fleet of this machine, if its database is shared.
    pub fn fleet(&self) -> Option<&Fleet> {
        self.shared.parts.fleet.as_ref()
    }

    /// Fault of the database, as a sentence.
    pub fn storage_fault(&self) -> Option<String> {
        let found = self.published().storage_fault();
        found
            .map(|fault| fault.to_string())
            .or_else(|| self.store().trouble())
    }

    /// Clients through which agents call.
    pub fn clients(&self) -> &Arc<Clients> {
        &self.shared.parts.clients
    }

    /// Marks a conversation of an agent as connected until the guard is dropped.
    pub async fn connect_conversation(
        &self,
        agent: &Agent,
        conversation: &Conversation,
    ) -> ConversationGuard {
        self.send_event(Event::Connected {
            agent: agent.clone(),
            conversation: conversation.clone(),
        })
        .await;
        ConversationGuard {
            inbox: self.inbox.clone(),
            agent: agent.clone(),
            conversation: conversation.clone(),
        }
    }

    /// Event that names the conversations of an agent that a waker can resume.
    pub(super) fn resumable(&self, agent: &str) -> Event {
        let config = self.config();
        let wakers = config.wakers.iter();
        let kinds = wakers.filter(|waker| waker.is_for(agent));
        let kinds = kinds.filter_map(|waker| waker.kind.client());
        let conversations = kinds.flat_map(|kind| self.clients().conversations(agent, kind));
        Event::Resumable {
            agent: Agent(agent.into()),
            conversations: conversations.collect(),
        }
    }

    /// Records that an agent calls through this client, over this connection.
    pub fn client_seen(&self, agent: &Agent, client: Client, connection: Option<&str>) {
        if let Some(row) = self.clients().record(&agent.0, client, connection) {
            send_without_waiting(&self.inbox, self.resumable(&agent.0));
            let record = WakerRecord::Client(row, SystemClock.now().wall.0);
            let written = self.store().write_waker_record(record);
            tokio::spawn(async move {
                match written.await {
                    Ok(Ok(())) => {}
                    Ok(Err(fault)) => tracing::warn!("cannot store a client: {fault}"),
                    Err(_) => tracing::warn!("cannot store a client: too many writes are queued"),
                }
            });
        }
    }

    /// Asks the wakers to deliver a message again. Returns false if there are no wakers.
    pub async fn resend(&self, message: u64) -> bool {
        let wanted = ResendRequest { message };
        self.shared.parts.resend.send(wanted).await.is_ok()
    }

    /// Reason why a command that a person has approved must not be started now.
    pub(super) fn refusal(&self, question: QuestionId, held: &HeldCommand) -> Option<Arc<str>> {
        let judge = self.shared.parts.judge;
        judge(self, question, held).map(Into::into)
    }

    /// Prober of the conditions of timers.
    pub fn prober(&self) -> &Prober {
        &self.shared.parts.prober
    }

    /// Tells the core that the caller of an answered call is gone.
    pub(super) fn caller_gone(&self, call: CallId) {
        send_without_waiting(&self.inbox, Event::CallerGone { call });
    }

    /// Tells the core that the answer about the ending of a session did not reach its caller.
    pub(super) fn answer_lost(&self, session: SessionId) {
        send_without_waiting(&self.inbox, Event::AnswerLost { session });
    }

    /// Screens of the sessions with a terminal.
    pub fn screens(&self) -> &Arc<Screens> {
        &self.shared.screens
    }

    /// Name, read cursors and the like of a session, which this daemon records.
    pub fn daemon_record(&self, id: SessionId) -> OpenRecord {
        self.shared.parts.keepers.record(id)
    }

    /// Fingerprints of the secrets in the environment of a session.
    pub fn secrets(&self, id: SessionId) -> Arc<SecretFingerprints> {
        let secrets = lock(&self.shared.secrets);
        secrets.get(&id).cloned().unwrap_or_default()
    }

    /// Keeps the fingerprints until the session is removed.
    pub(super) fn remember_secrets(&self, id: SessionId, given: Arc<SecretFingerprints>) {
        if !given.is_empty() {
            let mut secrets = lock(&self.shared.secrets);
            secrets.insert(id, given);
        }
    }

    /// CPU use of a session since its last output, in percent of one CPU.
    pub fn cpu_percent(&self, id: SessionId, session: &Session, now: &Facts) -> u32 {
        self.with_cpu_samples(id, session, |samples, mono| {
            let percent = samples.cpu_percent(mono, now.cpu_ms);
            if let Phase::Running { quiet_since, .. } = session.phase {
                samples.add(mono, now.cpu_ms, quiet_since);
            }
            percent
        })
    }

    /// Samples the CPU time of a session, unless a sample since its last output is kept.
    pub(super) fn sample_cpu(
        &self,
        id: SessionId,
        session: &Session,
        quiet_since: Mono,
        cpu_ms: impl FnOnce() -> Option<u64>,
    ) {
        self.with_cpu_samples(id, session, |samples, mono| {
            if samples.wants_sample(mono, quiet_since)
                && let Some(cpu_ms) = cpu_ms()
            {
                samples.add(mono, cpu_ms, quiet_since);
            }
        });
    }

    fn with_cpu_samples<T>(
        &self,
        id: SessionId,
        session: &Session,
        act: impl FnOnce(&mut CpuSamples, Mono) -> T,
    ) -> T {
        let Now { wall, mono, .. } = SystemClock.now();
        let age = wall.0.saturating_sub(session.created.0);
        let began = Mono(mono.0.saturating_sub(age));
        let mut samples = lock(&self.shared.cpu_samples);
        act(samples.entry(id).or_insert(CpuSamples::since(began)), mono)
    }

    /// Drops what is kept about a session.
    pub(super) fn forget(&self, id: SessionId) {
        let shared = &self.shared;
        lock(&shared.secrets).remove(&id);
        lock(&shared.cpu_samples).remove(&id);
        lock(&shared.told_refusals).remove(&id);
    }

    /// Makes a call. `launch` goes with [`Request::Run`] and [`Request::Try`].
    pub async fn call(
        &self,
        caller: Caller,
        request: Request,
        launch: Option<LaunchOptions>,
    ) -> PendingCall {
        let id = CallId(self.shared.next_call.fetch_add(1, Ordering::Relaxed));
        tracing::debug!(call = id.0, "sent to the engine");
        let (updates_tx, updates) = mpsc::channel(UPDATE_QUEUE);
        let (outcome_tx, outcome) = oneshot::channel();
        let call = Call {
            id,
            caller,
            request,
            launch,
            reply: ReplyChannel {
                updates: updates_tx,
                outcome: outcome_tx,
            },
        };
        // If the loop has ended, the channel is dropped, and `next` returns `None`.
        let _ = self.inbox.send(Input::Call(Box::new(call))).await;
        PendingCall {
            id,
            inbox: self.inbox.clone(),
            updates,
            outcome,
            open: true,
            carries_messages: false,
        }
    }

    /// Keeps a session active for as long as the pending call exists: a session with a reader or writer is not
    /// inactive.
    pub async fn keep_active(&self, caller: Caller, session: SessionId) -> PendingCall {
        let request = Request::Join {
            session,
            asking: Asking::Never,
            standby: None,
        };
        self.call(caller, request, None).await
    }

    /// Waits until the engine knows that the command of a session has ended, which its keeper has reported already.
    /// Returns earlier only if the daemon stops, which `present`, a call that waits for the session, reports.
    pub async fn wait_until_ended(&self, session: SessionId, present: &mut PendingCall) {
        let mut changes = self.published().follow();
        let runs = || {
            self.published()
                .session(session)
                .is_some_and(|view| view.is_running())
        };
        let over =
            async { while runs() && !matches!(changes.recv().await, Err(RecvError::Closed)) {} };
        tokio::select! {
            () = over => {}
            () = present.abandoned() => {}
        }
    }

    /// Counts a person who watches and could answer, until the guard is dropped.
    pub fn add_watcher(&self) -> WatcherGuard {
        self.watchers_changed(1);
        WatcherGuard(self.clone())
    }

    /// Marks a session's terminal as attached to a person until the guard is dropped.
    pub fn attach(&self, id: SessionId) -> AttachGuard {
        let mut attached = lock(&self.shared.attached);
        *attached.entry(id).or_default() += 1;
        AttachGuard(self.clone(), id)
    }

    /// True if a person is attached to the session's terminal.
    pub fn is_attached(&self, id: SessionId) -> bool {
        let attached = lock(&self.shared.attached);
        attached.contains_key(&id)
    }

    /// Stops the loop. No session is touched.
    pub async fn stop(&self) {
        let _ = self.inbox.send(Input::Stop).await;
    }

    /// Sends an event to the core.
    pub async fn send_event(&self, event: Event) {
        let _ = self.inbox.send(Input::Event(event)).await;
    }

    fn watchers_changed(&self, by: i32) {
        let watchers = &self.shared.watchers;
        watchers.fetch_add(by.cast_unsigned(), Ordering::Relaxed);
        queue_input(&self.inbox, Input::WatchersChanged);
    }

    /// Number of people who watch and could answer.
    pub fn watchers(&self) -> u32 {
        self.shared.watchers.load(Ordering::Relaxed)
    }
}

/// Guard of a connected conversation.
pub struct ConversationGuard {
    inbox: mpsc::Sender<Input>,
    agent: Agent,
    conversation: Conversation,
}

impl Drop for ConversationGuard {
    fn drop(&mut self) {
        let event = Event::Disconnected {
            agent: self.agent.clone(),
            conversation: self.conversation.clone(),
        };
        send_without_waiting(&self.inbox, event);
    }
}

/// Guard of a person attached to a session's terminal.
pub struct AttachGuard(Handle, SessionId);

impl Drop for AttachGuard {
    fn drop(&mut self) {
        let mut attached = lock(&self.0.shared.attached);
        if let Some(count) = attached.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                attached.remove(&self.1);
            }
        }
    }
}

/// Guard of a person who watches.
pub struct WatcherGuard(Handle);

impl Drop for WatcherGuard {
    fn drop(&mut self) {
        self.0.watchers_changed(-1);
    }
}

/// Call that has not been answered yet. Dropping it ends the wait and touches nothing else.
#[derive(Debug)]
pub struct PendingCall {
    id: CallId,
    inbox: mpsc::Sender<Input>,
    updates: mpsc::Receiver<CallUpdate>,
    outcome: oneshot::Receiver<Outcome>,
    open: bool,
    /// True if the outcome carries messages and was not yet confirmed as sent.
    carries_messages: bool,
}

impl PendingCall {
    /// Next step of the call. There is none after [`CallStep::Done`]. `None`: the daemon is stopping.
    pub async fn next(&mut self) -> Option<CallStep> {
        if !self.open {
            return None;
        }
        let step = tokio::select! {
            biased;
            Some(update) = self.updates.recv() => return Some(CallStep::Update(update)),
            outcome = &mut self.outcome => outcome.ok().map(CallStep::Done),
        };
        self.open = false;
        self.carries_messages =
            matches!(&step, Some(CallStep::Done(outcome)) if carries_messages(outcome));
        step
    }

    /// Waits until the daemon stops without an answer. Never returns if there was one.
    async fn abandoned(&mut self) {
        while self.open {
            if self.next().await.is_none() {
                return;
            }
        }
        std::future::pending().await
    }

    /// Outcome of the call; updates are dropped.
    pub async fn done(mut self) -> Option<Outcome> {
        loop {
            match self.next().await? {
                CallStep::Done(outcome) => return Some(outcome),
                CallStep::Update(_) => {}
            }
        }
    }

    /// Confirms that the outcome was sent: its messages count as seen.
    pub fn delivered(mut self) {
        if std::mem::take(&mut self.carries_messages) {
            send_without_waiting(&self.inbox, Event::Delivered { call: self.id });
        }
    }

    /// Interrupts the call on behalf of a person: the session is ended with it.
    pub fn interrupt(&self) {
        send_without_waiting(&self.inbox, Event::Interrupted { call: self.id });
    }

    /// Reports that the person whom this call could have asked cannot be reached.
    pub fn person_unreachable(&self) {
        send_without_waiting(&self.inbox, Event::PersonUnreachable { call: self.id });
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if self.open || self.carries_messages {
            send_without_waiting(&self.inbox, Event::CallerGone { call: self.id });
        }
    }
}

/// True if an outcome carries messages, which are seen only when the outcome has arrived.
fn carries_messages(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Timer(_, why) => *why == Why::Completed,
        Outcome::Messages(messages, _) => !messages.is_empty(),
        _ => false,
    }
}

fn send_without_waiting(inbox: &mpsc::Sender<Input>, event: Event) {
    queue_input(inbox, Input::Event(event));
}

/// Sends an input without waiting: at once if there is room, else from a new task.
fn queue_input(inbox: &mpsc::Sender<Input>, input: Input) {
    if let Err(mpsc::error::TrySendError::Full(input)) = inbox.try_send(input) {
        let inbox = inbox.clone();
        tokio::spawn(async move {
            let _ = inbox.send(input).await;
        });
    }
}
