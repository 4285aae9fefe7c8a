//! Headers of an HTTP request that describe the message in its body, and checks that both agree.

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rmcp::ErrorData;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, GetMeta, JsonRpcMessage, ProtocolVersion, RequestId,
};
use serde::Deserialize;
use serde_json::Value;

use super::error_response::{ErrorResponse, bad_request, text};

pub const EVENTS: &str = "text/event-stream";
/// Header with the session id, up to 2025-11-25.
pub const SESSION: &str = "mcp-session-id";
/// Header with the id of the event after which a stream is resumed.
pub const LAST_EVENT_ID: &str = "last-event-id";
/// Header with the protocol version, from 2025-06-18 on.
const VERSION: &str = "mcp-protocol-version";
/// Header with the method of a message, from 2026-07-28 on.
const METHOD: &str = "mcp-method";
/// Header with the name of the tool, prompt, resource or task of a request, from 2026-07-28 on.
const NAME: &str = "mcp-name";
/// Prefix and suffix of a Base64-encoded value.
const BASE64_MARKS: (&str, &str) = ("=?base64?", "?=");

/// Lifecycle that a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// Session that begins with `initialize`.
    Session,
    /// Single request without a session.
    Single,
}

/// Checks that the client accepts responses of these media types.
pub fn accepts(headers: &HeaderMap, kinds: &[&str]) -> Result<(), ErrorResponse> {
    let accepted = headers.get(header::ACCEPT);
    let accepted = accepted.and_then(|accepted| accepted.to_str().ok());
    let accepted = accepted.unwrap_or_default();
    if kinds.iter().all(|kind| accepted.contains(kind)) {
        return Ok(());
    }
    let sentence = format!("the Accept header must name {}", kinds.join(" and "));
    Err(text(StatusCode::NOT_ACCEPTABLE, &sentence))
}

/// Refusal of an HTTP method.
pub fn not_allowed(allowed: &'static str) -> ErrorResponse {
    let head = [(header::ALLOW, allowed)];
    let sentence = format!("use {allowed}");
    Box::new((StatusCode::METHOD_NOT_ALLOWED, head, sentence).into_response())
}

/// Session id.
pub fn session(headers: &HeaderMap) -> Result<&str, ErrorResponse> {
    let id = headers.get(SESSION).and_then(|id| id.to_str().ok());
    id.ok_or_else(|| {
        let sentence = "the Mcp-Session-Id header is missing; send initialize first";
        text(StatusCode::BAD_REQUEST, sentence)
    })
}

/// Protocol version in the headers. `None`: the header is missing.
fn version(headers: &HeaderMap) -> Result<Option<&str>, ErrorResponse> {
    let Some(version) = headers.get(VERSION) else {
        return Ok(None);
    };
    let version = version.to_str().map_err(|_| {
        let sentence = "the MCP-Protocol-Version header is not text";
        text(StatusCode::BAD_REQUEST, sentence)
    })?;
    Ok(Some(version))
}

/// Protocol version in the headers, which must be a known one.
pub fn known_version(headers: &HeaderMap) -> Result<Option<&str>, ErrorResponse> {
    let version = version(headers)?;
    let is_known = |version: &str| {
        let mut known = ProtocolVersion::KNOWN_VERSIONS.iter();
        known.any(|known| known.as_str() == version)
    };
    if version.is_none_or(is_known) {
        return Ok(version);
    }
    let sentence = "the version in the MCP-Protocol-Version header is not supported";
    Err(text(StatusCode::BAD_REQUEST, sentence))
}

/// Checks that the protocol version has sessions.
pub fn has_sessions(headers: &HeaderMap) -> Result<(), ErrorResponse> {
    match known_version(headers)? {
        Some(version) if is_modern(version) => Err(not_allowed("POST")),
        _ => Ok(()),
    }
}

fn is_modern(version: &str) -> bool {
    // Versions are ISO dates, which compare as text.
    version >= ProtocolVersion::V_2026_07_28.as_str()
}

/// Checks that headers and message name the same version, and determines the lifecycle of the message.
pub fn lifecycle(
    headers: &HeaderMap,
    message: &ClientJsonRpcMessage,
) -> Result<Lifecycle, ErrorResponse> {
    match message {
        JsonRpcMessage::Request(asked) => match &asked.request {
            ClientRequest::InitializeRequest(initialize) => {
                let wanted = &initialize.params.protocol_version;
                match_initialize(headers, wanted, &asked.id).map(|()| Lifecycle::Session)
            }
            request => lifecycle_of_request(headers, request, &asked.id),
        },
        JsonRpcMessage::Notification(_)
        | JsonRpcMessage::Response(_)
        | JsonRpcMessage::Error(_) => Ok(match known_version(headers)? {
            Some(version) if is_modern(version) => Lifecycle::Single,
            _ => Lifecycle::Session,
        }),
    }
}

