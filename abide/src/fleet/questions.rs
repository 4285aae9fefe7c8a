//! Open questions of other machines, for one inbox. Each machine that has some is asked; an answer is forwarded to it, and
//! its engine decides: the first one counts.

use std::sync::Arc;

use abide_core::Agent;
use abide_core::fleet::MachineId;
use abide_engine::Handle;
use abide_engine::clock::{Clock, SystemClock};
use abide_engine::machine_link::OtherMachines;
use axum::body::Bytes;
use axum::http::{Request, header};
use futures_util::future::join_all;
use http_body_util::Full;
use serde_json::Value;

use super::forward::{self, HOST};
use crate::http::headers;

/// Machines that are asked for their questions at once.
const MAX_ASKED: usize = 64;

/// Questions of other machines that an agent may see; `None` is a person. A machine that does not answer is left out.
pub async fn questions(handle: &Handle, agent: Option<&Agent>) -> Vec<Value> {
    let Some(machines) = handle.other_machines() else {
        return Vec::new();
    };
    let mut with_questions = machines.question_machines().await;
    with_questions.retain(|id| !machines.is_silent(*id));
    with_questions.truncate(MAX_ASKED);
    let asked = with_questions
        .into_iter()
        .map(|machine| questions_of(machines, machine, agent));
    join_all(asked)
        .await
        .into_iter()
        .flatten()
        .flatten()
        .collect()
}

async fn questions_of(
    machines: &Arc<OtherMachines>,
    machine: MachineId,
    agent: Option<&Agent>,
) -> Option<Vec<Value>> {
    let request = Request::builder()
        .uri("/v1/questions")
        .header(header::HOST, HOST);
    let request = match agent {
        Some(agent) => request.header(headers::AGENT_HEADER, &*agent.0),
        None => request.header(headers::PERSON_HEADER, "true"),
    };
    let request = request.body(Full::new(Bytes::new())).ok()?;
    let (known, response) = forward::send_whole(machines, machine, request).await.ok()?;
    let mut page: Value = serde_json::from_slice(response.body()).ok()?;
    let Value::Array(mut questions) = page["questions"].take() else {
        return None;
    };
    for question in questions.iter_mut().filter_map(Value::as_object_mut) {
        question.insert("machine".into(), known.name.clone().into());
        question.insert("as_of".into(), SystemClock.now().wall.0.into());
    }
    Some(questions)
}
