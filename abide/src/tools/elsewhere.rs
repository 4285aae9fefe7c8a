//! Calls that another machine of the fleet answers: about a session that runs there, or with `on`. The whole call is
//! forwarded to the same tool of that machine, which checks the arguments, applies its own policy and decides about
//! rights.

use std::sync::Arc;

use abide_api::{ElsewhereResult, ErrorCode, ToolOutput, ToolResult};
use abide_core::SessionId;
use abide_core::fleet::MachineId;
use abide_engine::Handle;
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::machine_link::{CannotCall, KnownMachine, OtherMachines};
use axum::body::Bytes;
use axum::http::{Method, Request, Response, header};
use http_body_util::Full;
use serde_json::{Map, Value};

use super::{BadInput, Context, Execution, ToolCall, Work};
use crate::fleet::forward;
use crate::http::headers;

/// Times that a call is sent if the link breaks and the machine is alive. A command has a key, so that it runs once.
const ATTEMPTS: usize = 2;

/// Machine that answers a call.
pub(super) enum Place {
    /// This one, with these arguments.
    Here(Map<String, Value>),
    /// Another one.
    Elsewhere(Box<ToolCall>),
}

/// Forwards a call that another machine answers.
pub(super) async fn begin(
    handle: &Handle,
    name: &str,
    mut arguments: Map<String, Value>,
    context: &Context,
) -> Result<Place, BadInput> {
    let Some(machines) = handle.other_machines() else {
        return Ok(Place::Here(arguments));
    };
    if !matches!(name, "shell" | "execute_command" | "terminal_session") {
        return Ok(Place::Here(arguments));
    }
    let target = match arguments.remove("on") {
        Some(Value::String(on)) => match chosen(machines, &on).await? {
            Some(target) => Ok(target),
            None => return Ok(Place::Here(arguments)),
        },
        None | Some(Value::Null) => match owner(handle, machines, &arguments).await {
            Some(owner) => machines.known(owner).await,
            None => return Ok(Place::Here(arguments)),
        },
        Some(other) => {
            return Err(BadInput(format!(
                "`on` must be the name or a label of a machine; got {other}"
            )));
        }
    };
    let call = ForwardedCall {
        machines: machines.clone(),
        tool: name.to_owned(),
        body: Value::Object(arguments).to_string().into(),
        context: context.clone(),
        key: context
            .request_key
            .clone()
            .unwrap_or_else(abide_engine::secret::random_hex::<16>),
    };
    let work = Work::new(async move {
        let result = match target {
            Ok(target) => call.result(&target).await,
            Err(fault) => refused(&fault),
        };
        Some(result.into())
    });
    let caller = Some(context.caller());
    let call = ToolCall::new(handle, Execution::Future(work), caller);
    Ok(Place::Elsewhere(Box::new(call)))
}

/// Machine on which a session is to be started. `None`: this one.
async fn chosen(machines: &Arc<OtherMachines>, on: &str) -> Result<Option<KnownMachine>, BadInput> {
    let state = machines.state();
    let own = state.own.and_then(|own| state.machines.get(&own));
    if own.is_some_and(|own| own.name == on) {
        return Ok(None);
    }
    let found = machines.chosen(on).await;
    let found = found.map_err(|fault| BadInput(fault.to_string()))?;
    // Of several machines with a label, one that answers.
    let alive = found.iter().find(|machine| !machines.is_silent(machine.id));
    match alive.or(found.first()) {
        Some(machine) if Some(machine.id) == state.own => Ok(None),
        Some(machine) => Ok(Some(machine.clone())),
        None => Err(BadInput(format!(
            "no machine of the fleet has the name or label '{}'; `abide machine list` lists them",
            super::shown(on)
        ))),
    }
}

/// Machine of the session that the call names, if it is not here.
async fn owner(
    handle: &Handle,
    machines: &OtherMachines,
    arguments: &Map<String, Value>,
) -> Option<MachineId> {
    let id: SessionId = arguments.get("session_id")?.as_str()?.parse().ok()?;
    if handle.published().session(id).is_some() {
        return None;
    }
    machines.session(id).await.map(|row| row.machine)
}

/// Call on its way.
struct ForwardedCall {
    machines: Arc<OtherMachines>,
    tool: String,
    body: Bytes,
    context: Context,
    key: String,
}

impl ForwardedCall {
    async fn result(&self, target: &KnownMachine) -> ToolResult {
        for attempt in 1.. {
            let Some(request) = self.request() else { break };
            match forward::send_whole(&self.machines, target.id, request).await {
                Ok((machine, response)) => return result_of(&machine, &response),
                Err(CannotCall::Silent(_))
                    if attempt < ATTEMPTS && !self.machines.is_silent(target.id) => {}
                Err(fault) => return refused(&fault),
            }
        }
        let text = "the call cannot be sent to another machine: its agent or key is not valid";
        ToolResult::error(ErrorCode::BadInput, text.into())
    }

    /// Request to the same tool. Messages are appended here, so that they are not asked for there.
    fn request(&self) -> Option<Request<Full<Bytes>>> {
        let context = &self.context;
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("/v1/tools/{}", self.tool))
            .header(header::HOST, forward::HOST)
            .header(header::CONTENT_TYPE, "application/json")
            .header(headers::QUIET_HEADER, "true")
            .header(headers::KEY_HEADER, &self.key);
        request = match context.is_person {
            true => request.header(headers::PERSON_HEADER, "true"),
            false => request.header(headers::AGENT_HEADER, &*context.agent.0),
        };
        if let Some(standby) = context.standby {
            request = request.header(headers::STANDBY_HEADER, standby.0);
        }
        if let Some(name) = &context.session_name {
            let name = Value::from(name.as_str()).to_string();
            request = request.header(headers::SESSION_NAME_HEADER, name);
        }
        request.body(Full::new(self.body.clone())).ok()
    }
}

fn refused(fault: &CannotCall) -> ToolResult {
    let code = match fault {
        CannotCall::Database(_) | CannotCall::Silent(_) => ErrorCode::Unreachable,
        CannotCall::Unknown(_) | CannotCall::Expelled(_) | CannotCall::Refused(..) => {
            ErrorCode::Forbidden
        }
    };
    ToolResult::error(code, fault.to_string())
}

/// Result of the other machine, with its name and the time.
fn result_of(machine: &KnownMachine, response: &Response<Bytes>) -> ToolResult {
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(response.body()) else {
        let text = format!("machine {} has sent no result", machine.name);
        return ToolResult::error(ErrorCode::Fault, text);
    };
    let is_error = fields.remove("is_error") == Some(Value::Bool(true));
    let text = match (fields.remove("text"), fields.get("detail")) {
        (Some(Value::String(text)), _) => text,
        (_, Some(Value::String(detail))) => detail.clone(),
        _ => String::new(),
    };
    if !response.status().is_success() {
        let code = ErrorCode::of_status(response.status().as_u16());
        return ToolResult::error(code, text);
    }
    let elsewhere = ElsewhereResult {
        machine: machine.name.clone(),
        as_of: SystemClock.now().wall.0,
        fields,
    };
    ToolResult {
        error: is_error.then_some(ErrorCode::Conflict),
        ..ToolResult::new(text, ToolOutput::Elsewhere(Box::new(elsewhere)))
    }
}
