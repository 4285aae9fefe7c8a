//! HTTP sessions of clients with protocol versions up to 2025-11-25.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use abide_core::Mono;
use tokio_util::sync::CancellationToken;

use super::event_stream::{EventReader, EventStream, PendingAnswer, ReplayBuffer};
use super::retained_answers::RetainedAnswers;
use crate::mcp::client_channel::Sink;
use crate::mcp::dispatch::Connection;
use crate::mcp::server::Server;
use abide_engine::clock::{SystemClock, pause};
use abide_engine::entropy;

/// Limit on sessions. A new one beyond it replaces the idle session that was used least recently.
const SESSION_LIMIT: usize = 1_024;
/// Time without use after which a session is closed; clients seldom close their sessions.
const IDLE_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// All sessions, by id.
#[derive(Default)]
pub struct HttpSessions {
    all: Mutex<HashMap<String, Arc<HttpSession>>>,
    retained: Arc<RetainedAnswers>,
}

/// One session, from `initialize` on.
pub struct HttpSession {
    pub connection: Connection,
    /// The session has ended.
    lost: CancellationToken,
    /// Time of the last use.
    used: Mutex<Mono>,
    replay: Arc<ReplayBuffer>,
    /// Stream of messages that belong to no request.
    pub common: Arc<EventStream>,
}

impl HttpSession {
    fn new(server: Server, retained: Arc<RetainedAnswers>) -> Self {
        let lost = CancellationToken::new();
        let (replay, common) = ReplayBuffer::new(lost.clone(), retained);
        HttpSession {
            connection: Connection::new(server, Sink::Events(common.clone()), 1),
            lost,
            used: Mutex::new(SystemClock.mono()),
            replay,
            common,
        }
    }

    fn used(&self) -> MutexGuard<'_, Mono> {
        self.used.lock().expect("no holder panics")
    }

    /// Opens the stream of the answer to one request.
    pub fn open_stream(&self) -> (Arc<EventStream>, PendingAnswer) {
        self.replay.open(self.lost.clone())
    }

    /// Reader of the events after the one with this id. `None`: unknown stream.
    pub fn resume(&self, event: &str) -> Option<EventReader> {
        self.replay.resume(event)
    }

    /// Time until the session has been unused for too long. `None`: that time has passed.
    fn time_until_idle(&self) -> Option<Duration> {
        if !self.connection.is_idle() || self.common.is_read() {
            return Some(IDLE_LIMIT);
        }
        let unused = Duration::from_millis(SystemClock.mono().since(*self.used()).0);
        IDLE_LIMIT
            .checked_sub(unused)
            .filter(|left| !left.is_zero())
    }
}

impl HttpSessions {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<HttpSession>>> {
        self.all.lock().expect("no holder panics")
    }

    /// Session with this id; the lookup counts as use.
    pub fn find(&self, id: &str) -> Option<Arc<HttpSession>> {
        let session = self.all().get(id).cloned()?;
        *session.used() = SystemClock.mono();
        Some(session)
    }

    /// Opens a session. `None`: the limit is reached, and all sessions have requests in flight.
    pub fn open(self: &Arc<Self>, server: Server) -> Option<(String, Arc<HttpSession>)> {
        let session = Arc::new(HttpSession::new(server, self.retained.clone()));
        let id = format!("{:032x}", u128::from_ne_bytes(entropy::array()));
        let longest_idle = {
            let mut all = self.all();
            let longest_idle = match all.len() < SESSION_LIMIT {
                true => None,
                false => Some(longest_idle(&all)?),
            };
            all.insert(id.clone(), session.clone());
            longest_idle
        };
        if let Some(longest_idle) = longest_idle {
            self.close(&longest_idle);
        }
        let watched = Arc::downgrade(&session);
        tokio::spawn(close_when_idle(Arc::downgrade(self), watched, id.clone()));
        Some((id, session))
    }

    /// Closes a session: its streams end, and its calls stop waiting.
    pub fn close(&self, id: &str) {
        let closed = self.all().remove(id);
        if let Some(session) = closed {
            session.lost.cancel();
        }
    }
}

/// Id of the least recently used session without a request in flight.
fn longest_idle(all: &HashMap<String, Arc<HttpSession>>) -> Option<String> {
    let idle = all
        .iter()
        .filter(|(_, session)| session.connection.is_idle());
    let (id, _) = idle.min_by_key(|(_, session)| *session.used())?;
    Some(id.clone())
}

async fn close_when_idle(sessions: Weak<HttpSessions>, session: Weak<HttpSession>, id: String) {
    while let Some((left, lost)) =
        (session.upgrade()).map(|session| (session.time_until_idle(), session.lost.clone()))
    {
        match left {
            Some(left) => {
                lost.run_until_cancelled(pause(left)).await;
            }
            None => {
                if let Some(sessions) = sessions.upgrade() {
                    sessions.close(&id);
                }
                return;
            }
        }
        if lost.is_cancelled() {
            return;
        }
    }
}
