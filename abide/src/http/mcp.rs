//! MCP over HTTP, transport part: identifies the caller and reads the body.

use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};

use super::body::BODY_LIMIT;
use super::problem::Problem;
use super::requester;
use super::state::ConnectedPeer;
use crate::mcp::{Http, Origin, Transport};
use abide_engine::peer::Peer;
use abide_engine::{Handle, config};

/// Passes a request to the MCP handler.
pub async fn answer(mcp: Http, request: axum::extract::Request) -> Response {
    let peer = request.extensions().get::<ConnectInfo<ConnectedPeer>>();
    // Without peer information the caller is treated as an unknown process.
    let peer = peer.map_or(Peer::Process(None), |peer| peer.0.0.clone());
    let origin = match origin(request.headers(), peer, mcp.handle()) {
        Ok(origin) => origin,
        Err(problem) => return problem.into_response(),
    };
    let (head, body) = request.into_parts();
    // The body is read completely first, so that the time of a slow upload is not counted as time of
    // the call.
    let Ok(body) = to_bytes(Body::new(body), BODY_LIMIT).await else {
        let detail = format!("the body must be complete and at most {BODY_LIMIT} bytes");
        return Problem::too_large(detail).into_response();
    };
    let request = axum::http::Request::from_parts(head, body);
    mcp.answer(request, origin)
}

fn origin(headers: &HeaderMap, peer: Peer, handle: &Handle) -> Result<Origin, Problem> {
    let named = requester::named_agent(headers, handle)?;
    Ok(Origin {
        transport: Transport::Http,
        agent: named.unwrap_or_else(|| handle.default_agent().clone()),
        conversation: Http::conversation(headers),
        root: requester::root(headers)?,
        env: config::environment().into(),
        peer,
    })
}
