//! The way into the loop. A door makes a call, hears what happens to it, and gets one answer; a door
//! that lets go of a call has only stopped waiting.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use abide_core::request::Caller;
use abide_core::timer::Why;
use abide_core::{
    Agent, Asking, CallId, Conversation, Event, Mono, Now, Outcome, QuestionId, Request, SessionId,
};
use abide_output::secret_fingerprints::SecretFingerprints;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{mpsc, oneshot};

use crate::clients::{Client, Clients};
use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::keepers::Keepers;
use crate::probe::Prober;
use crate::published_state::{PublishedState, QuestionView, SessionView};
use crate::screens::Screens;
use crate::store::{Store, StoreReader, WakerRecord};
use abide_session::facts::{CpuSamples, Facts};
use abide_session::frame::InheritedLimits;
use abide_session::read_cursors::CursorFiles;

/// What the loop takes in.
pub enum Input {
    /// A call with the slot for its answer.
    Call(Box<Call>),
    /// Something that happened.
    Event(Event),
    /// Finish the turn and stop. No session is touched.
    Stop,
}

/// A call on its way into the loop.
pub struct Call {
    pub(super) id: CallId,
    pub(super) caller: Caller,
    pub(super) request: Request,
    pub(super) launch: Option<Launch>,
    pub(super) reply: ReplyChannel,
}

/// Where a call's news and its answer go.
pub struct ReplyChannel {
    pub(super) updates: mpsc::Sender<CallUpdate>,
    pub(super) outcome: oneshot::Sender<Outcome>,
}

/// How to start a command: what the keeper needs and the core does not.
#[derive(Clone, Debug)]
pub struct Launch {
    /// What to execute; `None`: the configured shell with the command.
    pub argv: Option<Vec<OsString>>,
    /// Where.
    pub cwd: PathBuf,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its input.
    pub stdin: Stdin,
    /// A terminal of this many columns and rows.
    pub pty: Option<(u16, u16)>,
    /// What it inherits of whoever asks for it, besides the environment. `None`: what the daemon has.
    pub inherited_limits: Option<InheritedLimits>,
    /// What is secret in its environment and must not be shown.
    pub secrets: Arc<SecretFingerprints>,
}

impl Launch {
    /// A command without a terminal.
    pub fn plain(
        cwd: PathBuf,
        env: Vec<(OsString, OsString)>,
        stdin: Option<String>,
        secrets: Arc<SecretFingerprints>,
    ) -> Self {
        let stdin = stdin.map_or(Stdin::None, |text| Stdin::Bytes(text.into_bytes()));
        Launch {
            argv: None,
            cwd,
            env,
            stdin,
            pty: None,
            inherited_limits: None,
            secrets,
        }
    }
}

/// A command's input.
#[derive(Clone, Debug)]
pub enum Stdin {
    /// At its end from the start.
    None,
    /// These bytes, then its end.
    Bytes(Vec<u8>),
    /// Open, to be written to later.
    Open,
}

/// One step of a call, in order. `Done` is the last.
#[derive(Clone, Debug)]
pub enum CallStep {
    /// An update before the outcome.
    Update(CallUpdate),
    /// The outcome.
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

/// Calls into one daemon. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    inbox: mpsc::Sender<Input>,
    shared: Arc<Shared>,
}

struct Shared {
    published: PublishedState,
    keepers: Arc<Keepers>,
    store_reader: StoreReader,
    prober: Arc<Prober>,
    screens: Arc<Screens>,
    read_cursors: Arc<CursorFiles>,
    clients: Arc<Clients>,
    store: Arc<dyn Store>,
    resend: mpsc::Sender<ResendRequest>,
    config: Config,
    next_call: AtomicU64,
    watchers: AtomicU32,
    secrets: Mutex<HashMap<SessionId, Arc<SecretFingerprints>>>,
    cpu_samples: Mutex<HashMap<SessionId, CpuSamples>>,
    attached: Mutex<HashMap<SessionId, u32>>,
}

/// What a handle leads to besides the loop.
pub(super) struct HandleParts {
    pub keepers: Arc<Keepers>,
    pub store_reader: StoreReader,
    pub prober: Arc<Prober>,
    pub clients: Arc<Clients>,
    pub store: Arc<dyn Store>,
    pub resend: mpsc::Sender<ResendRequest>,
}

/// Somebody wants the wakers to bring a message once more.
#[derive(Clone, Copy, Debug)]
pub struct ResendRequest {
    /// Its number.
    pub message: u64,
}

/// News that may wait for a slow door.
const UPDATE_QUEUE: usize = 32;

impl Handle {
    /// A handle on the loop that reads `inbox`.
    pub(super) fn new(inbox: mpsc::Sender<Input>, parts: HandleParts, config: Config) -> Self {
        let shared = Shared {
            published: PublishedState::default(),
            screens: Screens::new(parts.keepers.clone()),
            read_cursors: Arc::default(),
            keepers: parts.keepers,
            store_reader: parts.store_reader,
            prober: parts.prober,
            clients: parts.clients,
            store: parts.store,
            resend: parts.resend,
            config,
            next_call: AtomicU64::new(1),
            watchers: AtomicU32::new(0),
            secrets: Mutex::default(),
            cpu_samples: Mutex::default(),
            attached: Mutex::default(),
        };
        Handle {
            inbox,
            shared: Arc::new(shared),
        }
    }

