//! The sessions of clients that speak HTTP in the generations up to 2025-11-25. The library keeps
//! them; this stands before it and notes which calls are under
//! way, so that a cancelled one finds the reason. It also bounds how many there are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, GetExtensions, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::streamable_http_server::SessionId;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError,
};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionManager};
use tokio_util::sync::CancellationToken;

use super::batch;
use super::in_flight::InFlight;
use super::sse_replay::SseReplay;

/// Sessions at once. One more takes the place of the one that was quiet for longest.
const SESSIONS: usize = 1_024;
/// A session that nobody used for so long is over; clients seldom say that they leave.
const QUIET: Duration = Duration::from_secs(24 * 60 * 60);

/// All of them.
pub struct Sessions {
    kept: LocalSessionManager,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    sessions: HashMap<SessionId, Session>,
    /// Counts uses.
    uses: u64,
}

struct Session {
    used: u64,
    /// Whether the version that was agreed upon has batches.
    takes_batches: bool,
    lost: CancellationToken,
    calls: HashMap<RequestId, Weak<InFlight>>,
    replay: SseReplay,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum SessionTrouble {
    /// The library says so.
    #[error(transparent)]
    Library(#[from] LocalSessionManagerError),
    /// All of them are at work.
    #[error("{SESSIONS} sessions wait for an answer already")]
    TooMany,
}

impl Default for Sessions {
    fn default() -> Self {
        let mut kept = LocalSessionManager::default();
        kept.session_config.keep_alive = Some(QUIET);
        Sessions {
            kept,
            known: Mutex::default(),
        }
    }
}

impl Known {
    fn used(&mut self, id: &SessionId) -> Option<&mut Session> {
        self.uses += 1;
        let session = self.sessions.get_mut(id)?;
        session.used = self.uses;
        Some(session)
    }

    fn add(&mut self, id: SessionId) {
        self.uses += 1;
        let session = Session {
            used: self.uses,
            takes_batches: false,
            lost: CancellationToken::new(),
            calls: HashMap::new(),
            replay: SseReplay::default(),
        };
        self.sessions.insert(id, session);
    }

    /// The session without a call under way that was used least lately.
    fn quietest(&self) -> Option<SessionId> {
        let quiet = |session: &Session| session.calls.values().all(|note| note.strong_count() == 0);
        self.sessions
            .iter()
            .filter(|(_, session)| quiet(session))
            .min_by_key(|(_, session)| session.used)
            .map(|(id, _)| id.clone())
    }
}

impl Session {
    fn note(&mut self, message: &mut ClientJsonRpcMessage) {
        match message {
            JsonRpcMessage::Request(asked) => {
                self.calls.retain(|_, note| note.strong_count() > 0);
                let note = Arc::new(InFlight::over_http(self.lost.clone()));
                self.calls.insert(asked.id.clone(), Arc::downgrade(&note));
                asked.request.extensions_mut().insert(note);
            }
            JsonRpcMessage::Notification(told) => {
                if let ClientNotification::CancelledNotification(cancelled) = &told.notification
                    && let Some(id) = &cancelled.params.request_id
                    && let Some(note) = self.calls.remove(id).and_then(|note| note.upgrade())
                {
                    note.cancel(cancelled.params.reason.clone());
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
    }
}

impl Sessions {
    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().expect("no holder panics")
    }

    /// Whether this session is of a version that has batches. `None`: there is no such session.
    pub fn takes_batches(&self, id: &str) -> Option<bool> {
        let known = self.known();
        known.sessions.get(id).map(|session| session.takes_batches)
    }

    /// Whether a request under this id, as JSON, is under way in this session.
    pub fn is_asked(&self, session: &str, id: &[u8]) -> bool {
        let Ok(id) = serde_json::from_slice::<RequestId>(id) else {
            return false;
        };
        let known = self.known();
        let session = known.sessions.get(session);
        let earlier = session.and_then(|session| session.calls.get(&id));
        earlier.is_some_and(|earlier| earlier.strong_count() > 0)
    }

    /// Notes which version a session agreed upon.
    fn agreed(&self, id: &SessionId, answer: &ServerJsonRpcMessage) {
        if let JsonRpcMessage::Response(answer) = answer
            && let ServerResult::InitializeResult(agreed) = &answer.result
            && let Some(session) = self.known().used(id)
        {
            session.takes_batches = agreed.protocol_version.as_str() == batch::VERSION;
        }
    }

    fn note(&self, id: &SessionId, message: &mut ClientJsonRpcMessage) {
        if let Some(session) = self.known().used(id) {
            session.note(message);
        }
    }

    /// Recorded streams of a session; empty if there is no such session.
    fn replay(&self, id: &SessionId) -> SseReplay {
        let known = self.known();
        let session = known.sessions.get(id);
        session.map_or_else(SseReplay::default, |session| session.replay.clone())
    }

    async fn make_room(&self) -> Result<(), SessionTrouble> {
        let quietest = {
            let known = self.known();
            if known.sessions.len() < SESSIONS {
                return Ok(());
            }
            known.quietest().ok_or(SessionTrouble::TooMany)?
        };
        self.close_session(&quietest).await
    }
}

impl SessionManager for Sessions {
    type Error = SessionTrouble;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionTrouble> {
        self.make_room().await?;
        let (id, transport) = self.kept.create_session().await?;
        self.known().add(id.clone());
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionTrouble> {
        let answer = self.kept.initialize_session(id, message).await?;
        self.agreed(id, &answer);
        Ok(answer)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionTrouble> {
        self.known().used(id);
        Ok(self.kept.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionTrouble> {
        let closed = self.known().sessions.remove(id);
        if let Some(session) = closed {
            session.lost.cancel();
        }
        Ok(self.kept.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionTrouble> {
        self.note(id, &mut message);
        let replay = self.replay(id);
        Ok(replay.record(self.kept.create_stream(id, message).await?))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<(), SessionTrouble> {
        self.note(id, &mut message);
        Ok(self.kept.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionTrouble> {
        Ok(self.kept.create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionTrouble> {
        Ok(match self.replay(id).after(&last_event_id) {
            Some(rest) => rest.left_stream(),
            None => self.kept.resume(id, last_event_id).await?.right_stream(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quietest_session_makes_room_and_none_that_waits() {
        let mut known = Known::default();
        let [a, b, c]: [SessionId; 3] = ["a".into(), "b".into(), "c".into()];
        for id in [&a, &b, &c] {
            known.add(id.clone());
        }
        let id = RequestId::Number(1);
        let lost = CancellationToken::new();
        let note = Arc::new(InFlight::over_http(lost));
        let session = known.used(&a).unwrap();
        session.calls.insert(id, Arc::downgrade(&note));
        known.used(&b);
        assert_eq!(known.quietest(), Some(c.clone()));
        known.sessions.remove(&c);
        known.used(&b);
        assert_eq!(known.quietest(), Some(b.clone()));
        drop(note);
        assert_eq!(known.quietest(), Some(a));
    }
}
