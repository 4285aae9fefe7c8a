//! Elicitation request for a question, and the interpretation of the client's reply.

use abide_core::policy::Choice;
use abide_core::{Answer, Millis};
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
    EnumSchema,
};
use serde_json::Value;

use super::client_quirks::ClientQuirks;
use crate::tools::{GivenAnswer, question_text};
use abide_engine::QuestionView;

/// Interpreted reply of a client to an elicitation request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElicitationReply {
    /// A person gave this answer.
    Answered(FormAnswer),
    /// No person answered.
    NoPerson,
}

/// Answer of a person in a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormAnswer {
    /// Accepted or declined.
    pub answer: Answer,
    /// Content of the field `answer`.
    choice: Option<String>,
    /// Content of the field `because`.
    because: Option<String>,
}

impl FormAnswer {
    /// Answer as the engine takes it. Accepting without a choice is `once`.
    pub fn given(self) -> GivenAnswer {
        let chosen = self.choice.as_deref().and_then(GivenAnswer::parse);
        let chosen = chosen.map_or(Choice::Once, |given| given.choice);
        GivenAnswer {
            choice: match self.answer {
                Answer::Yes => chosen,
                Answer::No => Choice::No,
            },
            because: self.because,
            quiet_for: None,
        }
    }
}

/// Elicitation request for a question. Accepting means yes and declining means no, which every client can show. The
/// form about an idle session has no fields; the one about a command offers the other answers.
pub fn request(question: &QuestionView) -> ElicitRequest {
    ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: question_text(question),
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
        ElicitationAction::Accept => ElicitationReply::Answered(form_answer(answer, Answer::Yes)),
        ElicitationAction::Decline => ElicitationReply::Answered(form_answer(answer, Answer::No)),
        // `cancel`, and actions that later versions may add.
        _ => ElicitationReply::NoPerson,
    }
}

fn form_answer(result: &ElicitResult, answer: Answer) -> FormAnswer {
    let field = |name: &str| {
        let content = serde_json::to_value(&result.content).ok()?;
        let text = content.get(name)?.as_str()?.trim().to_owned();
        (!text.is_empty()).then_some(text)
    };
    FormAnswer {
        answer,
        choice: field("answer"),
        because: field("because"),
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
            Some(ElicitationReply::Answered(form)) => {
                let given = form.given();
                (given.choice, given.because)
            }
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

    fn plain(answer: Answer) -> ElicitationReply {
        ElicitationReply::Answered(FormAnswer {
            answer,
            choice: None,
            because: None,
        })
    }

    #[test]
    fn accept_and_decline_are_answers_and_cancel_is_none() {
        let reply = |action: &str| interpret_json(&json!({"action": action}));
        assert_eq!(reply("accept"), Some(plain(Answer::Yes)));
        assert_eq!(reply("decline"), Some(plain(Answer::No)));
        assert_eq!(reply("cancel"), Some(ElicitationReply::NoPerson));
        assert_eq!(reply("perhaps"), None);
        assert_eq!(interpret_json(&json!("accept")), None);
        assert_eq!(
            interpret_json(&json!({"action": "accept", "content": {}, "_meta": null})),
            Some(plain(Answer::Yes))
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
            assert_eq!(after("codex-mcp-client", 900), plain(reply));
            assert_eq!(after("some-client", 3), plain(reply));
        }
    }
}
