//! Conversion of engine changes to events. Several changes of one session, timer or message in a batch
//! become one event with the current state.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use abide_api::{ClosedQuestion, Id, Nothing, QuestionEvent, RemovedSession};
use abide_core::request::Caller;
use abide_core::{Agent, Millis, Mono, QuestionId, SessionId, TimerId};
use serde::Serialize;
use tokio::sync::broadcast;

use super::hub::Channel;
use crate::http::{messages, questions, sessions, timers};
use abide_engine::clock::SystemClock;
use abide_engine::{Change, Handle};

/// Largest number of changes in one batch.
const BATCH: usize = 1_024;
/// Number of timer events within [`TIMER_WINDOW`]. Further changes are replaced by one `timers_changed` event
/// at the end of the span.
const TIMER_EVENT_LIMIT: usize = 200;
const TIMER_WINDOW: Millis = Millis::from_secs(1);

pub struct EventPublisher {
    handle: Handle,
    channel: Arc<Channel>,
    /// Agent of each session: when the session is removed, only its agent and people are told.
    agents: HashMap<SessionId, Agent>,
    /// Agent of each open question that was announced.
    announced: BTreeMap<QuestionId, Agent>,
    /// Number of timer changes since `window_start`.
    timer_changes: usize,
    window_start: Mono,
    /// Set if timers have changed without an event of their own; `timers_changed` is still to be sent.
    timers_pending: bool,
}

impl EventPublisher {
    pub fn new(handle: Handle, channel: Arc<Channel>) -> Self {
        let (agents, announced) = (agents(&handle), open_questions(&handle));
        EventPublisher {
            handle,
            channel,
            agents,
            announced,
            timer_changes: 0,
            window_start: Mono::default(),
            timers_pending: false,
        }
    }

    /// Publishes events for a change and for all changes that are already queued behind it.
    pub async fn publish(&mut self, first: Change, more: &mut broadcast::Receiver<Change>) {
        let mut changes = vec![first];
        while changes.len() < BATCH {
            match more.try_recv() {
                Ok(change) => changes.push(change),
                Err(broadcast::error::TryRecvError::Lagged(_)) => return self.reset(),
                Err(_) => break,
            }
        }
        let mut timers = Vec::new();
        for change in latest_changes(changes) {
            match change {
                Change::Session(id) => self.session(id),
                Change::Timer(id) => timers.push(id),
                Change::Asked(question) => {
                    let details = questions::details(&self.handle, &question).await;
                    let event = QuestionEvent::Open(Box::new(details));
                    self.announced.insert(question.id, question.agent.clone());
                    self.send(Some(question.agent.clone()), "question", &event);
                }
                Change::Closed(id, closing) => {
                    let event = QuestionEvent::Closed(ClosedQuestion {
                        question_id: Id(id),
                        closing: closing.as_str().into(),
                    });
                    // Subscribers do not know this question, so they do not need to know that it is closed.
                    if let Some(agent) = self.announced.remove(&id) {
                        self.send(Some(agent), "question", &event);
                    }
                }
                Change::Message(_, id) => {
                    let number = self.handle.store_reader().message_number(id);
                    self.message(number).await;
                }
                Change::MessageUpdated(number) => self.message(number).await,
            }
        }
        self.timers(timers).await;
    }

    fn session(&mut self, id: SessionId) {
        if let Some(view) = self.handle.published().session(id) {
            self.agents.insert(id, view.state.agent.clone());
            let session = sessions::session_from(&view);
            let masked = sessions::masked(&self.handle, session.clone());
            let agent = view.state.agent.clone();
            self.channel.send_session(agent, &session, &masked);
        } else if let Some(agent) = self.agents.remove(&id) {
            let session_id = Id(id);
            self.send(
                Some(agent),
                "session_removed",
                &RemovedSession { session_id },
            );
        } else {
            // It was published and removed before its first event, but a client may have it from a list.
            self.reset();
        }
    }

    async fn message(&self, number: u64) {
        if let Ok(Some(row)) = self.handle.store_reader().message(number).await
            && !row.in_answer
        {
            let message = messages::message(&self.handle, &row).await;
            let agent = Agent(row.agent.as_str().into());
            self.send(Some(agent), "message", &message);
        }
    }

    async fn timers(&mut self, changed: Vec<TimerId>) {
        if changed.is_empty() {
            return;
        }
        let now = SystemClock.mono();
        if now.since(self.window_start) >= TIMER_WINDOW {
            (self.timer_changes, self.window_start) = (0, now);
        }
        self.timer_changes += changed.len();
        if self.timer_changes > TIMER_EVENT_LIMIT {
            self.timers_pending = true;
            return;
        }
        let reader = self.handle.store_reader();
        let rows = reader.timers_by_id(&changed).await.unwrap_or_default();
        let rows: Vec<_> = rows.into_iter().flatten().collect();
        let all = timers::timer_details(&self.handle, Caller::PERSON, &rows).await;
        for (row, timer) in rows.iter().zip(all) {
            let agent = Agent(row.agent.as_str().into());
            self.send(Some(agent), "timer", &timer);
        }
    }

    /// Time at which `timers_changed` must be sent, if it is pending.
    pub fn flush_deadline(&self) -> Option<Mono> {
        self.timers_pending
            .then(|| self.window_start + TIMER_WINDOW)
    }

    /// Sends the pending `timers_changed` event.
    pub fn flush(&mut self) {
        self.timers_pending = false;
        self.send(None, "timers_changed", &Nothing {});
    }

    /// Tells all subscribers to reload, because changes were lost or cannot be expressed as an event.
    pub fn reset(&mut self) {
        self.agents = agents(&self.handle);
        self.announced = open_questions(&self.handle);
        self.send(None, "reset", &Nothing {});
    }

    fn send(&self, agent: Option<Agent>, name: &str, fields: &impl Serialize) {
        self.channel.send(agent, name, fields);
    }
}

fn agents(handle: &Handle) -> HashMap<SessionId, Agent> {
    let sessions = handle.published().sessions();
    let sessions = sessions.iter();
    sessions
        .map(|view| (view.id, view.state.agent.clone()))
        .collect()
}

fn open_questions(handle: &Handle) -> BTreeMap<QuestionId, Agent> {
    let open = handle.published().questions();
    let open = open.iter();
    open.map(|question| (question.id, question.agent.clone()))
        .collect()
}

/// Drops every change that a later change of the same session, timer or message supersedes.
fn latest_changes(changes: Vec<Change>) -> Vec<Change> {
    let (mut sessions, mut timers) = (HashSet::new(), HashSet::new());
    let mut handled = HashSet::new();
    let mut kept: Vec<Change> = changes
        .into_iter()
        .rev()
        .filter(|change| match change {
            Change::Session(id) => sessions.insert(*id),
            Change::Timer(id) => timers.insert(*id),
            Change::MessageUpdated(number) => handled.insert(*number),
            Change::Asked(_) | Change::Closed(..) | Change::Message(..) => true,
        })
        .collect();
    kept.reverse();
    kept
}
