//! Event streams (SSE) of HTTP responses, which carry every message to a client over HTTP.
//!
//! A stream records its events, so that a client of a session whose connection broke can resume after the
//! last event that it has read. Its readers are the bodies of responses. A tool result counts as delivered
//! when a reader has read the stream to its end.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream;
use rmcp::model::{ErrorCode, JsonRpcMessage, ServerJsonRpcMessage};
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::retained_answers::RetainedAnswers;
use crate::mcp::json_line::encode;
use crate::tools::Receipt;
use abide_engine::clock::pause;

/// Limit on events that are kept per stream. The oldest notification is dropped first.
const EVENT_LIMIT: usize = 32;
/// Interval between comments on a silent stream.
const COMMENT_INTERVAL: Duration = Duration::from_secs(15);
/// Delay of the first comment: clients that limit the time to the first byte would give up a silent call.
const FIRST_COMMENT: Duration = Duration::from_millis(250);
/// SSE comment, which readers ignore.
const COMMENT: Bytes = Bytes::from_static(b":\n\n");
/// Milliseconds after which a client whose connection broke should resume.
const RETRY: u32 = 3_000;
/// Number of the session's stream for messages that belong to no request.
const COMMON: u64 = 0;

/// Events of one response, or of a session's stream for messages that belong to no request.
pub struct EventStream {
    /// Position among the streams of a session. `None`: the stream cannot be resumed, and its events have no ids.
    position: Option<ReplayPosition>,
    /// Cancelled when the session has ended, or the client of a single request is gone.
    pub lost: CancellationToken,
    recording: Mutex<Recording>,
    changed: Notify,
}

struct ReplayPosition {
    number: u64,
    replay: Weak<ReplayBuffer>,
}

/// Recorded events of one stream.
#[derive(Default)]
struct Recording {
    events: VecDeque<Event>,
    /// Number of events so far, which is also the number of the last one.
    count: u64,
    bytes: usize,
    /// Answers that are still expected. The stream ends after the last.
    pending: usize,
    readers: usize,
    /// Receipts of results that no reader has read to the end.
    receipts: Vec<Receipt>,
    /// Number of the last event that was read. The common stream has one position for all its readers, since
    /// each of its messages goes to only one of them.
    cursor: u64,
}

struct Event {
    number: u64,
    /// Message as a line of JSON.
    line: Bytes,
    /// The event may be dropped: a later event supersedes it.
    is_notification: bool,
    error: Option<ErrorCode>,
}

impl Recording {
    fn add(&mut self, mut line: Vec<u8>, is_notification: bool, error: Option<ErrorCode>) {
        line.truncate(line.trim_ascii_end().len());
        if self.events.len() >= EVENT_LIMIT
            && let Some(old) = self.events.iter().position(|event| event.is_notification)
            && let Some(old) = self.events.remove(old)
        {
            self.bytes -= old.line.len();
        }
        self.count += 1;
        self.bytes += line.len();
        self.events.push_back(Event {
            number: self.count,
            line: line.into(),
            is_notification,
            error,
        });
    }

    /// First recorded event after this number.
    fn after(&self, number: u64) -> Option<&Event> {
        self.events.iter().find(|event| event.number > number)
    }
}

/// Expected answer on an event stream. Dropping it, after the answer or without one, lets the stream end.
pub struct PendingAnswer(Arc<EventStream>);

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        self.0.change(|recording| recording.pending -= 1);
        if let Some(position) = &self.0.position
            && let Some(replay) = position.replay.upgrade()
            && self.0.is_complete()
        {
            replay.retain(&self.0);
        }
    }
}

impl EventStream {
    /// Stream that cannot be resumed.
    pub fn new(lost: CancellationToken) -> Arc<Self> {
        Self::at(None, lost)
    }

    fn at(position: Option<ReplayPosition>, lost: CancellationToken) -> Arc<Self> {
        Arc::new(EventStream {
            position,
            lost,
            recording: Mutex::default(),
            changed: Notify::new(),
        })
    }

