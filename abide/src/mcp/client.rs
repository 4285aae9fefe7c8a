//! Knows clients by what they put into a front's environment and into their calls, so that their
//! agents can be woken later.

use std::path::PathBuf;

use abide_core::Conversation;
use rmcp::model::RequestMetaObject;

use super::hello::Hello;
use super::server::{Origin, Way};
use abide_engine::Handle;
use abide_engine::clients::{Client, ClientKind};

/// What a client's program needs to be found, and to find its settings.
const NEEDED: [&str; 6] = [
    "PATH",
    "HOME",
    "XDG_CONFIG_HOME",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "LANG",
];

/// What the keys of fronts' requests begin with.
const KEY: &str = "mcp:";

/// Claude Code names its session to the servers that it starts.
pub fn of_a_front(hello: &Hello) -> Option<Client> {
    let var = |name: &str| {
        let (_, value) = hello.env.iter().find(|(key, _)| key == name)?;
        Some(value.to_str()?.to_owned()).filter(|value| !value.is_empty())
    };
    Some(Client {
        kind: ClientKind::ClaudeCode,
        session: var("CLAUDE_CODE_SESSION_ID")?,
        inbox: var("CLAUDE_CODE_MESSAGING_SOCKET").map(PathBuf::from),
        cwd: var("CLAUDE_PROJECT_DIR").map_or_else(|| hello.cwd.clone(), PathBuf::from),
        env: needed(&hello.env),
    })
}

/// The conversation that speaks through a front: the client's own name for it, where it has told that,
/// else the front itself, which keeps its name when it connects again.
pub fn conversation(hello: &Hello) -> Conversation {
    match of_a_front(hello) {
        Some(client) => client.kind.conversation(&client.session),
        None => Conversation(format!("front:{}", hello.front).into()),
    }
}

/// Codex names its thread with every call, which is the conversation then.
pub fn note_call(
    handle: &Handle,
    origin: &Origin,
    meta: &RequestMetaObject,
) -> Option<Conversation> {
    let thread = meta.get("threadId").and_then(|id| id.as_str())?;
    let (connection, env) = match &origin.way {
        Way::Front(front) => (Some(front.as_str()), needed(&origin.env)),
        Way::Http => (None, Vec::new()),
    };
    let client = Client {
        kind: ClientKind::Codex,
        session: thread.to_owned(),
        inbox: None,
        cwd: origin.root.clone(),
        env,
    };
    handle.client_seen(&origin.agent, client, connection);
    Some(ClientKind::Codex.conversation(thread))
}

/// The key of a front's request.
pub fn key(front: &str, ordinal: impl std::fmt::Display) -> String {
    format!("{KEY}{front}:{ordinal}")
}

/// The front whose request has this key.
pub(crate) fn front_of(key: &str) -> Option<&str> {
    let (front, _) = key.strip_prefix(KEY)?.rsplit_once(':')?;
    Some(front)
}

fn needed(env: &[(std::ffi::OsString, std::ffi::OsString)]) -> Vec<(String, String)> {
    let known = env.iter().filter_map(|(name, value)| {
        let (name, value) = (name.to_str()?, value.to_str()?);
        NEEDED
            .contains(&name)
            .then(|| (name.to_owned(), value.to_owned()))
    });
    known.collect()
}
