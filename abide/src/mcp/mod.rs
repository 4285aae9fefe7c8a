//! MCP, for agents: both generations of the protocol.
//!
//! `abide mcp` is the [`front()`]: it copies lines between its client and the daemon's socket, and knows just
//! enough of what is said to replay what a daemon that went away has left unanswered. Everything else is
//! [`serve`], inside the daemon; clients that speak HTTP come to [`Http`].

mod ack_on_body_end;
mod ask;
mod batch;
mod call;
mod cancel;
pub(crate) mod client;
mod control;
mod decode;
mod dispatch;
mod front;
mod hello;
mod http;
mod in_flight;
mod kept;
mod limits;
mod lines;
mod message_notifications;
mod other_questions;
mod out;
mod peer;
mod pending;
mod progress;
mod prompt;
mod scan;
mod seal;
mod server;
mod sessions;
mod sse_keepalive;
mod sse_replay;
mod trial;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use abide_core::Agent;
use tokio::net::UnixListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use client::front_of;
pub use front::front;
pub use http::Http;
pub use seal::Seal;
pub use server::{Origin, Way};

use crate::serve::is_owner;
use abide_engine::Handle;
use abide_engine::clock::pause;
use abide_engine::peer::Peer;
use abide_engine::stream::Stream;
use dispatch::{Dispatch, Opening};
use server::Server;

/// Fronts connected at once.
const FRONTS: usize = 1_024;
/// How long to let go where no further connection can be opened.
const BREATH: Duration = Duration::from_millis(100);

/// Serves every front that connects. `seal` closes what clients carry between two rounds of a call.
pub async fn serve(listener: UnixListener, handle: Handle, seal: Arc<Seal>) {
    let places = Arc::new(Semaphore::new(FRONTS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            pause(BREATH).await;
            continue;
        };
        if !is_owner(&stream) {
            continue;
        }
        let Ok(place) = places.clone().try_acquire_owned() else {
            tracing::warn!("{FRONTS} fronts are connected already; one more was refused");
            continue;
        };
        let peer = Peer::of_socket(&stream);
        match stream.into_std().and_then(Stream::new) {
            Ok(stream) => drop(tokio::spawn(converse(
                stream,
                peer,
                handle.clone(),
                seal.clone(),
                place,
            ))),
            Err(e) => tracing::warn!("a front could not be served: {e}"),
        }
    }
}

/// One connection, from its hello to its end.
async fn converse(
    stream: Stream,
    peer: Peer,
    handle: Handle,
    seal: Arc<Seal>,
    _place: OwnedSemaphorePermit,
) {
    let Some((hello, opening)) = Opening::hello(stream).await else {
        tracing::debug!("a connection that did not say hello was closed");
        return;
    };
    let _here = handle.clients().add_connection(&hello.agent, &hello.front);
    if let Some(client) = client::of_a_front(&hello) {
        let agent = Agent(hello.agent.as_str().into());
        handle.client_seen(&agent, client, Some(&hello.front));
    }
    let (agent, conversation) = (
        Agent(hello.agent.as_str().into()),
        client::conversation(&hello),
    );
    let origin = Arc::new(Origin::of_a_front(hello.clone(), peer));
    let server = Server::new(handle, seal);
    server.speaks_in(&agent, &conversation).await;
    Dispatch::new(&opening, &hello, server, origin)
        .run(opening)
        .await;
}
