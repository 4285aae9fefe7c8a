//! Serves the requests of other machines with the router of this one.

use std::convert::Infallible;
use std::sync::Arc;

use abide_core::fleet::rights::Right;
use abide_engine::machine_link::{CalledLink, CannotCall, KnownMachine, OtherMachines};
use abide_engine::peer::Peer;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::CallingMachine;
use super::needed_right::{needed, sentence};
use crate::http::{self, ConnectedPeer, Problem};
use crate::strict_json::StrictJson;

/// Largest body of a request.
const MAX_BODY: usize = 8 << 20;

/// Serves links until the daemon stops.
pub async fn serve(
    machines: Arc<OtherMachines>,
    mut called: mpsc::Receiver<CalledLink>,
    state: http::State,
) {
    let router = http::router(state.clone());
    while let Some(link) = called.recv().await {
        let (machines, router, state) = (machines.clone(), router.clone(), state.clone());
        tokio::spawn(async move {
            match machines.accept(link).await {
                Ok((caller, stream)) => {
                    let server = Server {
                        machines,
                        caller,
                        router,
                        state,
                    };
                    server.serve(stream).await;
                }
                // The other machine has given it up, or does not answer any more.
                Err(CannotCall::Silent(name)) => {
                    tracing::debug!("a link of machine {name} has ended before it was open");
                }
                Err(fault) => tracing::warn!("refused a link of another machine: {fault}"),
            }
        });
    }
}

/// One link of another machine.
#[derive(Clone)]
struct Server {
    machines: Arc<OtherMachines>,
    caller: KnownMachine,
    router: Router,
    state: http::State,
}

impl Server {
    async fn serve(
        self,
        stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    ) {
        let calling = self.calling();
        let service = service_fn(move |request| {
            let server = self.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        let served = http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let caller = &calling.caller.name;
        tokio::select! {
            served = served => if let Err(fault) = served {
                tracing::debug!("a link of machine {caller} failed: {fault}");
            },
            // A response that lasts, such as a log that is followed, ends here.
            () = calling.until_expelled() => {
                tracing::info!("machine {caller} does not belong to the fleet any more: its link is closed");
            }
        }
    }

    fn calling(&self) -> CallingMachine {
        CallingMachine {
            machines: self.machines.clone(),
            caller: self.caller.clone(),
            handle: self.state.handle().clone(),
        }
    }

    async fn answer(self, request: hyper::Request<Incoming>) -> Response {
        match self.checked(request).await {
            Ok((request, right)) => {
                let router = self.router.clone();
                let Ok(response) = TowerToHyperService::new(router).call(request).await;
                match right {
                    Right::See => {}
                    // The caller finds what it has changed in the directory.
                    Right::Type | Right::Run => self.machines.flush_directory().await,
                }
                response
            }
            Err(problem) => problem.into_response(),
        }
    }

    /// Request that the caller has the right to send, with its peer, and that right.
    async fn checked(
        &self,
        request: hyper::Request<Incoming>,
    ) -> Result<(hyper::Request<Body>, Right), Problem> {
        let (parts, body) = request.into_parts();
        let body = Limited::new(body, MAX_BODY).collect().await;
        let body: Bytes = body
            .map_err(|fault| Problem::bad_input(format!("the body cannot be read: {fault}")))?
            .to_bytes();
        let path = parts.uri.path();
        let right = needed(&parts.method, path, &arguments(path, &body));
        let right = right.ok_or_else(|| {
            Problem::forbidden(format!(
                "machine {} cannot do this on another machine",
                self.caller.name
            ))
        })?;
        let rights = self.state.handle().config().fleet.rights();
        let decided = self.machines.decide(&rights, right, &self.caller).await;
        decided.map_err(|denied| {
            let said = sentence(&denied, &self.caller.name, &self.machines.own_name());
            tracing::info!("refused {} {path}: {said}", parts.method);
            Problem::forbidden(said).tool_error()
        })?;
        let mut request = hyper::Request::from_parts(parts, Body::from(body));
        let peer = Peer::Machine(self.caller.name.as_str().into());
        request
            .extensions_mut()
            .insert(ConnectInfo(ConnectedPeer(peer)));
        request.extensions_mut().insert(self.calling());
        Ok((request, right))
    }
}

/// Arguments of a tool call.
fn arguments(path: &str, body: &[u8]) -> Map<String, Value> {
    match path.starts_with("/v1/tools/") {
        // The tool reads the body in the same way, and refuses one that is no object.
        true => match serde_json::from_slice(body) {
            Ok(StrictJson(Value::Object(fields))) => fields,
            Ok(_) | Err(_) => Map::new(),
        },
        false => Map::new(),
    }
}
