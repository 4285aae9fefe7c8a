//! What everybody may look at without asking the loop: one published view per session and question.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use abide_core::session::{Phase, Session};
use abide_core::{
    Agent, Closing, Containment, Ending, MessageId, Millis, Question, QuestionId, SessionId,
    TimerId, Wall,
};
use tokio::sync::{Notify, broadcast, watch};

use abide_session::facts::Facts;

/// The newest view of everything, and a stream of what changed.
pub struct PublishedState {
    sessions: RwLock<BTreeMap<SessionId, Arc<SessionView>>>,
    questions: RwLock<BTreeMap<QuestionId, Arc<QuestionView>>>,
    changes: broadcast::Sender<Change>,
    questions_changed: watch::Sender<()>,
    /// Sessions that have ended since somebody looked, each as often as it was published.
    ended: Mutex<Vec<SessionId>>,
    any_ended: Notify,
    unread: AtomicBool,
    timers: AtomicUsize,
    storage: Mutex<Option<Arc<str>>>,
}

/// A session as the doors see it.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// Its id.
    pub id: SessionId,
    /// What the core knows.
    pub state: Session,
    /// Where it runs.
    pub cwd: PathBuf,
    /// Whether it has a terminal.
    pub pty: bool,
    /// How its tree is held.
    pub contained_by: Option<Containment>,
    /// Its folder on disk.
    pub folder: PathBuf,
    /// The hard limit, counted from its start.
    pub deadline: Option<Millis>,
    /// What is wrong with its record, as a sentence.
    pub damage: Option<Arc<str>>,
}

impl SessionView {
    /// How it ended, where it has.
    pub fn ending(&self) -> Option<&Ending> {
        match &self.state.phase {
            Phase::Leftover { ending } | Phase::Ended { ending } => Some(ending),
            Phase::Starting | Phase::Running { .. } | Phase::Failed { .. } => None,
        }
    }

    /// When the leader ended, or could not be started.
    pub fn ended_at(&self) -> Option<Wall> {
        match &self.state.phase {
            Phase::Leftover { ending } | Phase::Ended { ending } => {
                Some(Wall(self.state.created.0.saturating_add(ending.duration.0)))
            }
            Phase::Failed { at, .. } => Some(*at),
            Phase::Starting | Phase::Running { .. } => None,
        }
    }

    /// Whether the leader still runs (or is about to).
    pub fn is_running(&self) -> bool {
        matches!(self.state.phase, Phase::Starting | Phase::Running { .. })
    }

    /// Bytes that it is known to have written, in its log or not.
    pub fn bytes(&self) -> u64 {
        let ended = self.ending().map_or(0, |ending| ending.bytes);
        self.state.bytes.max(ended)
    }

    /// Whether an agent may know of it.
    pub fn visible_to(&self, agent: Option<&Agent>) -> bool {
        agent.is_none_or(|agent| *agent == self.state.agent)
    }
}

/// An open question as a person sees it.
#[derive(Clone, Debug)]
pub struct QuestionView {
    /// Its id.
    pub id: QuestionId,
    /// What the core knows.
    pub state: Question,
    /// The command it is about.
    pub command: Arc<str>,
    /// Whose session it is.
    pub agent: Agent,
    /// For how long the command had run when it was asked.
    pub ran: abide_core::Millis,
    /// Its last lines of output, as raw bytes; doors make them safe to show.
    pub last_lines: Vec<Vec<u8>>,
    /// What the kernel knows of it, where it could be asked.
    pub facts: Option<Facts>,
    /// How much of one processor it used just now, in percent.
    pub cpu_percent: u32,
}

/// What changed, for those who follow.
#[derive(Clone, Debug)]
pub enum Change {
    /// Look the session up again.
    Session(SessionId),
    /// A question was put.
    Asked(Arc<QuestionView>),
    /// A question was closed.
    Closed(QuestionId, Closing),
    /// Look the timer up again.
    Timer(TimerId),
    /// A message waits for its agent.
    Message(Agent, MessageId),
    /// Look the message with this number up again: it was seen, or its agent was woken for it.
    MessageUpdated(u64),
}

/// How far a follower may fall behind before it has to look everything up again.
const CHANGES: usize = 1_024;

impl Default for PublishedState {
    fn default() -> Self {
        PublishedState {
            sessions: RwLock::default(),
            questions: RwLock::default(),
            changes: broadcast::channel(CHANGES).0,
            questions_changed: watch::Sender::new(()),
            ended: Mutex::default(),
            any_ended: Notify::new(),
            unread: AtomicBool::new(false),
            timers: AtomicUsize::new(0),
            storage: Mutex::default(),
        }
    }
}

