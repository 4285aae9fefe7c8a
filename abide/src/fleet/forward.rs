//! Sends requests to other machines.

use std::sync::Arc;

use abide_core::fleet::MachineId;
use abide_engine::machine_link::{CannotCall, KnownMachine, OtherMachines};
use axum::body::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};

/// Host in the requests, which says nothing: the link decides who is called.
pub const HOST: &str = "machine";

/// Sends a request to a machine and waits for the head of its response. The wait ends if the machine becomes silent.
pub async fn send(
    machines: &Arc<OtherMachines>,
    machine: MachineId,
    request: Request<Full<Bytes>>,
) -> Result<(KnownMachine, Response<Incoming>), CannotCall> {
    let known = machines.known(machine).await?;
    let response = tokio::select! {
        response = machines.send(&known, request) => response?,
        () = machines.until_silent(machine) => return Err(CannotCall::Silent(known.name)),
    };
    Ok((known, response))
}

/// Sends a request and reads its whole response.
pub async fn send_whole(
    machines: &Arc<OtherMachines>,
    machine: MachineId,
    request: Request<Full<Bytes>>,
) -> Result<(KnownMachine, Response<Bytes>), CannotCall> {
    let (known, response) = send(machines, machine, request).await?;
    let silent = || CannotCall::Silent(known.name.clone());
    let (head, body) = response.into_parts();
    let body = tokio::select! {
        body = body.collect() => body.map_err(|_| silent())?.to_bytes(),
        () = machines.until_silent(machine) => return Err(silent()),
    };
    Ok((known, Response::from_parts(head, body)))
}
