//! Where events are made, once for all who follow. It works only while somebody does, and for a
//! little while after, so that a page that is reloaded finds its place.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use abide_api::Nothing;
use abide_core::{Agent, Millis, Mono};
use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{Notify, broadcast, watch};

use super::ring::{Place, Ring, Took};
use super::sample::sample;
use super::tell::Teller;
use crate::http::body::json;
use abide_engine::clock::{Clock, SystemClock, sleep_until};
use abide_engine::secret;
use abide_engine::{Change, Handle};

/// How long it works on after the last client has left.
const GRACE: Millis = Millis::from_secs(60);

/// All who follow the events of one daemon.
pub struct Hub {
    handle: Handle,
    channel: Mutex<Option<Arc<Channel>>>,
}

/// One life of the hub. Numbers of events mean nothing beyond it.
pub struct Channel {
    epoch: String,
    held: Mutex<Held>,
    news: watch::Sender<()>,
    /// Somebody has come or gone.
    moved: Notify,
}

#[derive(Default)]
pub struct Held {
    pub ring: Ring,
    clients: usize,
    /// How many of them want to see output.
    tails: usize,
    sampling: bool,
}

impl Hub {
    /// For the daemon behind `handle`.
    pub fn new(handle: Handle) -> Arc<Self> {
        Arc::new(Hub {
            handle,
            channel: Mutex::default(),
        })
    }

    /// Takes a seat among those who follow. Whatever changes after this is heard there.
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

    /// How many follow.
    pub fn clients(&self) -> usize {
        let open = self.channel.lock().expect("no holder panics");
        open.as_ref().map_or(0, |channel| channel.held().clients)
    }

    /// Ends the channel, unless somebody has come meanwhile.
    fn close(&self, channel: &Arc<Channel>) -> bool {
        let mut open = self.channel.lock().expect("no holder panics");
        if channel.held().clients > 0 {
            return false;
        }
        *open = None;
        true
    }
}

/// Makes events of changes until nobody has followed for a while.
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

    /// Sends an event to all who see what this agent has; `None`: to everybody.
    pub fn send(&self, agent: Option<Agent>, name: &str, fields: &impl Serialize) {
        let mut held = self.held();
        held.ring
            .push(agent, |number| self.event(number, name, fields));
        drop(held);
        self.news.send_replace(());
    }

    /// Wakes all who follow.
    pub fn wake(&self) {
        self.news.send_replace(());
    }

    /// Whether anybody still wants to see output. The sampler ends where nobody does.
    pub fn wants_output(&self) -> bool {
        let mut held = self.held();
        if held.tails == 0 {
            held.sampling = false;
            held.ring.keep_outputs(|_| false);
        }
        held.tails > 0
    }

    /// An event as it travels.
    pub fn event(&self, number: u64, name: &str, fields: &impl Serialize) -> Bytes {
        let (epoch, data) = (&self.epoch, json(fields));
        format!("id: {epoch}-{number}\nevent: {name}\ndata: {data}\n\n").into()
    }
}

/// A client's place among those who follow, until it is dropped.
pub struct Seat {
    channel: Arc<Channel>,
    tails: bool,
}

impl Seat {
    /// Where a client goes on that heard `last`, and whether it misses nothing by that.
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

    /// Hears that there is something to take.
    pub fn news(&self) -> watch::Receiver<()> {
        self.channel.news.subscribe()
    }

    /// Takes what has come since the client was here last.
    pub fn take(&self, place: &mut Place, agent: Option<&Agent>, into: &mut VecDeque<Bytes>) {
        let took = self.channel.held().ring.take(place, agent, into);
        if took == Took::Lost {
            into.push_back(self.reset(*place));
        }
    }

    /// An event for this client alone.
    pub fn event(&self, place: Place, name: &str, fields: &impl Serialize) -> Bytes {
        self.channel.event(place.event, name, fields)
    }

    /// Tells the client to look everything up again.
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
