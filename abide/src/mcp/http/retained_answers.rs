//! Finished event streams of all HTTP sessions, kept for clients that resume.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use super::event_stream::EventStream;

/// Limit on streams per session; a client resumes only recent ones.
pub const STREAM_LIMIT: usize = 8;
/// Limit on the bytes of all streams. The oldest are dropped first.
const TOTAL_LIMIT: usize = 64 << 20;
/// Memory that a stream takes besides its events, about.
const STREAM_BYTES: usize = 1 << 10;

/// Finished streams of all sessions, oldest first. A client that reads one that is dropped reads it to its end.
#[derive(Default)]
pub struct RetainedAnswers(Mutex<VecDeque<Arc<EventStream>>>);

impl RetainedAnswers {
    fn streams(&self) -> MutexGuard<'_, VecDeque<Arc<EventStream>>> {
        self.0.lock().expect("no holder panics")
    }

    /// Adds a stream, and drops the oldest ones beyond the limits.
    pub fn add(&self, ended: Arc<EventStream>) {
        let mut streams = self.streams();
        let of_session = |stream: &Arc<EventStream>| stream.shares_session(&ended);
        if streams.iter().filter(|stream| of_session(stream)).count() >= STREAM_LIMIT
            && let Some(oldest) = streams.iter().position(of_session)
        {
            streams.remove(oldest);
        }
        streams.push_back(ended);
        let size = |stream: &Arc<EventStream>| stream.bytes() + STREAM_BYTES;
        let mut total: usize = streams.iter().map(size).sum();
        while total > TOTAL_LIMIT
            && let Some(oldest) = streams.pop_front()
        {
            total -= size(&oldest);
        }
    }

    /// Stream of which this is true.
    pub fn find(&self, is_it: impl Fn(&&Arc<EventStream>) -> bool) -> Option<Arc<EventStream>> {
        self.streams().iter().find(is_it).cloned()
    }

    /// Keeps only the streams of which this is true.
    pub fn keep(&self, is_kept: impl Fn(&EventStream) -> bool) {
        self.streams().retain(|stream| is_kept(stream));
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{JsonRpcMessage, RequestId, ServerResult};
    use tokio_util::sync::CancellationToken;

    use super::super::event_stream::ReplayBuffer;
    use super::*;

    /// Answers one request with this many bytes, on stream 1 of a new session.
    fn answered(session: &Arc<ReplayBuffer>, bytes: usize) {
        let (stream, pending) = session.open(CancellationToken::new());
        stream.send_line(vec![b'x'; bytes]);
        drop(pending);
    }

    #[test]
    fn sessions_together_keep_no_more_than_the_total_limit() {
        let all = Arc::new(RetainedAnswers::default());
        let open = || ReplayBuffer::new(CancellationToken::new(), all.clone()).0;
        let sessions: Vec<_> = (0..40).map(|_| open()).collect();
        for session in &sessions {
            answered(session, 2 << 20);
        }
        let kept = |session: &Arc<ReplayBuffer>| session.resume("0/1").is_some();
        assert!(!kept(&sessions[0]), "the oldest answer is dropped");
        assert_eq!(sessions.iter().filter(|session| kept(session)).count(), 31);
        assert!(kept(&sessions[39]), "the newest answer is kept");
        assert!(sessions[0].resume("0/0").is_some(), "the session goes on");
    }

    #[test]
    fn streams_that_sessions_have_dropped_do_not_count() {
        let all = Arc::new(RetainedAnswers::default());
        let open = || ReplayBuffer::new(CancellationToken::new(), all.clone()).0;
        let first = open();
        answered(&first, 1 << 20);
        for _ in 0..100 {
            answered(&open(), 2 << 20);
        }
        assert!(first.resume("0/1").is_some(), "only its own bytes are kept");
    }

    #[test]
    fn stream_without_answer_is_not_dropped() {
        let all = Arc::new(RetainedAnswers::default());
        let (session, _common) = ReplayBuffer::new(CancellationToken::new(), all.clone());
        let (stream, pending) = session.open(CancellationToken::new());
        let empty = JsonRpcMessage::response(ServerResult::empty(()), RequestId::Number(1));
        stream.send_answer(&empty, None);
        let (others, _) = ReplayBuffer::new(CancellationToken::new(), all);
        for _ in 0..40 {
            answered(&others, 4 << 20);
        }
        assert!(session.resume("0/1").is_some());
        drop(pending);
    }
}
