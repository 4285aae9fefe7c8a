//! Event hub: turns engine changes into server-sent events, once for all subscribers. The hub runs only
//! while there are subscribers and for [`GRACE`] afterwards, so that a page that is reloaded can resume
//! from its last event.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use abide_api::{Nothing, Session};
use abide_core::{Agent, Millis, Mono};
use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{Notify, broadcast, watch};

use super::backlog::{EventBacklog, EventCursor, TakeResult};
use super::elsewhere;
use super::publisher::EventPublisher;
use super::sampler::sample;
use crate::http::body::json;
use abide_engine::clock::{Clock, SystemClock, sleep_until};
use abide_engine::secret;
use abide_engine::{Change, Handle};

/// Time for which the hub keeps running after the last subscriber has left.
const GRACE: Millis = Millis::from_secs(60);

/// Entry point for subscribers to the events of one daemon. A channel exists only while the hub runs.
pub struct Hub {
    handle: Handle,
    channel: Mutex<Option<Arc<Channel>>>,
}

/// One run of the hub, from the first subscriber until the hub stops. Event numbers are valid only
/// together with the epoch of their channel.
pub struct Channel {
    epoch: String,
    state: Mutex<ChannelState>,
    new_events: watch::Sender<()>,
    /// Signals the hub task that a subscriber has joined or left.
    subscribers_changed: Notify,
}

#[derive(Default)]
pub struct ChannelState {
    pub backlog: EventBacklog,
    clients: usize,
    /// Number of subscribers that also want session output.
    tails: usize,
    sampling: bool,
}

impl Hub {
    /// Creates a hub without a channel for the daemon behind `handle`.
    pub fn new(handle: Handle) -> Arc<Self> {
        Arc::new(Hub {
            handle,
            channel: Mutex::default(),
        })
    }

    /// Subscribes a client and starts the hub if it does not run. The subscription covers every change
    /// after this call.
    pub fn subscribe(self: &Arc<Self>, tails: bool) -> Subscription {
        let mut open = self.channel.lock().expect("no holder panics");
        let channel = open.get_or_insert_with(|| {
            let channel = Arc::new(Channel {
                epoch: secret::random_hex::<6>(),
                state: Mutex::default(),
                new_events: watch::channel(()).0,
                subscribers_changed: Notify::new(),
            });
            let changes = self.handle.published().follow();
            tokio::spawn(run(self.clone(), channel.clone(), changes));
            tokio::spawn(elsewhere::follow(
                self.handle.clone(),
                Arc::downgrade(&channel),
            ));
            channel
        });
        let channel = channel.clone();
        let mut state = channel.state();
        state.clients += 1;
        state.tails += usize::from(tails);
        if tails && !std::mem::replace(&mut state.sampling, true) {
            tokio::spawn(sample(self.handle.clone(), channel.clone()));
        }
        drop(state);
        channel.subscribers_changed.notify_one();
        Subscription { channel, tails }
    }

    /// Number of current subscribers.
    pub fn clients(&self) -> usize {
        let open = self.channel.lock().expect("no holder panics");
        open.as_ref().map_or(0, |channel| channel.state().clients)
    }

    /// Closes the channel and returns `true`, unless a client has subscribed in the meantime.
    fn close(&self, channel: &Arc<Channel>) -> bool {
        let mut open = self.channel.lock().expect("no holder panics");
        if channel.state().clients > 0 {
            return false;
        }
        *open = None;
        true
    }
}

/// Converts changes to events until there has been no subscriber for [`GRACE`].
async fn run(hub: Arc<Hub>, channel: Arc<Channel>, mut changes: broadcast::Receiver<Change>) {
    let mut publisher = EventPublisher::new(hub.handle.clone(), channel.clone());
    let mut unused_since: Option<Mono> = None;
    loop {
        let clock = SystemClock;
        let end = unused_since.map(|since| since + GRACE);
        tokio::select! {
            change = changes.recv() => match change {
                Ok(change) => publisher.publish(change, &mut changes).await,
                Err(broadcast::error::RecvError::Lagged(_)) => publisher.reset(),
                Err(broadcast::error::RecvError::Closed) => return,
            },
            () = sleep_until(&clock, publisher.flush_deadline()) => publisher.flush(),
            () = channel.subscribers_changed.notified() => {
                let unused = channel.state().clients == 0;
                unused_since = unused.then(|| clock.now().mono);
            }
            () = sleep_until(&clock, end) => {
                if hub.close(&channel) {
                    return;
                }
                unused_since = None;
            }
        }
    }
}

