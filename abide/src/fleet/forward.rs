//! Requests to other machines.

use std::sync::Arc;

use abide_core::Agent;
use abide_core::fleet::MachineId;
use abide_engine::machine_link::{CannotCall, KnownMachine, OtherMachines};
use axum::body::Bytes;
use axum::http::request::Builder;
use axum::http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;

use crate::http::headers;

/// Host in the requests, which says nothing: the link decides who is called.
const HOST: &str = "machine";

/// Request that names its sender: an agent, or a person if `is_person`.
pub fn request(method: Method, path: &str, agent: Option<&Agent>, is_person: bool) -> Builder {
    let request = Request::builder().method(method).uri(path);
    let request = request.header(header::HOST, HOST);
    match agent {
        Some(agent) => request.header(headers::AGENT_HEADER, &*agent.0),
        None if is_person => request.header(headers::PERSON_HEADER, "true"),
        None => request,
    }
}

/// Sends a request to a machine and waits for the head of its response. The wait ends if the machine becomes silent. If
/// the link breaks and the machine is alive, as after a restart of its daemon, the request is sent once more.
pub async fn send(
    machines: &Arc<OtherMachines>,
    machine: MachineId,
    request: Request<Full<Bytes>>,
) -> Result<(KnownMachine, Response<Incoming>), CannotCall> {
    match send_once(machines, machine, request.clone()).await {
        Err(CannotCall::Silent(_)) if !machines.is_silent(machine) => {
            send_once(machines, machine, request).await
        }
        sent => sent,
    }
}

/// Sends a request and reads its whole response. Like [`send`], it may send the request once more.
pub async fn send_whole(
    machines: &Arc<OtherMachines>,
    machine: MachineId,
    request: Request<Full<Bytes>>,
) -> Result<(KnownMachine, Response<Bytes>), CannotCall> {
    match send_whole_once(machines, machine, request.clone()).await {
        Err(CannotCall::Silent(_)) if !machines.is_silent(machine) => {
            send_whole_once(machines, machine, request).await
        }
        sent => sent,
    }
}

async fn send_once(
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

async fn send_whole_once(
    machines: &Arc<OtherMachines>,
    machine: MachineId,
    request: Request<Full<Bytes>>,
) -> Result<(KnownMachine, Response<Bytes>), CannotCall> {
    let (known, response) = send_once(machines, machine, request).await?;
    let silent = || CannotCall::Silent(known.name.clone());
    let (head, body) = response.into_parts();
    let body = tokio::select! {
        body = body.collect() => body.map_err(|_| silent())?.to_bytes(),
        () = machines.until_silent(machine) => return Err(silent()),
    };
    Ok((known, Response::from_parts(head, body)))
}
