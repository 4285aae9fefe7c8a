//! HTTP API and MCP over TCP, behind the access check.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::middleware::from_fn_with_state;
use axum::routing::any;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::access_check::{AccessCheck, check_access};
use super::caller_check::{CheckedCaller, check_caller};
use super::mcp;
use super::requester::OutsideSessions;
use super::routes::router;
use super::state::{ConnectedPeer, State};
use crate::listener::ACCEPT_PAUSE;
use crate::mcp::{Http, RoundCodec};
use abide_engine::clock::pause;
use abide_engine::peer::Peer;

/// Largest number of open connections.
const CONNECTIONS: usize = 1_024;
/// Time-out for the head of a request, which is also the longest idle time of a keep-alive connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Size limit of the connection buffer: the longest request head, and the most of a response that is
/// buffered for a client that does not read.
const HEAD_LIMIT: usize = 64 << 10;

/// Serves clients with the token or a login until the daemon stops.
pub async fn serve_tcp(listener: TcpListener, state: State, codec: Arc<RoundCodec>, token: String) {
    let Ok(address) = listener.local_addr() else {
        tracing::error!("the HTTP listener has no address");
        return;
    };
    let access = Arc::new(AccessCheck::new(token, state.logins.clone(), address));
    let mcp = Http::new(state.handle.clone(), codec);
    let router = routes(state.clone(), mcp)
        .layer(from_fn_with_state(state, check_caller))
        .layer(from_fn_with_state(access, check_access));
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(fault) => {
                tracing::warn!("cannot accept a connection: {fault}");
                pause(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(slot) = slots.clone().try_acquire_owned() else {
            tracing::warn!("refused a connection: {CONNECTIONS} are open");
            continue;
        };
        let router = router.clone();
        tokio::spawn(async move {
            serve_connection(stream, router).await;
            drop(slot);
        });
    }
}

fn routes(state: State, mcp: Http) -> Router {
    let mcp = any(move |request: Request| mcp::answer(mcp.clone(), request));
    router(state).route("/mcp", mcp)
}

/// Serves one connection until it closes.
async fn serve_connection(stream: TcpStream, router: Router) {
    let (Ok(theirs), Ok(ours), Ok(())) = (
        stream.peer_addr(),
        stream.local_addr(),
        stream.set_nodelay(true),
    ) else {
        return;
    };
    let peer = ConnectInfo(ConnectedPeer(Peer::Tcp { theirs, ours }));
    let outside_sessions = OutsideSessions::default();
    let checked_caller = CheckedCaller::default();
    let routes = TowerToHyperService::new(router);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(outside_sessions.clone());
        request.extensions_mut().insert(checked_caller.clone());
        routes.call(request)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_LIMIT)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    if let Err(fault) = served.await {
        tracing::debug!("a connection failed: {fault}");
    }
}
