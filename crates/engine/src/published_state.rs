//! Published state: one view per session and open question, which interfaces read without asking the event loop.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use abide_core::session::{Phase, Session};
use abide_core::{
    Agent, Closing, Containment, Ending, Key, MessageId, Millis, Question, QuestionId, Sandboxed,
    SessionId, SessionName, TimerId, Wall,
};
use tokio::sync::{Notify, broadcast, watch};

use crate::clock::{Clock, SystemClock, pause};
use crate::keepers::PortState;
use crate::lock::lock;
use abide_session::facts::Facts;
use abide_session::log::LOG_FOLDER;

/// Newest views, and a stream of changes.
pub struct PublishedState {
    sessions: Mutex<BTreeMap<SessionId, Arc<SessionView>>>,
    /// Sessions by the names of the idempotency keys of their starts.
    keys: Mutex<BTreeMap<(Agent, Key), SessionId>>,
    questions: Mutex<BTreeMap<QuestionId, Arc<QuestionView>>>,
    changes: broadcast::Sender<Change>,
    questions_changed: watch::Sender<()>,
    /// Questions that are asked and shown only after their commit.
    unshown: watch::Sender<BTreeSet<QuestionId>>,
    any_ended: Notify,
    unread: AtomicBool,
    timers: AtomicUsize,
    storage: Mutex<Option<Arc<str>>>,
}

/// Session as the interfaces see it.
#[derive(Clone, Debug)]
pub struct SessionView {
    pub id: SessionId,
    /// State in the core.
    pub state: Session,
    pub cwd: PathBuf,
    /// True if it has a terminal.
    pub pty: bool,
    /// Containment of its process tree.
    pub contained_by: Option<Containment>,
    /// Sandbox of its command, once it was started.
    pub sandboxed: Option<Sandboxed>,
    /// Ports on which its command listens behind a network gate.
    pub ports: BTreeMap<u16, PortState>,
    pub folder: PathBuf,
    /// Hard limit, counted from the start.
    pub deadline: Option<Millis>,
    /// Damage of its record, as a sentence.
    pub damage: Option<Arc<str>>,
    pub name: Option<SessionName>,
    /// Token that all views of this session share with the readers of its log. While others hold it, the log is kept.
    pub readers: Arc<()>,
    /// Calls that wait for the session, read from it or write to it. All views of this session share it.
    pub uses: Arc<SessionUses>,
}

/// Calls that wait for a session, read from it or write to it, which are activity like output.
#[derive(Debug, Default)]
pub struct SessionUses {
    now: AtomicUsize,
    last_ms: AtomicU64,
}

impl SessionUses {
    /// Counts a call until the guard is dropped.
    pub fn begin(self: &Arc<Self>) -> UseGuard {
        self.now.fetch_add(1, Ordering::Relaxed);
        UseGuard(self.clone())
    }

    /// Time of the last use: `now` during one, 0 before the first.
    pub fn last(&self, now: Wall) -> Wall {
        match self.now.load(Ordering::Relaxed) {
            0 => Wall(self.last_ms.load(Ordering::Relaxed)),
            _ => now,
        }
    }
}

/// Call that uses a session.
#[derive(Debug)]
pub struct UseGuard(Arc<SessionUses>);