    fn recording(&self) -> MutexGuard<'_, Recording> {
        self.recording.lock().expect("no holder panics")
    }

    /// Changes the recording, and wakes the readers.
    fn change(&self, change: impl FnOnce(&mut Recording)) {
        change(&mut self.recording());
        self.changed.notify_waiters();
    }

    fn is_common(&self) -> bool {
        (self.position.as_ref()).is_some_and(|position| position.number == COMMON)
    }

    /// SSE `id` line of an event; empty if the stream cannot be resumed.
    fn id_line(&self, event: u64) -> String {
        let position = self.position.as_ref();
        position.map_or_else(String::new, |position| {
            format!("id: {event}/{}\n", position.number)
        })
    }

    /// True if both are streams of the same session.
    pub fn shares_session(&self, other: &Self) -> bool {
        match (&self.position, &other.position) {
            (Some(one), Some(other)) => one.replay.ptr_eq(&other.replay),
            _ => false,
        }
    }

    /// Bytes of the recorded events.
    pub fn bytes(&self) -> usize {
        self.recording().bytes
    }

    /// True if a response reads the stream now.
    pub fn is_read(&self) -> bool {
        self.recording().readers > 0
    }

    fn is_complete(&self) -> bool {
        !self.is_common() && self.recording().pending == 0
    }

    /// Keeps the stream open until a request has been answered.
    pub fn expect_answer(self: &Arc<Self>) -> PendingAnswer {
        self.recording().pending += 1;
        PendingAnswer(self.clone())
    }

    /// Sends a message. `false`: the client is gone.
    pub fn send(&self, message: &ServerJsonRpcMessage) -> bool {
        self.send_answer(message, None);
        !self.lost.is_cancelled()
    }

    /// Sends an answer. Its receipt is confirmed when the answer has been read. Without a reader the receipt
    /// is dropped, so that the messages in the result are delivered again.
    pub fn send_answer(&self, message: &ServerJsonRpcMessage, mut receipt: Option<Receipt>) {
        let Ok(line) = encode(message) else {
            return;
        };
        let error = match message {
            JsonRpcMessage::Error(error) => Some(error.error.code),
            _ => None,
        };
        let is_notification = matches!(message, JsonRpcMessage::Notification(_));
        self.change(|recording| {
            recording.add(line, is_notification, error);
            if recording.readers > 0 {
                recording.receipts.extend(receipt.take());
            }
        });
    }

    /// Sends an encoded message.
    #[cfg(test)]
    pub fn send_line(&self, line: Vec<u8>) {
        self.change(|recording| recording.add(line, false, None));
    }

    /// Code and JSON of the first event, if it is an error.
    pub fn first_error(&self) -> Option<(ErrorCode, Bytes)> {
        let recording = self.recording();
        let first = recording.events.front()?;
        Some((first.error?, first.line.clone()))
    }

    /// Reader from the beginning; of the common stream, from where the last reader stopped.
    pub fn read(self: &Arc<Self>) -> EventReader {
        self.read_after(0)
    }

    fn read_after(self: &Arc<Self>, position: u64) -> EventReader {
        self.recording().readers += 1;
        EventReader {
            stream: self.clone(),
            position,
            began: false,
            abandoned: None,
        }
    }
}

/// Reader of a stream.
pub struct EventReader {
    stream: Arc<EventStream>,
    /// Number of the last event that was read; unused on the common stream.
    position: u64,
    began: bool,
    abandoned: Option<DropGuard>,
}

impl EventReader {
    /// Cancels `abandoned` when the reader is dropped.
    pub fn or_cancel(mut self, abandoned: CancellationToken) -> Self {
        self.abandoned = Some(abandoned.drop_guard());
        self
    }

    /// Turns the reader into the body of a response.
    pub fn into_body(self) -> Body {
        Body::from_stream(stream::unfold(self, async |mut reader| {
            let part = reader.next().await?;
            Some((Ok::<_, Infallible>(part), reader))
        }))
    }

    /// Reads the next event, or a comment after some time without one. `None`: the stream is over.
    async fn next(&mut self) -> Option<Bytes> {
        let stream = self.stream.clone();
        let began = std::mem::replace(&mut self.began, true);
        if !began && stream.position.is_some() {
            let position = match stream.is_common() {
                true => stream.recording().cursor,
                false => self.position,
            };
            // An event without data, which tells the client after which event to resume if no other arrives.
            let id = stream.id_line(position);
            return Some(format!("{id}retry: {RETRY}\ndata: \n\n").into());
        }
        let quiet = match began {
            true => COMMENT_INTERVAL,
            false => FIRST_COMMENT,
        };
        loop {
            let mut changed = pin!(stream.changed.notified());
            changed.as_mut().enable();
            if let Poll::Ready(read) = self.take() {
                return read;
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = stream.lost.cancelled() => return None,
                () = pause(quiet) => return Some(COMMENT),
            }
        }
    }

