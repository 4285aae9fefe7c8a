//! Calls that another machine of the fleet answers: about a session that runs there or a timer that it owns, or with `on`. The whole call is
//! forwarded to the same tool of that machine, which checks the arguments, applies its own policy and decides about
//! rights.

use std::sync::Arc;

use abide_api::{ElsewhereResult, ErrorCode, TimerTool, ToolName, ToolOutput, ToolResult};
use abide_core::fleet::MachineId;
use abide_core::{Agent, Key, Millis, Refusal, SessionId, TimerId, timer};
use abide_engine::Handle;
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::machine_link::{CannotCall, KnownMachine, OtherMachines};
use abide_engine::store::TimerElsewhere;
use axum::body::Bytes;
use axum::http::{HeaderValue, Method, Request, Response, header};
use http_body_util::Full;
use serde_json::{Map, Value};
use tokio::sync::Notify;

use super::{BadInput, Context, Execution, ToolCall, Work, refusal_sentence};
use crate::fleet::{self, forward};
use crate::http::headers;

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
    name: ToolName,
    mut arguments: Map<String, Value>,
    context: &Context,
) -> Result<Place, BadInput> {
    let Some(machines) = handle.other_machines() else {
        return Ok(Place::Here(arguments));
    };
    let (name, target) = match name {
        ToolName::Command(_) | ToolName::TerminalSession => {
            match session_target(handle, machines, &mut arguments).await? {
                Some(target) => (name, target),
                None => return Ok(Place::Here(arguments)),
            }
        }
        ToolName::Timer(tool) => {
            match timer_target(handle, machines, tool, &mut arguments, context).await? {
                Some((tool, owner)) => (ToolName::Timer(tool), Ok(owner)),
                None => return Ok(Place::Here(arguments)),
            }
        }
        ToolName::ReadMessages => return Ok(Place::Here(arguments)),
    };
    let call = ForwardedCall {
        handle: handle.clone(),
        machines: machines.clone(),
        session: given_session(&arguments),
        root: given_root(&arguments),
        tool: name,
        body: Value::Object(arguments).to_string().into(),
        context: context.clone(),
        key: context
            .request_key
            .clone()
            .unwrap_or_else(abide_engine::secret::random_hex::<16>),
    };
    let interrupted = matches!(name, ToolName::Command(_)).then(Arc::<Notify>::default);
    let told = interrupted.clone().unwrap_or_default();
    let work = Work::new(async move {
        let result = match target {
            Ok(target) => tokio::select! {
                result = call.result(target, call.context.standby_left()) => result,
                () = told.notified() => call.end_command(target).await,
            },
            Err(fault) => refused(&fault),
        };
        Some(result.into())
    });
    let work = Work {
        interrupted,
        ..work
    };
    let caller = Some(context.caller());
    let call = ToolCall::new(handle, Execution::Future(work), caller);
    Ok(Place::Elsewhere(Box::new(call)))
}

/// Machine of a call about sessions. `None`: this one.
async fn session_target(
    handle: &Handle,
    machines: &Arc<OtherMachines>,
    arguments: &mut Map<String, Value>,
) -> Result<Option<Result<MachineId, CannotCall>>, BadInput> {
    match arguments.remove("on") {
        Some(Value::String(on)) => {
            check_starts(arguments)?;
            chosen(machines, &on).await
        }
        None | Some(Value::Null) => match owner(handle, machines, arguments).await {
            Ok(Some(owner)) => Ok(Some(Ok(owner))),
            Ok(None) => Ok(None),
            Err(fault) => Ok(Some(Err(fault))),
        },
        Some(other) => Err(BadInput::about(
            "on",
            format!("must be the name or a label of a machine; got {other}"),
        )),
    }
}

/// Refuses `on` in a call that starts nothing.
fn check_starts(arguments: &Map<String, Value>) -> Result<(), BadInput> {
    let text = |field: &str| arguments.get(field).and_then(Value::as_str);
    let has_session = text("session_id").is_some_and(|id| !id.trim().is_empty());
    match text("action") {
        Some("list") => Err(BadInput::about(
            "on",
            "is only for a start; `list` shows the sessions of all machines",
        )),
        _ if has_session => Err(BadInput::about(
            "on",
            "is only for a start; `session_id` names a session on any machine",
        )),
        _ => Ok(()),
    }
}

