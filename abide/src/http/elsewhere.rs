//! Requests about a session, question or timer of another machine: forwarded to it as they are, with the requester that this
//! machine has identified.

use abide_core::fleet::MachineId;
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::machine_link::{CannotCall, KnownMachine};
use abide_engine::peer::Peer;
use abide_engine::secret;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, FromRequestParts, Request, State as Shared};
use axum::http::request::{Builder, Parts};
use axum::http::{HeaderMap, HeaderValue, Method, Response as HttpResponse, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};

use super::body::{BODY_LIMIT, JsonResponse};
use super::problem::Problem;
use super::requester::{Requester, login_ends};
use super::state::{ConnectedPeer, State};
use super::{headers, questions};
use crate::fleet;
use crate::fleet::forward;
use crate::tools;

/// Headers of a request that are passed on.
const PASSED: [header::HeaderName; 2] = [header::CONTENT_TYPE, header::ACCEPT];
/// Headers of a request that opens a WebSocket.
const WEBSOCKET: [header::HeaderName; 4] = [
    header::CONNECTION,
    header::UPGRADE,
    header::SEC_WEBSOCKET_KEY,
    header::SEC_WEBSOCKET_VERSION,
];

/// Forwards a request that another machine answers; all others go on.
pub async fn forward(Shared(state): Shared<State>, request: Request, next: Next) -> Response {
    if state.handle.other_machines().is_none() {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let machine = match owner(&state, &parts).await {
        Ok(Some(machine)) => machine,
        Ok(None) => return next.run(Request::from_parts(parts, body)).await,
        Err(fault) => return cannot_call(&fault).into_response(),
    };
    match forwarded(&state, &mut parts, body, machine).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

/// Machine that owns what the path names; `None`: this machine, or nothing is known.
async fn owner(state: &State, parts: &Parts) -> Result<Option<MachineId>, CannotCall> {
    let Some(machines) = state.handle.other_machines() else {
        return Ok(None);
    };
    let peer = parts.extensions.get::<ConnectInfo<ConnectedPeer>>();
    // What another machine asks for is here or nowhere.
    if peer.is_some_and(|peer| matches!(peer.0.0, Peer::Machine(_))) {
        return Ok(None);
    }
    let mut path = parts.uri.path().trim_start_matches('/').split('/');
    let (Some("v1"), Some(kind), Some(id)) = (path.next(), path.next(), path.next()) else {
        return Ok(None);
    };
    Ok(match (kind, id.parse(), id.parse(), id.parse()) {
        ("sessions", Ok(id), _, _) if !state.handle.published().has(id) => {
            machines.session_machine(id).await?
        }
        ("questions", _, Ok(id), _) if state.handle.published().question(id).is_none() => {
            machines.question_owner(id).await
        }
        ("timers", _, _, Ok(id)) => {
            let number = state.handle.store_reader().timer_number(id);
            machines.timer_owner(number).await
        }
        _ => None,
    })
}

/// Response about a timer of another machine that was made with the key of this request; `None`: there is none.
pub async fn joined_timer(
    state: &State,
    requester: &Requester,
    body: &Map<String, Value>,
) -> Result<Option<Response>, Problem> {
    let text = |field: &str| body.get(field).and_then(Value::as_str);
    let key = text("idempotency_key").filter(|key| !key.trim().is_empty());
    let (Some(machines), Some(key)) = (state.handle.other_machines(), key) else {
        return Ok(None);
    };
    let (agent, is_mission) = (requester.acting_agent(), text("mission").is_some());
    let known = tools::timer_with_key(machines, &agent, key, is_mission).await;
    let Some(timer) = known.map_err(|bad| Problem::conflict(bad.sentence))? else {
        return Ok(None);
    };
    let (method, path, body) = match is_mission {
        true => (Method::GET, format!("/v1/timers/{}", timer.id), json!({})),
        false => {
            let mut standby = body.clone();
            standby.retain(|field, _| field == "timeout_duration");
            let path = format!("/v1/timers/{}/continue", timer.id);
            (Method::POST, path, Value::Object(standby))
        }
    };
    let request = from_requester(method, &path, requester)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(body.to_string().into()));
    let request = request.map_err(|_| cannot_forward())?;
    let sent = forward::send(machines, timer.owner, request).await;
    let (known, response) = sent.map_err(|fault| cannot_call(&fault))?;
    Ok(Some(marked(&known, response).await))
}

async fn forwarded(
    state: &State,
    parts: &mut Parts,
    body: Body,
    machine: MachineId,
) -> Result<Response, Problem> {
    let machines = state.handle.other_machines();
    let machines = machines.ok_or_else(Problem::stopping)?;
    let requester = Requester::from_request_parts(parts, state).await?;
    let body = Limited::new(body, BODY_LIMIT).collect().await;
    let body = body.map_err(|_| Problem::too_large("the body is too large to be forwarded"))?;
    let body = body.to_bytes();
    if let Some(key) = request_key(parts) {
        parts.headers.insert(headers::KEY_HEADER, key);
    }
    let request = request(parts, &requester, body.clone())?;
    let (known, response) = match forward::send(machines, machine, request).await {
        Ok(answered) => answered,
        Err(fault) => {
            let known = known_result(state, parts, &requester, &body).await;
            return known.ok_or_else(|| cannot_call(&fault));
        }
    };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let ours = parts.extensions.remove::<OnUpgrade>();
        let ours = ours.ok_or_else(cannot_forward)?;
        return Ok(joined_upgrade(state, requester, machine, ours, response));
    }
    Ok(marked(&known, response).await)
}

