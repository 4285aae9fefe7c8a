//! `GET /v1/events`: a stream of server-sent events. A client that reconnects resumes after its last
//! event while that is in the backlog; otherwise a `reset` event tells the client to reload all lists.
//!
//! The same text is also served over a WebSocket: browsers open at most six HTTP/1.1 connections per
//! host across all tabs, so plain streams in six tabs would block the seventh tab for ever.

mod backlog;
mod hub;
mod publisher;
mod sampler;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use abide_api::Hello;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Query, State as Shared};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::watch;

pub use hub::Hub;

use super::body::parse_query;
use super::problem::Problem;
use super::requester::{self, Requester};
use super::{State, login_ends};
use abide_engine::WatcherGuard;
use abide_engine::clock::{Clock, SystemClock, pause};
use backlog::Place;
use hub::Seat;

/// Interval of keep-alive comments on a stream without events.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Reconnect delay for browsers, in milliseconds.
const RETRY: &[u8] = b"retry: 1000\n";
/// Server-sent event comment. Clients ignore it, but it keeps the connection alive.
const ALIVE: Bytes = Bytes::from_static(b":\n\n");
/// Largest WebSocket message from a client. Clients have nothing to send here.
const MESSAGE_LIMIT: usize = 4 << 10;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
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
    wanted: Result<Query<Wanted>, QueryRejection>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let Wanted { tails, last } = parse_query(wanted)?;
    let last = requester::text(&headers, "last-event-id")?.or(last.as_deref());
    let seat = state.hub.join(tails);
    let (place, resumed) = seat.place(last);
    let mut ready = VecDeque::from([hello(&state, &seat, place)]);
    if last.is_some() && !resumed {
        ready.push_back(seat.reset(place));
    }
    let following = Following {
        news: seat.news(),
        place,
        ready,
        _watcher: requester
            .may_be_a_person()
            .then(|| state.handle.add_watcher()),
        state,
        requester,
        seat,
    };
    if let Ok(upgrade) = upgrade {
        let upgrade = upgrade
            .max_message_size(MESSAGE_LIMIT)
            .max_frame_size(MESSAGE_LIMIT);
        return Ok(upgrade.on_upgrade(|socket| speak(socket, following)));
    }
    let events = stream::unfold(following, |mut following| async move {
        let event = following.next().await?;
        Some((Ok::<_, Infallible>(event), following))
    });
    let kind = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((kind, Body::from_stream(events)).into_response())
}

/// Sends every event as one WebSocket message until the stream ends or the client disconnects.
async fn speak(mut socket: WebSocket, mut following: Following) {
    loop {
        tokio::select! {
            event = following.next() => {
                let Some(text) = event.and_then(|event| Utf8Bytes::try_from(event).ok()) else {
                    break;
                };
                if socket.send(Message::Text(text)).await.is_err() {
                    return;
                }
            }
            heard = socket.recv() => match heard {
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
fn hello(state: &State, seat: &Seat, place: Place) -> Bytes {
    let fields = Hello {
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        started_at: state.daemon.started_at.0,
        now: SystemClock.now().wall.0,
    };
    let mut hello = BytesMut::from(RETRY);
    hello.extend_from_slice(&seat.event(place, "hello", &fields));
    hello.freeze()
}

/// Stream of one client with its cursor. It buffers at most one batch of events; the ring stores the rest.
struct Following {
    seat: Seat,
    news: watch::Receiver<()>,
    place: Place,
    ready: VecDeque<Bytes>,
    state: State,
    requester: Requester,
    _watcher: Option<WatcherGuard>,
}

impl Following {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            self.news.mark_unchanged();
            self.seat.take(
                &mut self.place,
                self.requester.agent.as_ref(),
                &mut self.ready,
            );
            if !self.ready.is_empty() {
                continue;
            }
            tokio::select! {
                news = self.news.changed() => news.ok()?,
                () = pause(HEARTBEAT) => return Some(ALIVE),
                () = login_ends(&self.state, &self.requester) => return None,
            }
        }
    }
}