/// Tool and machine that answer a call about a timer. `None`: this machine does. A call with the key of a timer that
/// was made on another machine becomes a call about that timer.
async fn timer_target(
    handle: &Handle,
    machines: &OtherMachines,
    tool: TimerTool,
    arguments: &mut Map<String, Value>,
    context: &Context,
) -> Result<Option<(TimerTool, MachineId)>, BadInput> {
    let text = |field: &str| arguments.get(field).and_then(Value::as_str);
    let given = text("timer_id").map(str::trim).filter(|id| !id.is_empty());
    if let Some(given) = given {
        let Ok(id) = given.parse::<TimerId>() else {
            return Ok(None);
        };
        let number = handle.store_reader().timer_number(id);
        let owner = machines.timer_owner(number).await;
        return Ok(owner.map(|owner| (tool, owner)));
    }
    let key = text("idempotency_key").filter(|key| !key.trim().is_empty());
    let Some(key) = key.filter(|_| tool == TimerTool::Timer) else {
        return Ok(None);
    };
    let is_mission = text("mission").is_some_and(|mission| !mission.trim().is_empty());
    let Some(known) = timer_with_key(machines, &context.agent, key, is_mission).await? else {
        return Ok(None);
    };
    arguments.retain(|field, _| field == "timeout_duration" && !is_mission);
    arguments.insert("timer_id".into(), known.id.to_string().into());
    let tool = match is_mission {
        true => TimerTool::Read,
        false => TimerTool::Timer,
    };
    Ok(Some((tool, known.owner)))
}

/// Timer of another machine that was made with the key of this call.
pub(crate) async fn timer_with_key(
    machines: &OtherMachines,
    agent: &Agent,
    key: &str,
    is_mission: bool,
) -> Result<Option<TimerElsewhere>, BadInput> {
    let stored = format!("given:{key}");
    match machines.timer_with_key(agent, &stored).await {
        Some(known) if known.is_mission != is_mission => {
            let refusal = timer::Refusal::KeyReused(Key(stored.into()));
            Err(BadInput::new(refusal_sentence(&Refusal::Timer(refusal))))
        }
        known => Ok(known),
    }
}

/// Machine on which a session is to be started. `None`: this one.
async fn chosen(
    machines: &Arc<OtherMachines>,
    on: &str,
) -> Result<Option<Result<MachineId, CannotCall>>, BadInput> {
    if machines.own_name() == on {
        return Ok(None);
    }
    let found = match machines.chosen(on).await {
        Ok(found) => found,
        Err(fault) => return Ok(Some(Err(fault))),
    };
    // Of several machines with a label, one that answers.
    let alive = found.iter().find(|machine| !machines.is_silent(machine.id));
    match alive.or(found.first()) {
        Some(machine) if Some(machine.id) == machines.state().own => Ok(None),
        Some(machine) => Ok(Some(Ok(machine.id))),
        None => Err(BadInput::about(
            "on",
            format!(
                "must be the name or a label of a machine of the fleet, which `abide machine list` lists; got '{}'",
                super::shown(on)
            ),
        )),
    }
}

/// Machine of the session that the call names, if it is not here.
async fn owner(
    handle: &Handle,
    machines: &OtherMachines,
    arguments: &Map<String, Value>,
) -> Result<Option<MachineId>, CannotCall> {
    let Some(id) = given_session(arguments) else {
        return Ok(None);
    };
    if handle.published().has(id) {
        return Ok(None);
    }
    machines.session_machine(id).await
}

fn given_session(arguments: &Map<String, Value>) -> Option<SessionId> {
    let id = arguments.get("session_id").and_then(Value::as_str);
    id?.parse().ok()
}

/// Folder of a command that is started on another machine. It is the workspace there, since the agent's own one is here.
fn given_root(arguments: &Map<String, Value>) -> Option<HeaderValue> {
    let cwd = arguments.get("cwd").and_then(Value::as_str);
    HeaderValue::from_str(cwd.filter(|cwd| cwd.starts_with('/'))?).ok()
}

/// Call on its way.
struct ForwardedCall {
    handle: Handle,
    machines: Arc<OtherMachines>,
    /// Session that the call is about.
    session: Option<SessionId>,
    /// Workspace of a command that it starts there.
    root: Option<HeaderValue>,
    tool: ToolName,
    body: Bytes,
    context: Context,
    key: String,
}

