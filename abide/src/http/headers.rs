//! Request headers that the CLI and the daemon share, and the types of those that hold JSON.

use std::collections::BTreeMap;
use std::path::PathBuf;

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
/// Header with the milliseconds within which the client needs an answer: a wait that is longer returns before.
pub const STANDBY_HEADER: &str = "abide-standby";
/// Header with the idempotency key: a retry with the same key is carried out once.
pub const KEY_HEADER: &str = "idempotency-key";

/// Header with the umask and resource limits for commands that the request starts, as JSON
/// ([`InheritedLimits`]).
pub const INHERITED_LIMITS_HEADER: &str = "abide-inherited-limits";

/// Header with the name of the session that the request starts, as JSON.
pub const SESSION_NAME_HEADER: &str = "abide-session-name";

/// Header with the state of the files when the client began to wait for a change of them, as JSON
/// ([`FilesBefore`]). After a reconnect the next daemon compares with the same state.
pub const FILES_HEADER: &str = "abide-files";

/// State of files by absolute path; `None`: the file did not exist.
pub type FilesBefore = BTreeMap<PathBuf, Option<Fingerprint>>;

/// Umask and resource limits that a process passes on to its children.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InheritedLimits {
    /// File mode creation mask.
    pub umask: u32,
    /// Resource limits. A command never gets more than the daemon's own hard limits.
    pub limits: Vec<ResourceLimit>,
}

/// Resource limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceLimit {
    /// Number of the resource, as in `setrlimit`.
    pub resource: u32,
    /// Soft limit; absent: unlimited.
    pub soft: Option<u64>,
    /// Hard limit; absent: unlimited.
    pub hard: Option<u64>,
}

impl From<InheritedLimits> for launch::InheritedLimits {
    fn from(inherited_limits: InheritedLimits) -> Self {
        let convert = |limit: ResourceLimit| launch::ResourceLimit {
            resource: limit.resource,
            soft: limit.soft.unwrap_or(u64::MAX),
            hard: limit.hard.unwrap_or(u64::MAX),
        };
        launch::InheritedLimits {
            umask: inherited_limits.umask,
            limits: inherited_limits.limits.into_iter().map(convert).collect(),
        }
    }
}
