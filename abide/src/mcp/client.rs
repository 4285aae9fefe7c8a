//! Identification of clients by their environment variables and call metadata, so that their agents can be woken later.

use std::path::PathBuf;

use abide_core::{Agent, Conversation};
use rmcp::model::RequestMetaObject;

use super::front_hello::FrontHello;
use super::origin::{Origin, Transport};
use abide_engine::Handle;
use abide_engine::clients::{Client, ClientKind};
use abide_engine::peer::Peer;

/// Variables that a client's program needs to be found and to find its settings.
const PASSED_VARIABLES: [&str; 6] = [
    "PATH",
    "HOME",
    "XDG_CONFIG_HOME",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "LANG",
];

/// Prefix of the idempotency keys of fronts' requests.
const KEY_PREFIX: &str = "mcp:";

/// Client behind a front, if it is Claude Code, which passes its session id to the servers that it starts.
pub fn behind_front(hello: &FrontHello) -> Option<Client> {
    let var = |name: &str| {
        let (_, value) = hello.env.iter().find(|(key, _)| key == name)?;
        Some(value.to_str()?.to_owned()).filter(|value| !value.is_empty())
    };
    Some(Client {
        kind: ClientKind::ClaudeCode,
        session: var("CLAUDE_CODE_SESSION_ID")?,
        inbox: var("CLAUDE_CODE_MESSAGING_SOCKET").map(PathBuf::from),
        cwd: var("CLAUDE_PROJECT_DIR").map_or_else(|| hello.cwd.clone(), PathBuf::from),
        env: passed_variables(&hello.env),
    })
}

/// Conversation behind a front: the client's own session id if it is known, else the id of the front, which
/// stays the same across reconnects.
pub fn conversation(hello: &FrontHello) -> Conversation {
    match behind_front(hello) {
        Some(client) => client.kind.conversation(&client.session),
        None => Conversation(format!("front:{}", hello.front).into()),
    }
}

/// Origin of calls through the front that sent this hello; `peer` is the process at its end of the socket.
pub fn origin_of_front(hello: FrontHello, peer: Peer) -> Origin {
    Origin {
        conversation: Some(conversation(&hello)),
        transport: Transport::Front(hello.front),
        agent: Agent(hello.agent.into()),
        root: hello.cwd,
        env: hello.env.into(),
        peer,
    }
}

/// Records the calling client, if it is Codex, which names its thread in every call. Returns the thread as
/// the conversation of the call.
pub fn record_codex_thread(
    handle: &Handle,
    origin: &Origin,
    meta: &RequestMetaObject,
) -> Option<Conversation> {
    let thread = meta.get("threadId").and_then(|id| id.as_str())?;
    let (connection, env) = match &origin.transport {
        Transport::Front(front) => (Some(front.as_str()), passed_variables(&origin.env)),
        Transport::Http => (None, Vec::new()),
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

/// Idempotency key of a front's request.
pub fn request_key(front: &str, ordinal: impl std::fmt::Display) -> String {
    format!("{KEY_PREFIX}{front}:{ordinal}")
}

/// Front whose request has this idempotency key.
pub(crate) fn front_of(key: &str) -> Option<&str> {
    let (front, _) = key.strip_prefix(KEY_PREFIX)?.rsplit_once(':')?;
    Some(front)
}

fn passed_variables(env: &[(std::ffi::OsString, std::ffi::OsString)]) -> Vec<(String, String)> {
    let known = env.iter().filter_map(|(name, value)| {
        let (name, value) = (name.to_str()?, value.to_str()?);
        PASSED_VARIABLES
            .contains(&name)
            .then(|| (name.to_owned(), value.to_owned()))
    });
    known.collect()
}
