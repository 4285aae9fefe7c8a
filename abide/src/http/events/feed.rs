//! Tasks that feed the hub while it has subscribers and for [`GRACE`] afterwards, so that a page that is reloaded can resume
//! from its last event.

use std::sync::Arc;

use abide_core::{Millis, Mono};
use tokio::sync::broadcast;

use super::elsewhere;
use super::hub::{Channel, Needed};
use super::publisher::EventPublisher;
use super::sampler::sample;
use crate::http::state::State;
use abide_engine::Change;
use abide_engine::clock::{Clock, SystemClock, sleep_until};

/// Time for which the channel is fed after the last subscriber has left.
const GRACE: Millis = Millis::from_secs(60);

/// Starts the tasks that find these events.
pub fn start(state: &State, channel: &Arc<Channel>, needed: Needed) {
    let handle = state.handle.clone();
    match needed {
        Needed::Changes => {
            let changes = handle.published().follow();
            tokio::spawn(publish_changes(state.clone(), channel.clone(), changes));
            tokio::spawn(elsewhere::follow(handle, Arc::downgrade(channel)));
        }
        Needed::Output => drop(tokio::spawn(sample(handle, channel.clone()))),
    }
}

/// Converts changes to events until there has been no subscriber for [`GRACE`].
async fn publish_changes(
    state: State,
    channel: Arc<Channel>,
    mut changes: broadcast::Receiver<Change>,
) {
    let mut publisher = EventPublisher::new(state.handle.clone(), channel.clone());
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
                unused_since = (!channel.has_clients()).then(|| clock.now().mono);
            }
            () = sleep_until(&clock, end) => {
                if state.hub.close(&channel) {
                    return;
                }
                unused_since = None;
            }
        }
    }
}
