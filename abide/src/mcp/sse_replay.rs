//! Replay of SSE streams: the events of each answer are recorded, so that a client whose connection broke can
//! resume after the last event it has read. The library forgets an answer once it is sent, read or not.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use futures_util::{Stream, StreamExt, stream};
use rmcp::model::JsonRpcMessage;
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use tokio::sync::watch;

/// Finished streams that are kept per session; a client resumes only recent ones.
const KEPT: usize = 8;
/// Bytes of finished streams that are kept per session.
const BYTES: usize = 4 << 20;
/// Events that are kept per stream. The oldest progress notification is dropped first.
const EVENTS: usize = 32;

/// Recorded streams of one session.
#[derive(Clone, Default)]
pub struct SseReplay(Arc<Mutex<VecDeque<ReplayStream>>>);

struct ReplayStream {
    /// Second part of the ids of its events.
    name: String,
    recording: watch::Receiver<Recording>,
}

/// Events of one stream so far.
#[derive(Default)]
struct Recording {
    /// Each with its number.
    events: VecDeque<(usize, ServerSseMessage)>,
    next: usize,
    bytes: usize,
    over: bool,
}

impl Recording {
    fn add(&mut self, event: ServerSseMessage) {
        if self.events.len() >= EVENTS
            && let Some(old) = self.events.iter().position(|(_, event)| is_passing(event))
        {
            self.events.remove(old);
        }
        self.bytes += size_of(&event);
        self.events.push_back((self.next, event));
        self.next += 1;
    }

    /// First kept event at or after a position, and the position after it.
    fn from(&self, position: usize) -> Option<(ServerSseMessage, usize)> {
        let mut later = self.events.iter().filter(|(number, _)| *number >= position);
        let (number, event) = later.next()?;
        Some((event.clone(), number + 1))
    }

    fn position_after(&self, id: &str) -> usize {
        let is_it = |event: &ServerSseMessage| event.event_id.as_deref() == Some(id);
        let found = self.events.iter().find(|(_, event)| is_it(event));
        found.map_or(0, |(number, _)| number + 1)
    }
}

/// Whether a later event makes it superfluous.
fn is_passing(event: &ServerSseMessage) -> bool {
    let message = event.message.as_deref();
    message.is_none_or(|message| matches!(message, JsonRpcMessage::Notification(_)))
}

/// Size of an answer in bytes; all other events are small.
fn size_of(event: &ServerSseMessage) -> usize {
    match event.message.as_deref() {
        Some(answer @ JsonRpcMessage::Response(_)) => {
            let mut counted = Counted(0);
            // Counting cannot fail.
            let _ = serde_json::to_writer(&mut counted, answer);
            counted.0
        }
        _ => 0,
    }
}

struct Counted(usize);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The stream that an event belongs to: events are called `number/stream`.
fn name_of(event: &str) -> Option<&str> {
    event.split_once('/').map(|(_, name)| name)
}

impl SseReplay {
    /// Records a stream to its end, even if the returned stream, which has the same events, is dropped.
    pub fn record<S: Stream<Item = ServerSseMessage> + Send + 'static>(
        &self,
        stream: S,
    ) -> impl Stream<Item = ServerSseMessage> + Send + Sync + use<S> {
        let (recorder, recording) = watch::channel(Recording::default());
        let (replay, reader) = (self.clone(), recording.clone());
        tokio::spawn(async move {
            let mut stream = std::pin::pin!(stream);
            let mut unnamed = Some(recording);
            while let Some(event) = stream.next().await {
                let name = event.event_id.as_deref().and_then(name_of);
                // Before the client can read it, since it may resume at once.
                if let Some(name) = name
                    && let Some(recording) = unnamed.take()
                {
                    replay.add(name.to_owned(), recording);
                }
                recorder.send_modify(|recording| recording.add(event));
            }
            recorder.send_modify(|recording| recording.over = true);
            replay.trim();
        });
        read(reader, 0)
    }

    /// Events after this one, recorded and still to come. `None`: the stream is not known.
    pub fn after(
        &self,
        event: &str,
    ) -> Option<impl Stream<Item = ServerSseMessage> + Send + Sync + use<>> {
        let name = name_of(event)?;
        let kept = self.0.lock().expect("no holder panics");
        let recording = kept
            .iter()
            .find(|kept| kept.name == name)?
            .recording
            .clone();
        drop(kept);
        let position = recording.borrow().position_after(event);
        Some(read(recording, position))
    }

    fn add(&self, name: String, recording: watch::Receiver<Recording>) {
        let mut kept = self.0.lock().expect("no holder panics");
        kept.push_back(ReplayStream { name, recording });
    }

    /// Drops the oldest finished streams beyond the limits.
    fn trim(&self) {
        let mut kept = self.0.lock().expect("no holder panics");
        let (mut left, mut bytes) = (KEPT, BYTES);
        let mut newest_first: Vec<ReplayStream> = kept.drain(..).rev().collect();
        newest_first.retain(|stream| {
            let recording = stream.recording.borrow();
            if !recording.over {
                return true;
            }
            let fits = left > 0 && recording.bytes <= bytes;
            left = left.saturating_sub(1);
            bytes = bytes.saturating_sub(recording.bytes);
            fits
        });
        kept.extend(newest_first.into_iter().rev());
    }
}