    /// Takes the next event. At the end of the stream, confirms the receipts of the results that were read.
    fn take(&mut self) -> Poll<Option<Bytes>> {
        let stream = &self.stream;
        let mut recording = stream.recording();
        let position = match stream.is_common() {
            true => recording.cursor,
            false => self.position,
        };
        if let Some(event) = recording.after(position) {
            let (number, line) = (event.number, event.line.clone());
            recording.cursor = number;
            self.position = number;
            if stream.position.is_none() {
                recording.events.pop_front();
            }
            let id = stream.id_line(number);
            let event = [id.as_bytes(), b"data: ", &line, b"\n\n"].concat();
            return Poll::Ready(Some(event.into()));
        }
        if stream.is_common() || recording.pending > 0 {
            return Poll::Pending;
        }
        let read = std::mem::take(&mut recording.receipts);
        drop(recording);
        read.into_iter().for_each(Receipt::delivered);
        Poll::Ready(None)
    }
}

impl Drop for EventReader {
    fn drop(&mut self) {
        let mut recording = self.stream.recording();
        recording.readers -= 1;
        let unread = match recording.readers {
            0 => std::mem::take(&mut recording.receipts),
            _ => Vec::new(),
        };
        drop(recording);
        // Unconfirmed receipts: the messages of these results are delivered again.
        drop(unread);
    }
}

/// Streams of one session that can be resumed.
pub struct ReplayBuffer {
    streams: Mutex<Streams>,
    /// Finished streams of all sessions.
    retained: Arc<RetainedAnswers>,
}

#[derive(Default)]
struct Streams {
    /// The common stream, and those that have not ended.
    open: Vec<Arc<EventStream>>,
    /// Number of the next stream.
    next: u64,
}

impl ReplayBuffer {
    /// Replay buffer with the common stream, which is returned as well.
    pub fn new(
        lost: CancellationToken,
        retained: Arc<RetainedAnswers>,
    ) -> (Arc<Self>, Arc<EventStream>) {
        let replay = Arc::new(ReplayBuffer {
            streams: Mutex::default(),
            retained,
        });
        let (common, _) = replay.open(lost);
        (replay, common)
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().expect("no holder panics")
    }

    /// Opens a stream for the answer to one request, which is expected from now on.
    pub fn open(self: &Arc<Self>, lost: CancellationToken) -> (Arc<EventStream>, PendingAnswer) {
        let mut streams = self.streams();
        let position = ReplayPosition {
            number: streams.next,
            replay: Arc::downgrade(self),
        };
        streams.next += 1;
        let stream = EventStream::at(Some(position), lost);
        streams.open.push(stream.clone());
        let pending = stream.expect_answer();
        (stream, pending)
    }

    /// Moves a stream that has ended to the retained ones.
    fn retain(&self, ended: &Arc<EventStream>) {
        let mut streams = self.streams();
        streams.open.retain(|stream| !Arc::ptr_eq(stream, ended));
        self.retained.add(ended.clone());
    }

    /// Reader of the events after the one with this id (`event/stream`), recorded and future ones. `None`:
    /// unknown stream.
    pub fn resume(&self, id: &str) -> Option<EventReader> {
        let (event, number) = id.split_once('/')?;
        let (event, number) = (event.parse().ok()?, number.parse::<u64>().ok()?);
        let is_it = |stream: &&Arc<EventStream>| {
            (stream.position.as_ref()).is_some_and(|position| {
                position.number == number && std::ptr::eq(position.replay.as_ptr(), self)
            })
        };
        let streams = self.streams();
        let open = streams.open.iter().find(is_it).cloned();
        let stream = open.or_else(|| self.retained.find(is_it))?;
        drop(streams);
        {
            let mut recording = stream.recording();
            recording.cursor = recording.cursor.min(event);
        }
        Some(stream.read_after(event))
    }
}

impl Drop for ReplayBuffer {
    fn drop(&mut self) {
        let is_of_another = |stream: &EventStream| {
            (stream.position.as_ref())
                .is_some_and(|position| !std::ptr::eq(position.replay.as_ptr(), self))
        };
        self.retained.keep(is_of_another);
    }
}

#[cfg(test)]
mod tests {
    use super::super::retained_answers::STREAM_LIMIT;
    use super::*;
    use rmcp::model::{
        ProgressNotification, ProgressNotificationParam, ProgressToken, RequestId,
        ServerNotification, ServerResult,
    };

    fn progress(step: u32) -> ServerJsonRpcMessage {
        let token = ProgressToken(RequestId::Number(1));
        let params = ProgressNotificationParam::new(token, step.into());
        let notification = ProgressNotification::new(params);
        JsonRpcMessage::notification(ServerNotification::ProgressNotification(notification))
    }

    fn answer() -> ServerJsonRpcMessage {
        JsonRpcMessage::response(ServerResult::empty(()), RequestId::Number(1))
    }

