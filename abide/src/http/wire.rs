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

/// Text of the system, which need not be Unicode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OsText {
    /// It is.
    Text(String),
    /// It is not.
    Bytes {
        /// The bytes.
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

/// The body of `POST /v1/runs`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunBody {
    /// The command for people to read, and the command line where there is no `argv`.
    pub command: String,
    /// What to execute as it is; without it the configured shell runs `command`.
    #[serde(default)]
    pub argv: Option<Vec<OsText>>,
    /// Where.
    pub cwd: OsText,
    /// All variables, as pairs.
    pub env: Vec<(OsText, OsText)>,
    /// What it reads.
    #[serde(default)]
    pub stdin: StdinKind,
    /// A terminal of its own.
    #[serde(default)]
    pub pty: Option<PtySize>,
    /// Hard limit in seconds.
    #[serde(default)]
    pub timeout: Option<f64>,
    /// Idle limit in seconds.
    #[serde(default)]
    pub idle: Option<f64>,
    /// Sent again under the same key, the request takes up the same session.
    pub key: String,
    /// What it inherits besides, of whoever asks for it; without it, what the header `abide-inherited-limits` says, or
    /// what the daemon has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherited_limits: Option<InheritedLimits>,
    /// Whether a person sits at a terminal and can be asked there.
    #[serde(default)]
    pub terminal: bool,
    /// The offset in the log from which output is sent.
    #[serde(default)]
    pub from: u64,
}

/// What a process hands down to those it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InheritedLimits {
    /// Its mask for new files.
    pub umask: u32,
    /// What it may use at most. A command never gets more than the daemon could give.
    pub limits: Vec<Bound>,
}

/// How much of something a process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// Of what, as the kernel counts.
    pub resource: u32,
    /// The limit; without one there is none.
    pub soft: Option<u64>,
    /// How far the process itself may raise it.
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

/// What a command reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StdinKind {
    /// Nothing: the end at once.
    #[default]
    None,
    /// What `POST /v1/sessions/{id}/input` brings.
    Open,
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PtySize {
    /// Characters in a line.
    pub cols: u16,
    /// Lines.
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
