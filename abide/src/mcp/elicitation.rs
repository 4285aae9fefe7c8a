//! Elicitation request for a question, and the interpretation of the client's reply.

use abide_core::{Answer, Millis};
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
};
use serde_json::Value;

use crate::tools::question_text;
use abide_engine::QuestionView;

/// Interpreted reply of a client to an elicitation request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElicitationReply {
    /// A person gave this answer.
    Answered(Answer),
    /// No person answered.
    NoPerson,
}

/// Elicitation request for a question. The form has no fields: accepting means yes and declining means no,
/// which every client can show.
pub fn request(question: &QuestionView) -> ElicitRequest {
    ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: question_text(question),
        requested_schema: ElicitationSchema::new(Default::default()),
    })
}

/// Interprets a client's reply, which arrived `after` this time.
pub fn interpret(answer: &ElicitResult, client: &str, after: Millis) -> ElicitationReply {
    match answer.action {
        _ if is_automatic(client, after) => ElicitationReply::NoPerson,
        ElicitationAction::Accept => ElicitationReply::Answered(Answer::Yes),
        ElicitationAction::Decline => ElicitationReply::Answered(Answer::No),
        // `cancel`, and actions that later versions may add.
        _ => ElicitationReply::NoPerson,
    }
}

/// True if this client keeps showing a request that was cancelled. Codex does, and discards the person's answer.
pub fn shows_cancelled_requests(client: &str) -> bool {
    client.starts_with("codex")
}

/// Interprets the reply to a request that a call returned. `None`: the value is no reply.
pub fn interpret_json(answer: &Value) -> Option<ElicitationReply> {
    let answer: ElicitResult = serde_json::from_value(answer.clone()).ok()?;
    Some(interpret(&answer, "", Millis::MAX))
}

/// True if the client replied without asking a person. Under an approval policy of "never", Codex accepts or
/// declines at once; no person reads and answers a question this fast.
fn is_automatic(client: &str, after: Millis) -> bool {
    client.starts_with("codex") && after < Millis(400)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn accept_and_decline_are_answers_and_cancel_is_none() {
        let reply = |action: &str| interpret_json(&json!({"action": action}));
        assert_eq!(
            reply("accept"),
            Some(ElicitationReply::Answered(Answer::Yes))
        );
        assert_eq!(
            reply("decline"),
            Some(ElicitationReply::Answered(Answer::No))
        );
        assert_eq!(reply("cancel"), Some(ElicitationReply::NoPerson));
        assert_eq!(reply("perhaps"), None);
        assert_eq!(interpret_json(&json!("accept")), None);
        assert_eq!(
            interpret_json(&json!({"action": "accept", "content": {}, "_meta": null})),
            Some(ElicitationReply::Answered(Answer::Yes))
        );
    }

    #[test]
    fn fast_reply_of_codex_is_not_an_answer() {
        for (action, reply) in [
            (ElicitationAction::Decline, Answer::No),
            (ElicitationAction::Accept, Answer::Yes),
        ] {
            let answer = ElicitResult::new(action);
            let after = |client, millis| interpret(&answer, client, Millis(millis));
            assert_eq!(after("codex-mcp-client", 3), ElicitationReply::NoPerson);
            assert_eq!(
                after("codex-mcp-client", 900),
                ElicitationReply::Answered(reply)
            );
            assert_eq!(after("some-client", 3), ElicitationReply::Answered(reply));
        }
    }
}
