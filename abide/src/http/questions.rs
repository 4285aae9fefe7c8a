//! Questions: listing and answering, with the checks for each.

use std::sync::Arc;

use abide_api::arguments::{FromArgument, PositiveSeconds};
use abide_api::{Answered, ClosedQuestion, Id, QuestionAbout, QuestionDetails, QuestionPage};
use abide_core::policy::Choice;
use abide_core::{Millis, QuestionId};
use axum::extract::{Path, State as Shared};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::body::{JsonBody, JsonResponse, Query};
use super::problem::Problem;
use super::requester::{self, Requester};
use super::{State, headers, pagination, session_activity};
use crate::fleet;
use crate::strict_json::StrictJson;
use crate::tools::{self, AnswerFault, GivenAnswer, question_fields};
use abide_engine::{Handle, QuestionView};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuestionListQuery {
    /// Maximum number of questions, 1 to 1000.
    #[serde(default, deserialize_with = "pagination::count")]
    #[schemars(with = "Option<usize>")]
    limit: Option<usize>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
    /// Ids of questions that the client knows as open, separated by commas. Those that are closed are listed in `closed`.
    told: Option<String>,
}

/// Lists the open questions.
pub async fn list(
    Shared(state): Shared<State>,
    requester: Requester,
    Query(query): Query<QuestionListQuery>,
) -> Result<JsonResponse<QuestionPage>, Problem> {
    let known = parse_known(query.told.as_deref())?;
    state.handle.published().asked_questions_shown().await;
    let mut page = page(&state, &requester, &query).await?;
    page.closed = closed(&state.handle, &requester, known).await;
    Ok(JsonResponse(page))
}

fn parse_known(ids: Option<&str>) -> Result<Vec<QuestionId>, Problem> {
    let ids = ids.into_iter().flat_map(|ids| ids.split(','));
    ids.map(|id| {
        id.parse().map_err(|_| {
            let shown = tools::shown(id);
            Problem::bad_input(format!(
                "`told` must be question ids separated by commas; got {shown}"
            ))
        })
    })
    .collect()
}

/// Those of these questions that are closed, as far as the database has it.
async fn closed(
    handle: &Handle,
    requester: &Requester,
    known: Vec<QuestionId>,
) -> Vec<ClosedQuestion> {
    let own = |session: &str| {
        let session = session.parse().ok();
        let view = session.and_then(|session| handle.published().session(session));
        let agent = requester.agent.as_ref();
        agent.is_none_or(|agent| view.is_some_and(|view| view.state.agent == *agent))
    };
    let mut all = Vec::new();
    for id in known {
        if handle.published().question(id).is_none()
            && let Ok(Some((session, closing))) = handle.store_reader().question_closing(id).await
            && own(&session)
        {
            let question_id = Id(id);
            all.push(ClosedQuestion {
                question_id,
                closing,
            });
        }
    }
    all
}

/// Page of open questions, oldest first; those of other machines are behind the last one of this machine.
async fn page(
    state: &State,
    requester: &Requester,
    query: &QuestionListQuery,
) -> Result<QuestionPage, Problem> {
    let most = pagination::limit(query.limit)?;
    let all = visible_questions(&state.handle, requester);
    let mut total = all.len();
    let from = match query.after.as_deref().map(str::parse::<QuestionId>) {
        None => 0,
        Some(Ok(after)) => all
            .iter()
            .position(|open| open.id == after)
            .map_or(0, |at| at + 1),
        Some(Err(_)) => {
            return Err(pagination::invalid_cursor(
                query.after.as_deref().unwrap_or(""),
            ));
        }
    };
    let shown = &all[from..total.min(from + most)];
    let next = shown.last().filter(|_| from + shown.len() < total);
    let next = next.map(|question| question.id.to_string());
    let mut questions = Vec::with_capacity(shown.len());
    for question in shown {
        questions.push(details(&state.handle, question).await);
    }
    if next.is_none() && !requester.is_another_machine() {
        let elsewhere = fleet::questions(&state.handle, requester.agent.as_ref()).await;
        total += elsewhere.len();
        questions.extend(elsewhere);
    }
    Ok(QuestionPage {
        questions,
        next,
        total,
        closed: Vec::new(),
    })
}

/// Facts that a person needs to answer a question.
pub async fn details(handle: &Handle, question: &QuestionView) -> QuestionDetails {
    let view = handle.published().session(question.state.session());
    QuestionDetails {
        question: question_fields(question),
        idle_for: (view.as_ref()).and_then(|view| super::sessions::session_from(view).idle_for),
        tail: match &view {
            Some(view) => session_activity::tail(handle, view).await,
            None => Vec::new(),
        },
    }
}

/// Open questions that a requester may see, oldest first.
pub fn visible_questions(handle: &Handle, requester: &Requester) -> Vec<Arc<QuestionView>> {
    let mut open = handle.published().questions();
    open.retain(|question| requester.sees(&question.agent));
    open.sort_by_key(|question| (question.state.asked, question.id));
    open
}

/// Longest idempotency key of an answer, in bytes.
const KEY_LIMIT: usize = 256;

