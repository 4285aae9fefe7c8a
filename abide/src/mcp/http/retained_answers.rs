//! Limit on the finished event streams that all HTTP sessions together keep for clients that resume.

use std::collections::VecDeque;
use std::sync::{Mutex, Weak};

use super::event_stream::{EventStream, ReplayBuffer};

/// Limit on the bytes of finished streams of all sessions. The oldest are dropped first.
const TOTAL_LIMIT: usize = 64 << 20;
/// Memory that a stream takes besides its events, about.
const STREAM_BYTES: usize = 1 << 10;

/// Finished streams of all sessions, oldest first.
#[derive(Default)]
pub struct RetainedAnswers(Mutex<Retained>);

#[derive(Default)]
struct Retained {
    streams: VecDeque<Entry>,
    /// Bytes of all entries, including streams that their session has dropped since the last count.
    bytes: usize,
}

struct Entry {
    stream: Weak<EventStream>,
    session: Weak<ReplayBuffer>,
    number: u64,
    bytes: usize,
}

impl RetainedAnswers {
    /// Adds a stream that has ended, and drops the oldest ones beyond the limit.
    pub fn add(
        &self,
        session: Weak<ReplayBuffer>,
        stream: Weak<EventStream>,
        number: u64,
        bytes: usize,
    ) {
        let bytes = bytes + STREAM_BYTES;
        let mut retained = self.0.lock().expect("no holder panics");
        retained.bytes += bytes;
        retained.streams.push_back(Entry {
            stream,
            session,
            number,
            bytes,
        });
        if retained.bytes <= TOTAL_LIMIT {
            return;
        }
        retained
            .streams
            .retain(|entry| entry.stream.strong_count() > 0);
        retained.bytes = retained.streams.iter().map(|entry| entry.bytes).sum();
        let mut dropped = Vec::new();
        while retained.bytes > TOTAL_LIMIT
            && let Some(oldest) = retained.streams.pop_front()
        {
            retained.bytes -= oldest.bytes;
            dropped.push(oldest);
        }
        drop(retained);
        for entry in dropped {
            if let Some(session) = entry.session.upgrade() {
                session.remove(entry.number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rmcp::model::{JsonRpcMessage, RequestId, ServerResult};
    use tokio_util::sync::CancellationToken;

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
