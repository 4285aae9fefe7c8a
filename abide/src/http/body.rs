//! Extractors for request bodies and queries that report errors as a sentence, and the encoding of
//! response bodies.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{self, FromRequest, FromRequestParts, Request};
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::problem::{Problem, json};
use crate::strict_json::{self, StrictJson};

/// Largest request body that is buffered, in bytes.
pub const BODY_LIMIT: usize = 8 << 20;

/// Response body made from a public type.
pub struct JsonResponse<T>(pub T);

impl<T: Serialize> IntoResponse for JsonResponse<T> {
    fn into_response(self) -> Response {
        Json(json(&self.0)).into_response()
    }
}

/// Request body that is a JSON object. An empty body is an empty object.
pub struct JsonBody(pub Map<String, Value>);

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if let Some(kind) = request.headers().get(header::CONTENT_TYPE) {
            let kind = String::from_utf8_lossy(kind.as_bytes()).to_ascii_lowercase();
            let essence = kind.split(';').next().unwrap_or_default().trim();
            if essence != "application/json" && !essence.ends_with("+json") {
                return Err(Problem::not_json(format!(
                    "the body must be application/json; got {kind}"
                )));
            }
        }
        let bytes = match Bytes::from_request(request, state).await {
            Ok(bytes) => bytes,
            Err(rejection) => return Err(unreadable(rejection.into_response())),
        };
        if bytes.trim_ascii().is_empty() {
            return Ok(JsonBody(Map::new()));
        }
        match serde_json::from_slice(&bytes) {
            Ok(StrictJson(Value::Object(fields))) => Ok(JsonBody(fields)),
            Ok(_) => Err(Problem::bad_input("the body must be a JSON object")),
            Err(fault) => Err(Problem::bad_input(
                strict_json::duplicate_field(&fault)
                    .unwrap_or_else(|| format!("the body is not JSON: {fault}")),
            )),
        }
    }
}

fn unreadable(rejection: Response) -> Problem {
    if rejection.status() == axum::http::StatusCode::PAYLOAD_TOO_LARGE {
        return Problem::too_large(format!("the body must be at most {BODY_LIMIT} bytes"));
    }
    Problem::bad_input("cannot read the body")
}

impl JsonBody {
    /// Deserializes the object.
    pub fn into<T: DeserializeOwned>(self) -> Result<T, Problem> {
        serde_json::from_value(Value::Object(self.0))
            .map_err(|fault| Problem::bad_input(format!("the body is invalid: {fault}")))
    }
}

/// Query of a request.
pub struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = extract::Query::from_request_parts(parts, state).await;
        query.map(|query| Query(query.0)).map_err(|rejection| {
            let text = rejection.body_text();
            let text = text.trim_start_matches("Failed to deserialize query string: ");
            Problem::bad_input(format!("the query is invalid: {text}"))
        })
    }
}