    fn session() -> (Arc<ReplayBuffer>, Arc<EventStream>) {
        ReplayBuffer::new(CancellationToken::new(), Arc::default())
    }

    /// Opens a stream with this many notifications.
    fn begun(replay: &Arc<ReplayBuffer>, count: u32) -> (Arc<EventStream>, PendingAnswer) {
        let (stream, pending) = replay.open(CancellationToken::new());
        for step in 0..count {
            assert!(stream.send(&progress(step)));
        }
        (stream, pending)
    }

    fn starts(part: Option<Bytes>, begin: &[u8]) -> bool {
        part.is_some_and(|part| part.starts_with(begin))
    }

    /// Ids of the events to the end of the stream, without the first event, which has no data.
    async fn ids(mut reader: EventReader) -> Vec<String> {
        let mut ids = Vec::new();
        while let Some(part) = reader.next().await {
            let part = String::from_utf8(part.to_vec()).unwrap();
            let id = part
                .lines()
                .next()
                .and_then(|line| line.strip_prefix("id: "));
            if !part.contains("retry: ") {
                ids.push(id.expect("an id").to_owned());
            }
        }
        ids
    }

    #[tokio::test]
    async fn resuming_after_the_end_returns_the_rest() {
        let (replay, _common) = session();
        let (stream, pending) = begun(&replay, 2);
        stream.send_answer(&answer(), None);
        drop(pending);
        assert_eq!(ids(stream.read()).await, ["1/1", "2/1", "3/1"]);
        let rest = |id| replay.resume(id).expect("the stream is known");
        assert_eq!(ids(rest("1/1")).await, ["2/1", "3/1"]);
        assert!(ids(rest("3/1")).await.is_empty());
        for unknown in ["0/2", "3", "x/1", ""] {
            assert!(replay.resume(unknown).is_none(), "{unknown}");
        }
    }

    #[tokio::test]
    async fn resuming_before_the_end_returns_later_events() {
        let (replay, _common) = session();
        let (stream, pending) = begun(&replay, 1);
        let mut rest = replay.resume("1/1").expect("the stream is known");
        assert!(starts(rest.next().await, b"id: 1/1\nretry: "));
        stream.send_answer(&answer(), None);
        assert!(starts(rest.next().await, b"id: 2/1\ndata: {"));
        drop(pending);
        assert!(rest.next().await.is_none());
    }

    #[tokio::test]
    async fn long_stream_keeps_its_answer_and_last_notifications() {
        let (replay, _common) = session();
        let (stream, pending) = begun(&replay, 1);
        stream.send_answer(&answer(), None);
        for step in 0..EVENT_LIMIT {
            stream.send(&progress(step as u32));
        }
        drop(pending);
        let kept = ids(stream.read()).await;
        assert_eq!(kept.len(), EVENT_LIMIT);
        assert_eq!(
            kept[..2],
            ["2/1", "4/1"],
            "the answer, and not what was told first"
        );
    }

    #[tokio::test]
    async fn unfinished_and_most_recent_streams_are_kept() {
        let (replay, _common) = session();
        let (_running, pending) = begun(&replay, 1);
        for _ in 0..=STREAM_LIMIT {
            drop(begun(&replay, 2));
        }
        assert!(replay.resume("0/0").is_some(), "the common stream");
        assert!(replay.resume("0/1").is_some(), "it is not finished");
        assert!(replay.resume("0/2").is_none());
        let oldest = replay.resume("1/3").expect("the stream is known");
        assert_eq!(ids(oldest).await, ["2/3"]);
        drop(pending);
    }

    #[tokio::test]
    async fn common_stream_gives_each_event_to_one_reader() {
        let (replay, common) = session();
        let [mut one, mut two] = [common.read(), common.read()];
        assert!(starts(one.next().await, b"id: 0/0\nretry: "));
        common.send(&progress(1));
        common.send(&progress(2));
        assert!(starts(one.next().await, b"id: 1/0\n"));
        assert!(starts(two.next().await, b"id: 1/0\nretry: "));
        assert!(starts(two.next().await, b"id: 2/0\n"));
        let mut again = replay.resume("1/0").expect("the stream is known");
        assert!(again.next().await.is_some());
        assert!(starts(again.next().await, b"id: 2/0\n"));
    }

    #[tokio::test]
    async fn common_stream_ends_with_its_session() {
        let lost = CancellationToken::new();
        let (_replay, common) = ReplayBuffer::new(lost.clone(), Arc::default());
        let mut reader = common.read();
        assert!(reader.next().await.is_some());
        lost.cancel();
        assert!(reader.next().await.is_none());
        assert!(!common.send(&progress(1)));
    }
}