    /// What everybody may look at.
    pub fn published(&self) -> &PublishedState {
        &self.shared.published
    }

    /// The settings this daemon runs under.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// The keepers, for talking to a terminal directly.
    pub fn keepers(&self) -> &Keepers {
        &self.shared.keepers
    }

    /// What is over, and the texts that nobody keeps in memory.
    pub fn store_reader(&self) -> &StoreReader {
        &self.shared.store_reader
    }

    /// The database, for what the loop does not decide.
    pub fn store(&self) -> &dyn Store {
        &*self.shared.store
    }

    /// The clients through which agents speak.
    pub fn clients(&self) -> &Arc<Clients> {
        &self.shared.clients
    }

    /// A conversation of an agent is connected until the guard is dropped.
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

    /// Which conversations of an agent a waker can resume, as the core is told.
    pub(super) fn resumable(&self, agent: &str) -> Event {
        let wakers = self.config().wakers.iter();
        let kinds = wakers.filter(|waker| waker.is_for(agent));
        let kinds = kinds.filter_map(|waker| waker.kind.client());
        let conversations = kinds.flat_map(|kind| self.clients().conversations(agent, kind));
        Event::Resumable {
            agent: Agent(agent.into()),
            conversations: conversations.collect(),
        }
    }

    /// An agent speaks through this client, over the connection of this name.
    pub fn client_seen(&self, agent: &Agent, client: Client, connection: Option<&str>) {
        if let Some(row) = self.clients().record(&agent.0, client, connection) {
            send_without_waiting(&self.inbox, self.resumable(&agent.0));
            let record = WakerRecord::Client(row, SystemClock.now().wall.0);
            let written = self.store().write_waker_record(record);
            tokio::spawn(async move {
                match written.await {
                    Ok(Ok(())) => {}
                    Ok(Err(fault)) => tracing::warn!("a client could not be noted: {fault}"),
                    Err(_) => tracing::warn!("a client could not be noted: too much is written"),
                }
            });
        }
    }

    /// Has the wakers bring a message once more. `false`: there are none.
    pub async fn resend(&self, message: u64) -> bool {
        let wanted = ResendRequest { message };
        self.shared.resend.send(wanted).await.is_ok()
    }

    /// What was seen of the things that timers wait for.
    pub fn prober(&self) -> &Prober {
        &self.shared.prober
    }

    /// A call that was answered is not there any more.
    pub(super) fn caller_gone(&self, call: CallId) {
        send_without_waiting(&self.inbox, Event::CallerGone { call });
    }

    /// The answer about the end of a session did not reach its caller.
    pub(super) fn answer_lost(&self, session: SessionId) {
        send_without_waiting(&self.inbox, Event::AnswerLost { session });
    }

    /// The screens of the sessions that have a terminal.
    pub fn screens(&self) -> &Arc<Screens> {
        &self.shared.screens
    }

    /// How far the readers of the sessions have read.
    pub fn read_cursors(&self) -> &Arc<CursorFiles> {
        &self.shared.read_cursors
    }

    /// The secrets that a session was given when it was started: they must not be shown.
    pub fn secrets(&self, id: SessionId) -> Arc<SecretFingerprints> {
        let secrets = self.shared.secrets.lock().expect("no holder panics");
        secrets.get(&id).cloned().unwrap_or_default()
    }

    /// Remembers them until the session is forgotten.
    pub(super) fn remember_secrets(&self, id: SessionId, given: Arc<SecretFingerprints>) {
        if !given.is_empty() {
            let mut secrets = self.shared.secrets.lock().expect("no holder panics");
            secrets.insert(id, given);
        }
    }

    /// How busy a session has been since it was looked at before, in percent of one processor.
    pub fn cpu_percent(&self, view: &SessionView, now: &Facts) -> u32 {
        let Now { wall, mono, .. } = SystemClock.now();
        let age = wall.0.saturating_sub(view.state.created.0);
        let began = Mono(mono.0.saturating_sub(age));
        let mut cpu_samples = self.shared.cpu_samples.lock().expect("no holder panics");
        let cpu_samples = cpu_samples
            .entry(view.id)
            .or_insert(CpuSamples::since(began));
        cpu_samples.cpu_percent(mono, now)
    }

    /// What was remembered of a session goes with it.
    pub(super) fn forget(&self, id: SessionId) {
        let shared = &self.shared;
        shared.secrets.lock().expect("no holder panics").remove(&id);
        shared
            .cpu_samples
            .lock()
            .expect("no holder panics")
            .remove(&id);
    }

