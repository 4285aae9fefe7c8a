//! Answers of people to questions: given to the engine, recorded in the audit log, and kept as rules.

use std::path::Path;

use abide_api::AuditLine;
use abide_core::policy::Choice;
use abide_core::request::Caller;
use abide_core::{Answer, Closing, Key, Millis, Outcome, QuestionId, Refusal, Request, shorten};
use abide_engine::policy::audit::Unrecorded;
use abide_engine::store::ClosedQuestion;
use abide_engine::{Handle, HeldLaunch, QuestionView};
use abide_output::mask::Mask;

use super::policy::CORRECT_AUDIT;
use super::{approved, equal_connections};

/// Longest reason of a person for a no, in characters.
const BECAUSE_CHARS: usize = 2_000;

/// Answer of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GivenAnswer {
    pub choice: Choice,
    /// Words for the agent, after a no.
    pub because: Option<String>,
    /// After a yes about an idle session: time during which it is not asked about again.
    pub quiet_for: Option<Millis>,
    /// Idempotency key: the same answer under the same key is taken once, and not refused when it comes again.
    pub key: Option<String>,
}

impl GivenAnswer {
    /// Answer in words: `yes` is `once`, and `no, because …` has the reason in it.
    pub fn parse(words: &str) -> Option<Self> {
        let words = words.trim();
        let lower = words.to_lowercase();
        let (choice, because) = match lower.as_str() {
            "yes" => (Choice::Once, None),
            word => match Choice::of_word(word) {
                Some(choice) => (choice, None),
                None => {
                    let rest = lower
                        .strip_prefix("no, because")
                        .or_else(|| lower.strip_prefix("no because"))?;
                    let from = words.len() - rest.len();
                    let because = words.get(from..)?.trim();
                    (
                        Choice::No,
                        Some(because.to_owned()).filter(|words| !words.is_empty()),
                    )
                }
            },
        };
        Some(GivenAnswer {
            choice,
            because,
            quiet_for: None,
            key: None,
        })
    }

    fn answer(&self) -> Answer {
        match self.choice {
            Choice::No => Answer::No,
            Choice::Once | Choice::ThisAgent | Choice::AlwaysHere | Choice::Always => Answer::Yes,
        }
    }

    /// True if this is the answer that closed the question.
    pub fn has_closed(&self, closed: &ClosedQuestion) -> bool {
        let closing = Closing::Answered(self.answer());
        self.key.is_some() && self.key == closed.key && closed.closing == closing
    }

    /// Success, unless the answer adds a rule: a daemon that has taken it and is gone may not have written that.
    pub fn check_rule(&self) -> Result<(), AnswerFault> {
        match self.choice {
            Choice::Once | Choice::No => Ok(()),
            Choice::ThisAgent | Choice::AlwaysHere | Choice::Always => {
                Err(AnswerFault::NotRemembered(RULE_UNKNOWN.into()))
            }
        }
    }
}

/// Sentence about an answer whose rule is written after it counts, if the daemon that has taken it is gone.
const RULE_UNKNOWN: &str =
    "the answer counts, but its rule may be missing; `abide policy list` shows the rules";

/// Fault of an answer that was not taken, or only in part.
pub(crate) enum AnswerFault {
    /// The question does not have this answer.
    NotOffered(String),
    /// The engine refused the answer.
    Refused(Refusal),
    /// A yes to a command that the rules or the settings refuse by now, for this reason.
    NotPermitted(String),
    /// The answer could not be recorded, so it was not taken.
    NotRecorded(String),
    /// The answer counts, but its rule could not be written.
    NotRemembered(String),
    /// The daemon is stopping.
    Stopping,
}

/// Result of an answer that the engine has refused. An earlier daemon may have closed the question, perhaps with this
/// very answer, which comes again because nobody was told.
async fn answer_refused(
    handle: &Handle,
    refusal: Refusal,
    given: &GivenAnswer,
) -> Result<(), AnswerFault> {
    let Refusal::QuestionNotFound(id) = refusal else {
        return Err(AnswerFault::Refused(refusal));
    };
    let closed = handle.store_reader().closed_question(id).await;
    let closed = closed.ok().flatten();
    if let Some(closed) = &closed
        && given.has_closed(closed)
    {
        return given.check_rule();
    }
    Err(AnswerFault::Refused(match closed {
        Some(closed) => Refusal::QuestionClosed(id, closed.closing),
        None => refusal,
    }))
}

/// Gives the answer of a person to the engine, and keeps the rules that it adds. `by` is the channel of the answer. Both are
/// done to the end, also if the caller goes away meanwhile.
pub(crate) async fn answer(
    handle: &Handle,
    caller: Caller,
    question: QuestionId,
    given: GivenAnswer,
    by: &'static str,
) -> Result<(), AnswerFault> {
    let handle = handle.clone();
    let answered =
        tokio::spawn(async move { answer_now(&handle, caller, question, given, by).await });
    answered.await.unwrap_or(Err(AnswerFault::Stopping))
}

