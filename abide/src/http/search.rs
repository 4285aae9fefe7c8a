//! Search for a pattern in the logs of all sessions, newest session first. Those of other machines follow.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_api::{Id, Match, MatchPage};
use abide_core::Millis;
use abide_output::digest::rendered_rows;
use abide_output::mask::Mask;
use axum::extract::State as Shared;
use schemars::JsonSchema;
use serde::Deserialize;

use super::body::{JsonResponse, Query};
use super::pagination;
use super::problem::Problem;
use super::requester::Requester;
use super::sessions::sort_key;
use super::state::State;
use crate::fleet::{PlaceElsewhere, SearchElsewhere};
use abide_engine::clock::SystemClock;
use abide_engine::search::{self, Pattern};
use abide_engine::{Handle, SessionView};
use abide_session::log::Log;

/// Time limit of a search. The page then ends early with a cursor for the rest.
const TIME_LIMIT: Millis = Millis::from_secs(5);
/// Longest line in a result, in characters: the search returns no more of a line, around its match.
const CHARS: usize = 1_000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchQuery {
    /// Regular expression.
    pattern: String,
    /// Maximum number of lines, 1 to 1000.
    #[serde(default, deserialize_with = "pagination::count")]
    #[schemars(with = "Option<usize>")]
    limit: Option<usize>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
}

/// Cursor: a session and the byte offset in its log at which the search continues.
struct SearchCursor {
    view: Arc<SessionView>,
    from: u64,
}

impl SearchCursor {
    fn read(state: &State, requester: &Requester, text: &str) -> Result<Self, Problem> {
        let parts = text.rsplit_once(':');
        let found = parts.and_then(|(id, from)| {
            let view = requester.session(state, id).ok()?;
            let from = from.parse().ok()?;
            Some(SearchCursor { view, from })
        });
        found.ok_or_else(|| pagination::invalid_cursor(text))
    }
}

pub async fn search(
    Shared(state): Shared<State>,
    requester: Requester,
    Query(query): Query<SearchQuery>,
) -> Result<JsonResponse<MatchPage>, Problem> {
    let most = pagination::limit(query.limit)?;
    let pattern = Pattern::new(&query.pattern)
        .map_err(|bad| Problem::bad_input(format!("`pattern` is invalid: {bad}")))?;
    let elsewhere = query.after.as_deref().and_then(PlaceElsewhere::parse);
    let elsewhere = elsewhere.filter(|place| place.is_known(&state.handle));
    let is_elsewhere = elsewhere.is_some();
    let from = match &query.after {
        Some(after) if !is_elsewhere => Some(SearchCursor::read(&state, &requester, after)?),
        Some(_) | None => None,
    };
    let mut views = state.handle.published().sessions();
    views.retain(|view| {
        let reached = |from: &SearchCursor| sort_key(view) <= sort_key(&from.view);
        !is_elsewhere
            && view.visible_to(requester.agent.as_ref())
            && from.as_ref().is_none_or(reached)
    });
    views.sort_by_key(|view| std::cmp::Reverse(sort_key(view)));
    let handle = state.handle.clone();
    let found = tokio::task::spawn_blocking(move || {
        let mut unreadable = BTreeMap::new();
        let found = search_sessions(&handle, &views, &pattern, most, from, &mut unreadable);
        (found, unreadable)
    });
    let ((matches, next), unreadable) = found.await?;
    let mut page = MatchPage {
        matches,
        truncated: next.is_some(),
        next,
        unreadable,
        unreachable: BTreeMap::new(),
    };
    if page.next.is_none() && !requester.is_another_machine() {
        let search = SearchElsewhere {
            pattern: &query.pattern,
            agent: requester.agent.as_ref(),
            from: elsewhere,
        };
        search.extend(&state.handle, &mut page, most).await;
    }
    Ok(JsonResponse(page))
}

/// Matching lines, and a cursor if there may be more. Logs that cannot be read are added to `unreadable`.
fn search_sessions(
    handle: &Handle,
    views: &[Arc<SessionView>],
    pattern: &Pattern,
    most: usize,
    from: Option<SearchCursor>,
    unreadable: &mut BTreeMap<String, String>,
) -> (Vec<Match>, Option<String>) {
    let end = SystemClock.mono() + TIME_LIMIT;
    let late = || SystemClock.mono() >= end;
    let mut matches = Vec::new();
    for view in views {
        let cursor = from.as_ref().filter(|from| from.view.id == view.id);
        let begin = cursor.map_or(0, |cursor| cursor.from);
        let next = |offset: u64| Some(format!("{}:{offset}", view.id));
        // The session of the cursor is searched even after the time limit, so that every page makes progress.
        if matches.len() >= most || (late() && cursor.is_none()) {
            return (matches, next(begin));
        }
        let search = search::Search {
            fold_equal: false,
            pattern: pattern.clone(),
            context: 0,
            max_lines: most - matches.len(),
            from: begin,
        };
        let log = Log::open(&view.folder).with_written(view.bytes());
        let found = match search::search(&log, &search, late) {
            Ok(found) => found,
            Err(fault) => {
                unreadable.insert(view.id.to_string(), fault.to_string());
                continue;
            }
        };
        let mask = Mask::of(handle.secrets(view.id));
        let returned = found.lines.len() as u64;
        matches.extend(found.lines.iter().map(|line| {
            let text = rendered_rows(&line.text, CHARS).join(" ");
            Match {
                session_id: Id(view.id),
                command: mask.apply(view.state.command.to_string()),
                line: line.number,
                text: mask.apply(text),
                machine: None,
            }
        }));
        if found.matches > returned || found.stopped {
            return (matches, next(found.next));
        }
    }
    (matches, None)
}
