//! Questions: listing, following, and answering, with the checks for each.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use abide_api::{
    Answered, Id, QuestionAbout, QuestionDetails, QuestionEvent, QuestionLine, QuestionPage,
};
use abide_core::policy::Choice;
use abide_core::{Millis, Mono, QuestionId};
use axum::extract::{Path, State as Shared};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::broadcast;

use super::body::{JsonBody, JsonResponse, Query};
use super::problem::Problem;
use super::requester::{self, Requester};
use super::{State, headers, json_lines, pagination, session_activity};
use crate::fleet::{self, QuestionFollower};
use crate::strict_json::StrictJson;
use crate::tools::{self, AnswerFault, GivenAnswer, question_fields};
use abide_engine::clock::{SystemClock, sleep_until};
use abide_engine::store::closing_word;
use abide_engine::{Change, Handle, QuestionView};

/// Time between two looks at the questions of other machines.
const LOOK_ELSEWHERE: Millis = Millis::from_secs(1);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuestionListQuery {
    /// If true, questions that are opened or closed are sent too, one JSON object per line.
    #[serde(default, deserialize_with = "pagination::flag")]
    follow: bool,
    /// Maximum number of questions, 1 to 1000.
    #[serde(default, deserialize_with = "pagination::count")]
    #[schemars(with = "Option<usize>")]
    limit: Option<usize>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
    /// With `follow`: ids of questions that the client knows as open, separated by commas. Only their
    /// closing is sent.
    told: Option<String>,
}

/// Lists the open questions. With `follow`: a line for each open question, and for each that is opened
/// or closed. A person who holds the stream open counts as available for questions.
pub async fn list(
    Shared(state): Shared<State>,
    requester: Requester,
    Query(query): Query<QuestionListQuery>,
) -> Result<Response, Problem> {
    if !query.follow {
        let page = page(&state, &requester, &query).await?;
        return Ok(JsonResponse(page).into_response());
    }
    let watcher = requester
        .may_be_a_person()
        .then(|| state.handle.add_watcher());
    let changes = state.handle.published().follow();
    let known = parse_known(query.told.as_deref())?;
    let login = requester.login();
    let has_others = state.handle.other_machines().is_some() && !requester.is_another_machine();
    let mut question_stream = QuestionStream {
        handle: state.handle.clone(),
        elsewhere: QuestionFollower::new(state.handle.clone()),
        look_at: has_others.then(|| SystemClock.mono()),
        requester,
        changes,
        known,
        ready: VecDeque::new(),
        open: Vec::new(),
        _watcher: watcher,
    };
    question_stream.catch_up().await;
    let lines = stream::unfold(question_stream, async |mut stream| {
        Some((stream.next().await?, stream))
    });
    Ok(json_lines(&state, login, lines))
}

fn parse_known(ids: Option<&str>) -> Result<HashSet<QuestionId>, Problem> {
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

/// Closing lines for questions that the client knows as open but that were closed meanwhile. Removes
/// them from `known`.
async fn missed_closings(
    handle: &Handle,
    requester: &Requester,
    open: &[Arc<QuestionView>],
    known: &mut HashSet<QuestionId>,
) -> Vec<QuestionLine> {
    let own = |session: &str| {
        let session = session.parse().ok();
        let view = session.and_then(|session| handle.published().session(session));
        let agent = requester.agent.as_ref();
        agent.is_none_or(|agent| view.is_some_and(|view| view.state.agent == *agent))
    };
    let mut lines = Vec::new();
    let is_open = |id: &QuestionId| open.iter().any(|question| question.id == *id);
    let missed: Vec<QuestionId> = known.iter().copied().filter(|id| !is_open(id)).collect();
    for id in missed {
        // Without a row, the closing is not stored yet and will arrive as a change.
        if let Ok(Some((session, closing))) = handle.store_reader().question_closing(id).await
            && own(&session)
        {
            lines.push(closed(id, &closing));
            known.remove(&id);
        }
    }
    lines
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
    })
}

