//! Messages for people. Reading them here does not mark them as read for their agent.

use abide_api::{Delivery, Id, Message, MessagePage};
use axum::extract::{Path, State as Shared};
use schemars::JsonSchema;
use serde::Deserialize;

use super::body::{JsonBody, JsonResponse, Query};
use super::pagination;
use super::problem::Problem;
use super::requester::Requester;
use super::state::State;
use crate::tools::{self, message_subject};
use abide_engine::Handle;
use abide_engine::store::{self, DeliveryState, MessageQuery, MessageRow, StoreFault, StoreReader};
use abide_engine::text::listed_message_text;

/// Number of messages per query when missed messages are read from the store.
const BATCH: usize = 1_000;
/// Default page size.
const PAGE: usize = 50;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageListQuery {
    /// Only messages that their agent has not seen.
    #[serde(default, deserialize_with = "pagination::flag")]
    unseen: bool,
    /// Maximum number of messages, 1 to 1000.
    #[serde(default, deserialize_with = "pagination::count")]
    #[schemars(with = "Option<usize>")]
    limit: Option<usize>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
    /// Id of a message: all later ones are listed, seen or not.
    since: Option<String>,
}

/// Lists messages, newest first, with the cursor of the next page.
pub async fn list(
    Shared(state): Shared<State>,
    requester: Requester,
    Query(query): Query<MessageListQuery>,
) -> Result<JsonResponse<MessagePage>, Problem> {
    let store = state.handle.store_reader();
    if let Some(since) = query.since {
        let given = since.parse().map_err(|_| invalid_since(&since))?;
        let given = store.message_number(given);
        // A message that is no longer stored must not suppress newer ones.
        let newest = newest_number(store, &requester).await;
        let since = newest.map(|newest| newest.min(given));
        let rows = messages_after(store, &requester, since).await?;
        let messages = messages(&state.handle, &rows).await;
        return Ok(JsonResponse(MessagePage {
            messages,
            next: None,
            trouble: None,
        }));
    }
    let before = query.after.map(|id| match id.parse() {
        Ok(id) => Ok(store.message_number(id)),
        Err(_) => Err(pagination::invalid_cursor(&id)),
    });
    let most = pagination::limit(Some(query.limit.unwrap_or(PAGE)))?;
    let page = MessageQuery {
        agent: requester.agent.as_ref().map(|agent| agent.0.as_ref()),
        unseen: query.unseen,
        before: before.transpose()?,
        limit: most + 1,
        ..MessageQuery::default()
    };
    let mut rows = match store.messages(page).await {
        Ok(rows) => rows,
        Err(fault) => return Ok(JsonResponse(none_known(&state, fault)?)),
    };
    let more = rows.len() > most;
    rows.truncate(most);
    let next = rows.last().filter(|_| more).map(|row| row.id.to_string());
    let messages = messages(&state.handle, &rows).await;
    Ok(JsonResponse(MessagePage {
        messages,
        next,
        trouble: None,
    }))
}

/// Empty page, if the server that has the messages is away.
fn none_known(state: &State, fault: StoreFault) -> Result<MessagePage, StoreFault> {
    if !matches!(fault, StoreFault::Unreadable(_)) {
        return Err(fault);
    }
    let trouble = state.handle.storage_fault();
    Ok(MessagePage {
        messages: Vec::new(),
        next: None,
        trouble: Some(trouble.unwrap_or_else(|| fault.to_string())),
    })
}

/// Number of the newest message that the caller may see.
async fn newest_number(store: &StoreReader, requester: &Requester) -> Option<u64> {
    let page = MessageQuery {
        agent: requester.agent.as_ref().map(|agent| agent.0.as_ref()),
        limit: 1,
        ..MessageQuery::default()
    };
    let rows = store.messages(page).await.unwrap_or_default();
    rows.first().map(|row| row.number)
}

/// All messages after `since`, newest first.
async fn messages_after(
    store: &StoreReader,
    requester: &Requester,
    since: Option<u64>,
) -> Result<Vec<MessageRow>, StoreFault> {
    let mut found: Vec<MessageRow> = Vec::new();
    loop {
        let page = MessageQuery {
            agent: requester.agent.as_ref().map(|agent| agent.0.as_ref()),
            before: found.last().map(|row| row.number),
            since,
            limit: BATCH,
            ..MessageQuery::default()
        };
        let rows = store.messages(page).await?;
        let all = rows.len() < BATCH;
        found.extend(rows);
        if all {
            return Ok(found);
        }
    }
}

fn invalid_since(given: &str) -> Problem {
    let shown = tools::shown(given);
    Problem::bad_input(format!("`since` must be a message id; got {shown}"))
}

/// Asks the wakers to deliver a message once more, even if it was read and regardless of their budget.
/// Therefore only a person may request it.
pub async fn wake(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<JsonResponse<Message>, Problem> {
    let EmptyBody {} = body.into()?;
    if !requester.may_be_a_person() {
        return Err(Problem::forbidden(
            "only a person can send a message again, so that an agent cannot wake itself in a loop",
        ));
    }
    let store = state.handle.store_reader();
    let missing = || Problem::not_found(format!("Message '{id}' not found"));
    let number = store.message_number(id.parse().map_err(|_| missing())?);
    let row = store.message(number).await?.ok_or_else(missing)?;
    let config = state.handle.config();
    let mut wakers = config.wakers.iter();
    let has_waker = wakers.any(|waker| waker.is_for(&row.agent));
    if !has_waker || !state.handle.resend(row.number).await {
        return Err(Problem::conflict(format!(
            "agent {} has no waker; add `[[wakers]]` to the configuration",
            row.agent
        )));
    }
    Ok(JsonResponse(message(&state.handle, &row).await))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EmptyBody {}

async fn messages(handle: &Handle, rows: &[MessageRow]) -> Vec<Message> {
    let mut messages = Vec::with_capacity(rows.len());
    for row in rows {
        messages.push(message(handle, row).await);
    }
    messages
}

/// Message as people see it.
pub async fn message(handle: &Handle, row: &MessageRow) -> Message {
    let made = |delivery: &&store::Delivery| delivery.state == DeliveryState::Done;
    let woken = row.deliveries.iter().filter(made).filter_map(|d| d.at_ms);
    let mut faults = row.deliveries.iter().filter(|delivery| !made(delivery));
    let (timer_id, session_id) = message_subject(row.about);
    Message {
        message_id: Id(row.id),
        timer_id,
        session_id,
        agent: row.agent.clone(),
        text: listed_message_text(handle, row.about).await,
        created_at: row.made.0,
        seen_at: row.seen.map(|at| at.0),
        woken_at: woken.min(),
        wake_attempts: row.deliveries.iter().map(|d| d.attempts).sum(),
        wake_fault: faults.find_map(|d| d.fault.clone()),
        deliveries: row.deliveries.iter().map(delivery).collect(),
    }
}

fn delivery(delivery: &store::Delivery) -> Delivery {
    Delivery {
        waker: delivery.name.clone(),
        state: delivery.state.as_str().into(),
        ok: delivery.state == DeliveryState::Done,
        at: delivery.at_ms,
        attempts: delivery.attempts,
        fault: delivery.fault.clone(),
        next_at: delivery.next_ms,
    }
}
