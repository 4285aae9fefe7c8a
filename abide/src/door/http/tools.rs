//! The tools, as they are everywhere else: one implementation, JSON in and JSON out.

use abide_core::Agent;
use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::HeaderMap;
use serde_json::{Map, Value, json};

use super::body::JsonBody;
use super::problem::Problem;
use super::who::{self, Who};
use super::{State, wire};
use crate::config;
use crate::door::tools::{self, Context, NotCalled};

pub async fn list() -> Json<Value> {
    let tools: Vec<Value> = tools::all()
        .iter()
        .map(|tool| {
            json!({
                "name": tool.name,
                "title": tool.title,
                "description": tool.description,
                "input_schema": (tool.input)(),
                "output_schema": (tool.output)(),
            })
        })
        .collect();
    Json(json!({"tools": tools}))
}

/// Runs a tool to its result. A client that goes away has only stopped waiting.
pub async fn call(
    Shared(state): Shared<State>,
    who: Who,
    Path(name): Path<String>,
    headers: HeaderMap,
    JsonBody(arguments): JsonBody,
) -> Result<Json<Map<String, Value>>, Problem> {
    let context = context(who.agent, &headers)?;
    let call = tools::begin(&state.handle, &name, arguments, context).await;
    let call = call.map_err(|not_called| match not_called {
        NotCalled::UnknownTool(..) => Problem::not_found(not_called.to_string()),
        NotCalled::BadInput(bad) => Problem::bad_input(bad.0),
    })?;
    let result = call.result_only().await.ok_or_else(Problem::stopping)?;
    let mut facts = result.facts;
    facts.insert("is_error".into(), json!(result.is_error));
    Ok(Json(facts))
}

fn context(agent: Option<Agent>, headers: &HeaderMap) -> Result<Context, Problem> {
    Ok(Context {
        agent: agent.unwrap_or_default(),
        root: who::root(headers)?,
        env: config::environment(),
        reaches_person: false,
        standby: None,
        request_key: who::text(headers, wire::KEY_HEADER)?.map(|key| format!("http:{key}")),
    })
}
