//! Event hub: turns engine changes into server-sent events, once for all subscribers. The hub runs only
//! while there are subscribers and for [`GRACE`] afterwards, so that a page that is reloaded can resume
//! from its last event.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use abide_api::Nothing;
use abide_core::{Agent, Millis, Mono};
use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{Notify, broadcast, watch};

use super::backlog::{Place, Ring, Took};
use super::publisher::Teller;
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
    held: Mutex<Held>,
    news: watch::Sender<()>,
    /// Signals the hub task that a subscriber has joined or left.
    moved: Notify,
}

#[derive(Default)]
pub struct Held {
    pub ring: Ring,
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
    pub fn join(self: &Arc<Self>, tails: bool) -> Seat {
        let mut open = self.channel.lock().expect("no holder panics");
        let channel = open.get_or_insert_with(|| {
            let channel = Arc::new(Channel {
                epoch: secret::random_hex::<6>(),
                held: Mutex::default(),
                news: watch::channel(()).0,
                moved: Notify::new(),
            });
            let changes = self.handle.published().follow();
            tokio::spawn(run(self.clone(), channel.clone(), changes));
            channel
        });
        let channel = channel.clone();
        let mut held = channel.held();
        held.clients += 1;
        held.tails += usize::from(tails);
        if tails && !std::mem::replace(&mut held.sampling, true) {
            tokio::spawn(sample(self.handle.clone(), channel.clone()));
        }
        drop(held);
        channel.moved.notify_one();
        Seat { channel, tails }
    }

    /// Number of current subscribers.
    pub fn clients(&self) -> usize {
        let open = self.channel.lock().expect("no holder panics");
        open.as_ref().map_or(0, |channel| channel.held().clients)
    }

    /// Closes the channel and returns `true`, unless a client has subscribed in the meantime.
    fn close(&self, channel: &Arc<Channel>) -> bool {
        let mut open = self.channel.lock().expect("no holder panics");
        if channel.held().clients > 0 {
            return false;
        }
        *open = None;
        true
    }
}

/// Converts changes to events until there has been no subscriber for [`GRACE`].
async fn run(hub: Arc<Hub>, channel: Arc<Channel>, mut changes: broadcast::Receiver<Change>) {
    let mut teller = Teller::new(hub.handle.clone(), channel.clone());
    let mut alone_since: Option<Mono> = None;
    loop {
        let clock = SystemClock;
        let over = alone_since.map(|since| since + GRACE);
        tokio::select! {
            change = changes.recv() => match change {
                Ok(change) => teller.tell(change, &mut changes).await,
                Err(broadcast::error::RecvError::Lagged(_)) => teller.lost(),
                Err(broadcast::error::RecvError::Closed) => return,
            },
            () = sleep_until(&clock, teller.owes()) => teller.pay(),
            () = channel.moved.notified() => {
                let alone = channel.held().clients == 0;
                alone_since = alone.then(|| clock.now().mono);
            }
            () = sleep_until(&clock, over) => {
                if hub.close(&channel) {
                    return;
                }
                alone_since = None;
            }
        }
    }
}

impl Channel {
    pub fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("no holder panics")
    }

    /// Publishes an event to subscribers that can see this agent; `None` publishes to all subscribers.
    pub fn send(&self, agent: Option<Agent>, name: &str, fields: &impl Serialize) {
        let mut held = self.held();
        held.ring
            .push(agent, |number| self.event(number, name, fields));
        drop(held);
        self.news.send_replace(());
    }

    /// Wakes all subscribers.
    pub fn wake(&self) {
        self.news.send_replace(());
    }

    /// Returns `true` while at least one subscriber wants session output. Otherwise drops the stored
    /// output and marks the sampler as stopped: the caller must end its loop.
    pub fn wants_output(&self) -> bool {
        let mut held = self.held();
        if held.tails == 0 {
            held.sampling = false;
            held.ring.keep_outputs(|_| false);
        }
        held.tails > 0
    }

    /// Encodes an event in the server-sent event format.
    pub fn event(&self, number: u64, name: &str, fields: &impl Serialize) -> Bytes {
        let (epoch, data) = (&self.epoch, json(fields));
        format!("id: {epoch}-{number}\nevent: {name}\ndata: {data}\n\n").into()
    }
}

/// Subscription of one client; dropping it unsubscribes the client.
pub struct Seat {
    channel: Arc<Channel>,
    tails: bool,
}

impl Seat {
    /// Cursor for a client whose last event id is `last`. The flag is `true` if the client can resume
    /// from there without missing an event; otherwise the cursor is at the newest event.
    pub fn place(&self, last: Option<&str>) -> (Place, bool) {
        let held = self.channel.held();
        let number = last
            .and_then(|last| last.split_once('-'))
            .filter(|(epoch, _)| *epoch == self.channel.epoch)
            .and_then(|(_, number)| number.parse().ok())
            .filter(|number| held.ring.remembers(*number));
        let mut place = Place::default();
        place.tails = self.tails;
        place.event = number.unwrap_or_else(|| held.ring.last());
        (place, number.is_some())
    }

    /// Receiver that is notified when there may be new events to take.
    pub fn news(&self) -> watch::Receiver<()> {
        self.channel.news.subscribe()
    }

    /// Takes the events after the cursor, at most one batch. Adds a `reset` event if some of them are
    /// no longer in the backlog.
    pub fn take(&self, place: &mut Place, agent: Option<&Agent>, into: &mut VecDeque<Bytes>) {
        let took = self.channel.held().ring.take(place, agent, into);
        if took == Took::Lost {
            into.push_back(self.reset(*place));
        }
    }

    /// Encodes an event for this client alone, with the number at its cursor.
    pub fn event(&self, place: Place, name: &str, fields: &impl Serialize) -> Bytes {
        self.channel.event(place.event, name, fields)
    }

    /// Encodes the event that tells the client to reload all lists.
    pub fn reset(&self, place: Place) -> Bytes {
        self.event(place, "reset", &Nothing {})
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut held = self.channel.held();
        held.clients -= 1;
        held.tails -= usize::from(self.tails);
        drop(held);
        self.channel.moved.notify_one();
    }
}
