//! `GET /v1/events`: a stream of server-sent events. A client that reconnects resumes after its last
//! event while that is in the backlog; otherwise a `reset` event tells the client to reload all lists.
//!
//! The same text is also served over a WebSocket: browsers open at most six HTTP/1.1 connections per
//! host across all tabs, so plain streams in six tabs would block the seventh tab for ever.

mod backlog;
mod elsewhere;
mod feed;
pub mod hub;
mod publisher;
mod sampler;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use abide_api::Hello;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::watch;

use super::body::Query;
use super::problem::Problem;
use super::requester::{self, Requester, login_ends};
use super::state::State;
use abide_engine::WatcherGuard;
use abide_engine::clock::{Clock, SystemClock, pause};
use backlog::EventCursor;
use hub::Subscription;

/// Interval of keep-alive comments on a stream without events.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Reconnect delay for browsers, in milliseconds.
const RETRY: &[u8] = b"retry: 1000\n";
/// Server-sent event comment. Clients ignore it, but it keeps the connection alive.
const KEEP_ALIVE: Bytes = Bytes::from_static(b":\n\n");
/// Largest WebSocket message from a client. Clients have nothing to send here.
const MESSAGE_LIMIT: usize = 4 << 10;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventQuery {
    /// If true, output events of running sessions are sent too.
    #[serde(default)]
    tails: bool,
    /// Id of the last received event, for clients that cannot send `Last-Event-ID`.
    last: Option<String>,
}

/// Streams events from now on, or after the client's last event. A person who holds the stream open
/// counts as available for questions.
pub async fn events(
    Shared(state): Shared<State>,
    requester: Requester,
    headers: HeaderMap,
    Query(EventQuery { tails, last }): Query<EventQuery>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let last = requester::text(&headers, "last-event-id")?.or(last.as_deref());
    let start = |channel: &_, needed| feed::start(&state, channel, needed);
    let subscription = state.hub.subscribe(tails, start);
    let (cursor, resumed) = subscription.cursor(last);
    let mut ready = VecDeque::from([hello(&state, &subscription, cursor)]);
    if last.is_some() && !resumed {
        ready.push_back(subscription.reset(cursor));
    }
    let subscriber = SubscriberStream {
        new_events: subscription.new_events(),
        cursor,
        ready,
        _watcher: requester
            .may_be_a_person()
            .then(|| state.handle.add_watcher()),
        state,
        requester,
        subscription,
    };
    if let Ok(upgrade) = upgrade {
        let upgrade = upgrade
            .max_message_size(MESSAGE_LIMIT)
            .max_frame_size(MESSAGE_LIMIT);
        return Ok(upgrade.on_upgrade(|socket| serve_websocket(socket, subscriber)));
    }
    let events = stream::unfold(subscriber, |mut subscriber| async move {
        let event = subscriber.next().await?;
        Some((Ok::<_, Infallible>(event), subscriber))
    });
    let kind = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((kind, Body::from_stream(events)).into_response())
}

/// Sends every event as one WebSocket message until the stream ends or the client disconnects.
async fn serve_websocket(mut socket: WebSocket, mut subscriber: SubscriberStream) {
    loop {
        tokio::select! {
            event = subscriber.next() => {
                let Some(text) = event.and_then(|event| Utf8Bytes::try_from(event).ok()) else {
                    break;
                };
                if socket.send(Message::Text(text)).await.is_err() {
                    return;
                }
            }
            received = socket.recv() => match received {
                None | Some(Err(_) | Ok(Message::Close(_))) => return,
                Some(Ok(_)) => {}
            },
        }
    }
    let close = CloseFrame {
        code: close_code::NORMAL,
        reason: "the stream has ended".into(),
    };
    // The client may have disconnected already.
    let _ = socket.send(Message::Close(Some(close))).await;
}

/// Encodes the first event of every stream, with the reconnect delay in front.
fn hello(state: &State, subscription: &Subscription, cursor: EventCursor) -> Bytes {
    let fields = Hello {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        started_at: state.daemon.started_at.0,
        now: SystemClock.now().wall.0,
    };
    let mut hello = BytesMut::from(RETRY);
    hello.extend_from_slice(&subscription.event(cursor, "hello", &fields));
    hello.freeze()
}

/// Stream of one client with its cursor. It buffers at most one batch of events; the backlog has the rest.
struct SubscriberStream {
    subscription: Subscription,
    new_events: watch::Receiver<()>,
    cursor: EventCursor,
    ready: VecDeque<Bytes>,
    state: State,
    requester: Requester,
    _watcher: Option<WatcherGuard>,
}

impl SubscriberStream {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            self.new_events.mark_unchanged();
            self.subscription.take(
                &mut self.cursor,
                self.requester.agent.as_ref(),
                &mut self.ready,
            );
            if !self.ready.is_empty() {
                continue;
            }
            tokio::select! {
                new_events = self.new_events.changed() => new_events.ok()?,
                () = pause(HEARTBEAT) => return Some(KEEP_ALIVE),
                () = login_ends(&self.state, &self.requester) => return None,
            }
        }
    }
}
