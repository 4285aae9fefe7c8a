//! Messages for people. Reading them here does not mark them as read for their agent.

use abide_api::{Delivery, Id, Message, MessagePage};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State as Shared};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::broadcast;

use super::body::{JsonBody, JsonResponse, json, parse_query};
use super::problem::Problem;
use super::requester::Requester;
use super::{State, body_until_logout, pagination};
use crate::tools::{self, message_subject};
use abide_engine::store::{self, DeliveryState, MessageQuery, MessageRow, StoreFault, StoreReader};
use abide_engine::text::message_text;
use abide_engine::{Change, Handle};

/// Number of messages per query when missed messages are read from the store.
const MISSED: usize = 1_000;
/// Default page size.
const PAGE: usize = 50;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Listing {
    /// If true, new messages are sent too, one JSON object per line.
    #[serde(default, deserialize_with = "pagination::flag")]
    follow: bool,
    /// Only messages that their agent has not seen.
    #[serde(default, deserialize_with = "pagination::flag")]
    unseen: bool,
    /// Maximum number of messages, 1 to 1000.
    #[serde(default, deserialize_with = "pagination::count")]
    #[schemars(with = "Option<usize>")]
    limit: Option<usize>,
    /// Cursor: `next` of the previous page.
    after: Option<String>,
    /// With `follow`: the last received message. Later messages are sent, seen or not.
    since: Option<String>,
}

