//! Batches over HTTP: all answers are sent on one event stream, which ends after the last.
//!
//! Such a stream cannot be resumed, because an event id refers to the answer to a single message.

use std::collections::HashSet;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage};

use super::sessions::HttpSession;
use super::{ErrorResponse, events, json};
use crate::mcp::batch;
use crate::mcp::decode::{self, DecodeError};
use crate::mcp::json_line::{ID_IN_USE, error_line};
use crate::mcp::outline::{MessageKind, Outline};
use crate::mcp::peer::Sink;
use crate::mcp::server::Origin;

/// Error sentence for a batch in a version without batches.
pub const ONE_AT_A_TIME: &str =
    "batches are not supported in this version of MCP; send each message in a request of its own";

/// Answers the batch in `body`.
pub fn answer(
    session: &HttpSession,
    body: &[u8],
    origin: &Arc<Origin>,
) -> Result<Response, ErrorResponse> {
    let version = session.connection.version();
    if version.is_none_or(|version| version.as_str() != batch::VERSION) {
        return Err(refused(-32600, ONE_AT_A_TIME));
    }
    let messages = batch::messages(body).ok_or_else(|| refused(-32700, "the batch is not JSON"))?;
    if let Some(sentence) = batch::size_error(&messages) {
        return Err(refused(-32600, &sentence));
    }
    let (stream, all_taken) = session.open_batch_stream();
    let reader = stream.read();
    let mut ids = HashSet::new();
    let mut taken = Vec::new();
    let mut is_answered = false;
    for line in messages {
        match decoded(&line, &mut ids) {
            Ok(message) => taken.push(message),
            Err(refusal) => {
                is_answered = true;
                stream.send_line(refusal);
            }
        }
    }
    for message in taken {
        is_answered |= matches!(message, JsonRpcMessage::Request(_));
        let sink = Sink::Events(stream.clone());
        if let Err(in_use) = (session.connection).message(message, origin, sink, None) {
            stream.send(&in_use.error());
        }
    }
    drop(all_taken);
    match is_answered {
        true => Ok(events(reader)),
        false => Ok(StatusCode::ACCEPTED.into_response()),
    }
}

/// Refuses a batch as a whole.
pub fn refused(code: i32, sentence: &str) -> ErrorResponse {
    json(StatusCode::BAD_REQUEST, error_line(None, code, sentence))
}

/// Decodes a message of a batch. `ids` are the ids of the batch's requests so far. The error is the answer to
/// a message that cannot be decoded.
fn decoded(
    line: &[u8],
    ids: &mut HashSet<Option<Vec<u8>>>,
) -> Result<ClientJsonRpcMessage, Vec<u8>> {
    let outline = Outline::of(line);
    let refuse = |code, sentence: &str| error_line(outline.id.as_deref(), code, sentence);
    if outline.kind() == MessageKind::Unknown {
        return Err(refuse(-32600, "not a message of MCP"));
    }
    let message = decode::message(line, &outline).map_err(|unread| match unread {
        DecodeError::DuplicateField(sentence) => refuse(-32602, &sentence),
        DecodeError::Invalid(fault) => refuse(-32600, &format!("not a message of MCP: {fault}")),
    })?;
    if outline.kind() == MessageKind::Request && !ids.insert(outline.id.clone()) {
        return Err(refuse(-32600, ID_IN_USE));
    }
    Ok(message)
}
