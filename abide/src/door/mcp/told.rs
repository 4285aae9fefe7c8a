//! What is said to a request that came over HTTP, kept for a client whose connection broke and that comes back for
//! the rest. The library forgets an answer once it has let go of it, whether anybody has read it or not.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use futures_util::{Stream, StreamExt, stream};
use rmcp::model::JsonRpcMessage;
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use tokio::sync::watch;

/// Streams of a session that are kept beyond their end. Whoever comes back for more than that waits for its answers
/// no longer.
const KEPT: usize = 8;
/// Bytes that those may take in all.
const BYTES: usize = 4 << 20;
/// Events of a stream that are kept: of progress, what was made before is of no interest.
const EVENTS: usize = 32;

/// The streams of one session.
#[derive(Clone, Default)]
pub struct Told(Arc<Mutex<VecDeque<Kept>>>);

struct Kept {
    /// What the events of the stream have in common.
    name: String,
    said: watch::Receiver<Said>,
}

/// One stream, so far.
#[derive(Default)]
struct Said {
    /// Each with its number.
    events: VecDeque<(usize, ServerSseMessage)>,
    next: usize,
    bytes: usize,
    over: bool,
}

impl Said {
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

    /// The first event that is kept from a place on, and the place after it.
    fn from(&self, place: usize) -> Option<(ServerSseMessage, usize)> {
        let mut later = self.events.iter().filter(|(number, _)| *number >= place);
        let (number, event) = later.next()?;
        Some((event.clone(), number + 1))
    }

    fn place_after(&self, id: &str) -> usize {
        let is_it = |event: &ServerSseMessage| event.event_id.as_deref() == Some(id);
        let found = self.events.iter().find(|(_, event)| is_it(event));
        found.map_or(0, |(number, _)| number + 1)
    }
}

/// Whether nobody misses it who has what came later.
fn is_passing(event: &ServerSseMessage) -> bool {
    let message = event.message.as_deref();
    message.is_none_or(|message| matches!(message, JsonRpcMessage::Notification(_)))
}