/// Records a person's answer. The first answer counts; a later one is refused with what became of the question, unless
/// it is the first that comes again under its key.
pub async fn answer(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<JsonResponse<Answered>, Problem> {
    if requester.is_inside_a_session() {
        return Err(Problem::forbidden(
            "a command cannot answer a question; only a person can",
        ));
    }
    requester.refuse_agent("answer a question")?;
    let not_found = || Problem::not_found(format!("Question '{id}' not found"));
    let question: QuestionId = id.parse().map_err(|_| not_found())?;
    let view = state.handle.published().question(question);
    // A question that is no longer open is refused with its closing, whatever the words are.
    let about_idle = view
        .as_ref()
        .is_some_and(|view| view.state.idle().is_some());
    let about = match &view {
        Some(view) => question_fields(view).about,
        None => about_closed(&state.handle, question).await,
    };
    let about_command = view.is_some_and(|view| !view.state.offers().is_empty());
    let words = body.get("answer").and_then(Value::as_str);
    let words = words.filter(|words| !about_idle || ["yes", "no"].contains(words));
    let Some(mut given) = words.and_then(GivenAnswer::parse) else {
        let given = body.get("answer").unwrap_or(&Value::Null);
        let known = match about_command {
            true => "one of the answers that the question offers",
            false => "\"yes\" or \"no\"",
        };
        let detail = format!("`answer` must be {known}; got {given}");
        return Err(Problem::bad_input(detail));
    };
    let no = given.choice == Choice::No;
    if let Some(because) = body.get("because").and_then(Value::as_str) {
        if !no {
            return Err(Problem::bad_input("`because` needs the answer \"no\""));
        }
        given.because = Some(because.to_owned());
    }
    given.quiet_for = parse_quiet_for(body.get("quiet_for"), no)?;
    given.key = answer_key(&headers)?;
    requester.check_again().await?;
    let word = answer_word(about, &given);
    let answered =
        tools::answer(&state.handle, requester.caller(), question, given, "person").await;
    answered.map_err(|fault| problem(fault, word))?;
    Ok(JsonResponse(Answered {
        question_id: Id(question),
        about,
        answer: word.to_owned(),
    }))
}

/// Subject of a question that is not open any more.
async fn about_closed(handle: &Handle, question: QuestionId) -> QuestionAbout {
    let closed = handle.store_reader().closed_question(question).await;
    let closed = closed.ok().flatten();
    closed.map_or(QuestionAbout::Idle, |closed| closed.about)
}

/// Idempotency key of an answer.
fn answer_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let key = requester::text(headers, headers::KEY_HEADER)?;
    if key.is_some_and(|key| key.len() > KEY_LIMIT) {
        return Err(Problem::bad_input(format!(
            "`{}` must have at most {KEY_LIMIT} bytes",
            headers::KEY_HEADER
        )));
    }
    Ok(key.map(str::to_owned))
}

/// Word of an answer in the response.
fn answer_word(about: QuestionAbout, given: &GivenAnswer) -> &'static str {
    match about {
        QuestionAbout::Command | QuestionAbout::Connection => given.choice.as_str(),
        QuestionAbout::Idle if given.choice == Choice::No => "no",
        QuestionAbout::Idle => "yes",
    }
}

/// Answer that another machine has taken, as the row of its question says, if its response does not arrive. `None`: it is
/// not known to have taken this one.
pub async fn answer_taken_elsewhere(
    handle: &Handle,
    id: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Option<Response> {
    let question: QuestionId = id.parse().ok()?;
    let StrictJson(body) = serde_json::from_slice(body).ok()?;
    let mut given = GivenAnswer::parse(body.get("answer")?.as_str()?)?;
    given.key = answer_key(headers).ok()?;
    let closed = handle.store_reader().closed_question(question).await;
    let closed = closed.ok()?.filter(|closed| given.has_closed(closed))?;
    let taken = given.check_rule().map(|()| {
        JsonResponse(Answered {
            question_id: Id(question),
            about: closed.about,
            answer: answer_word(closed.about, &given).to_owned(),
        })
    });
    let taken = taken.map_err(|fault| problem(fault, given.choice.as_str()));
    Some(taken.into_response())
}

fn problem(fault: AnswerFault, word: &str) -> Problem {
    match fault {
        AnswerFault::NotOffered(known) => {
            Problem::bad_input(format!("`answer` must be one of {known}; got {word}"))
        }
        AnswerFault::Refused(refusal) => Problem::from(&refusal),
        AnswerFault::NotPermitted(why) => {
            Problem::forbidden(format!("The command was not started: {why}"))
        }
        AnswerFault::NotRecorded(sentence) | AnswerFault::NotRemembered(sentence) => {
            Problem::fault(sentence)
        }
        AnswerFault::Stopping => Problem::stopping(),
    }
}

/// Duration for which the question is not repeated; only valid with the answer yes.
fn parse_quiet_for(given: Option<&Value>, no: bool) -> Result<Option<Millis>, Problem> {
    let Some(given) = given.filter(|given| !given.is_null()) else {
        return Ok(None);
    };
    if no {
        return Err(Problem::bad_input("`quiet_for` needs the answer \"yes\""));
    }
    let PositiveSeconds(time) = PositiveSeconds::read("quiet_for", given.clone())?;
    Ok(Some(time))
}