async fn answer_now(
    handle: &Handle,
    caller: Caller,
    question: QuestionId,
    given: GivenAnswer,
    by: &str,
) -> Result<(), AnswerFault> {
    let view = handle.published().question(question);
    let mut adds = None;
    if let Some(view) = &view {
        let offers = view.state.offers();
        match offers.iter().find(|(choice, _)| *choice == given.choice) {
            Some((_, text)) => adds = Some(text.clone()),
            // An idle session: yes or no.
            None if offers.is_empty() && matches!(given.choice, Choice::Once | Choice::No) => {}
            None if offers.is_empty() => {
                return Err(AnswerFault::NotOffered("yes, no".into()));
            }
            None => {
                let known: Vec<&str> = offers.iter().map(|(choice, _)| choice.as_str()).collect();
                return Err(AnswerFault::NotOffered(known.join(", ")));
            }
        }
        if let Some(adds) = &adds {
            let recorded = audit_answer(handle, view, &given, adds, by);
            // A no takes effect all the same.
            if let (Err(why), Answer::Yes) = (recorded, given.answer()) {
                return Err(AnswerFault::NotRecorded(format!(
                    "{why}. The question stays open. {CORRECT_AUDIT}"
                )));
            }
        }
    }
    let held = view.as_ref().and_then(|view| view.state.held());
    let refused = held.filter(|_| given.answer() == Answer::Yes);
    let refused = refused.and_then(|held| approved::refusal(handle, question, held));
    let because = refused.as_ref().or(given.because.as_ref());
    let request = Request::Answer {
        question,
        answer: match refused {
            Some(_) => Answer::Refused,
            None => given.answer(),
        },
        quiet_for: given.quiet_for,
        because: because.map(|words| shorten(words, BECAUSE_CHARS).into()),
        key: given.key.as_deref().map(|key| Key(key.into())),
    };
    let asker = caller.clone();
    let pending = handle.call(caller, request, None).await;
    match pending.done().await {
        None => return Err(AnswerFault::Stopping),
        Some(Outcome::Refused(refusal)) => return answer_refused(handle, refusal, &given).await,
        Some(_) => {}
    }
    if let Some(why) = refused {
        return Err(AnswerFault::NotPermitted(why));
    }
    if let (Some(view), Some(adds)) = (view, adds) {
        remember(handle, &view, given.choice, &adds)?;
        if view.state.connection().is_some() {
            equal_connections::allow(handle, &asker, by).await;
        }
    }
    Ok(())
}

/// Writes the answer to a question into the audit log.
pub(super) fn audit_answer(
    handle: &Handle,
    question: &QuestionView,
    given: &GivenAnswer,
    adds: &str,
    by: &str,
) -> Result<(), Unrecorded> {
    let state = &question.state;
    let held = state.held();
    let connection = state.connection();
    let secrets = match held {
        Some(held) => HeldLaunch::secrets_of(held),
        None => handle.secrets(state.session()),
    };
    handle.audit().record(AuditLine {
        event: "answered".into(),
        agent: question.agent.0.to_string(),
        folder: (held.map(|held| held.approval.folder.to_string()))
            .or_else(|| connection.map(|connection| connection.folder.to_string()))
            .unwrap_or_default(),
        command: Mask::of(secrets).apply(question.command.to_string()),
        connection: connection.map(|connection| format!("{}:{}", connection.name, connection.port)),
        question_id: Some(question.id.to_string()),
        answer: Some(given.choice.as_str().into()),
        why: given.because.clone(),
        by: Some(by.into()),
        added: Some(adds.to_owned())
            .filter(|text| !text.is_empty())
            .into_iter()
            .collect(),
        ..AuditLine::default()
    })
}

/// Keeps what an answer adds: rules, or a name of the allowlist.
fn remember(
    handle: &Handle,
    question: &QuestionView,
    choice: Choice,
    adds: &str,
) -> Result<(), AnswerFault> {
    let (kept, what) = match (question.state.held(), question.state.connection()) {
        (Some(held), _) if !adds.is_empty() => {
            let conversation = held.conversation.as_ref();
            let kept = handle.policy().remember_text(choice, adds, conversation);
            (kept, "the command is started, but the rule")
        }
        (_, Some(connection)) => {
            let session = handle.published().session(question.state.session());
            let conversation = session.and_then(|view| view.state.conversation.clone());
            let host = format!("{}:{}", connection.name, connection.port);
            let kept = handle.policy().remember_host(
                choice,
                &host,
                &question.agent,
                conversation.as_ref(),
                Path::new(&*connection.folder),
            );
            (kept, "the connection continues, but the name")
        }
        _ => return Ok(()),
    };
    kept.map_err(|fault| {
        AnswerFault::NotRemembered(format!("{what} could not be written: {fault}"))
    })
}