impl ForwardedCall {
    /// Result that is waited for up to `standby`; `None`: to the end.
    async fn result(&self, target: MachineId, standby: Option<Millis>) -> ToolResult {
        let Some(request) = self.request(standby) else {
            let text = "the call cannot be sent to another machine: its agent or key is not valid";
            return ToolResult::error(ErrorCode::BadInput, text.into());
        };
        match forward::send_whole(&self.machines, target, request).await {
            Ok((machine, response)) => result_of(&machine, &response),
            Err(CannotCall::Silent(name)) if matches!(self.tool, ToolName::Timer(_)) => {
                let text = format!(
                    "machine {name}, which has the timer, does not answer; another machine takes over its timers \
                     within seconds, and the timer goes on: make this call again"
                );
                ToolResult::error(ErrorCode::Unreachable, text)
            }
            Err(fault) => self.unanswered(&fault).await,
        }
    }

    /// Result of a call whose machine was not reached, with what is known of its session.
    async fn unanswered(&self, fault: &CannotCall) -> ToolResult {
        let refused = refused(fault);
        let Some(session) = self
            .session
            .filter(|_| refused.error == Some(ErrorCode::Unreachable))
        else {
            return refused;
        };
        let agent = (!self.context.is_person).then_some(&self.context.agent);
        let known = fleet::unanswered(&self.handle, agent, session).await;
        let Some((session, lost)) = known else {
            return refused;
        };
        let mut fields = Map::new();
        if let Ok(Value::Object(all)) = serde_json::to_value(&session) {
            let is_told = |field: &str| {
                matches!(
                    field,
                    "session_id" | "status" | "exit_code" | "signal" | "end"
                )
            };
            fields.extend(all.into_iter().filter(|(field, _)| is_told(field)));
        }
        let elsewhere = ElsewhereResult {
            machine: session.machine.unwrap_or_default(),
            as_of: session.as_of.unwrap_or_default(),
            fields,
        };
        ToolResult {
            text: lost.unwrap_or(refused.text),
            output: ToolOutput::Elsewhere(Box::new(elsewhere)),
            ..refused
        }
    }

    /// Ends the command because a person has interrupted the call, if that machine allows it.
    async fn end_command(&self, target: MachineId) -> ToolResult {
        // The same call joins the session that it has started, and tells its id.
        let result = self.result(target, Some(Millis(0))).await;
        let ToolOutput::Elsewhere(found) = &result.output else {
            return result;
        };
        let Some(id) = found.fields.get("session_id").and_then(Value::as_str) else {
            return result;
        };
        let path = format!("/v1/sessions/{id}/kill");
        let kill = forward::request(Method::POST, &path, None, true);
        let killed = match kill.body(Full::default()) {
            Ok(request) => forward::send_whole(&self.machines, target, request).await,
            Err(_) => return result,
        };
        let refusal = match killed {
            Ok((_, response)) if response.status().is_success() => return result,
            Ok((_, response)) => String::from_utf8_lossy(response.body()).into_owned(),
            Err(fault) => fault.to_string(),
        };
        tracing::warn!("session {id} of an interrupted call goes on: {refusal}");
        result
    }

    /// Request to the same tool, with a key, so that a command runs once. Messages are appended here, so that they are
    /// not asked for there.
    fn request(&self, standby: Option<Millis>) -> Option<Request<Full<Bytes>>> {
        let context = &self.context;
        let agent = (!context.is_person).then_some(&context.agent);
        let path = format!("/v1/tools/{}", self.tool);
        let mut request = forward::request(Method::POST, &path, agent, context.is_person)
            .header(header::CONTENT_TYPE, "application/json")
            .header(headers::QUIET_HEADER, "true")
            .header(headers::KEY_HEADER, &self.key);
        if let Some(standby) = standby {
            request = request.header(headers::STANDBY_HEADER, standby.0);
        }
        if let Some(root) = &self.root {
            request = request.header(headers::ROOT_HEADER, root);
        }
        if let Some(name) = &context.session_name {
            let name = Value::from(name.as_str()).to_string();
            request = request.header(headers::SESSION_NAME_HEADER, name);
        }
        request.body(Full::new(self.body.clone())).ok()
    }
}

fn refused(fault: &CannotCall) -> ToolResult {
    ToolResult::error(cannot_call_code(fault), fault.to_string())
}

/// Error code for a machine that cannot be called.
pub(crate) fn cannot_call_code(fault: &CannotCall) -> ErrorCode {
    match fault {
        CannotCall::Database(_) | CannotCall::NotFound(_) | CannotCall::Silent(_) => {
            ErrorCode::Unreachable
        }
        CannotCall::Unknown(_) | CannotCall::Expelled(_) | CannotCall::Refused(..) => {
            ErrorCode::Forbidden
        }
    }
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