fn read(
    recording: watch::Receiver<Recording>,
    position: usize,
) -> impl Stream<Item = ServerSseMessage> + Send + Sync + 'static {
    stream::unfold((recording, position), async |(mut recording, position)| {
        loop {
            let next = {
                let recording = recording.borrow_and_update();
                match recording.from(position) {
                    None if recording.over => return None,
                    next => next,
                }
            };
            if let Some((event, position)) = next {
                return Some((event, (recording, position)));
            }
            recording.changed().await.ok()?;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    fn event(number: usize, stream: &str) -> ServerSseMessage {
        let mut event = ServerSseMessage::default();
        event.event_id = Some(format!("{number}/{stream}"));
        event
    }

    /// Records a stream with this many events, which ends if `over`.
    fn begun(
        replay: &SseReplay,
        name: &str,
        events: usize,
        over: bool,
    ) -> Option<mpsc::Sender<ServerSseMessage>> {
        let (sender, receiver) = mpsc::channel(2 * EVENTS);
        for number in 0..events {
            sender.try_send(event(number, name)).unwrap();
        }
        drop(
            replay.record(stream::unfold(receiver, async |mut receiver| {
                receiver.recv().await.map(|event| (event, receiver))
            })),
        );
        (!over).then_some(sender)
    }

    async fn ids(stream: impl Stream<Item = ServerSseMessage>) -> Vec<String> {
        stream
            .filter_map(async |event| event.event_id)
            .collect()
            .await
    }

    /// Lets all tasks run until they wait.
    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn resuming_after_the_end_returns_the_rest() {
        let replay = SseReplay::default();
        begun(&replay, "7", 3, true);
        settle().await;
        let rest = ids(replay.after("0/7").unwrap()).await;
        assert_eq!(rest, ["1/7", "2/7"]);
        assert!(ids(replay.after("2/7").unwrap()).await.is_empty());
        assert!(replay.after("0/8").is_none());
        assert!(replay.after("3").is_none());
    }

    #[tokio::test]
    async fn resuming_before_the_end_returns_later_events() {
        let replay = SseReplay::default();
        let sender = begun(&replay, "7", 1, false).unwrap();
        settle().await;
        let rest = tokio::spawn(ids(replay.after("0/7").unwrap()));
        settle().await;
        sender.try_send(event(1, "7")).unwrap();
        drop(sender);
        assert_eq!(rest.await.unwrap(), ["1/7"]);
    }

    #[tokio::test]
    async fn long_stream_keeps_its_last_events() {
        let replay = SseReplay::default();
        begun(&replay, "7", EVENTS + 5, true);
        settle().await;
        let rest = ids(replay.after("0/7").unwrap()).await;
        assert_eq!(rest.len(), EVENTS);
        assert_eq!(rest.first().unwrap(), "5/7");
        let last = ids(replay.after(&format!("{}/7", EVENTS + 3)).unwrap()).await;
        assert_eq!(last, [format!("{}/7", EVENTS + 4)]);
    }

    #[tokio::test]
    async fn unfinished_and_most_recent_streams_are_kept() {
        let replay = SseReplay::default();
        let running = begun(&replay, "running", 1, false);
        for name in 0..=KEPT {
            begun(&replay, &name.to_string(), 2, true);
            settle().await;
        }
        assert!(replay.after("0/running").is_some());
        assert!(replay.after("0/0").is_none());
        assert_eq!(ids(replay.after("0/1").unwrap()).await, ["1/1"]);
        drop(running);
    }
}
