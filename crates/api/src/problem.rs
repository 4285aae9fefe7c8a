//! Refusals and faults: a code for programs and one sentence for people.

use schemars::JsonSchema;
use serde::Serialize;

/// Defines the error codes, each with its word and its HTTP status.
macro_rules! error_codes {
    ($($(#[$about:meta])* $code:ident = $word:literal, $status:literal;)*) => {
        /// Cause of an answer that says no. Programs decide by it, never by the sentence.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ErrorCode {
            $($(#[$about])* $code,)*
        }

        impl ErrorCode {
            /// Last word of `type` in a problem.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(ErrorCode::$code => $word,)*
                }
            }

            /// HTTP status.
            pub const fn status(self) -> u16 {
                match self {
                    $(ErrorCode::$code => $status,)*
                }
            }
        }
    };
}

error_codes! {
    /// The request itself is wrong.
    BadInput = "bad-input", 400;
    /// The caller has to log in or to send the token.
    Unauthorized = "unauthorized", 401;
    /// The caller may not do this.
    Forbidden = "forbidden", 403;
    /// The thing does not exist, or it belongs to another agent.
    NotFound = "not-found", 404;
    /// The path exists and has no such method.
    MethodNotAllowed = "method-not-allowed", 405;
    /// The state of the thing does not allow this.
    Conflict = "conflict", 409;
    /// The request is larger than a limit.
    TooLarge = "too-large", 413;
    /// The body is not JSON.
    NotJson = "not-json", 415;
    /// The path is for WebSockets only.
    UpgradeRequired = "upgrade-required", 426;
    /// A limit on the number of things or calls is reached.
    TooMany = "too-many", 429;
    /// Something outside of abide failed.
    Fault = "fault", 500;
    /// The daemon is stopping.
    Stopping = "stopping", 503;
    /// Nothing could be recorded, so nothing was done.
    StorageFull = "storage-full", 507;
    /// The machine of the fleet that could answer cannot be reached.
    Unreachable = "unreachable", 504;
    /// The database does not answer, so it is not known whether the request was recorded.
    OutcomeUnknown = "outcome-unknown", 504;
    /// The HTTP library refused the request.
    Refused = "refused", 400;
}

impl ErrorCode {
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
    /// Field of the request with the fault, such as `until.port`, if it is one field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Closing of the question, if the request was refused because of it: `yes`, `no`, `refused`, `withdrawn` or `expired`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closing: Option<String>,
    /// The same sentence, if a tool says it: every result of a tool has this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// `true` if a tool says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
}
