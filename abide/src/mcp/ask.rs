//! The question as a client gets it, and what its answer means.

use abide_core::{Answer, Millis};
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
};
use serde_json::Value;

use crate::tools::question_text;
use abide_engine::QuestionView;

/// What came back from a client that was asked to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A person said this.
    Said(Answer),
    /// Nobody sits there.
    Nobody,
}

/// The request. Its form has no fields: to accept is yes, to decline is no, and every client can show
/// that.
pub fn request(question: &QuestionView) -> ElicitRequest {
    ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: question_text(question),
        requested_schema: ElicitationSchema::new(Default::default()),
    })
}

/// What an answer means, given by this client so long after it was asked.
pub fn meaning(answer: &ElicitResult, client: &str, after: Millis) -> Reply {
    match answer.action {
        _ if answers_by_itself(client, after) => Reply::Nobody,
        ElicitationAction::Accept => Reply::Said(Answer::Yes),
        ElicitationAction::Decline => Reply::Said(Answer::No),
        // `cancel`, and whatever later versions may add.
        _ => Reply::Nobody,
    }
}

/// Whether this client goes on showing a question that was taken back. Codex does, and drops the answer
/// to it.
pub fn outlives(client: &str) -> bool {
    client.starts_with("codex")
}

/// What the answer to one of the requests that a call returned means. `None`: it is no answer.
pub fn meaning_of_json(answer: &Value) -> Option<Reply> {
    let answer: ElicitResult = serde_json::from_value(answer.clone()).ok()?;
    Some(meaning(&answer, "", Millis::MAX))
}

/// Codex, under a policy of never asking, declines or accepts in the person's stead and at once. Nobody
/// reads and answers a question this fast.
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
