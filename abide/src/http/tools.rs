//! Tools over HTTP: JSON arguments in, JSON result out, with the same implementation as over MCP.

use std::convert::Infallible;
use std::str::FromStr as _;

use abide_api::{PublishedTool, PublishedTools, ToolName, ToolResult};
use abide_core::SessionId;
use axum::body::Body;
use axum::extract::{Path, State as Shared};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};
use tracing::Instrument;

use super::body::{JsonBody, JsonResponse};
use super::headers;
use super::problem::Problem;
use super::requester::{self, Requester};
use super::session_actions;
use super::state::State;
use crate::tools::{self, ToolCall, ToolStep};
use abide_engine::CallUpdate;

pub async fn list() -> JsonResponse<PublishedTools> {
    let tools = tools::all().iter().map(|tool| PublishedTool {
        name: tool.name.as_str(),
        title: tool.title,
        description: tool.description(),
        input_schema: (tool.input)(),
        output_schema: (tool.output)(),
    });
    JsonResponse(PublishedTools {
        tools: tools.collect(),
    })
}

/// Calls a tool and waits for its result. If the client disconnects, the call continues.
pub async fn call(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(name): Path<String>,
    headers: HeaderMap,
    JsonBody(arguments): JsonBody,
) -> Result<Response, Problem> {
    let name =
        ToolName::from_str(&name).map_err(|unknown| Problem::not_found(unknown.to_string()))?;
    if let Some(id) = tools::session_of_limit_change(name, &arguments)
        && let Ok(view) = requester.session(&state, id)
    {
        let own = session_actions::check_not_inside(&requester, &view).await;
        own.map_err(Problem::tool_error)?;
    }
    let quiet = headers.contains_key(headers::QUIET_HEADER) || requester.is_a_person_over_tcp();
    let context = requester::context(&requester, &headers)?;
    let span = tracing::debug_span!("call", tool = name.as_str(), agent = %context.agent.0);
    let call = tools::begin(&state.handle, name, arguments, context);
    let call = call.instrument(span.clone()).await;
    let mut call = call.map_err(|bad| Problem::from(bad).tool_error())?;
    if quiet {
        call.be_quiet();
    }
    let mut session = None;
    let result = result(&mut call, &mut session).instrument(span).await;
    let Some(result) = result else {
        // A call with a key is repeated, and joins what it has started.
        let session = session.filter(|_| !headers.contains_key(headers::KEY_HEADER));
        return goes_on(name, session.ok_or_else(Problem::stopping)?);
    };
    let mut fields = result.to_fields();
    fields.insert("is_error".into(), result.is_error().into());
    let body = Value::Object(fields).to_string();
    let head = [
        (header::CONTENT_TYPE, "application/json".to_owned()),
        (header::CONTENT_LENGTH, body.len().to_string()),
    ];
    // The result is delivered when the connection takes the body, which it writes before it yields.
    let receipt = call.into_receipt();
    let body = stream::once(async move {
        receipt.delivered();
        Ok::<_, Infallible>(body)
    });
    Ok((head, Body::from_stream(body)).into_response())
}

/// Result of a call; `None`: the daemon is stopping. `session` is set to the one that the call waits for.
async fn result(call: &mut ToolCall, session: &mut Option<SessionId>) -> Option<ToolResult> {
    loop {
        match call.next().await? {
            ToolStep::Done(result) => return Some(result),
            ToolStep::Update(CallUpdate::Accepted(id)) => *session = Some(id),
            ToolStep::Update(CallUpdate::Asked(_) | CallUpdate::Closed(_)) | ToolStep::Ended => {}
        }
    }
}

/// Answer to a call that the stop of the daemon has interrupted: its session goes on.
fn goes_on(name: ToolName, session: SessionId) -> Result<Response, Problem> {
    let (status, next) = match name {
        ToolName::Command(_) => (
            "RUNNING",
            format!("{} with its session_id waits for it again", name.as_str()),
        ),
        ToolName::TerminalSession => ("running", "read_output reads on".to_owned()),
        ToolName::Timer(_) | ToolName::ReadMessages => return Err(Problem::stopping()),
    };
    let text = format!("Session '{session}' goes on while the daemon starts again: {next}.");
    let fields = json!({
        "text": text,
        "status": status,
        "session_id": session.to_string(),
        "is_error": false,
    });
    Ok(JsonResponse(fields).into_response())
}
