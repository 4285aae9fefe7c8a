//! Ids that a word typed by a person may stand for: a unique prefix, a name or `last`. The command line resolves words
//! and completes ids with it.

use std::fmt;

use abide_api::{KnownId, KnownIds, Session};
use abide_core::session_name::LAST;
use abide_output::printable::one_line;
use axum::extract::State as Shared;
use schemars::JsonSchema;
use serde::Deserialize;

use super::body::{JsonResponse, Query};
use super::problem::Problem;
use super::questions::visible_questions;
use super::requester::Requester;
use super::sessions::sort_key;
use super::state::State;
use crate::fleet;
use abide_engine::store::{EndedFilter, TimerQuery};

/// Limit on ids in an answer.
const ID_LIMIT: usize = 200;
/// Timers that are read at once.
const TIMER_PAGE: usize = 1_000;
/// Most characters of what an id belongs to.
const ABOUT: usize = 60;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdQuery {
    kind: IdKind,
    /// Beginning of an id, with or without its kind; a session's name; or `last`. Without it, all ids are meant.
    word: Option<String>,
}

/// Kind of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IdKind {
    Session,
    Timer,
    Question,
}

impl fmt::Display for IdKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IdKind::Session => "session",
            IdKind::Timer => "timer",
            IdKind::Question => "question",
        })
    }
}

/// Lists the ids that a word may stand for.
pub async fn list(
    Shared(state): Shared<State>,
    requester: Requester,
    Query(IdQuery { kind, word }): Query<IdQuery>,
) -> Result<JsonResponse<KnownIds>, Problem> {
    let word = word.filter(|word| !word.is_empty());
    let mut ids = match kind {
        IdKind::Session => sessions(&state, &requester).await,
        IdKind::Question => questions(&state, &requester).await,
        IdKind::Timer => timers(&state, &requester, word.as_deref()).await?,
    };
    if let Some(word) = &word {
        ids = meant(ids, word, &format!("{kind}_"));
    }
    let total = ids.len();
    ids.truncate(ID_LIMIT);
    Ok(JsonResponse(KnownIds { ids, total }))
}

/// Ids, newest first, that a word stands for: the newest for `last`, the newest with that name, else all that begin
/// with the word.
fn meant(mut ids: Vec<KnownId>, word: &str, prefix: &str) -> Vec<KnownId> {
    if word == LAST {
        ids.truncate(1);
        return ids;
    }
    let named = |known: &KnownId| known.name.as_deref() == Some(word);
    if let Some(at) = ids.iter().position(named) {
        return vec![ids.swap_remove(at)];
    }
    let begins = |id: &str| {
        let rest = id.strip_prefix(prefix);
        id.starts_with(word) || rest.is_some_and(|rest| rest.starts_with(word))
    };
    ids.retain(|known| begins(&known.id));
    ids
}

/// Sessions that a call started, on any machine, newest first; those of conditions and wakers are not typed by people.
async fn sessions(state: &State, requester: &Requester) -> Vec<KnownId> {
    let mut views = state.handle.published().sessions();
    views.retain(|view| {
        let called = !view.state.started_by.is_try();
        called && view.visible_to(requester.agent.as_ref())
    });
    views.sort_by_key(|view| std::cmp::Reverse(sort_key(view)));
    let mut known: Vec<(u64, KnownId)> = (views.iter())
        .map(|view| {
            let id = KnownId {
                id: view.id.to_string(),
                name: view.name.as_ref().map(ToString::to_string),
                about: about(&view.state.command),
                ended: !view.is_alive(),
            };
            (view.state.created.0, id)
        })
        .collect();
    let elsewhere = fleet::sessions(&state.handle, requester.agent.as_ref(), true).await;
    if !elsewhere.is_empty() {
        known.extend((elsewhere.into_iter()).filter_map(id_elsewhere));
        known.sort_by_key(|(created, _)| std::cmp::Reverse(*created));
    }
    known.into_iter().map(|(_, id)| id).collect()
}

/// Time of creation and id of a session of another machine, if a call started it.
fn id_elsewhere(session: Session) -> Option<(u64, KnownId)> {
    if session.summary.started_by.is_some() {
        return None;
    }
    let on = session.machine.unwrap_or_default();
    let known = KnownId {
        id: session.summary.session_id.0.to_string(),
        name: session.name,
        about: about(&format!("on {on}: {}", session.command)),
        ended: session.ended_at.is_some() && session.summary.still_running.is_empty(),
    };
    Some((session.created_at, known))
}

async fn questions(state: &State, requester: &Requester) -> Vec<KnownId> {
    state.handle.published().asked_questions_shown().await;
    let open = visible_questions(&state.handle, requester);
    let known = open.iter().rev().map(|question| KnownId {
        id: question.id.to_string(),
        name: None,
        about: about(&question.command),
        ended: false,
    });
    let mut known: Vec<KnownId> = known.collect();
    for question in fleet::questions(&state.handle, requester.agent.as_ref()).await {
        let question = question.question;
        let on = question.machine.unwrap_or_default();
        known.push(KnownId {
            id: question.question_id.0.to_string(),
            name: None,
            about: about(&format!("on {on}: {}", question.command)),
            ended: false,
        });
    }
    known
}

async fn timers(
    state: &State,
    requester: &Requester,
    word: Option<&str>,
) -> Result<Vec<KnownId>, Problem> {
    let mut known = Vec::new();
    let mut after = None;
    loop {
        let query = TimerQuery {
            agent: requester.agent.as_ref().map(|agent| agent.0.to_string()),
            // Completion offers timers that can still be acted on.
            ended: match word {
                Some(_) => EndedFilter::Include,
                None => EndedFilter::Exclude,
            },
            text: word.filter(|word| *word != LAST).map(str::to_owned),
            after,
            limit: TIMER_PAGE,
            ..TimerQuery::default()
        };
        let Some(page) = state.handle.store_reader().timers(query).await? else {
            return Ok(known);
        };
        after = page.rows.last().map(|row| row.id);
        known.extend(page.rows.iter().map(|row| KnownId {
            id: row.id.to_string(),
            name: None,
            about: about(&row.purpose),
            ended: false,
        }));
        if !page.more || word == Some(LAST) {
            return Ok(known);
        }
    }
}

/// Short text on one line.
fn about(text: &str) -> String {
    abide_core::shorten(&one_line(text), ABOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_stands_for_last_then_a_name_then_a_prefix() {
        let known = |id: &str, name: Option<&str>| KnownId {
            id: id.to_owned(),
            name: name.map(str::to_owned),
            about: String::new(),
            ended: false,
        };
        let all = vec![
            known("session_k3000001", Some("build")),
            known("session_k3000002", Some("k3")),
            known("session_b0000003", Some("build")),
        ];
        let meant = |word: &str| {
            let ids = super::meant(all.clone(), word, "session_");
            ids.into_iter().map(|known| known.id).collect::<Vec<_>>()
        };
        assert_eq!(meant("last"), ["session_k3000001"]);
        assert_eq!(meant("build"), ["session_k3000001"]);
        assert_eq!(meant("k3"), ["session_k3000002"]);
        assert_eq!(meant("k30"), ["session_k3000001", "session_k3000002"]);
        assert_eq!(meant("session_b"), ["session_b0000003"]);
        assert!(meant("x").is_empty());
    }
}
