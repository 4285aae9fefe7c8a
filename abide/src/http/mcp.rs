//! MCP over HTTP, as far as it is HTTP: on whose behalf a request comes, and its body.

use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;
use super::{BODY_LIMIT, ConnectedPeer, who};
use crate::mcp::{Http, Origin, Way};
use abide_engine::config;
use abide_engine::peer::Peer;

/// Passes a request on.
pub async fn answer(mcp: Http, request: axum::extract::Request) -> Response {
    let peer = request.extensions().get::<ConnectInfo<ConnectedPeer>>();
    // Where nobody is known to be at the other end, nobody is found there either.
    let peer = peer.map_or(Peer::Process(None), |peer| peer.0.0.clone());
    let origin = match origin(request.headers(), peer) {
        Ok(origin) => origin,
        Err(problem) => return problem.into_response(),
    };
    let (head, body) = request.into_parts();
    // Read before it is passed on: whatever takes time after that is a call's own.
    let Ok(body) = to_bytes(Body::new(body), BODY_LIMIT).await else {
        let detail = format!("the body must be complete and at most {BODY_LIMIT} bytes");
        return Problem::too_large(detail).into_response();
    };
    let request = axum::http::Request::from_parts(head, body);
    mcp.answer(request, origin)
}

fn origin(headers: &HeaderMap, peer: Peer) -> Result<Origin, Problem> {
    Ok(Origin {
        way: Way::Http,
        agent: who::named_agent(headers)?.unwrap_or_default(),
        conversation: Http::conversation(headers),
        root: who::root(headers)?,
        env: config::environment().into(),
        peer,
    })
}
