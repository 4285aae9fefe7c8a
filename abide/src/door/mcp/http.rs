//! MCP over HTTP, at one address for both generations of the protocol. Who may come here at all is
//! settled before.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Request};
use axum::response::Response;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

use super::prime::primed;
use super::seal::Seal;
use super::server::{Origin, Server};
use super::sessions::Sessions;
use super::slip::Slip;
use super::wire::MESSAGE_LIMIT;
use crate::daemon::Handle;

/// Names the method of a request, from 2026-07-28 on.
const METHOD: &str = "mcp-method";
const CALL: HeaderValue = HeaderValue::from_static("tools/call");

/// All clients that come over HTTP. Cheap to clone.
#[derive(Clone)]
pub struct Http {
    service: StreamableHttpService<Server, Sessions>,
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
        let server = move || Ok(Server::over_http(handle.clone(), seal.clone()));
        Http {
            service: StreamableHttpService::new(server, Arc::default(), config),
        }
    }

    /// Answers one request from `origin`. Whoever stops reading the answer has stopped waiting; no
    /// command ends with that.
    pub async fn answer(self, mut request: Request<Bytes>, origin: Origin) -> Response {
        let slip = Arc::<Slip>::default();
        request.extensions_mut().insert(Arc::new(origin));
        request.extensions_mut().insert(slip.clone());
        let calls = is_call(request.headers());
        let request = request.map(Body::from);
        let answer = async move {
            let answer = self.service.handle(request).await.map(Body::new);
            slip.signed_with(answer)
        };
        match calls {
            true => primed(answer).await,
            false => answer.await,
        }
    }
}

/// Whether an answer may take its time. In the older generations its stream opens at once.
fn is_call(headers: &HeaderMap) -> bool {
    headers.get(METHOD) == Some(&CALL)
}