/// Facts that a person needs to answer a question.
pub async fn details(handle: &Handle, question: &QuestionView) -> QuestionDetails {
    let fields = question_fields(question);
    let view = handle.published().session(question.state.session());
    QuestionDetails {
        facts: fields.doing.clone(),
        question: fields,
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

struct QuestionStream {
    handle: Handle,
    requester: Requester,
    changes: broadcast::Receiver<Change>,
    /// Open questions that the client knows, from this or an earlier stream. Only for these a closing line is sent.
    known: HashSet<QuestionId>,
    /// Lines that are still to be sent: closings that the client has missed, and questions of other machines.
    ready: VecDeque<QuestionLine>,
    /// Open questions that were not sent yet, oldest last.
    open: Vec<Arc<QuestionView>>,
    elsewhere: QuestionFollower,
    /// Time of the next look at the questions of other machines; `None`: there are none.
    look_at: Option<Mono>,
    _watcher: Option<abide_engine::WatcherGuard>,
}

impl QuestionStream {
    async fn next(&mut self) -> Option<QuestionLine> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            if let Some(question) = self.open.pop() {
                self.known.insert(question.id);
                return Some(opened(&question));
            }
            let change = tokio::select! {
                change = self.changes.recv() => change,
                () = sleep_until(&SystemClock, self.look_at) => {
                    self.look_elsewhere().await;
                    continue;
                }
            };
            match change {
                Ok(Change::Asked(question)) => {
                    // A question is in the list just before its change arrives, and a restarted daemon
                    // asks again: send it once.
                    if self.requester.sees(&question.agent) && self.known.insert(question.id) {
                        return Some(opened(&question));
                    }
                }
                Ok(Change::Closed(question, _)) if !self.known.remove(&question) => {}
                Ok(Change::Closed(question, closing)) => {
                    return Some(closed(question, closing_word(closing)));
                }
                Ok(
                    Change::Session(_)
                    | Change::Timer(_)
                    | Change::Message(..)
                    | Change::MessageUpdated(_),
                ) => {}
                // Changes were lost because the client reads slowly.
                Err(broadcast::error::RecvError::Lagged(_)) => self.catch_up().await,
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// Reads the open questions, and what became of those that the client knows as open.
    async fn catch_up(&mut self) {
        let mut open = visible_questions(&self.handle, &self.requester);
        open.reverse();
        let missed = missed_closings(&self.handle, &self.requester, &open, &mut self.known);
        self.ready.extend(missed.await);
        open.retain(|question| !self.known.contains(&question.id));
        self.open = open;
    }

    async fn look_elsewhere(&mut self) {
        for (agent, event) in self.elsewhere.look().await {
            if !self.requester.sees(&agent) {
                continue;
            }
            match event {
                QuestionEvent::Open(details) => {
                    let question = details.question;
                    if self.known.insert(question.question_id.0) {
                        let line = QuestionLine::Asked(Box::new(question));
                        self.ready.push_back(line);
                    }
                }
                QuestionEvent::Closed {
                    question_id,
                    closing,
                } => {
                    if self.known.remove(&question_id.0) {
                        self.ready.push_back(closed(question_id.0, &closing));
                    }
                }
            }
        }
        self.look_at = Some(SystemClock.mono() + LOOK_ELSEWHERE);
    }
}

fn closed(question: QuestionId, closing: &str) -> QuestionLine {
    QuestionLine::Closed {
        question_id: Id(question),
        closing: closing.into(),
    }
}

fn opened(question: &QuestionView) -> QuestionLine {
    QuestionLine::Asked(Box::new(question_fields(question)))
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
        answer: word,
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
            answer: answer_word(closed.about, &given),
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
        AnswerFault::NotRemembered(sentence) => Problem::fault(sentence),
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
    let seconds = given.as_f64().filter(|seconds| *seconds > 0.0);
    let time = seconds.map(|seconds| Millis((seconds * 1_000.0) as u64));
    let time = time.filter(|time| *time <= Millis::MAX);
    time.map(Some).ok_or_else(|| {
        Problem::bad_input(format!(
            "`quiet_for` must be a number of seconds above 0 and at most 100 years; got {given}"
        ))
    })
}
