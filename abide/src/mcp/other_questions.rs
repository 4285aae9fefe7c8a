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
use super::origin::{Origin, Transport};
use super::progress::FIRST_DELAY;
use abide_engine::clock::pause;
use abide_engine::{Handle, QuestionView};

/// Questions of one connection that its calls show.
#[derive(Debug, Default)]
pub struct ShownQuestions(Mutex<ShownState>);

#[derive(Debug, Default)]
struct ShownState {
    /// Sessions whose questions are shown by a call, by the number of such calls.
    sessions: HashMap<SessionId, usize>,
    /// Questions to which the client replied that no person is there.
    unanswered: HashSet<QuestionId>,
}

/// Claim on the questions about a session: until it is dropped, only its call shows them.
#[derive(Debug)]
pub struct Claim {
    shown: Arc<ShownQuestions>,
    session: SessionId,
}

impl ShownQuestions {
    /// Claim for a call that waits for the session itself.
    pub fn claim_own(self: &Arc<Self>, session: SessionId) -> Claim {
        self.with(|state| *state.sessions.entry(session).or_default() += 1);
        let shown = self.clone();
        Claim { shown, session }
    }

    /// Claim for another call. `None`: a call shows the question already, or the client could not answer it before.
    fn claim(self: &Arc<Self>, question: &QuestionView) -> Option<Claim> {
        let session = question.state.session();
        let free = |state: &mut ShownState| {
            !state.sessions.contains_key(&session) && !state.unanswered.contains(&question.id)
        };
        self.with(free).then(|| self.claim_own(session))
    }

    /// Notes that the client could not reach a person, so that the question is not shown again. Questions
    /// that are no longer open are forgotten.
    pub fn mark_unanswered(&self, handle: &Handle, question: QuestionId) {
        self.with(|state| {
            let is_open = |id: &QuestionId| handle.published().question(*id).is_some();
            state.unanswered.retain(is_open);
            state.unanswered.insert(question);
        });
    }

    fn with<T>(&self, change: impl FnOnce(&mut ShownState) -> T) -> T {
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
pub enum OtherQuestionEvent {
    /// A question is open, and no other call shows it.
    Open(Arc<QuestionView>, Claim),
    /// The question that was reported last is closed.
    Closed,
}

/// Follower of the open questions about the sessions of one front, on behalf of one call.
pub struct OtherQuestions {
    handle: Handle,
    shown: Arc<ShownQuestions>,
    origin: Arc<Origin>,
    state: FollowState,
}

enum FollowState {
    /// Initial delay: a call that is answered at once shows no question.
    Delay(BoxFuture<'static, ()>),
    Searching(watch::Receiver<()>),
    /// This question has been reported.
    Reported(watch::Receiver<()>, QuestionId),
}

impl OtherQuestions {
    /// Follower for the front of this origin. Over HTTP it finds no questions, because a session does not
    /// record which connection started it.
    pub fn of(handle: Handle, shown: Arc<ShownQuestions>, origin: Arc<Origin>) -> Self {
        OtherQuestions {
            handle,
            shown,
            origin,
            state: FollowState::Delay(Box::pin(pause(FIRST_DELAY))),
        }
    }

    /// Waits for the next event. Cancel-safe.
    pub async fn next(&mut self) -> OtherQuestionEvent {
        loop {
            let changed = match &mut self.state {
                FollowState::Delay(delay) => {
                    delay.await;
                    self.search_again();
                    continue;
                }
                FollowState::Searching(changes) => {
                    changes.borrow_and_update();
                    if let Some((question, claim)) = find(&self.handle, &self.shown, &self.origin) {
                        self.state = FollowState::Reported(changes.clone(), question.id);
                        return OtherQuestionEvent::Open(question, claim);
                    }
                    changes.changed().await
                }
                FollowState::Reported(changes, reported) => {
                    changes.borrow_and_update();
                    if self.handle.published().question(*reported).is_none() {
                        self.search_again();
                        return OtherQuestionEvent::Closed;
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
    pub fn search_again(&mut self) {
        self.state = FollowState::Searching(self.handle.published().follow_questions());
    }
}

/// Oldest question about a session of this front that no call shows.
fn find(
    handle: &Handle,
    shown: &Arc<ShownQuestions>,
    origin: &Origin,
) -> Option<(Arc<QuestionView>, Claim)> {
    let front = match &origin.transport {
        Transport::Front(front) => front.as_str(),
        Transport::Http => return None,
    };
    let mut open = handle.published().questions();
    open.sort_by_key(|question| (question.state.asked, question.id));
    open.into_iter().find_map(|question| {
        let keys = match question.state.held() {
            Some(held) if held.approval.person_only => return None,
            Some(held) => held.keys.clone(),
            None => {
                let view = handle.published().session(question.state.session())?;
                view.state.keys.clone()
            }
        };
        let own = keys.iter().any(|key| front_of(&key.0) == Some(front));
        let claim = own.then(|| shown.claim(&question)).flatten()?;
        Some((question, claim))
    })
}