/// Lists messages, newest first, with the cursor of the next page. With `follow`: a line for each
/// message, newest last, and for each new one.
pub async fn list(
    Shared(state): Shared<State>,
    requester: Requester,
    listing: Result<Query<Listing>, QueryRejection>,
) -> Result<Response, Problem> {
    let listing = parse_query(listing)?;
    let changes = state.handle.published().follow();
    let past = state.handle.store_reader();
    let before = listing.after.map(|id| match id.parse() {
        Ok(id) => Ok(past.message_number(id)),
        Err(_) => Err(pagination::no_place(&id)),
    });
    let since = listing.since.map(|id| match id.parse() {
        Ok(id) if listing.follow => Ok(past.message_number(id)),
        _ => Err(not_since(&id)),
    });
    let since = since.transpose()?;
    let most = pagination::limit(Some(listing.limit.unwrap_or(PAGE)))?;
    // Messages after this one are sent as they arrive, even if the agent has read them by then.
    let newest = match listing.follow {
        true => newest(past, &requester),
        false => None,
    };
    let rows = match since {
        // A `since` message that is no longer stored must not suppress newer ones.
        Some(since) => newer(past, &requester, newest.map(|newest| newest.min(since))),
        None => past.messages(MessageQuery {
            agent: requester.agent.as_ref().map(|agent| agent.0.as_ref()),
            unseen: listing.unseen,
            before: before.transpose()?,
            since: None,
            limit: most + 1,
        }),
    };
    let mut rows = rows.map_err(|e| Problem::fault(e.to_string()))?;
    let more = since.is_none() && rows.len() > most;
    if more {
        rows.truncate(most);
    }
    let next = rows.last().filter(|_| more).map(|row| row.id.to_string());
    let messages: Vec<Message> = (rows.iter())
        .map(|row| message(&state.handle, row))
        .collect();
    if !listing.follow {
        return Ok(JsonResponse(MessagePage { messages, next }).into_response());
    }
    let login = requester.login();
    let following = Following {
        handle: state.handle.clone(),
        requester,
        changes,
        last: newest.max(rows.first().map(|row| row.number)),
        told: messages,
    };
    let lines = stream::unfold(following, |mut following| async move {
        let line = following.next().await?;
        let line = Bytes::from(format!("{}\n", json(&line)));
        Some((Ok::<_, std::convert::Infallible>(line), following))
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    let body = body_until_logout(&state, login, lines);
    Ok((kind, body).into_response())
}

/// Number of the newest message that the caller may see.
fn newest(past: &StoreReader, requester: &Requester) -> Option<u64> {
    let page = MessageQuery {
        agent: requester.agent.as_ref().map(|agent| agent.0.as_ref()),
        unseen: false,
        before: None,
        since: None,
        limit: 1,
    };
    let rows = past.messages(page).unwrap_or_default();
    rows.first().map(|row| row.number)
}

/// All messages after `since`, newest first.
fn newer(
    past: &StoreReader,
    requester: &Requester,
    since: Option<u64>,
) -> Result<Vec<MessageRow>, StoreFault> {
    let mut found: Vec<MessageRow> = Vec::new();
    loop {
        let rows = past.messages(MessageQuery {
            agent: requester.agent.as_ref().map(|agent| agent.0.as_ref()),
            unseen: false,
            before: found.last().map(|row| row.number),
            since,
            limit: MISSED,
        })?;
        let all = rows.len() < MISSED;
        found.extend(rows);
        if all {
            return Ok(found);
        }
    }
}

fn not_since(given: &str) -> Problem {
    let shown = tools::shown(given);
    Problem::bad_input(format!(
        "`since` must be a message id and needs `follow`; got {shown}"
    ))
}

struct Following {
    handle: Handle,
    requester: Requester,
    changes: broadcast::Receiver<Change>,
    /// Newest message that was sent or is in `told`. Redelivery of an older message is not sent again.
    last: Option<u64>,
    /// Messages still to be sent, oldest last.
    told: Vec<Message>,
}

impl Following {
    async fn next(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = self.told.pop() {
                return Some(message);
            }
            match self.changes.recv().await {
                Ok(Change::Message(agent, _)) => {
                    let own = self.requester.agent.as_ref().is_none_or(|me| *me == agent);
                    if own {
                        self.look_up();
                    }
                }
                Ok(
                    Change::Session(_)
                    | Change::Asked(_)
                    | Change::Closed(..)
                    | Change::Timer(_)
                    | Change::MessageUpdated(_),
                ) => {}
                Err(broadcast::error::RecvError::Lagged(_)) => self.look_up(),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// Reads the messages after `last` from the store.
    fn look_up(&mut self) {
        let rows =
            newer(self.handle.store_reader(), &self.requester, self.last).unwrap_or_default();
        self.told = rows.iter().map(|row| message(&self.handle, row)).collect();
        self.last = self.last.max(rows.first().map(|row| row.number));
    }
}

/// Asks the wakers to deliver a message once more, even if it was read and regardless of their budget.
/// Therefore only a person may request it.
pub async fn wake(
    Shared(state): Shared<State>,
    requester: Requester,
    Path(id): Path<String>,
    body: JsonBody,
) -> Result<JsonResponse<Message>, Problem> {
    let Nothing {} = body.into()?;
    if !requester.may_be_a_person() {
        return Err(Problem::forbidden(
            "only a person can send a message again, so that an agent cannot wake itself in a loop",
        ));
    }
    let past = state.handle.store_reader();
    let row = id
        .parse()
        .ok()
        .map(|id| past.message(past.message_number(id)));
    let row = row.transpose().map_err(|e| Problem::fault(e.to_string()))?;
    let missing = || Problem::not_found(format!("Message '{id}' not found"));
    let row = row.flatten().ok_or_else(missing)?;
    let wakers = &state.handle.config().wakers;
    let has_waker = wakers.iter().any(|waker| waker.is_for(&row.agent));
    if !has_waker || !state.handle.resend(row.number).await {
        return Err(Problem::conflict(format!(
            "agent {} has no waker; add `[[wakers]]` to the configuration",
            row.agent
        )));
    }
    Ok(JsonResponse(message(&state.handle, &row)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Message as people see it.
pub fn message(handle: &Handle, row: &MessageRow) -> Message {
    let made = |delivery: &&store::Delivery| delivery.state == DeliveryState::Done;
    let woken = row.deliveries.iter().filter(made).filter_map(|d| d.at_ms);
    let mut faults = row.deliveries.iter().filter(|delivery| !made(delivery));
    let (timer_id, session_id) = message_subject(row.about);
    Message {
        message_id: Id(row.id),
        timer_id,
        session_id,
        agent: row.agent.clone(),
        text: message_text(handle, row.about),
        created_at: row.made.0,
        seen_at: row.seen.map(|at| at.0),
        woken_at: woken.min().or(row.woken.map(|at| at.0)),
        wake_attempts: row.deliveries.iter().map(|d| d.attempts).sum(),
        wake_fault: faults.find_map(|d| d.fault.clone()),
        deliveries: row.deliveries.iter().map(delivery).collect(),
    }
}

fn delivery(delivery: &store::Delivery) -> Delivery {
    Delivery {
        waker: delivery.name.clone(),
        state: delivery.state.as_str(),
        ok: delivery.state == DeliveryState::Done,
        at: delivery.at_ms,
        attempts: delivery.attempts,
        fault: delivery.fault.clone(),
        next_at: delivery.next_ms,
    }
}
