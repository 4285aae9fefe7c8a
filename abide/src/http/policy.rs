//! Rules for commands, decisions about them, and refusals of sandboxes. Only for people: an agent could learn here which
//! words no rule names.

use abide_api::{
    AuditLine, AuditPage, AuditVerified, PolicyRemoved, PolicyRules, PolicyTest, PolicyTested,
    RefusalPage,
};
use abide_engine::config;
use abide_engine::policy::audit::AuditLog;
use abide_output::mask::Mask;
use axum::extract::{Path, State as Shared};
use schemars::JsonSchema;
use serde::Deserialize;

use super::body::{JsonBody, JsonResponse, Query};
use super::pagination::{self, SearchText};
use super::problem::Problem;
use super::requester::{self, Requester};
use super::sessions;
use super::state::State;
use crate::tools::{refusals, rules};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    /// Only decisions of this kind: `allow`, `ask`, `deny`, `broken`, `answered`, `expired`, `removed` or `refused`.
    event: Option<String>,
    /// Leave out commands that were started because no rule is about them.
    #[serde(default, deserialize_with = "pagination::flag")]
    ruled: bool,
    /// Only decisions about this agent.
    agent: Option<String>,
    /// Only decisions with this text in their command, rule or reason.
    q: Option<String>,
    /// Maximum number of decisions, 1 to 1000.
    #[serde(default, deserialize_with = "pagination::count")]
    #[schemars(with = "Option<usize>")]
    limit: Option<usize>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RefusalQuery {
    /// Maximum number of sessions, 1 to 1000.
    #[serde(default, deserialize_with = "pagination::count")]
    #[schemars(with = "Option<usize>")]
    limit: Option<usize>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

fn check_person(requester: &Requester) -> Result<(), Problem> {
    match requester.may_be_a_person() {
        true => Ok(()),
        false => Err(Problem::forbidden(
            "the rules and decisions are shown to people only",
        )),
    }
}

/// Rules in force, with the origin and the reason of each.
pub async fn list(
    Shared(state): Shared<State>,
    requester: Requester,
) -> Result<JsonResponse<PolicyRules>, Problem> {
    check_person(&requester)?;
    Ok(JsonResponse(rules::rules(state.handle.policy())))
}

/// Says what the rules decide about a command line. Nothing is run.
pub async fn test(
    Shared(state): Shared<State>,
    requester: Requester,
    body: JsonBody,
) -> Result<JsonResponse<PolicyTested>, Problem> {
    check_person(&requester)?;
    let body: PolicyTest = body.into()?;
    let agent = match &body.agent {
        Some(name) => requester::agent(name.as_bytes())?,
        None => requester.acting_agent(),
    };
    let folder = body.cwd.map_or_else(config::home, Into::into);
    if !folder.is_absolute() {
        return Err(Problem::bad_input("`cwd` must be an absolute path"));
    }
    let command = body.command;
    let judged = rules::test(state.handle.policy(), &agent, &folder, &command);
    let judged =
        judged.map_err(|broken| Problem::fault(format!("the policy cannot be used: {broken}")))?;
    Ok(JsonResponse(rules::tested(&command, &judged)))
}

/// Removes a rule that the answer "always" has written.
pub async fn remove(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(name): Path<String>,
) -> Result<JsonResponse<PolicyRemoved>, Problem> {
    if !requester.may_be_a_person() {
        return Err(Problem::forbidden(
            "an agent cannot change the rules; only a person can",
        ));
    }
    requester.check_again().await?;
    let removed = rules::remove(state.handle.policy(), state.handle.audit(), &name);
    match removed {
        Ok(true) => Ok(JsonResponse(PolicyRemoved { removed: name })),
        Ok(false) => Err(Problem::not_found(format!(
            "no rule that the answer `always` wrote is called '{}'",
            crate::tools::shown(&name)
        ))),
        Err(fault) => Err(Problem::fault(format!(
            "the rule could not be removed: {fault}"
        ))),
    }
}

/// Lists decisions, newest first.
pub async fn audit(
    Shared(state): Shared<State>,
    requester: Requester,
    Query(query): Query<AuditQuery>,
) -> Result<JsonResponse<AuditPage>, Problem> {
    check_person(&requester)?;
    let limit = pagination::limit(query.limit)?;
    let after = match &query.after {
        None => None,
        Some(after) => Some(
            after
                .parse()
                .map_err(|()| pagination::invalid_cursor(after))?,
        ),
    };
    let text = query.q.as_deref().map(SearchText::new);
    let matches = move |entry: &AuditLine| {
        let is_wanted =
            |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        let parts = [
            Some(entry.command.as_str()),
            entry.rule.as_deref(),
            entry.why.as_deref(),
        ];
        let has = |text: &SearchText| {
            parts
                .iter()
                .flatten()
                .any(|part| text.is_contained_in(part))
        };
        let is_ruled = || !query.ruled || !entry.is_unruled();
        is_wanted(&query.event, &entry.event)
            && is_ruled()
            && is_wanted(&query.agent, &entry.agent)
            && text.as_ref().is_none_or(has)
    };
    let page = on_thread(&state, move |log| log.page(after.as_ref(), limit, matches)).await?;
    Ok(JsonResponse(AuditPage {
        entries: page.entries,
        next: page.next.map(|next| next.to_string()),
    }))
}

/// Checks the chain of the audit log.
pub async fn verify(
    Shared(state): Shared<State>,
    requester: Requester,
) -> Result<JsonResponse<AuditVerified>, Problem> {
    check_person(&requester)?;
    Ok(JsonResponse(
        on_thread(&state, |log| rules::verify(&log)).await?,
    ))
}

/// Reads the audit log on a thread of its own: it may be long.
async fn on_thread<T: Send + 'static>(
    state: &State,
    read: impl FnOnce(AuditLog) -> T + Send + 'static,
) -> Result<T, Problem> {
    let log = AuditLog::new(state.daemon.paths.audit());
    tokio::task::spawn_blocking(move || read(log))
        .await
        .map_err(|_| Problem::stopping())
}

/// Lists sessions in which a sandbox refused something, newest first.
pub async fn refusals(
    Shared(state): Shared<State>,
    requester: Requester,
    Query(query): Query<RefusalQuery>,
) -> Result<JsonResponse<RefusalPage>, Problem> {
    check_person(&requester)?;
    let limit = pagination::limit(query.limit)?;
    let mut views = state.handle.published().sessions();
    views.sort_by_key(|view| std::cmp::Reverse(sessions::sort_key(view)));
    if let Some(after) = &query.after {
        let last = requester.session(&state, after);
        let last = last.map_err(|_| pagination::invalid_cursor(after))?;
        views.retain(|view| sessions::sort_key(view) < sessions::sort_key(&last));
    }
    let mut found = views.iter().filter_map(|view| {
        let mask = Mask::of(state.handle.secrets(view.id));
        refusals::of_session(view, &mask)
    });
    let sessions: Vec<_> = found.by_ref().take(limit).collect();
    let more = found.next().is_some();
    let next = sessions
        .last()
        .filter(|_| more)
        .map(|last| last.session_id.0.to_string());
    Ok(JsonResponse(RefusalPage { sessions, next }))
}