    /// Makes a call. `launch` goes with [`Request::Run`] and [`Request::Try`].
    pub async fn call(&self, caller: Caller, request: Request, launch: Option<Launch>) -> Pending {
        let id = CallId(self.shared.next_call.fetch_add(1, Ordering::Relaxed));
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
        // Where the loop has ended, the slot is dropped and the call hears that below.
        let _ = self.inbox.send(Input::Call(Box::new(call))).await;
        Pending {
            id,
            inbox: self.inbox.clone(),
            updates,
            outcome,
            open: true,
            carries_messages: false,
        }
    }

    /// Is there for as long as the pending call is held: a session that somebody reads from or
    /// writes to is not inactive.
    pub async fn keep_active(&self, caller: Caller, session: SessionId) -> Pending {
        let request = Request::Join {
            session,
            asking: Asking::Never,
            standby: None,
        };
        self.call(caller, request, None).await
    }

    /// Waits until the engine has heard that the command of a session is over, which its keeper has told
    /// already. However long that takes, it comes, unless the daemon stops; `present`, a call that waits
    /// for the session, is told of that.
    pub async fn wait_until_ended(&self, session: SessionId, present: &mut Pending) {
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

    /// A person sits at a session's terminal until the guard is dropped.
    pub fn attach(&self, id: SessionId) -> AttachGuard {
        let mut attached = self.shared.attached.lock().expect("no holder panics");
        *attached.entry(id).or_default() += 1;
        AttachGuard(self.clone(), id)
    }

    /// Whether a person sits at a session's terminal.
    pub fn is_attached(&self, id: SessionId) -> bool {
        let attached = self.shared.attached.lock().expect("no holder panics");
        attached.contains_key(&id)
    }

    /// Ends the loop. No session is touched.
    pub async fn stop(&self) {
        let _ = self.inbox.send(Input::Stop).await;
    }

    /// Brings something that happened into the loop.
    pub async fn send_event(&self, event: Event) {
        let _ = self.inbox.send(Input::Event(event)).await;
    }

    fn watchers_changed(&self, by: i32) {
        let before = self
            .shared
            .watchers
            .fetch_add(by.cast_unsigned(), Ordering::Relaxed);
        let count = before.wrapping_add(by.cast_unsigned());
        send_without_waiting(&self.inbox, Event::Watchers { count });
    }
}

/// A connection of a conversation.
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

/// A person at a session's terminal.
pub struct AttachGuard(Handle, SessionId);

impl Drop for AttachGuard {
    fn drop(&mut self) {
        let mut attached = self.0.shared.attached.lock().expect("no holder panics");
        if let Some(count) = attached.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                attached.remove(&self.1);
            }
        }
    }
}

/// A person who watches.
pub struct WatcherGuard(Handle);

impl Drop for WatcherGuard {
    fn drop(&mut self) {
        self.0.watchers_changed(-1);
    }
}

/// A call that has not been answered yet. Dropping it ends the wait and touches nothing else.
#[derive(Debug)]
pub struct Pending {
    id: CallId,
    inbox: mpsc::Sender<Input>,
    updates: mpsc::Receiver<CallUpdate>,
    outcome: oneshot::Receiver<Outcome>,
    open: bool,
    /// The answer tells messages, and nobody has said yet that it has been sent.
    carries_messages: bool,
}

impl Pending {
    /// What happens next. After [`Step::Done`] nothing does. `None`: the daemon is stopping.
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

    /// Waits until it is certain that there will be no answer: the daemon stops. Where there was one, that
    /// is never.
    async fn abandoned(&mut self) {
        while self.open {
            if self.next().await.is_none() {
                return;
            }
        }
        std::future::pending().await
    }

    /// The answer, whatever else is said before.
    pub async fn done(mut self) -> Option<Outcome> {
        loop {
            match self.next().await? {
                CallStep::Done(outcome) => return Some(outcome),
                CallStep::Update(_) => {}
            }
        }
    }

    /// The words of the answer have been sent, and every message among them counts as seen.
    pub fn delivered(mut self) {
        if std::mem::take(&mut self.carries_messages) {
            send_without_waiting(&self.inbox, Event::Delivered { call: self.id });
        }
    }

    /// A person interrupted: the session is ended with the call.
    pub fn interrupt(&self) {
        send_without_waiting(&self.inbox, Event::Interrupted { call: self.id });
    }

    /// The way to a person that this call had turned out to lead nowhere.
    pub fn nobody_there(&self) {
        send_without_waiting(&self.inbox, Event::NobodyThere { call: self.id });
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.open || self.carries_messages {
            send_without_waiting(&self.inbox, Event::CallerGone { call: self.id });
        }
    }
}

/// Whether an answer tells a message, which is seen only when the answer has arrived.
fn carries_messages(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Timer(_, why) => *why == Why::Completed,
        Outcome::Messages(messages, _) => !messages.is_empty(),
        _ => false,
    }
}

/// From where one cannot wait: at once where there is room, else from a task that can.
fn send_without_waiting(inbox: &mpsc::Sender<Input>, event: Event) {
    if let Err(mpsc::error::TrySendError::Full(input)) = inbox.try_send(Input::Event(event)) {
        let inbox = inbox.clone();
        tokio::spawn(async move {
            let _ = inbox.send(input).await;
        });
    }
}
