//! MCP over HTTP (Streamable HTTP), at one address for both generations of the protocol. Access is checked
//! before a request comes here.
//!
//! Up to 2025-11-25 a client opens a session with `initialize`: each request is answered on an event stream
//! that can be resumed, and one more stream carries the messages that belong to no request. From 2026-07-28
//! on each request stands for itself, and a client that stops reading the answer has cancelled the request.
//! Either way messages go to `dispatch`, like those of fronts.

mod error_response;
pub mod event_stream;
mod headers;
mod retained_answers;
mod sessions;

use std::sync::Arc;

use abide_core::Conversation;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rmcp::ErrorData;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorCode, JsonRpcMessage};
use tokio_util::sync::CancellationToken;

use self::error_response::{ErrorResponse, JSON, bad_request, error, json, text};
use self::event_stream::{EventReader, EventStream};
use self::headers::{EVENTS, Lifecycle, SESSION, has_metadata};
use self::sessions::{HttpSession, HttpSessions};
use super::client_channel::Sink;
use super::decode::{self, DecodeError};
use super::dispatch::Connection;
use super::json_line::error_line;
use super::origin::Origin;
use super::outline::Outline;
use super::round_codec::RoundCodec;
use super::server::Server;
use abide_engine::Handle;

/// Limit on the length of a session id, in bytes.
const SESSION_ID_LIMIT: usize = 200;

const NO_BATCHES: &str = "batches are not supported; send each message in a request of its own";

/// State of all clients that use HTTP. Cheap to clone.
#[derive(Clone)]
pub struct Http {
    handle: Handle,
    codec: Arc<RoundCodec>,
    sessions: Arc<HttpSessions>,
}

/// Beginning of the name of a conversation that is an HTTP session.
const HTTP_SESSION: &str = "http:";

impl Http {
    /// Daemon that answers.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Handler without sessions. `codec` protects the state that clients carry between two rounds of a call.
    pub fn new(handle: Handle, codec: Arc<RoundCodec>) -> Self {
        Http {
            handle,
            codec,
            sessions: Arc::default(),
        }
    }

    /// Conversation of a request: its session, if it has one.
    pub fn conversation(headers: &HeaderMap) -> Option<Conversation> {
        let session = headers.get(SESSION)?.to_str().ok()?;
        let fits = session.len() <= SESSION_ID_LIMIT;
        fits.then(|| Conversation(format!("{HTTP_SESSION}{session}").into()))
    }

    /// Answers one request from `origin`.
    pub fn answer(&self, request: Request<Bytes>, origin: Origin) -> Response {
        let (method, headers) = (request.method(), request.headers());
        let answered = match *method {
            Method::POST => self.post(headers, request.body(), &Arc::new(origin)),
            Method::GET => self.open_stream(headers),
            Method::DELETE => self.end_session(headers),
            _ => Err(headers::not_allowed("GET, POST, DELETE")),
        };
        answered.unwrap_or_else(|response| *response)
    }

    /// Handles a POST of one message.
    fn post(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        origin: &Arc<Origin>,
    ) -> Result<Response, ErrorResponse> {
        headers::accepts(headers, &[JSON, EVENTS])?;
        if body.trim_ascii_start().starts_with(b"[") {
            let line = error_line(None, -32600, NO_BATCHES);
            return Err(json(StatusCode::BAD_REQUEST, line));
        }
        let outline = Outline::of(body);
        let message = decode::message(body, &outline).map_err(|why| decode_error(&outline, why))?;
        match headers::lifecycle(headers, &message)? {
            Lifecycle::Session => self.session_message(headers, message, origin),
            Lifecycle::Single => {
                headers::match_message(headers, &message, body)?;
                self.single_message(message, origin)
            }
        }
    }

    /// Handles a message of a session; `initialize` opens one.
    fn session_message(
        &self,
        headers: &HeaderMap,
        message: ClientJsonRpcMessage,
        origin: &Arc<Origin>,
    ) -> Result<Response, ErrorResponse> {
        let opens = is_initialize(&message) && !headers.contains_key(SESSION);
        let (session, opened) = match opens {
            true => self.open().map(|(id, session)| (session, Some(id)))?,
            false => (self.session_of(headers)?, None),
        };
        if !matches!(message, JsonRpcMessage::Request(_)) {
            let sink = Sink::Events(session.common.clone());
            // Only a request can have an id that is in use.
            let _ = (session.connection).message(message, origin, sink, None);
            return Ok(StatusCode::ACCEPTED.into_response());
        }
        let (stream, _taken) = session.open_stream();
        let reader = stream.read();
        (session.connection)
            .message(message, origin, Sink::Events(stream), None)
            .map_err(|in_use| error(StatusCode::OK, &in_use.error()))?;
        let mut response = events(reader);
        if let Some(id) = opened {
            response.headers_mut().insert(SESSION, id);
        }
        Ok(response)
    }

