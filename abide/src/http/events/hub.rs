//! Event hub: server-sent events of one daemon, encoded once for all subscribers. Knows subscribers and the backlog;
//! `feed` finds the events.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use abide_api::{Nothing, Session};
use abide_core::Agent;
use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{Notify, watch};

use super::backlog::{EventBacklog, EventCursor, TakeResult};
use crate::http::problem::json;
use abide_engine::secret;

/// Entry point for subscribers to the events of one daemon. A channel exists only while events are fed to it.
#[derive(Default)]
pub struct Hub(Mutex<Option<Arc<Channel>>>);

/// Events that a subscription is the first to need, so that a task must find them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    /// Changes of sessions, timers, questions and messages.
    Changes,
    /// Output of running sessions.
    Output,
}

/// One run of the hub, from the first subscriber until the hub stops. Event numbers are valid only
/// together with the epoch of their channel.
pub struct Channel {
    epoch: String,
    state: Mutex<ChannelState>,
    new_events: watch::Sender<()>,
    /// Signals the hub task that a subscriber has joined or left.
    pub subscribers_changed: Notify,
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
    /// Subscribes a client. `start` begins to feed a channel what no subscriber needed before; the subscription covers every
    /// change after this call.
    pub fn subscribe(&self, tails: bool, start: impl Fn(&Arc<Channel>, Needed)) -> Subscription {
        let mut open = self.0.lock().expect("no holder panics");
        let channel = open.get_or_insert_with(|| {
            let channel = Arc::new(Channel {
                epoch: secret::random_hex::<6>(),
                state: Mutex::default(),
                new_events: watch::channel(()).0,
                subscribers_changed: Notify::new(),
            });
            start(&channel, Needed::Changes);
            channel
        });
        let channel = channel.clone();
        let mut state = channel.state();
        state.clients += 1;
        state.tails += usize::from(tails);
        if tails && !std::mem::replace(&mut state.sampling, true) {
            start(&channel, Needed::Output);
        }
        drop(state);
        channel.subscribers_changed.notify_one();
        Subscription { channel, tails }
    }

    /// Number of current subscribers.
    pub fn clients(&self) -> usize {
        let open = self.0.lock().expect("no holder panics");
        open.as_ref().map_or(0, |channel| channel.state().clients)
    }

    /// Closes the channel and returns `true`, unless a client has subscribed in the meantime.
    pub fn close(&self, channel: &Arc<Channel>) -> bool {
        let mut open = self.0.lock().expect("no holder panics");
        if channel.has_clients() {
            return false;
        }
        *open = None;
        true
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