/// Response to a request whose machine has not answered, as far as the database has it: the facts of a session, or an
/// answer to a question that was taken before the link broke.
async fn known_result(
    state: &State,
    parts: &Parts,
    requester: &Requester,
    body: &[u8],
) -> Option<Response> {
    let path: Vec<&str> = parts
        .uri
        .path()
        .trim_start_matches('/')
        .split('/')
        .collect();
    match (&parts.method, &path[..]) {
        (&Method::GET, ["v1", "sessions", id]) => {
            let (id, agent) = (id.parse().ok()?, requester.agent.as_ref());
            let session = fleet::known_session(&state.handle, agent, id).await?;
            Some(JsonResponse(session).into_response())
        }
        (&Method::POST, ["v1", "questions", id, "answer"]) => {
            questions::answer_taken_elsewhere(&state.handle, id, &parts.headers, body).await
        }
        _ => None,
    }
}

/// Response that opens a WebSocket. Its bytes are copied until one end closes it, the login ends or the machine is silent.
fn joined_upgrade(
    state: &State,
    requester: Requester,
    machine: MachineId,
    ours: OnUpgrade,
    mut response: HttpResponse<Incoming>,
) -> Response {
    let theirs = hyper::upgrade::on(&mut response);
    let state = state.clone();
    tokio::spawn(async move {
        let (Ok(ours), Ok(theirs)) = tokio::join!(ours, theirs) else {
            return;
        };
        let (mut ours, mut theirs) = (TokioIo::new(ours), TokioIo::new(theirs));
        let silent = async {
            match state.handle.other_machines() {
                Some(machines) => machines.until_silent(machine).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // The result does not matter: both ends are closed.
            _ = tokio::io::copy_bidirectional(&mut ours, &mut theirs) => {}
            () = login_ends(&state, &requester) => {}
            () = silent => {}
        }
    });
    response.map(|_| Body::empty())
}

/// Problem of a machine that cannot be called.
fn cannot_call(fault: &CannotCall) -> Problem {
    Problem::new(tools::cannot_call_code(fault), fault.to_string())
}

fn request(
    parts: &Parts,
    requester: &Requester,
    body: Bytes,
) -> Result<hyper::Request<Full<Bytes>>, Problem> {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = from_requester(parts.method.clone(), path, requester);
    let upgrades = parts.headers.contains_key(header::UPGRADE);
    let websocket = WEBSOCKET.into_iter().filter(|_| upgrades);
    for name in PASSED.into_iter().chain(websocket) {
        if let Some(value) = parts.headers.get(&name) {
            request = request.header(name, value);
        }
    }
    if let Some(key) = parts.headers.get(headers::KEY_HEADER) {
        request = request.header(headers::KEY_HEADER, key);
    }
    let request = request.body(Full::new(body));
    request.map_err(|_| cannot_forward())
}

/// Key by which the other machine knows a request that arrives twice. One that only reads needs none.
fn request_key(parts: &Parts) -> Option<HeaderValue> {
    let given = parts.headers.get(headers::KEY_HEADER).cloned();
    let made = || HeaderValue::try_from(secret::random_hex::<16>()).ok();
    given.or_else(|| made().filter(|_| parts.method == Method::POST))
}

/// Request with the headers that say who has sent it.
fn from_requester(method: Method, path: &str, requester: &Requester) -> Builder {
    let is_person = requester.may_be_a_person();
    forward::request(method, path, requester.agent.as_ref(), is_person)
}

fn cannot_forward() -> Problem {
    Problem::bad_input("the request cannot be forwarded to another machine")
}

/// Response of the other machine. An object says which machine has made it, and when.
async fn marked(machine: &KnownMachine, response: HttpResponse<Incoming>) -> Response {
    let (mut head, body) = response.into_parts();
    head.headers.remove(header::CONNECTION);
    head.headers.remove(header::TRANSFER_ENCODING);
    if !is_json(&head.headers) || !head.status.is_success() {
        return Response::from_parts(head, Body::new(body));
    }
    let Ok(body) = Limited::new(body, BODY_LIMIT).collect().await else {
        let said = CannotCall::Silent(machine.name.clone());
        return cannot_call(&said).into_response();
    };
    let body = body.to_bytes();
    let body = match serde_json::from_slice(&body) {
        Ok(Value::Object(mut fields)) => {
            fields.insert("machine".into(), machine.name.clone().into());
            fields.insert("as_of".into(), SystemClock.now().wall.0.into());
            Bytes::from(Value::Object(fields).to_string())
        }
        Ok(_) | Err(_) => body,
    };
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head, Body::from(body))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_action_has_a_key_by_which_it_is_known_again() {
        let key = |method: Method, given: Option<&str>| {
            let mut request = axum::http::Request::builder().method(method);
            if let Some(given) = given {
                request = request.header(headers::KEY_HEADER, given);
            }
            let (parts, ()) = request.body(()).expect("a request").into_parts();
            request_key(&parts).map(|key| key.to_str().expect("a text").to_owned())
        };
        assert_eq!(key(Method::POST, Some("mine")).as_deref(), Some("mine"));
        let made = [key(Method::POST, None), key(Method::POST, None)];
        assert!(made[0].is_some() && made[0] != made[1], "{made:?}");
        assert_eq!(key(Method::GET, None), None);
    }
}
