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
pub enum Reply {
    /// A person gave this answer.
    Said(Answer),
    /// No person answered.
    Nobody,
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
pub fn meaning(answer: &ElicitResult, client: &str, after: Millis) -> Reply {
    match answer.action {
        _ if answers_by_itself(client, after) => Reply::Nobody,
        ElicitationAction::Accept => Reply::Said(Answer::Yes),
        ElicitationAction::Decline => Reply::Said(Answer::No),
        // `cancel`, and actions that later versions may add.
        _ => Reply::Nobody,
    }
}

/// True if this client keeps showing a request that was cancelled. Codex does, and discards the person's answer.
pub fn outlives(client: &str) -> bool {
    client.starts_with("codex")
}

/// Interprets the reply to a request that a call returned. `None`: the value is no reply.
pub fn meaning_of_json(answer: &Value) -> Option<Reply> {
    let answer: ElicitResult = serde_json::from_value(answer.clone()).ok()?;
    Some(meaning(&answer, "", Millis::MAX))
}

/// True if the client replied without asking a person. Under an approval policy of "never", Codex accepts or
/// declines at once; no person reads and answers a question this fast.
fn answers_by_itself(client: &str, after: Millis) -> bool {
    client.starts_with("codex") && after < Millis(400)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_a_person_said_counts() {
        let said = |action: &str| meaning_of_json(&json!({"action": action}));
        assert_eq!(said("accept"), Some(Reply::Said(Answer::Yes)));
        assert_eq!(said("decline"), Some(Reply::Said(Answer::No)));
        assert_eq!(said("cancel"), Some(Reply::Nobody));
        assert_eq!(said("perhaps"), None);
        assert_eq!(meaning_of_json(&json!("accept")), None);
        assert_eq!(
            meaning_of_json(&json!({"action": "accept", "content": {}, "_meta": null})),
            Some(Reply::Said(Answer::Yes))
        );
    }

    #[test]
    fn a_policy_is_not_a_person() {
        for (action, said) in [
            (ElicitationAction::Decline, Answer::No),
            (ElicitationAction::Accept, Answer::Yes),
        ] {
            let answer = ElicitResult::new(action);
            let after = |client, millis| meaning(&answer, client, Millis(millis));
            assert_eq!(after("codex-mcp-client", 3), Reply::Nobody);
            assert_eq!(after("codex-mcp-client", 900), Reply::Said(said));
            assert_eq!(after("some-client", 3), Reply::Said(said));
        }
    }
}