fn lifecycle_of_request(
    headers: &HeaderMap,
    request: &ClientRequest,
    id: &RequestId,
) -> Result<Lifecycle, ErrorResponse> {
    let is_discover = matches!(request, ClientRequest::DiscoverRequest(_));
    let meta = request.get_meta();
    let Some(inner) = meta.protocol_version() else {
        if !is_discover && !known_version(headers)?.is_some_and(is_modern) {
            return Ok(Lifecycle::Session);
        }
        let missing = meta.missing_required_keys(&ProtocolVersion::V_2026_07_28);
        let sentence = format!("the _meta of the request must have {}", missing.join(", "));
        return Err(bad_request(
            Some(id),
            ErrorData::invalid_params(sentence, None),
        ));
    };
    // An unknown version is refused by `dispatch`, whose error lists the known ones.
    let version = version(headers)?;
    if version != Some(inner.as_str()) {
        let version = version.unwrap_or("nothing");
        let sentence = format!(
            "the MCP-Protocol-Version header says {version}, the _meta of the request says {inner}"
        );
        return Err(mismatch(Some(id), sentence));
    }
    let is_complete = has_metadata(request) && !headers.contains_key(SESSION);
    match is_discover || is_modern(inner.as_str()) || is_complete {
        true => Ok(Lifecycle::Single),
        false => Ok(Lifecycle::Session),
    }
}

/// True if a request carries the metadata that the handshake of a session would have provided.
pub fn has_metadata(request: &ClientRequest) -> bool {
    let missing = (request.get_meta()).missing_required_keys(&ProtocolVersion::V_2026_07_28);
    missing.is_empty()
}

fn match_initialize(
    headers: &HeaderMap,
    wanted: &ProtocolVersion,
    id: &RequestId,
) -> Result<(), ErrorResponse> {
    let Some(version) = known_version(headers)? else {
        return Ok(());
    };
    if version != wanted.as_str() {
        let sentence =
            format!("the MCP-Protocol-Version header says {version}, initialize says {wanted}");
        return Err(bad_request(
            Some(id),
            ErrorData::invalid_request(sentence, None),
        ));
    }
    // No version is agreed yet, so the method header may be missing; but a wrong one could mislead a router.
    let mut methods = headers.get_all(METHOD).iter();
    match (methods.next(), methods.next()) {
        (Some(method), None) if method == "initialize" => Ok(()),
        (Some(_), _) if is_modern(version) => {
            let sentence = "the Mcp-Method header does not say initialize".to_owned();
            Err(mismatch(Some(id), sentence))
        }
        _ => Ok(()),
    }
}

/// Checks that the headers repeat the method and the name in the message, because routers rely on them.
pub fn match_message(
    headers: &HeaderMap,
    message: &ClientJsonRpcMessage,
    body: &[u8],
) -> Result<(), ErrorResponse> {
    let id = match message {
        JsonRpcMessage::Request(asked) => Some(&asked.id),
        JsonRpcMessage::Notification(_) => None,
        JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => return Ok(()),
    };
    if !version(headers)?.is_some_and(is_modern) {
        return Ok(());
    }
    let Ok(named) = serde_json::from_slice::<NamedParams>(body) else {
        return Ok(());
    };
    named
        .check(headers)
        .map_err(|HeaderMismatch(sentence)| mismatch(id, sentence))
}

/// Sentence about a header that does not repeat what the body says.
struct HeaderMismatch(String);

/// Fields of a message that its headers repeat.
#[derive(Deserialize)]
struct NamedParams {
    method: String,
    #[serde(default)]
    params: Value,
}

impl NamedParams {
    fn check(&self, headers: &HeaderMap) -> Result<(), HeaderMismatch> {
        let wrong = |sentence: String| Err(HeaderMismatch(sentence));
        let method = &self.method;
        match single_header(headers, METHOD)? {
            Some(named) if named == method => {}
            Some(named) => {
                return wrong(format!("Mcp-Method says {named}, the body says {method}"));
            }
            None => return wrong("the Mcp-Method header is missing".to_owned()),
        }
        let Some(name) = self.name() else {
            return Ok(());
        };
        let Some(named) = single_header(headers, NAME)? else {
            return wrong(format!("{method} needs the Mcp-Name header"));
        };
        match decoded(named) {
            Some(named) if named == name => Ok(()),
            Some(named) => wrong(format!("Mcp-Name says {named}, the body says {name}")),
            None => wrong("the Mcp-Name header is not Base64".to_owned()),
        }
    }

    fn name(&self) -> Option<&str> {
        let field = match self.method.as_str() {
            "tools/call" | "prompts/get" => "name",
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => "uri",
            "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
            _ => return None,
        };
        self.params.get(field)?.as_str()
    }
}

/// Value of a header that must not be given twice.
fn single_header<'a>(
    headers: &'a HeaderMap,
    name: &str,
) -> Result<Option<&'a str>, HeaderMismatch> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_some() {
        return Err(HeaderMismatch(format!("the {name} header is given twice")));
    }
    Ok(value.and_then(|value| value.to_str().ok()))
}

/// Value of a header that may be Base64-encoded. `None`: invalid encoding.
fn decoded(value: &str) -> Option<String> {
    let (before, after) = BASE64_MARKS;
    let inner = value.strip_prefix(before);
    match inner.and_then(|inner| inner.strip_suffix(after)) {
        None => Some(value.to_owned()),
        Some(inner) => String::from_utf8(BASE64_STANDARD.decode(inner).ok()?).ok(),
    }
}

fn mismatch(id: Option<&RequestId>, sentence: String) -> ErrorResponse {
    bad_request(id, ErrorData::header_mismatch(sentence, None))
}
