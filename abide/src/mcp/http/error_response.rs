//! Responses with an error status, sent instead of an answer of the protocol.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use rmcp::ErrorData;
use rmcp::model::{JsonRpcMessage, RequestId, ServerJsonRpcMessage};

use crate::mcp::json_line::encode;

/// Media type of messages that are not on an event stream.
pub const JSON: &str = "application/json";

/// Response with an error status, sent instead of an answer of the protocol.
pub type ErrorResponse = Box<Response>;

pub fn text(status: StatusCode, sentence: &str) -> ErrorResponse {
    Box::new((status, sentence.to_owned()).into_response())
}

pub fn json(status: StatusCode, line: impl Into<Body>) -> ErrorResponse {
    Box::new((status, [(header::CONTENT_TYPE, JSON)], line.into()).into_response())
}

pub fn error(status: StatusCode, message: &ServerJsonRpcMessage) -> ErrorResponse {
    json(status, encode(message).unwrap_or_default())
}

/// Refusal of a request because of its headers or its kind.
pub fn bad_request(id: Option<&RequestId>, error_data: ErrorData) -> ErrorResponse {
    let error_data = JsonRpcMessage::error(error_data, id.cloned());
    error(StatusCode::BAD_REQUEST, &error_data)
}
