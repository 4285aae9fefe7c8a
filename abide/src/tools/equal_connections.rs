//! Questions about connections to one name and port, of several sessions: an answer that holds for longer closes them all.

use std::path::Path;

use abide_core::policy::Choice;
use abide_core::request::Caller;
use abide_core::{Answer, Request};
use abide_engine::Handle;

use super::policy::{GivenAnswer, audit_answer};

/// Answers the other questions about connections that an answer has allowed for longer.
pub(super) async fn allow(handle: &Handle, caller: &Caller, by: &str) {
    for question in handle.published().questions() {
        let Some(connection) = question.state.connection() else {
            continue;
        };
        let session = handle.published().session(question.state.session());
        let conversation = session.and_then(|view| view.state.conversation.clone());
        let (folder, policy) = (Path::new(&*connection.folder), handle.policy());
        let allowed = policy.allowed_hosts(&question.agent, conversation.as_ref(), folder);
        if !allowed.contains(&format!("{}:{}", connection.name, connection.port)) {
            continue;
        }
        let request = Request::Answer {
            question: question.id,
            answer: Answer::Yes,
            quiet_for: None,
            because: None,
            key: None,
        };
        // Without the line, the question stays open.
        if audit_answer(handle, &question, &once(), "", by).is_err() {
            continue;
        }
        handle
            .call(caller.clone(), request, None)
            .await
            .done()
            .await;
    }
}

fn once() -> GivenAnswer {
    GivenAnswer {
        choice: Choice::Once,
        because: None,
        quiet_for: None,
        key: None,
    }
}
