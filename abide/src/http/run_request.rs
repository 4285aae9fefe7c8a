//! Body of `POST /v1/runs`, which the CLI sends and the daemon reads.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use abide_api::{NetworkMode, SandboxMode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// Sandbox of the command: `read-only`, `workspace-write` or `off`. Without it, a person's command has none, and an
    /// agent's has that of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxMode>,
    /// Network of a sandbox: `on`, `allowlist` or `off`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkMode>,
    /// Name of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// True if a person sits at a terminal and can be asked there.
    #[serde(default)]
    pub terminal: bool,
    /// Log offset from which output is sent.
    #[serde(default)]
    pub from: u64,
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

/// Word quoted for a shell.
pub fn quoted(word: &OsStr) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_=+/.,:@%^".contains(byte);
    let text = word.to_string_lossy();
    if !word.is_empty() && word.as_bytes().iter().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn os_text_round_trips_bytes_that_are_not_unicode() {
        for bytes in [&b"plain"[..], b"", b"\xff\xfe", "ü".as_bytes()] {
            let os = OsStr::from_bytes(bytes);
            let encoded = serde_json::to_string(&OsText::from(os)).unwrap();
            let back: OsText = serde_json::from_str(&encoded).unwrap();
            assert_eq!(back.into_os().unwrap(), os);
        }
        assert_eq!(OsText::Text("a\0b".into()).into_os(), None);
    }
}