impl Drop for UseGuard {
    fn drop(&mut self) {
        let now = SystemClock.now().wall.0;
        self.0.last_ms.fetch_max(now, Ordering::Relaxed);
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SessionView {
    /// Ending of the leader.
    pub fn ending(&self) -> Option<&Ending> {
        self.state.phase.ending()
    }

    /// Time at which the leader ended, or could not be started.
    pub fn ended_at(&self) -> Option<Wall> {
        match &self.state.phase {
            Phase::Leftover { ending } | Phase::Ended { ending } => {
                Some(Wall(self.state.created.0.saturating_add(ending.duration.0)))
            }
            Phase::Failed { at, .. } => Some(*at),
            Phase::Starting | Phase::Running { .. } => None,
        }
    }

    /// Time of the last activity. Only for a session whose processes run, the file system is read: the newest
    /// modification time of its log files.
    pub fn last_activity(&self) -> Wall {
        match (self.is_alive(), self.ended_at()) {
            (false, Some(ended)) => ended,
            _ => last_written(&self.folder)
                .unwrap_or(Wall(0))
                .max(self.state.created),
        }
    }

    /// True if the leader runs or is about to.
    pub fn is_running(&self) -> bool {
        matches!(self.state.phase, Phase::Starting | Phase::Running { .. })
    }

    /// True while a process of the session may be alive.
    pub fn is_alive(&self) -> bool {
        !self.state.phase.is_final()
    }

    /// Bytes of output, in the log or dropped.
    pub fn bytes(&self) -> u64 {
        let ended = self.ending().map_or(0, |ending| ending.bytes);
        self.state.bytes.max(ended)
    }

    /// True if an agent may see it; `None` is a person.
    pub fn visible_to(&self, agent: Option<&Agent>) -> bool {
        agent.is_none_or(|agent| *agent == self.state.agent)
    }
}

/// Time of the last output.
fn last_written(folder: &Path) -> Option<Wall> {
    let files = std::fs::read_dir(folder.join(LOG_FOLDER)).ok()?;
    let times = files
        .flatten()
        .filter_map(|file| file.metadata().ok()?.modified().ok());
    let newest = times.max()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(newest.as_millis()).ok().map(Wall)
}

/// Open question as a person sees it.
#[derive(Clone, Debug)]
pub struct QuestionView {
    pub id: QuestionId,
    /// State in the core.
    pub state: Question,
    pub command: Arc<str>,
    pub agent: Agent,
    /// Working directory of the command.
    pub cwd: PathBuf,
    /// Running time of the command when the question was asked.
    pub ran: abide_core::Millis,
    /// Time of the last output, or of the start.
    pub last_output: Wall,
    /// Last lines of output, as raw bytes; interfaces make them safe to print.
    pub last_lines: Vec<Vec<u8>>,
    /// True if the session has a terminal.
    pub pty: bool,
    /// Facts about its processes, if they could be read.
    pub facts: Option<Facts>,
    /// Recent CPU usage, in percent of one CPU.
    pub cpu_percent: u32,
}

/// Change of the published state.
#[derive(Clone, Debug)]
pub enum Change {
    Session(SessionId),
    Asked(Arc<QuestionView>),
    Closed(QuestionId, Closing),
    Timer(TimerId),
    /// A message was posted for this agent.
    Message(Agent, MessageId),
    /// The message with this number changed: it was seen, or a waker has dealt with it.
    MessageUpdated(u64),
}

/// Time for which a list waits for the commits of questions.
const SHOWN_WITHIN: Duration = Duration::from_secs(1);

/// Changes that a follower may lag behind before it has to read everything again.
const CHANGES: usize = 1_024;

impl Default for PublishedState {
    fn default() -> Self {
        PublishedState {
            sessions: Mutex::default(),
            keys: Mutex::default(),
            questions: Mutex::default(),
            changes: broadcast::channel(CHANGES).0,
            questions_changed: watch::Sender::new(()),
            unshown: watch::Sender::default(),
            any_ended: Notify::new(),
            unread: AtomicBool::new(false),
            timers: AtomicUsize::new(0),
            storage: Mutex::default(),
        }
    }
}

impl PublishedState {
    pub fn session(&self, id: SessionId) -> Option<Arc<SessionView>> {
        lock(&self.sessions).get(&id).cloned()
    }

    pub fn sessions(&self) -> Vec<Arc<SessionView>> {
        lock(&self.sessions).values().cloned().collect()
    }

    /// Session that this command of an agent has, or will have if a person approves it, by the idempotency key of its
    /// start.
    pub fn session_under_key(&self, agent: &Agent, key: &Key, command: &str) -> Option<SessionId> {
        let started = lock(&self.keys).get(&(agent.clone(), key.name())).copied();
        if let Some(view) = started.and_then(|id| self.session(id)) {
            let is_same = key.repeats(&view.state.keys, &view.state.command, command);
            return is_same.then_some(view.id);
        }
        let questions = lock(&self.questions);
        let mut held = questions.values().filter(|question| {
            question.state.held().is_some_and(|held| {
                held.agent == *agent && key.repeats(&held.keys, &held.command, command)
            })
        });
        held.next().map(|question| question.state.session())
    }

    /// Returns whether a session is a command of this agent that waits for the answer of a person. `None`: of any agent.
    pub fn is_held(&self, session: SessionId, agent: Option<&Agent>) -> bool {
        let questions = lock(&self.questions);
        questions.values().any(|question| {
            let held = question.state.held();
            let own = held.is_some_and(|held| agent.is_none_or(|agent| *agent == held.agent));
            own && question.state.session() == session
        })
    }

    /// True if a session is here, or a command that will be this session waits here for the answer of a person.
    pub fn has(&self, session: SessionId) -> bool {
        self.session(session).is_some() || self.is_held(session, None)
    }

    pub fn question(&self, id: QuestionId) -> Option<Arc<QuestionView>> {
        lock(&self.questions).get(&id).cloned()
    }

    /// All open questions.
    pub fn questions(&self) -> Vec<Arc<QuestionView>> {
        lock(&self.questions).values().cloned().collect()
    }

    /// Follows only if questions are asked or closed.
    pub fn follow_questions(&self) -> watch::Receiver<()> {
        self.questions_changed.subscribe()
    }

    /// Follows all changes from now on.
    pub fn follow(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// Publishes a session, and notifies followers. It keeps the name that it was given since it was first published.
    pub(super) fn publish(&self, mut view: SessionView) {
        let (id, is_over) = (view.id, !view.is_alive());
        let mut sessions = lock(&self.sessions);
        if let Some(before) = sessions.get(&id) {
            view.name.clone_from(&before.name);
            view.readers = before.readers.clone();
            view.uses = before.uses.clone();
        } else if !view.state.keys.is_empty() {
            let names = view
                .state
                .keys
                .iter()
                .map(|key| (view.state.agent.clone(), key.name()));
            lock(&self.keys).extend(names.map(|name| (name, id)));
        }
        sessions.insert(id, Arc::new(view));
        if is_over {
            self.any_ended.notify_one();
        }
        drop(sessions);
        self.session_changed(id);
    }

    /// Gives a session another name, or none, and notifies followers.
    pub(super) fn rename(&self, id: SessionId, name: Option<SessionName>) {
        let mut sessions = lock(&self.sessions);
        if let Some(view) = sessions.get_mut(&id) {
            Arc::make_mut(view).name = name;
        }
        drop(sessions);
        self.session_changed(id);
    }

    /// Notifies followers that a session was published, renamed or removed.
    fn session_changed(&self, id: SessionId) {
        let _ = self.changes.send(Change::Session(id));
    }

    /// Waits until a session has ended.
    pub(super) async fn ended(&self) {
        self.any_ended.notified().await;
    }

    /// True if a view of this session is in use, be it an older one, or its log is being read.
    pub(super) fn is_in_use(&self, id: SessionId) -> bool {
        lock(&self.sessions)
            .get(&id)
            .is_some_and(|view| Arc::strong_count(view) > 1 || Arc::strong_count(&view.readers) > 1)
    }

    pub(super) fn forget(&self, id: SessionId) {
        let Some(view) = lock(&self.sessions).remove(&id) else {
            return;
        };
        let mut keys = lock(&self.keys);
        for key in &view.state.keys {
            let name = (view.state.agent.clone(), key.name());
            if keys.get(&name) == Some(&id) {
                keys.remove(&name);
            }
        }
        drop(keys);
        self.session_changed(id);
    }

    /// Notes that a question will be shown after its commit.
    pub(super) fn question_asked(&self, id: QuestionId) {
        self.unshown.send_if_modified(|unshown| unshown.insert(id));
    }

    /// Notes that a question is shown, or was closed before that.
    pub(super) fn question_shown(&self, id: QuestionId) {
        self.unshown.send_if_modified(|unshown| unshown.remove(&id));
    }

    /// Waits until the questions are shown that are asked by now, since a result may tell of one before its commit.
    pub async fn asked_questions_shown(&self) {
        let mut unshown = self.unshown.subscribe();
        let asked = unshown.borrow_and_update().clone();
        tokio::select! {
            biased;
            _ = unshown.wait_for(|unshown| unshown.is_disjoint(&asked)) => {}
            () = pause(SHOWN_WITHIN) => {}
        }
    }

    /// Adds an open question to lists.
    pub(super) fn add_question(&self, view: Arc<QuestionView>) {
        lock(&self.questions).insert(view.id, view);
    }

    /// Adds a question and notifies all followers.
    pub(super) fn announce_question(&self, view: Arc<QuestionView>) {
        self.add_question(view.clone());
        let _ = self.changes.send(Change::Asked(view));
        self.questions_changed.send_replace(());
    }

    pub(super) fn close_question(&self, id: QuestionId, closing: Closing) {
        lock(&self.questions).remove(&id);
        let _ = self.changes.send(Change::Closed(id, closing));
        self.questions_changed.send_replace(());
    }

    /// True if any agent may have an unread message, durable or not: whether there is one for an agent is for the
    /// loop to say.
    pub fn any_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    /// Number of timers that have not ended.
    pub fn timers_running(&self) -> usize {
        self.timers.load(Ordering::Relaxed)
    }

    pub(super) fn set_any_unread(&self, any_unread: bool) {
        self.unread.store(any_unread, Ordering::Relaxed);
    }

    pub(super) fn set_timers_running(&self, timers: usize) {
        self.timers.store(timers, Ordering::Relaxed);
    }

    /// Sets the fault of the database. It is logged once and shown in the status.
    pub(super) fn set_storage_fault(&self, sentence: &str) {
        let mut known = lock(&self.storage);
        if known.as_deref() != Some(sentence) {
            tracing::error!("{sentence}");
            *known = Some(sentence.into());
        }
    }

    /// Fault of the database, as a sentence.
    pub fn storage_fault(&self) -> Option<Arc<str>> {
        lock(&self.storage).clone()
    }

    pub(super) fn timer_changed(&self, id: TimerId) {
        let _ = self.changes.send(Change::Timer(id));
    }

    pub(super) fn message_posted(&self, agent: Agent, id: MessageId) {
        let _ = self.changes.send(Change::Message(agent, id));
    }

    /// Notifies followers that a message changed.
    pub fn message_updated(&self, number: u64) {
        let _ = self.changes.send(Change::MessageUpdated(number));
    }
}

#[cfg(test)]
impl SessionView {
    /// Session that the agent `ann` has left running, made at this time.
    pub fn of_test(id: SessionId, created: Wall, phase: Phase) -> Self {
        SessionView {
            id,
            state: Session {
                agent: Agent("ann".into()),
                conversation: None,
                command: "serve".into(),
                keys: Vec::new(),
                started_by: abide_core::session::StartedBy::Terminal,
                created,
                idle: None,
                inactivity: None,
                unasked_until: abide_core::Mono::default(),
                bytes: 0,
                unattended: false,
                interrupted: false,
                end_heard: None,
                phase,
            },
            cwd: "/".into(),
            pty: false,
            damage: None,
            name: None,
            contained_by: None,
            sandboxed: None,
            ports: BTreeMap::new(),
            folder: "/nonexistent".into(),
            deadline: None,
            readers: Arc::default(),
            uses: Arc::default(),
        }
    }

    /// The same session, ended after this time.
    pub fn ended_after(self, duration: Millis) -> Self {
        let ending = Ending {
            exit: Some(abide_core::Exit::Code(1)),
            end: abide_core::End::Exited,
            duration,
            bytes: 0,
            dropped: 0,
        };
        SessionView::of_test(self.id, self.state.created, Phase::Ended { ending })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_is_in_use_while_an_older_view_or_its_log_is_read() {
        let published = PublishedState::default();
        let id = SessionId::from_bits(1);
        let view = || SessionView::of_test(id, Wall(0), Phase::Starting);
        published.publish(view());
        assert!(!published.is_in_use(id));
        let older = published.session(id).expect("a session");
        published.publish(view().ended_after(Millis(1)));
        assert!(published.is_in_use(id), "it was opened before the end");
        drop(older);
        assert!(!published.is_in_use(id));
        let log = published.session(id).map(|view| view.readers.clone());
        assert!(published.is_in_use(id), "its log is being read");
        drop(log);
        let newest = published.session(id);
        assert!(published.is_in_use(id));
        drop(newest);
        assert!(!published.is_in_use(id));
    }
}
