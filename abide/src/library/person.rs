//! Interface of a person: questions and their answers.

use abide_api::{QuestionDetails, QuestionEvent};
use serde_json::{Map, Value};

use super::Error;
use crate::client::{Client, QuestionFollower};

/// Interface of a person to abide. A process inside a session is never accepted as a person.
///
/// ```no_run
/// # async fn example(abide: abide::Abide) -> Result<(), abide::Error> {
/// let person = abide.person();
/// let mut questions = person.questions().await?;
/// while let Some(question) = questions.next().await? {
///     println!("{}", question.text);
///     person.answer(&question.id, "yes").await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Person {
    client: Client,
}

/// Question that a person decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Id of the question.
    pub id: String,
    /// Session that the question is about.
    pub session_id: String,
    /// Text that a person should read before answering.
    pub text: String,
    /// Fields of the question.
    pub facts: Map<String, Value>,
}

impl Question {
    fn of(details: &QuestionDetails) -> Self {
        let question = &details.question;
        Question {
            id: question.question_id.0.to_string(),
            session_id: question.session_id.0.to_string(),
            text: question.text.clone(),
            facts: match serde_json::to_value(details) {
                Ok(Value::Object(facts)) => facts,
                _ => Map::new(),
            },
        }
    }
}

impl Person {
    pub(super) fn new(client: Client) -> Self {
        Person { client }
    }

    /// Open questions, followed by new ones. While this stream is open, a person counts as reachable.
    pub async fn questions(&self) -> Result<Questions, Error> {
        QuestionFollower::begin(&self.client, Vec::new())
            .await
            .map(Questions)
    }

    /// Answers a question in one of the words that it offers: `yes` or `no`, about a command of an agent also `once`,
    /// `this agent`, `always here`, `always` or `no, because …`. The first answer counts; a later one is refused with a
    /// sentence that says what became of the question.
    pub async fn answer(&self, question: &str, words: &str) -> Result<(), Error> {
        self.client.answer(question, words).await.map(drop)
    }

    /// Reads any resource that the HTTP interface shows to a person, such as `/v1/sessions`.
    pub async fn get(&self, path: &str) -> Result<Value, Error> {
        self.client.get(path).await
    }
}

/// Stream of questions.
pub struct Questions(QuestionFollower);

impl Questions {
    /// Waits for the next question. `None`: abide has stopped.
    pub async fn next(&mut self) -> Result<Option<Question>, Error> {
        while let Some(change) = self.0.next().await? {
            if let QuestionEvent::Open(details) = change {
                return Ok(Some(Question::of(&details)));
            }
        }
        Ok(None)
    }
}
