//! Elicitation request for a question, and the interpretation of the client's reply.

use abide_core::policy::Choice;
use abide_core::{Answer, Millis};
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
    EnumSchema,
};
use serde_json::Value;

use super::client_quirks::ClientQuirks;
use crate::tools::{GivenAnswer, form_text};
use abide_engine::QuestionView;

/// Interpreted reply of a client to an elicitation request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElicitationReply {
    /// A person gave this answer.
    Answered(GivenAnswer),
    /// No person answered.
    NoPerson,
}

/// Note in the form of a client that keeps showing it after the question was closed.
const STAYS: &str = "\n  This form stays until the command ends, even if the question is answered elsewhere or no longer \
                     open; you can then ignore it.";

/// Elicitation request for a question. Accepting means yes and declining means no, which every client can show. The
/// form about an idle session has no fields; the one about a command offers the other answers.
pub fn request(question: &QuestionView, client: &str) -> ElicitRequest {
    let client = ClientQuirks::of(client);
    let mut message = form_text(question, client.buttons);
    if client.shows_cancelled_requests {
        message.push_str(STAYS);
    }
    ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message,
        requested_schema: schema(question)
            .unwrap_or_else(|| ElicitationSchema::new(Default::default())),
    })
}

fn schema(question: &QuestionView) -> Option<ElicitationSchema> {
    let offers = question.state.offers();
    let words: Vec<String> = offers
        .iter()
        .map(|(choice, _)| choice.as_str().into())
        .collect();
    // Without more than yes and no, the buttons of the form are enough.
    if words.len() < 3 {
        return None;
    }
    let choices = EnumSchema::builder(words).untitled().build();
    ElicitationSchema::builder()
        .optional_enum_schema("answer", choices)
        .optional_string("because")
        .build()
        .ok()
}

/// Interprets a client's reply, which arrived `after` this time.
pub fn interpret(answer: &ElicitResult, client: &str, after: Millis) -> ElicitationReply {
    match answer.action {
        _ if is_automatic(client, after) => ElicitationReply::NoPerson,
        ElicitationAction::Accept => ElicitationReply::Answered(given(answer, Answer::Yes)),
        ElicitationAction::Decline => ElicitationReply::Answered(given(answer, Answer::No)),
        // `cancel`, and actions that later versions may add.
        _ => ElicitationReply::NoPerson,
    }
}

/// Answer of a person in the fields of a form. Accepting without a choice is `once`.
fn given(result: &ElicitResult, answer: Answer) -> GivenAnswer {
    let field = |name: &str| {
        let content = serde_json::to_value(&result.content).ok()?;
        let text = content.get(name)?.as_str()?.trim().to_owned();
        (!text.is_empty()).then_some(text)
    };
    let chosen = field("answer").and_then(|words| GivenAnswer::parse(&words));
    GivenAnswer {
        choice: match answer {
            Answer::Yes => chosen.map_or(Choice::Once, |given| given.choice),
            Answer::No => Choice::No,
        },
        because: field("because"),
        quiet_for: None,
        key: None,
    }
}

/// Interprets the reply to a request that a call returned. `None`: the value is no reply.
pub fn interpret_json(answer: &Value) -> Option<ElicitationReply> {
    let answer: ElicitResult = serde_json::from_value(answer.clone()).ok()?;
    Some(interpret(&answer, "", Millis::MAX))
}

/// True if the client replied without asking a person: no person reads and answers a question this fast.
fn is_automatic(client: &str, after: Millis) -> bool {
    ClientQuirks::of(client).answers_without_a_person && after < Millis(400)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_of_a_form_choose_the_answer() {
        let given = |reply: Value| match interpret_json(&reply) {
            Some(ElicitationReply::Answered(given)) => (given.choice, given.because),
            reply => panic!("no answer: {reply:?}"),
        };
        let always = json!({"action": "accept", "content": {"answer": "always here"}});
        assert_eq!(given(always), (Choice::AlwaysHere, None));
        assert_eq!(given(json!({"action": "accept"})), (Choice::Once, None));
        let no = json!({"action": "accept", "content": {"answer": "no", "because": "later"}});
        assert_eq!(given(no), (Choice::No, Some("later".into())));
        let declined = json!({"action": "decline", "content": {"answer": "always"}});
        assert_eq!(given(declined), (Choice::No, None));
    }

    fn plain(choice: Choice) -> ElicitationReply {
        ElicitationReply::Answered(GivenAnswer {
            choice,
            because: None,
            quiet_for: None,
            key: None,
        })
    }

    #[test]
    fn accept_and_decline_are_answers_and_cancel_is_none() {
        let reply = |action: &str| interpret_json(&json!({"action": action}));
        assert_eq!(reply("accept"), Some(plain(Choice::Once)));
        assert_eq!(reply("decline"), Some(plain(Choice::No)));
        assert_eq!(reply("cancel"), Some(ElicitationReply::NoPerson));
        assert_eq!(reply("perhaps"), None);
        assert_eq!(interpret_json(&json!("accept")), None);
        assert_eq!(
            interpret_json(&json!({"action": "accept", "content": {}, "_meta": null})),
            Some(plain(Choice::Once))
        );
    }

    #[test]
    fn fast_reply_of_codex_is_not_an_answer() {
        for (action, reply) in [
            (ElicitationAction::Decline, Choice::No),
            (ElicitationAction::Accept, Choice::Once),
        ] {
            let answer = ElicitResult::new(action);
            let after = |client, millis| interpret(&answer, client, Millis(millis));
            assert_eq!(after("codex-mcp-client", 3), ElicitationReply::NoPerson);
            assert_eq!(after("codex-mcp-client", 900), plain(reply));
            assert_eq!(after("some-client", 3), plain(reply));
        }
    }
}
