//! What went wrong, as RFC 9457 says it: one JSON object with a sentence in `detail`.

use abide_core::Refusal;
use abide_core::timer;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use abide_engine::text::refusal_sentence;

/// What a problem says that it is.
const KIND: &str = "application/problem+json";
/// The most that is taken of what the library says.
const SAID_LIMIT: usize = 4 << 10;

/// An answer that says no. It changed nothing.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    kind: &'static str,
    detail: String,
    of_a_tool: bool,
}

impl Problem {
    /// The request itself is not right.
    pub fn bad_input(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-input", detail)
    }

    /// There is no such thing, or it is another agent's.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    /// It is too late for this, or too early.
    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", detail)
    }

    /// Not from there.
    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    /// Nobody we know.
    pub fn unauthorized() -> Self {
        let detail = "login required: run `abide open`, or send `Authorization: Bearer` with the daemon's token";
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
    }

    /// Too often.
    pub fn too_many(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many", detail)
    }

    /// A body that is not JSON.
    pub fn not_json(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json", detail)
    }

    /// Not a request to talk over a channel.
    pub fn upgrade_required(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UPGRADE_REQUIRED, "upgrade-required", detail)
    }

    /// No such part of it.
    pub fn no_such_range(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::RANGE_NOT_SATISFIABLE, "no-such-range", detail)
    }

    /// More than is taken at once.
    pub fn too_large(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail)
    }

    /// The daemon goes away; the caller comes again.
    pub fn stopping() -> Self {
        let detail = "the daemon is stopping; try again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", detail)
    }

    /// It could not be recorded.
    pub fn storage_full(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "storage-full", detail)
    }

    /// The world failed.
    pub fn fault(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "fault", detail)
    }

    fn new(status: StatusCode, kind: &'static str, detail: impl Into<String>) -> Self {
        Problem {
            status,
            kind,
            detail: detail.into(),
            of_a_tool: false,
        }
    }

    /// What a tool says: whoever called it finds the sentence where the text of every result is.
    pub fn of_a_tool(self) -> Self {
        Problem {
            of_a_tool: true,
            ..self
        }
    }
}

impl From<&Refusal> for Problem {
    fn from(refusal: &Refusal) -> Self {
        let detail = refusal_sentence(refusal);
        match refusal {
            Refusal::SessionNotFound(_)
            | Refusal::QuestionNotFound(_)
            | Refusal::Timer(timer::Refusal::NotFound { .. }) => Self::not_found(detail),
            Refusal::Timer(_) => Self::conflict(detail),
            Refusal::NotRecorded => Self::storage_full(detail),
            Refusal::QuestionClosed(..) | Refusal::SessionEnded(_) | Refusal::KeyReused(_) => {
                Self::conflict(detail)
            }
            Refusal::TooMany(_) => Self::too_many(detail),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = json!({
            "type": format!("urn:abide:problem:{}", self.kind),
            "title": self.status.canonical_reason().unwrap_or("Problem"),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        if self.of_a_tool {
            body["text"] = json!(self.detail);
            body["is_error"] = json!(true);
        }
        let kind = [(header::CONTENT_TYPE, KIND)];
        let mut response = (self.status, kind, body.to_string()).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// Makes a problem of whatever else says no: what the library finds wrong with a request.
pub async fn always(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let said = kind.is_some_and(|kind| kind.as_bytes() == KIND.as_bytes());
    if !(status.is_client_error() || status.is_server_error()) || said {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let text = axum::body::to_bytes(body, SAID_LIMIT)
        .await
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let reason = status.canonical_reason().unwrap_or("it was refused");
    let detail = match text.trim() {
        "" => reason.to_lowercase(),
        text => abide_output::printable::one_line(text),
    };
    let (about, body) = Problem::new(status, "refused", detail)
        .into_response()
        .into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.extend(about.headers);
    Response::from_parts(head, body)
}

pub async fn no_such_route(uri: Uri) -> Problem {
    Problem::not_found(format!("{} not found", uri.path()))
}

pub async fn no_such_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("{method} is not allowed for {}", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", detail)
}
