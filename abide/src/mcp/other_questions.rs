//! Questions about other sessions of a connection, shown while one of its calls waits. A command whose call
//! has returned is still supervised, so the next waiting call can ask about it.
//!
//! Only up to MCP 2025-11-25, where a question disappears together with the call that shows it. Later
//! versions ask by returning the call, which would block an unrelated call until a person answers.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use abide_core::{QuestionId, SessionId};
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::client::front_of;
use super::progress::FIRST;
use super::server::{Origin, Way};
use abide_engine::clock::pause;
use abide_engine::{Handle, QuestionView};

/// Questions of one connection that its calls show.
#[derive(Debug, Default)]
pub struct Shown(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Sessions whose questions are shown by a call, by the number of such calls.
    sessions: HashMap<SessionId, usize>,
    /// Questions to which the client replied that no person is there.
    unanswered: HashSet<QuestionId>,
}

/// Claim on the questions about a session: until it is dropped, only its call shows them.
#[derive(Debug)]
pub struct Claim {
    shown: Arc<Shown>,
    session: SessionId,
}

impl Shown {
    /// Claim for a call that waits for the session itself.
    pub fn hold(self: &Arc<Self>, session: SessionId) -> Claim {
        self.with(|state| *state.sessions.entry(session).or_default() += 1);
        let shown = self.clone();
        Claim { shown, session }
    }

    /// Claim for another call. `None`: a call shows the question already, or the client could not answer it before.
    fn claim(self: &Arc<Self>, question: &QuestionView) -> Option<Claim> {
        let session = question.state.session;
        let free = |state: &mut State| {
            !state.sessions.contains_key(&session) && !state.unanswered.contains(&question.id)
        };
        self.with(free).then(|| self.hold(session))
    }

    /// Notes that the client could not reach a person, so that the question is not shown again. Questions
    /// that are no longer open are forgotten.
    pub fn unanswered(&self, handle: &Handle, question: QuestionId) {
        self.with(|state| {
            let is_open = |id: &QuestionId| handle.published().question(*id).is_some();
            state.unanswered.retain(is_open);
            state.unanswered.insert(question);
        });
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.shown.with(|state| {
            if let Some(calls) = state.sessions.get_mut(&self.session) {
                *calls -= 1;
                if *calls == 0 {
                    state.sessions.remove(&self.session);
                }
            }
        });
    }
}

/// Event about a question on another session.
pub enum Other {
    /// A question is open, and no other call shows it.
    Open(Arc<QuestionView>, Claim),
    /// The question that was reported last is closed.
    Closed,
}

/// Follower of the open questions about the sessions of one front, on behalf of one call.
pub struct OtherQuestions {
    handle: Handle,
    shown: Arc<Shown>,
    origin: Arc<Origin>,
    state: Following,
}

enum Following {
    /// Initial delay: a call that is answered at once shows no question.
    Pausing(BoxFuture<'static, ()>),
    Looking(watch::Receiver<()>),
    /// This question has been reported.
    Told(watch::Receiver<()>, QuestionId),
}

impl OtherQuestions {
    /// Follower for the front of this origin. Over HTTP it finds no questions, because a session does not
    /// record which connection started it.
    pub fn of(handle: Handle, shown: Arc<Shown>, origin: Arc<Origin>) -> Self {
        OtherQuestions {
            handle,
            shown,
            origin,
            state: Following::Pausing(Box::pin(pause(FIRST))),
        }
    }

    /// Waits for the next event. Cancel-safe.
    pub async fn next(&mut self) -> Other {
        loop {
            let changed = match &mut self.state {
                Following::Pausing(pausing) => {
                    pausing.await;
                    self.look_again();
                    continue;
                }
                Following::Looking(changes) => {
                    changes.borrow_and_update();
                    if let Some((question, claim)) = find(&self.handle, &self.shown, &self.origin) {
                        self.state = Following::Told(changes.clone(), question.id);
                        return Other::Open(question, claim);
                    }
                    changes.changed().await
                }
                Following::Told(changes, told) => {
                    changes.borrow_and_update();
                    if self.handle.published().question(*told).is_none() {
                        self.look_again();
                        return Other::Closed;
                    }
                    changes.changed().await
                }
            };
            if changed.is_err() {
                // The daemon is stopping.
                return std::future::pending().await;
            }
        }
    }

    /// Searches again, because the reported question is no longer shown.
    pub fn look_again(&mut self) {
        self.state = Following::Looking(self.handle.published().follow_questions());
    }
}

/// Oldest question about a session of this front that no call shows.
fn find(
    handle: &Handle,
    shown: &Arc<Shown>,
    origin: &Origin,
) -> Option<(Arc<QuestionView>, Claim)> {
    let front = match &origin.way {
        Way::Front(front) => front.as_str(),
        Way::Http => return None,
    };
    let mut open = handle.published().questions();
    open.sort_by_key(|question| (question.state.asked, question.id));
    open.into_iter().find_map(|question| {
        let view = handle.published().session(question.state.session)?;
        let key = view.state.key.as_ref()?;
        let own = front_of(&key.0) == Some(front);
        let claim = own.then(|| shown.claim(&question)).flatten()?;
        Some((question, claim))
    })
}