impl Channel {
    pub fn state(&self) -> MutexGuard<'_, ChannelState> {
        self.state.lock().expect("no holder panics")
    }

    /// Publishes an event to subscribers that can see this agent; `None` publishes to all subscribers.
    pub fn send(&self, agent: Option<Agent>, name: &str, fields: &impl Serialize) {
        let mut state = self.state();
        state
            .backlog
            .push(agent, |number| self.event(number, name, fields));
        drop(state);
        self.new_events.send_replace(());
    }

    /// Publishes the state of a session of this agent. Agents get it with its secrets masked.
    pub fn send_session(&self, agent: Agent, session: &Session, masked: &Session) {
        let mut state = self.state();
        state.backlog.push_each(Some(agent), |number| {
            let event = |session: &Session| self.event(number, "session", session);
            let masked = (masked != session).then(|| event(masked));
            (event(session), masked)
        });
        drop(state);
        self.new_events.send_replace(());
    }

    /// Returns `true` while there are subscribers.
    pub fn has_clients(&self) -> bool {
        self.state().clients > 0
    }

    /// Wakes all subscribers.
    pub fn wake(&self) {
        self.new_events.send_replace(());
    }

    /// Returns `true` while at least one subscriber wants session output. Otherwise drops the stored
    /// output and marks the sampler as stopped: the caller must end its loop.
    pub fn wants_output(&self) -> bool {
        let mut state = self.state();
        if state.tails == 0 {
            state.sampling = false;
            state.backlog.retain_outputs(|_| false);
        }
        state.tails > 0
    }

    /// Encodes an event in the server-sent event format.
    pub fn event(&self, number: u64, name: &str, fields: &impl Serialize) -> Bytes {
        let (epoch, data) = (&self.epoch, json(fields));
        format!("id: {epoch}-{number}\nevent: {name}\ndata: {data}\n\n").into()
    }
}

/// Subscription of one client; dropping it unsubscribes the client.
pub struct Subscription {
    channel: Arc<Channel>,
    tails: bool,
}

impl Subscription {
    /// Cursor for a client whose last event id is `last`. The flag is `true` if the client can resume
    /// from there without missing an event; otherwise the cursor is at the newest event.
    pub fn cursor(&self, last: Option<&str>) -> (EventCursor, bool) {
        let state = self.channel.state();
        let number = last
            .and_then(|last| last.split_once('-'))
            .filter(|(epoch, _)| *epoch == self.channel.epoch)
            .and_then(|(_, number)| number.parse().ok())
            .filter(|number| state.backlog.contains(*number));
        let mut cursor = EventCursor::default();
        cursor.tails = self.tails;
        cursor.event = number.unwrap_or_else(|| state.backlog.last());
        (cursor, number.is_some())
    }

    /// Receiver that is notified when there may be new events to take.
    pub fn new_events(&self) -> watch::Receiver<()> {
        self.channel.new_events.subscribe()
    }

    /// Takes the events after the cursor, at most one batch. Adds a `reset` event if some of them are
    /// no longer in the backlog.
    pub fn take(
        &self,
        cursor: &mut EventCursor,
        agent: Option<&Agent>,
        into: &mut VecDeque<Bytes>,
    ) {
        let taken = self.channel.state().backlog.take(cursor, agent, into);
        if taken == TakeResult::Lagged {
            into.push_back(self.reset(*cursor));
        }
    }

    /// Encodes an event for this client alone, with the number at its cursor.
    pub fn event(&self, cursor: EventCursor, name: &str, fields: &impl Serialize) -> Bytes {
        self.channel.event(cursor.event, name, fields)
    }

    /// Encodes the event that tells the client to reload all lists.
    pub fn reset(&self, cursor: EventCursor) -> Bytes {
        self.event(cursor, "reset", &Nothing {})
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.channel.state();
        state.clients -= 1;
        state.tails -= usize::from(self.tails);
        drop(state);
        self.channel.subscribers_changed.notify_one();
    }
}
