//! Changes become events. What changed several times at once is told once, as it is then.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use abide_api::{Id, Nothing, QuestionEvent};
use abide_core::request::Caller;
use abide_core::{Agent, Millis, Mono, QuestionId, SessionId, TimerId};
use serde::Serialize;
use tokio::sync::broadcast;

use super::hub::Channel;
use crate::http::{messages, questions, sessions, timers};
use abide_engine::clock::SystemClock;
use abide_engine::store::closing_word;
use abide_engine::{Change, Handle};

/// Changes that are looked at together.
const AT_ONCE: usize = 1_024;
/// Timers that are told one by one within [`SPAN`]; of more it is only said that they changed.
const TIMERS: usize = 200;
const SPAN: Millis = Millis::from_secs(1);

pub struct Teller {
    handle: Handle,
    channel: Arc<Channel>,
    /// Whose the open questions are.
    asked: BTreeMap<QuestionId, Agent>,
    /// Timers that were told since.
    told: usize,
    since: Mono,
    /// More timers have changed than were told.
    owing: bool,
}

impl Teller {
    pub fn new(handle: Handle, channel: Arc<Channel>) -> Self {
        let asked = open_questions(&handle);
        Teller {
            handle,
            channel,
            asked,
            told: 0,
            since: Mono::default(),
            owing: false,
        }
    }

    /// Tells a change and all that have come since.
    pub async fn tell(&mut self, first: Change, more: &mut broadcast::Receiver<Change>) {
        let mut changes = vec![first];
        while changes.len() < AT_ONCE {
            match more.try_recv() {
                Ok(change) => changes.push(change),
                Err(broadcast::error::TryRecvError::Lagged(_)) => return self.lost(),
                Err(_) => break,
            }
        }
        let mut timers = Vec::new();
        for change in newest(changes) {
            match change {
                Change::Session(id) => self.session(id),
                Change::Timer(id) => timers.push(id),
                Change::Asked(question) => {
                    let details = questions::details(&self.handle, &question).await;
                    let event = QuestionEvent::Open(Box::new(details));
                    self.asked.insert(question.id, question.agent.clone());
                    self.send(Some(question.agent.clone()), "question", &event);
                }
                Change::Closed(id, closing) => {
                    let event = QuestionEvent::Closed {
                        question_id: Id(id),
                        closing: closing_word(closing).into(),
                    };
                    // Of one that nobody was told of, nobody needs to hear.
                    if let Some(agent) = self.asked.remove(&id) {
                        self.send(Some(agent), "question", &event);
                    }
                }
                Change::Message(agent, id) => {
                    let reader = self.handle.store_reader();
                    if let Ok(Some(row)) = reader.message(reader.message_number(id))
                        && !row.in_answer
                    {
                        let message = messages::message(&self.handle, &row);
                        self.send(Some(agent), "message", &message);
                    }
                }
                Change::MessageUpdated(number) => {
                    if let Ok(Some(row)) = self.handle.store_reader().message(number)
                        && !row.in_answer
                    {
                        let message = messages::message(&self.handle, &row);
                        let agent = Agent(row.agent.as_str().into());
                        self.send(Some(agent), "message", &message);
                    }
                }
            }
        }
        self.timers(timers).await;
    }

    fn session(&mut self, id: SessionId) {
        match self.handle.published().session(id) {
            Some(view) => {
                let session = sessions::session_of(&view);
                self.send(Some(view.state.agent.clone()), "session", &session);
            }
            // It has been forgotten, and there is no word for that.
            None => self.lost(),
        }
    }

    async fn timers(&mut self, changed: Vec<TimerId>) {
        if changed.is_empty() {
            return;
        }
        let now = SystemClock.mono();
        if now.since(self.since) >= SPAN {
            (self.told, self.since) = (0, now);
        }
        self.told += changed.len();
        if self.told > TIMERS {
            self.owing = true;
            return;
        }
        let reader = self.handle.store_reader();
        let rows: Vec<_> = changed
            .into_iter()
            .filter_map(|id| reader.timer(id).ok().flatten())
            .collect();
        let all = timers::seen(&self.handle, Caller::PERSON, &rows).await;
        for (row, timer) in rows.iter().zip(all) {
            let agent = Agent(row.agent.as_str().into());
            self.send(Some(agent), "timer", &timer);
        }
    }

    /// When it must be said that more timers have changed than were told.
    pub fn owes(&self) -> Option<Mono> {
        self.owing.then(|| self.since + SPAN)
    }

    /// Says it.
    pub fn pay(&mut self) {
        self.owing = false;
        self.send(None, "timers_changed", &Nothing {});
    }

    /// More has happened than can be told.
    pub fn lost(&mut self) {
        self.asked = open_questions(&self.handle);
        self.send(None, "reset", &Nothing {});
    }

    fn send(&self, agent: Option<Agent>, name: &str, fields: &impl Serialize) {
        self.channel.send(agent, name, fields);
    }
}

/// Whose the open questions are.
fn open_questions(handle: &Handle) -> BTreeMap<QuestionId, Agent> {
    let open = handle.published().questions();
    let open = open.iter();
    open.map(|question| (question.id, question.agent.clone()))
        .collect()
}

/// Without those that a later one makes needless.
fn newest(changes: Vec<Change>) -> Vec<Change> {
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