/// Bytes of an answer; all else is small.
fn size_of(event: &ServerSseMessage) -> usize {
    match event.message.as_deref() {
        Some(answer @ JsonRpcMessage::Response(_)) => {
            let mut counted = Counted(0);
            // Nothing that is only counted can fail.
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

impl Told {
    /// Hears a stream to its end, whether or not somebody reads what this returns: the same stream.
    pub fn keep<S: Stream<Item = ServerSseMessage> + Send + 'static>(
        &self,
        stream: S,
    ) -> impl Stream<Item = ServerSseMessage> + Send + Sync + use<S> {
        let (saying, said) = watch::channel(Said::default());
        let (told, reader) = (self.clone(), said.clone());
        tokio::spawn(async move {
            let mut stream = std::pin::pin!(stream);
            let mut unnamed = Some(said);
            while let Some(event) = stream.next().await {
                let name = event.event_id.as_deref().and_then(name_of);
                // Before anybody hears of it: they may come back at once.
                if let Some(name) = name
                    && let Some(said) = unnamed.take()
                {
                    told.add(name.to_owned(), said);
                }
                saying.send_modify(|said| said.add(event));
            }
            saying.send_modify(|said| said.over = true);
            told.trim();
        });
        read(reader, 0)
    }

    /// What was and will be said after an event. `None`: nothing is known of its stream.
    pub fn after(
        &self,
        event: &str,
    ) -> Option<impl Stream<Item = ServerSseMessage> + Send + Sync + use<>> {
        let name = name_of(event)?;
        let kept = self.0.lock().expect("no holder panics");
        let said = kept.iter().find(|kept| kept.name == name)?.said.clone();
        drop(kept);
        let place = said.borrow().place_after(event);
        Some(read(said, place))
    }

    fn add(&self, name: String, said: watch::Receiver<Said>) {
        let mut kept = self.0.lock().expect("no holder panics");
        kept.push_back(Kept { name, said });
    }

    /// Forgets the oldest of those that are over, where there are too many or they are too large.
    fn trim(&self) {
        let mut kept = self.0.lock().expect("no holder panics");
        let (mut left, mut bytes) = (KEPT, BYTES);
        let mut newest_first: Vec<Kept> = kept.drain(..).rev().collect();
        newest_first.retain(|stream| {
            let said = stream.said.borrow();
            if !said.over {
                return true;
            }
            let fits = left > 0 && said.bytes <= bytes;
            left = left.saturating_sub(1);
            bytes = bytes.saturating_sub(said.bytes);
            fits
        });
        kept.extend(newest_first.into_iter().rev());
    }
}

fn read(
    said: watch::Receiver<Said>,
    place: usize,
) -> impl Stream<Item = ServerSseMessage> + Send + Sync + 'static {
    stream::unfold((said, place), async |(mut said, place)| {
        loop {
            let next = {
                let said = said.borrow_and_update();
                match said.from(place) {
                    None if said.over => return None,
                    next => next,
                }
            };
            if let Some((event, place)) = next {
                return Some((event, (said, place)));
            }
            said.changed().await.ok()?;
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

    /// A stream with so many events, and that ends if `over`.
    fn begun(
        told: &Told,
        name: &str,
        events: usize,
        over: bool,
    ) -> Option<mpsc::Sender<ServerSseMessage>> {
        let (say, said) = mpsc::channel(2 * EVENTS);
        for number in 0..events {
            say.try_send(event(number, name)).unwrap();
        }
        drop(told.keep(stream::unfold(said, async |mut said| {
            said.recv().await.map(|event| (event, said))
        })));
        (!over).then_some(say)
    }

    async fn ids(stream: impl Stream<Item = ServerSseMessage>) -> Vec<String> {
        stream
            .filter_map(async |event| event.event_id)
            .collect()
            .await
    }

    /// Lets everybody do what can be done.
    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn whoever_comes_back_after_the_end_is_told_the_rest() {
        let told = Told::default();
        begun(&told, "7", 3, true);
        settle().await;
        let rest = ids(told.after("0/7").unwrap()).await;
        assert_eq!(rest, ["1/7", "2/7"]);
        assert!(ids(told.after("2/7").unwrap()).await.is_empty());
        assert!(told.after("0/8").is_none());
        assert!(told.after("3").is_none());
    }

    #[tokio::test]
    async fn whoever_comes_back_before_the_end_hears_what_follows() {
        let told = Told::default();
        let say = begun(&told, "7", 1, false).unwrap();
        settle().await;
        let rest = tokio::spawn(ids(told.after("0/7").unwrap()));
        settle().await;
        say.try_send(event(1, "7")).unwrap();
        drop(say);
        assert_eq!(rest.await.unwrap(), ["1/7"]);
    }

    #[tokio::test]
    async fn of_a_long_stream_the_end_is_kept() {
        let told = Told::default();
        begun(&told, "7", EVENTS + 5, true);
        settle().await;
        let rest = ids(told.after("0/7").unwrap()).await;
        assert_eq!(rest.len(), EVENTS);
        assert_eq!(rest.first().unwrap(), "5/7");
        let last = ids(told.after(&format!("{}/7", EVENTS + 3)).unwrap()).await;
        assert_eq!(last, [format!("{}/7", EVENTS + 4)]);
    }

    #[tokio::test]
    async fn of_many_streams_those_that_still_run_and_the_last_ones_are_kept() {
        let told = Told::default();
        let running = begun(&told, "running", 1, false);
        for name in 0..=KEPT {
            begun(&told, &name.to_string(), 2, true);
            settle().await;
        }
        assert!(told.after("0/running").is_some());
        assert!(told.after("0/0").is_none());
        assert_eq!(ids(told.after("0/1").unwrap()).await, ["1/1"]);
        drop(running);
    }
}
