//! Error responses as problem details (RFC 9457): a JSON object with a sentence in `detail`.

use abide_api::ErrorCode;
use abide_core::{Closing, Refusal};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;

use crate::tools::{ActionError, BadInput, escape_invisible, refusal_code};
use abide_engine::store::StoreFault;
use abide_engine::text::refusal_sentence;

/// Media type of problem details.
const KIND: &str = "application/problem+json";
/// Largest number of bytes that are taken from an error text of the framework.
const TEXT_LIMIT: usize = 4 << 10;

/// Public type as JSON, with its fields in alphabetical order.
pub fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Error response. The request changed nothing.
#[derive(Debug)]
pub struct Problem {
    code: ErrorCode,
    status: StatusCode,
    detail: String,
    /// Field of the request with the fault.
    field: Option<String>,
    /// Closing of the question that the request is about.
    closing: Option<Closing>,
    tool_error: bool,
}

/// Constructors for the error codes that handlers choose.
macro_rules! codes {
    ($($name:ident: $code:ident),* $(,)?) => {
        $(#[doc = concat!("A problem with the code `", stringify!($code), "`.")]
        pub fn $name(detail: impl Into<String>) -> Self {
            Self::new(ErrorCode::$code, detail)
        })*
    };
}

impl Problem {
    codes! {
        bad_input: BadInput,
        not_found: NotFound,
        conflict: Conflict,
        forbidden: Forbidden,
        too_many: TooMany,
        not_json: NotJson,
        upgrade_required: UpgradeRequired,
        too_large: TooLarge,
        fault: Fault,
    }

    /// Error: the caller must log in or send the token.
    pub fn unauthorized() -> Self {
        let detail = "login required: run `abide open`, or send `Authorization: Bearer` with the daemon's token";
        Self::new(ErrorCode::Unauthorized, detail)
    }

    /// Error: the daemon is stopping, and the client should retry.
    pub fn stopping() -> Self {
        Self::new(ErrorCode::Stopping, "the daemon is stopping; try again")
    }

    /// Error with this code, and the HTTP status that belongs to it.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        let status = StatusCode::from_u16(code.status());
        Problem {
            code,
            status: status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            detail: detail.into(),
            field: None,
            closing: None,
            tool_error: false,
        }
    }

    /// Marks the error of a tool call: the response also has the fields `text` and `is_error` of a tool result.
    pub fn tool_error(self) -> Self {
        Problem {
            tool_error: true,
            ..self
        }
    }
}

/// Failures of the system that a request can do nothing about.
macro_rules! faults {
    ($($fault:ty),* $(,)?) => {
        $(impl From<$fault> for Problem {
            fn from(fault: $fault) -> Self {
                Problem::fault(fault.to_string())
            }
        })*
    };
}

faults!(std::io::Error, StoreFault, tokio::task::JoinError);

impl From<BadInput> for Problem {
    fn from(bad: BadInput) -> Self {
        Problem {
            field: bad.field,
            ..Self::bad_input(escape_invisible(&bad.sentence))
        }
    }
}

impl From<ActionError> for Problem {
    fn from(error: ActionError) -> Self {
        match error {
            ActionError::Refused(code, sentence) => Self::new(code, sentence),
            ActionError::Stopping => Self::stopping(),
        }
    }
}

impl From<&Refusal> for Problem {
    fn from(refusal: &Refusal) -> Self {
        let closing = match refusal {
            Refusal::QuestionClosed(_, closing) => Some(*closing),
            _ => None,
        };
        Problem {
            closing,
            ..Self::new(refusal_code(refusal), refusal_sentence(refusal))
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or("Problem");
        let body = json(&abide_api::Problem {
            r#type: format!("urn:abide:problem:{}", self.code.as_str()),
            title: title.into(),
            status: self.status.as_u16(),
            field: self.field,
            closing: self.closing.map(|closing| closing.as_str().into()),
            text: self.tool_error.then(|| self.detail.clone()),
            is_error: self.tool_error.then_some(true),
            detail: self.detail,
        });
        let kind = [(header::CONTENT_TYPE, KIND)];
        let mut response = (self.status, kind, body.to_string()).into_response();
        if self.code == ErrorCode::Unauthorized {
            let scheme = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// Converts errors of the framework to problem details.
pub async fn convert_errors(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_problem = kind.is_some_and(|kind| kind.as_bytes() == KIND.as_bytes());
    if !(status.is_client_error() || status.is_server_error()) || is_problem {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let text = axum::body::to_bytes(body, TEXT_LIMIT)
        .await
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let reason = status.canonical_reason().unwrap_or("it was refused");
    let detail = match text.trim() {
        "" => reason.to_lowercase(),
        text => abide_output::printable::one_line(text),
    };
    let problem = Problem {
        status,
        ..Problem::new(ErrorCode::Refused, detail)
    };
    let (about, body) = problem.into_response().into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.extend(about.headers);
    Response::from_parts(head, body)
}

pub async fn no_such_route(uri: Uri) -> Problem {
    Problem::not_found(format!("{} not found", uri.path()))
}

pub async fn no_such_method(method: Method, uri: Uri) -> Problem {
    let detail = format!("{method} is not allowed for {}", uri.path());
    Problem::new(ErrorCode::MethodNotAllowed, detail)
}