    fn open(&self) -> Result<(HeaderValue, Arc<HttpSession>), ErrorResponse> {
        let opened = self.sessions.open(self.server());
        let opened = opened.and_then(|(id, session)| Some((id.try_into().ok()?, session)));
        opened.ok_or_else(|| {
            let sentence = "too many sessions wait for an answer; end one, or try again later";
            text(StatusCode::SERVICE_UNAVAILABLE, sentence)
        })
    }

    /// Handles a message that belongs to no session.
    fn single_message(
        &self,
        message: ClientJsonRpcMessage,
        origin: &Arc<Origin>,
    ) -> Result<Response, ErrorResponse> {
        let has_metadata = match &message {
            JsonRpcMessage::Request(incoming) => has_metadata(&incoming.request),
            // No request is in flight that the notification could be about.
            JsonRpcMessage::Notification(_) => return Ok(StatusCode::ACCEPTED.into_response()),
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {
                let sentence = "nothing was asked that this could be the answer to";
                let error_data = ErrorData::invalid_request(sentence, None);
                return Err(bad_request(None, error_data));
            }
        };
        let abandoned = CancellationToken::new();
        let stream = EventStream::new(abandoned.clone());
        let sink = Sink::Events(stream.clone());
        let reader = stream.read().or_cancel(abandoned);
        let connection = Connection::for_one_request(self.server(), sink.clone());
        // The connection has this one request, so its id cannot be in use.
        let _ = connection.message(message, origin, sink, None);
        // Everything but a tool call has been answered by now, and a tool call needs no special status.
        match stream.first_error() {
            Some((code, line)) if status(code, has_metadata) != StatusCode::OK => {
                Err(json(status(code, has_metadata), line))
            }
            _ => Ok(events(reader)),
        }
    }

    /// Handles a GET: the stream of messages that belong to no request, or a resumed stream.
    fn open_stream(&self, headers: &HeaderMap) -> Result<Response, ErrorResponse> {
        headers::accepts(headers, &[EVENTS])?;
        headers::has_sessions(headers)?;
        let session = self.session_of(headers)?;
        Ok(match headers.get(headers::LAST_EVENT_ID) {
            None => events(session.common.read()),
            Some(id) => match id.to_str().ok().and_then(|id| session.resume(id)) {
                Some(reader) => events(reader),
                // After an error status a client would retry forever; an empty stream ends the attempt.
                None => event_stream(Body::empty()),
            },
        })
    }

    /// Handles a DELETE: ends a session.
    fn end_session(&self, headers: &HeaderMap) -> Result<Response, ErrorResponse> {
        headers::has_sessions(headers)?;
        self.sessions.close(headers::session(headers)?);
        // Clients warn of any other status than 200 and 204.
        Ok(StatusCode::NO_CONTENT.into_response())
    }

    fn session_of(&self, headers: &HeaderMap) -> Result<Arc<HttpSession>, ErrorResponse> {
        let id = headers::session(headers)?;
        let session = self.sessions.find(id);
        session.ok_or_else(|| text(StatusCode::NOT_FOUND, "there is no such session"))
    }

    fn server(&self) -> Server {
        Server::new(self.handle.clone(), self.codec.clone())
    }
}

/// Refusal of a body that is no message.
fn decode_error(outline: &Outline, why: DecodeError) -> ErrorResponse {
    match why {
        DecodeError::DuplicateField(sentence) => {
            let line = error_line(outline.id.as_deref(), -32602, &sentence);
            json(StatusCode::OK, line)
        }
        DecodeError::Invalid(fault) => {
            let code = if fault.is_data() { -32600 } else { -32700 };
            let sentence = format!("not a message of MCP: {fault}");
            let line = error_line(outline.id.as_deref(), code, &sentence);
            json(StatusCode::BAD_REQUEST, line)
        }
    }
}

fn is_initialize(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, JsonRpcMessage::Request(incoming)
        if matches!(incoming.request, ClientRequest::InitializeRequest(_)))
}

/// HTTP status for a request without a session that is answered with this error.
fn status(code: ErrorCode, has_metadata: bool) -> StatusCode {
    match code {
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
        | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
        | ErrorCode::HEADER_MISMATCH => StatusCode::BAD_REQUEST,
        ErrorCode::INVALID_PARAMS if !has_metadata => StatusCode::BAD_REQUEST,
        ErrorCode::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        _ => StatusCode::OK,
    }
}

fn events(reader: EventReader) -> Response {
    event_stream(reader.into_body())
}

fn event_stream(body: Body) -> Response {
    let head = [
        (header::CONTENT_TYPE, EVENTS),
        (header::CACHE_CONTROL, "no-cache"),
        // A proxy must not buffer events.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (head, body).into_response()
}
