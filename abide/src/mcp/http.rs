//! MCP over HTTP, at one address for both generations of the protocol. Who may come here at all is
//! settled before.

mod batch;

use std::sync::Arc;

use abide_core::Conversation;
use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

use super::ack_on_body_end::AckOnBodyEnd;
use super::batch::is_one;
use super::decode;
use super::scan::{Kind, Outline};
use super::seal::Seal;
use super::server::{Origin, Server};
use super::sessions::Sessions;
use super::sse_keepalive::{EVENTS, with_keepalive};
use super::wire::{MESSAGE_LIMIT, TWICE, refusal};
use abide_engine::Handle;

/// Names the method of a request, from 2026-07-28 on.
const METHOD: &str = "mcp-method";
const CALL: HeaderValue = HeaderValue::from_static("tools/call");
/// Names the session of a request, up to 2025-11-25.
const SESSION: &str = "mcp-session-id";
/// The longest name of a session, in bytes.
const SESSION_LIMIT: usize = 200;

const ONE_AT_A_TIME: &str =
    "a batch is not taken in this version of MCP; send each message in a request of its own";

/// All clients that come over HTTP. Cheap to clone.
#[derive(Clone)]
pub struct Http {
    service: StreamableHttpService<Server, Sessions>,
    sessions: Arc<Sessions>,
}

impl Http {
    /// For clients that call this server by one of these `authorities`, from pages of one of these
    /// `origins` if from any.
    pub fn new(
        handle: Handle,
        seal: Arc<Seal>,
        authorities: Vec<String>,
        origins: Vec<String>,
    ) -> Self {
        // The library lets every origin pass where the list is empty.
        assert!(!authorities.is_empty() && !origins.is_empty());
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(authorities)
            .with_allowed_origins(origins)
            .enforce_origin_validation()
            .with_max_request_body_bytes(MESSAGE_LIMIT);
        let server = move || Ok(Server::new(handle.clone(), seal.clone()));
        let sessions = Arc::<Sessions>::default();
        Http {
            service: StreamableHttpService::new(server, sessions.clone(), config),
            sessions,
        }
    }

    /// The conversation of a request: its session, where it has one.
    pub fn conversation(headers: &HeaderMap) -> Option<Conversation> {
        let session = headers.get(SESSION)?.to_str().ok()?;
        let fits = session.len() <= SESSION_LIMIT;
        fits.then(|| Conversation(format!("http:{session}").into()))
    }

    /// Answers one request from `origin`. Whoever stops reading the answer has stopped waiting; no
    /// command ends with that.
    pub async fn answer(self, request: Request<Bytes>, origin: Origin) -> Response {
        let (mut head, body) = request.into_parts();
        head.extensions.insert(Arc::new(origin));
        if head.method == Method::POST {
            if is_one(&body) {
                return batch::answer(self, head, &body).await;
            }
            let outline = Outline::of(&body);
            let twice = decode::twice(&body, &outline).map(|sentence| (-32602, sentence));
            let objection = twice.or_else(|| self.objection(&head.headers, &outline));
            if let Some((code, sentence)) = objection {
                let id = outline.id.as_deref();
                return refused(StatusCode::OK, id, code, &sentence);
            }
        }
        let calls = is_call(&head.headers);
        let answer = self.pass(head, body);
        match calls {
            true => with_keepalive(answer).await,
            false => answer.await,
        }
    }

    /// Passes one message on.
    async fn pass(self, mut head: Parts, body: Bytes) -> Response {
        let ack = Arc::<AckOnBodyEnd>::default();
        head.extensions.insert(ack.clone());
        let request = Request::from_parts(head, Body::from(body));
        let answer = self.service.handle(request).await.map(Body::new);
        ack.attach(answer)
    }

    /// Why a request is not passed on that can be read: of two under one id the library would answer one.
    fn objection(&self, headers: &HeaderMap, outline: &Outline) -> Option<(i32, String)> {
        let session = headers.get(SESSION)?.to_str().ok()?;
        let id = outline.id.as_deref()?;
        let again = outline.kind() == Kind::Request && self.sessions.is_asked(session, id);
        again.then(|| (-32600, TWICE.to_owned()))
    }

    /// Whether the version that was agreed upon has batches. `None`: the session is not known.
    fn takes_batches(&self, headers: &HeaderMap) -> Option<bool> {
        match headers.get(SESSION) {
            Some(session) => self.sessions.takes_batches(session.to_str().ok()?),
            None => Some(false),
        }
    }
}

/// Answers a message with an error.
fn refused(status: StatusCode, id: Option<&[u8]>, code: i32, sentence: &str) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (status, kind, refusal(id, code, sentence)).into_response()
}

/// Whether an answer may take its time. In the older generations its stream opens at once.
fn is_call(headers: &HeaderMap) -> bool {
    headers.get(METHOD) == Some(&CALL)
}
