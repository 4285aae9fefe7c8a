//! Headers and JSON types that the CLI and the daemon share.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use abide_engine::probe::Fingerprint;
use abide_session::frame as launch;

/// Header with the agent on whose behalf the request is made.
pub const AGENT_HEADER: &str = "abide-agent";
/// Header with the agent's conversation, whose messages the request may read: `claude_code:` or
/// `codex:` and the client's own name for it.
pub const CONVERSATION_HEADER: &str = "abide-conversation";
/// Header with the working directory for commands that name none.
pub const ROOT_HEADER: &str = "abide-root";
/// Header that claims, over TCP, that a person sends the request. Refused for processes inside a session.
pub const PERSON_HEADER: &str = "abide-person";
/// Header that a person's tool call sets, so that no message to an agent is delivered with the result.
pub const QUIET_HEADER: &str = "abide-quiet";
/// Header with the idempotency key: a retry with the same key is carried out once.
pub const KEY_HEADER: &str = "idempotency-key";

/// Header with the umask and resource limits for commands that the request starts, as JSON
/// ([`InheritedLimits`]). A header and not a field of the body, because a daemon of an older build
/// ignores an unknown header but refuses an unknown field.
pub const INHERITED_LIMITS_HEADER: &str = "abide-inherited-limits";

/// Header with the state of the files when the client began to wait for a change of them, as JSON
/// ([`FilesBefore`]). After a reconnect the next daemon compares with the same state.
pub const FILES_HEADER: &str = "abide-files";

/// State of files by absolute path; `None`: the file did not exist.
pub type FilesBefore = BTreeMap<PathBuf, Option<Fingerprint>>;

/// OS string, which need not be Unicode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OsText {
    /// Valid Unicode.
    Text(String),
    /// Any other bytes.
    Bytes {
        /// The bytes in base64.
        base64: String,
    },
}

impl From<&OsStr> for OsText {
    fn from(text: &OsStr) -> Self {
        match text.to_str() {
            Some(text) => OsText::Text(text.into()),
            None => OsText::Bytes {
                base64: STANDARD.encode(text.as_bytes()),
            },
        }
    }
}

impl OsText {
    /// Converts to an OS string; `None` if it contains a NUL byte or is not valid base64.
    pub fn into_os(self) -> Option<OsString> {
        let bytes = match self {
            OsText::Text(text) => text.into_bytes(),
            OsText::Bytes { base64 } => STANDARD.decode(base64).ok()?,
        };
        (!bytes.contains(&0)).then(|| OsString::from_vec(bytes))
    }
}

/// Body of `POST /v1/runs`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunBody {
    /// Command as shown to people, and the command line if there is no `argv`.
    pub command: String,
    /// Program and arguments to execute without a shell; without it the configured shell runs `command`.
    #[serde(default)]
    pub argv: Option<Vec<OsText>>,
    /// Working directory.
    pub cwd: OsText,
    /// All environment variables, as pairs.
    pub env: Vec<(OsText, OsText)>,
    /// Source of standard input.
    #[serde(default)]
    pub stdin: StdinKind,
    /// Size of the pseudo-terminal to run in; without it, pipes are used.
    #[serde(default)]
    pub pty: Option<PtySize>,
    /// Deadline, in seconds after the start.
    #[serde(default)]
    pub timeout: Option<f64>,
    /// Idle limit, in seconds without output.
    #[serde(default)]
    pub idle: Option<f64>,
    /// Idempotency key: a request with the same key joins the same session.
    pub key: String,
    /// Umask and resource limits of the command; without it those of the header
    /// `abide-inherited-limits`, or else those of the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherited_limits: Option<InheritedLimits>,
    /// True if a person sits at a terminal and can be asked there.
    #[serde(default)]
    pub terminal: bool,
    /// Log offset from which output is sent.
    #[serde(default)]
    pub from: u64,
}

/// Umask and resource limits that a process passes on to its children.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InheritedLimits {
    /// File mode creation mask.
    pub umask: u32,
    /// Resource limits. A command never gets more than the daemon's own hard limits.
    pub limits: Vec<Bound>,
}

/// Resource limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// Number of the resource, as in `setrlimit`.
    pub resource: u32,
    /// Soft limit; absent: unlimited.
    pub soft: Option<u64>,
    /// Hard limit; absent: unlimited.
    pub hard: Option<u64>,
}

impl From<InheritedLimits> for launch::InheritedLimits {
    fn from(inherited_limits: InheritedLimits) -> Self {
        let bound = |bound: Bound| launch::ResourceLimit {
            resource: bound.resource,
            soft: bound.soft.unwrap_or(u64::MAX),
            hard: bound.hard.unwrap_or(u64::MAX),
        };
        launch::InheritedLimits {
            umask: inherited_limits.umask,
            limits: inherited_limits.limits.into_iter().map(bound).collect(),
        }
    }
}

/// Source of a command's standard input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StdinKind {
    /// Empty: end of file at once.
    #[default]
    None,
    /// Bytes sent with `POST /v1/sessions/{id}/input`.
    Open,
}

/// Size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PtySize {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_not_unicode_comes_back_as_it_was() {
        for bytes in [&b"plain"[..], b"", b"\xff\xfe", "ü".as_bytes()] {
            let os = OsStr::from_bytes(bytes);
            let wire = serde_json::to_string(&OsText::from(os)).unwrap();
            let back: OsText = serde_json::from_str(&wire).unwrap();
            assert_eq!(back.into_os().unwrap(), os);
        }
        assert_eq!(OsText::Text("a\0b".into()).into_os(), None);
    }
}
