//! Refusals and faults: a code for programs and one sentence for people.

use schemars::JsonSchema;
use serde::Serialize;

/// Cause of an answer that says no. Programs decide by it, never by the sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// The request itself is wrong.
    BadInput,
    /// The caller has to log in or to send the token.
    Unauthorized,
    /// The caller may not do this.
    Forbidden,
    /// The thing does not exist, or it belongs to another agent.
    NotFound,
    /// The path exists and has no such method.
    MethodNotAllowed,
    /// The state of the thing does not allow this.
    Conflict,
    /// The request is larger than a limit.
    TooLarge,
    /// The body is not JSON.
    NotJson,
    /// The requested range is not in the log.
    NoSuchRange,
    /// The path is for WebSockets only.
    UpgradeRequired,
    /// A limit on the number of things or calls is reached.
    TooMany,
    /// Something outside of abide failed.
    Fault,
    /// The daemon is stopping.
    Stopping,
    /// Nothing could be recorded, so nothing was done.
    StorageFull,
    /// The machine of the fleet that could answer cannot be reached.
    Unreachable,
    /// The database does not answer, so it is not known whether the request was recorded.
    OutcomeUnknown,
    /// The HTTP library refused the request.
    Refused,
}

impl ErrorCode {
    /// Last word of `type` in a problem.
    pub const fn as_str(self) -> &'static str {
        match self {
            ErrorCode::BadInput => "bad-input",
            ErrorCode::Unauthorized => "unauthorized",
            ErrorCode::Forbidden => "forbidden",
            ErrorCode::NotFound => "not-found",
            ErrorCode::MethodNotAllowed => "method-not-allowed",
            ErrorCode::Conflict => "conflict",
            ErrorCode::TooLarge => "too-large",
            ErrorCode::NotJson => "not-json",
            ErrorCode::NoSuchRange => "no-such-range",
            ErrorCode::UpgradeRequired => "upgrade-required",
            ErrorCode::TooMany => "too-many",
            ErrorCode::Fault => "fault",
            ErrorCode::Stopping => "stopping",
            ErrorCode::StorageFull => "storage-full",
            ErrorCode::Unreachable => "unreachable",
            ErrorCode::OutcomeUnknown => "outcome-unknown",
            ErrorCode::Refused => "refused",
        }
    }

    /// HTTP status.
    pub const fn status(self) -> u16 {
        match self {
            ErrorCode::BadInput | ErrorCode::Refused => 400,
            ErrorCode::Unauthorized => 401,
            ErrorCode::Forbidden => 403,
            ErrorCode::NotFound => 404,
            ErrorCode::MethodNotAllowed => 405,
            ErrorCode::Conflict => 409,
            ErrorCode::TooLarge => 413,
            ErrorCode::NotJson => 415,
            ErrorCode::NoSuchRange => 416,
            ErrorCode::UpgradeRequired => 426,
            ErrorCode::TooMany => 429,
            ErrorCode::Fault => 500,
            ErrorCode::Stopping => 503,
            ErrorCode::Unreachable | ErrorCode::OutcomeUnknown => 504,
            ErrorCode::StorageFull => 507,
        }
    }

    /// Cause of an answer with this HTTP status, as far as the status tells.
    pub const fn of_status(status: u16) -> Self {
        match status {
            400 => ErrorCode::BadInput,
            401 | 403 => ErrorCode::Forbidden,
            404 => ErrorCode::NotFound,
            409 => ErrorCode::Conflict,
            413 => ErrorCode::TooLarge,
            429 => ErrorCode::TooMany,
            503 => ErrorCode::Stopping,
            504 => ErrorCode::Unreachable,
            507 => ErrorCode::StorageFull,
            _ => ErrorCode::Fault,
        }
    }
}

/// A problem (RFC 9457). Nothing was changed, unless `type` ends with `outcome-unknown`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Problem {
    /// `urn:abide:problem:` and a word for programs.
    pub r#type: String,
    /// The status in words.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// One sentence: the fault and the next step.
    pub detail: String,
    /// The same sentence, if a tool says it: every result of a tool has this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// `true` if a tool says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
}
