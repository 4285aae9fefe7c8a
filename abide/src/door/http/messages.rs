//! Messages as people see them: looking takes none away from its agent.

use abide_core::MessageId;
use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State as Shared};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::State;
use super::body::query;
use super::problem::Problem;
use super::who::Who;
use crate::daemon::{Change, Handle};
use crate::door::tools::message_words;
use crate::world::store::{MessageRow, Which};

/// Messages at once.
const MOST: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listing {
    #[serde(default)]
    follow: bool,
    #[serde(default)]
    unseen: bool,
    limit: Option<usize>,
}

/// The newest messages, oldest first; with `follow`, a line for each that comes as well.
pub async fn list(
    Shared(state): Shared<State>,
    who: Who,
    listing: Result<Query<Listing>, QueryRejection>,
) -> Result<Response, Problem> {
    let listing = query(listing)?;
    let changes = state.handle.board().follow();
    let which = Which {
        agent: who.agent.as_ref().map(|agent| agent.0.as_ref()),
        most: listing.limit.unwrap_or(50).min(MOST),
    };
    let rows = state.handle.past().messages(which, listing.unseen);
    let rows = rows.map_err(|e| Problem::fault(e.to_string()))?;
    let mut told: Vec<Value> = rows.iter().map(|row| facts(&state.handle, row)).collect();
    if !listing.follow {
        return Ok(Json(json!({"messages": told})).into_response());
    }
    told.reverse();
    let following = Following {
        handle: state.handle,
        who,
        changes,
        told,
    };
    let lines = stream::unfold(following, |mut following| async move {
        let line = following.next().await?;
        let line = Bytes::from(format!("{line}\n"));
        Some((Ok::<_, std::convert::Infallible>(line), following))
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(lines)).into_response())
}

struct Following {
    handle: Handle,
    who: Who,
    changes: broadcast::Receiver<Change>,
    /// To be told yet, the oldest last.
    told: Vec<Value>,
}

impl Following {
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(message) = self.told.pop() {
                return Some(message);
            }
            match self.changes.recv().await {
                Ok(Change::Message(agent, id)) => {
                    let own = self.who.agent.as_ref().is_none_or(|me| *me == agent);
                    if own && let Some(row) = self.row(id) {
                        return Some(facts(&self.handle, &row));
                    }
                }
                Ok(
                    Change::Session(_) | Change::Asked(_) | Change::Closed(..) | Change::Timer(_),
                ) => {}
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    fn row(&self, id: MessageId) -> Option<MessageRow> {
        let past = self.handle.past();
        past.message(past.number_of(id)).ok().flatten()
    }
}

/// A message as fields.
pub(super) fn facts(handle: &Handle, row: &MessageRow) -> Value {
    json!({
        "message_id": row.id.to_string(),
        "agent": row.agent,
        "text": message_words(handle, row.about),
        "created_at": row.made.0,
        "seen_at": row.seen.map(|at| at.0),
        "woken_at": row.woken.map(|at| at.0),
        "wake_attempts": row.wake_attempts,
        "wake_fault": row.wake_fault,
    })
}