impl PublishedState {
    /// One session.
    pub fn session(&self, id: SessionId) -> Option<Arc<SessionView>> {
        self.sessions
            .read()
            .expect("no holder panics")
            .get(&id)
            .cloned()
    }

    /// All sessions.
    pub fn sessions(&self) -> Vec<Arc<SessionView>> {
        self.sessions
            .read()
            .expect("no holder panics")
            .values()
            .cloned()
            .collect()
    }

    /// One open question.
    pub fn question(&self, id: QuestionId) -> Option<Arc<QuestionView>> {
        self.questions
            .read()
            .expect("no holder panics")
            .get(&id)
            .cloned()
    }

    /// All open questions.
    pub fn questions(&self) -> Vec<Arc<QuestionView>> {
        self.questions
            .read()
            .expect("no holder panics")
            .values()
            .cloned()
            .collect()
    }

    /// Follows whether questions are put or closed from now on, and nothing else.
    pub fn follow_questions(&self) -> watch::Receiver<()> {
        self.questions_changed.subscribe()
    }

    /// Follows what changes from now on.
    pub fn follow(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    pub(super) fn publish(&self, view: SessionView) {
        let is_over = matches!(view.state.phase, Phase::Ended { .. } | Phase::Failed { .. });
        let id = view.id;
        let mut sessions = self.sessions.write().expect("no holder panics");
        sessions.insert(id, Arc::new(view));
        drop(sessions);
        if is_over {
            self.ended.lock().expect("no holder panics").push(id);
            self.any_ended.notify_one();
        }
    }

    /// Tells whoever follows that a session was published or forgotten.
    pub(super) fn session_changed(&self, id: SessionId) {
        let _ = self.changes.send(Change::Session(id));
    }

    /// Waits until a session has ended.
    pub(super) async fn ended(&self) {
        self.any_ended.notified().await;
    }

    /// The sessions that have ended since this was last asked.
    pub(super) fn take_ended(&self) -> Vec<SessionId> {
        std::mem::take(&mut self.ended.lock().expect("no holder panics"))
    }

    pub(super) fn forget(&self, id: SessionId) {
        self.sessions.write().expect("no holder panics").remove(&id);
    }

    /// Shows an open question in lists.
    pub(super) fn add_question(&self, view: Arc<QuestionView>) {
        self.questions
            .write()
            .expect("no holder panics")
            .insert(view.id, view);
    }

    /// Shows it and tells everybody who follows.
    pub(super) fn announce_question(&self, view: Arc<QuestionView>) {
        self.add_question(view.clone());
        let _ = self.changes.send(Change::Asked(view));
        self.questions_changed.send_replace(());
    }

    pub(super) fn close_question(&self, id: QuestionId, closing: Closing) {
        self.questions
            .write()
            .expect("no holder panics")
            .remove(&id);
        let _ = self.changes.send(Change::Closed(id, closing));
        self.questions_changed.send_replace(());
    }

    /// Whether any agent has an unread message.
    pub fn any_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    /// How many timers have not ended.
    pub fn timers_running(&self) -> usize {
        self.timers.load(Ordering::Relaxed)
    }

    pub(super) fn set_counts(&self, any_unread: bool, timers: usize) {
        self.unread.store(any_unread, Ordering::Relaxed);
        self.timers.store(timers, Ordering::Relaxed);
    }

    /// Something is wrong with the database. It is said once in the log, and to everybody who asks how the daemon
    /// is.
    pub(super) fn set_storage_fault(&self, sentence: &str) {
        let mut known = self.storage.lock().expect("no holder panics");
        if known.as_deref() != Some(sentence) {
            tracing::error!("{sentence}");
            *known = Some(sentence.into());
        }
    }

    /// What is wrong with the database.
    pub fn storage_fault(&self) -> Option<Arc<str>> {
        self.storage.lock().expect("no holder panics").clone()
    }

    pub(super) fn timer_changed(&self, id: TimerId) {
        let _ = self.changes.send(Change::Timer(id));
    }

    pub(super) fn message_posted(&self, agent: Agent, id: MessageId) {
        let _ = self.changes.send(Change::Message(agent, id));
    }

    /// Something has become of a message.
    pub fn message_updated(&self, number: u64) {
        let _ = self.changes.send(Change::MessageUpdated(number));
    }
}
