//! Elicitation request for a question, and the interpretation of the client's reply.

use abide_core::Millis;
use abide_core::policy::Choice;
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
    EnumSchema,
};
use serde_json::Value;

use super::client_quirks::ClientQuirks;
use crate::tools::{GivenAnswer, form_text, rules_added};
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
const STAYS: &str =
    "\n  Cancel leaves the question open elsewhere. If it is answered there, ignore this form.";

/// Elicitation request for a question. Accepting means yes and declining means no, which every client can show. The
/// form about an idle session has no fields; the one about a command offers the other answers.
pub fn request(question: &QuestionView, client: &str) -> ElicitRequest {
    let client = ClientQuirks::of(client);
    let mut message = form_text(question, client.buttons);
    for (choice, adds) in question.state.offers() {
        let added = rules_added(choice.as_str(), adds);
        if !added.is_empty() {
            message.push('\n');
            message.push_str(added.trim_end());
        }
    }
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
    let given = match answer.action {
        _ if is_automatic(client, after) => None,
        ElicitationAction::Accept => accepted(answer),
        ElicitationAction::Decline => Some(given(Choice::No, answer)),
        // `cancel`, and actions that later versions may add.
        _ => None,
    };
    given.map_or(ElicitationReply::NoPerson, ElicitationReply::Answered)
}

/// Answer of an accepted form. Without a choice it is `once`. `None`: it is not clear that the person said yes, because the
/// choice is not one that was offered, or a reason stands alone.
fn accepted(result: &ElicitResult) -> Option<GivenAnswer> {
    let choice = match field(result, "answer") {
        Some(Value::String(words)) => GivenAnswer::parse(&words)?.choice,
        Some(_) => return None,
        None if field(result, "because").is_some() => return None,
        None => Choice::Once,
    };
    Some(given(choice, result))
}

fn given(choice: Choice, result: &ElicitResult) -> GivenAnswer {
    let because = match field(result, "because") {
        Some(Value::String(words)) => Some(words),
        _ => None,
    };
    GivenAnswer {
        choice,
        because,
        quiet_for: None,
        key: None,
    }
}

/// Field of a form, unless it was left empty.
fn field(result: &ElicitResult, name: &str) -> Option<Value> {
    let content = serde_json::to_value(&result.content).ok()?;
    match content.get(name)? {
        Value::Null => None,
        Value::String(words) if words.trim().is_empty() => None,
        Value::String(words) => Some(words.trim().into()),
        other => Some(other.clone()),
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
        let empty = json!({"action": "accept", "content": {"answer": "", "because": null}});
        assert_eq!(given(empty), (Choice::Once, None));
        let declined = json!({"action": "decline", "content": {"answer": "always"}});
        assert_eq!(given(declined), (Choice::No, None));
    }

    #[test]
    fn accepted_form_without_a_clear_yes_is_no_answer() {
        for content in [
            json!({"answer": "never"}),
            json!({"answer": "nope"}),
            json!({"answer": 5}),
            json!({"answer": false}),
            json!({"because": "too dangerous"}),
        ] {
            let reply = json!({"action": "accept", "content": content});
            let unclear = Some(ElicitationReply::NoPerson);
            assert_eq!(interpret_json(&reply), unclear, "{reply}");
        }
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
