//! MCP clients through which agents call, with what a waker needs to send a message to an open conversation or to
//! resume a closed one. Stored per agent and kind, across restarts. Never holds a secret.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use abide_core::Conversation;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::store::ClientRow;
use crate::lock::lock;

/// Kind of client that can be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientKind {
    ClaudeCode,
    Codex,
}

impl ClientKind {
    /// Name in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            ClientKind::ClaudeCode => "claude_code",
            ClientKind::Codex => "codex",
        }
    }

    /// Conversation with this client session.
    pub fn conversation(self, session: &str) -> Conversation {
        Conversation(format!("{}:{session}", self.as_str()).into())
    }

    /// Client session of a conversation. `None`: the conversation belongs to another kind of client.
    pub fn session_of(self, conversation: &Conversation) -> Option<&str> {
        let session = conversation.0.strip_prefix(self.as_str())?;
        session.strip_prefix(':')
    }
}

/// One conversation of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    pub kind: ClientKind,
    /// Session id that the client uses.
    pub session: String,
    /// Socket on which the conversation accepts messages.
    pub inbox: Option<PathBuf>,
    /// Working directory of the client.
    pub cwd: PathBuf,
    /// Environment variables with which the client finds its programs and settings.
    pub env: Vec<(String, String)>,
}

/// Maximum of conversations stored per agent and kind. The one that was silent longest is dropped.
const MAX_CONVERSATIONS: usize = 64;
/// Maximum of connections stored per conversation: a conversation may be closed and resumed.
const MAX_CONNECTIONS: usize = 8;

/// All known clients.
#[derive(Default)]
pub struct Clients {
    /// Conversations, the most recent one last.
    known: Mutex<HashMap<(String, ClientKind), Vec<ClientRecord>>>,
    /// Open connections and their agents.
    connected: Mutex<HashMap<String, String>>,
    /// Notified when a conversation gets a new connection.
    connection_added: Notify,
}

/// Conversation with the connections that named it, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ClientRecord {
    #[serde(flatten)]
    client: Client,
    /// Connections that named this conversation, the most recent one last.
    #[serde(default)]
    connections: Vec<String>,
}

impl ClientRecord {
    /// Adds a connection. Returns true if it was not the last one already.
    fn add_connection(&mut self, connection: Option<&str>) -> bool {
        let Some(connection) = connection.filter(|connection| {
            self.connections
                .last()
                .is_none_or(|last| last != connection)
        }) else {
            return false;
        };
        self.connections.retain(|known| known != connection);
        self.connections.push(connection.to_owned());
        let old = self.connections.len().saturating_sub(MAX_CONNECTIONS);
        self.connections.drain(..old);
        true
    }
}

/// Readers of messages that are connected to this machine.
pub struct ConnectedReaders {
    /// Agents with an open connection.
    pub agents: BTreeSet<String>,
    /// Agents with calls that wait for messages.
    pub waiting: BTreeSet<String>,
    /// Conversations of agents that a client can resume, also on another machine.
    pub conversations: Vec<(String, Conversation)>,
}

/// Guard of an open connection; dropping it removes the connection.
pub struct ConnectionGuard(Arc<Clients>, String);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut connected = lock(&self.0.connected);
        connected.remove(&self.1);
    }
}

impl Clients {
    /// Loads the stored clients. A row that cannot be read is ignored.
    pub fn new(rows: Vec<ClientRow>) -> Arc<Self> {
        let clients = Arc::new(Clients::default());
        clients.load(rows);
        clients
    }

    /// Adds stored clients of agents that are not known yet.
    pub(crate) fn load(&self, rows: Vec<ClientRow>) {
        let read = |row: ClientRow| {
            let known: Vec<ClientRecord> = serde_json::from_str(&row.facts).ok()?;
            let kind = known.first()?.client.kind;
            Some(((row.agent, kind), known))
        };
        let mut known = lock(&self.known);
        for (whose, stored) in rows.into_iter().filter_map(read) {
            known.entry(whose).or_insert(stored);
        }
    }

    /// Adds an open connection until the guard is dropped.
    pub fn add_connection(self: &Arc<Self>, agent: &str, connection: &str) -> ConnectionGuard {
        let mut connected = lock(&self.connected);
        connected.insert(connection.to_owned(), agent.to_owned());
        ConnectionGuard(self.clone(), connection.to_owned())
    }

    /// Agents with an open connection.
    pub fn connected_agents(&self) -> BTreeSet<String> {
        lock(&self.connected).values().cloned().collect()
    }

    /// Agents and conversations with an open connection, and these agents whose calls wait.
    pub fn connected_readers(&self, waiting: BTreeSet<String>) -> ConnectedReaders {
        let known = lock(&self.known);
        let connected = lock(&self.connected);
        let records = known
            .iter()
            .flat_map(|(whose, all)| all.iter().map(move |record| (whose, record)));
        let live = records.filter(|(_, record)| {
            let mut connections = record.connections.iter();
            connections.any(|connection| connected.contains_key(connection))
        });
        ConnectedReaders {
            conversations: live
                .map(|((agent, kind), record)| {
                    (agent.clone(), kind.conversation(&record.client.session))
                })
                .collect(),
            agents: connected.values().cloned().collect(),
            waiting,
        }
    }

    /// Open connections of an agent.
    pub fn connections_of(&self, agent: &str) -> Vec<String> {
        let connected = lock(&self.connected);
        let own = connected.iter().filter(|(_, whose)| *whose == agent);
        own.map(|(connection, _)| connection.clone()).collect()
    }

    /// Records that an agent calls through this client. Returns the row to store, if anything changed.
    pub fn record(
        &self,
        agent: &str,
        client: Client,
        connection: Option<&str>,
    ) -> Option<ClientRow> {
        let mut known = lock(&self.known);
        let kind = client.kind;
        let all = known.entry((agent.to_owned(), kind)).or_default();
        let place = all.iter().position(|k| k.client.session == client.session);
        let was_last = place.is_some_and(|place| place + 1 == all.len());
        let before = place.map(|place| all.remove(place));
        let same = before.as_ref().is_some_and(|known| known.client == client);
        let mut now = ClientRecord {
            client,
            connections: before.map(|known| known.connections).unwrap_or_default(),
        };
        let is_new = now.add_connection(connection);
        if is_new {
            self.connection_added.notify_one();
        }
        all.push(now);
        let old = all.len().saturating_sub(MAX_CONVERSATIONS);
        all.drain(..old);
        if was_last && same && !is_new {
            return None;
        }
        Some(ClientRow {
            agent: agent.to_owned(),
            kind: kind.as_str().into(),
            facts: serde_json::to_string(all).unwrap_or_default(),
        })
    }

    /// Waits until a conversation gets a new connection.
    pub async fn new_connection(&self) {
        self.connection_added.notified().await;
    }

    /// Agents with known clients.
    pub fn agents(&self) -> BTreeSet<String> {
        let known = lock(&self.known);
        known.keys().map(|(agent, _)| agent.clone()).collect()
    }

    pub fn conversations(&self, agent: &str, kind: ClientKind) -> Vec<Conversation> {
        let known = lock(&self.known);
        let all = known.get(&(agent.to_owned(), kind)).into_iter().flatten();
        all.map(|known| kind.conversation(&known.client.session))
            .collect()
    }

    /// Working directory of the client with this session.
    pub fn folder_of(&self, kind: ClientKind, session: &str) -> Option<PathBuf> {
        let known = lock(&self.known);
        let mut all = known.values().flatten();
        let is =
            |known: &&ClientRecord| known.client.kind == kind && known.client.session == session;
        all.find(is).map(|known| known.client.cwd.clone())
    }

    /// Client of this session, or without one the client through which the agent called last. The flag says if it is
    /// connected now.
    pub fn find(
        &self,
        agent: &str,
        kind: ClientKind,
        session: Option<&str>,
    ) -> Option<(Client, bool)> {
        let known = lock(&self.known);
        let all = known.get(&(agent.to_owned(), kind))?;
        let known = match session {
            Some(session) => all.iter().find(|known| known.client.session == session)?,
            None => all.last()?,
        };
        let connected = lock(&self.connected);
        let live = known
            .connections
            .iter()
            .any(|connection| connected.contains_key(connection));
        Some((known.client.clone(), live))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(session: &str) -> Client {
        Client {
            kind: ClientKind::ClaudeCode,
            session: session.into(),
            inbox: Some("/run/inbox".into()),
            cwd: "/project".into(),
            env: vec![("PATH".into(), "/bin".into())],
        }
    }

    #[test]
    fn last_client_is_found_after_restart() {
        let clients = Clients::new(Vec::new());
        let there = clients.add_connection("a", "front");
        assert!(clients.record("a", client("1"), Some("front")).is_some());
        let row = clients.record("a", client("2"), Some("front"));
        assert!(clients.record("a", client("2"), Some("front")).is_none());
        let kind = ClientKind::ClaudeCode;
        assert_eq!(clients.find("a", kind, None), Some((client("2"), true)));
        assert_eq!(clients.find("b", kind, None), None);
        drop(there);
        assert_eq!(clients.find("a", kind, None), Some((client("2"), false)));
        let later = Clients::new(row.into_iter().collect());
        assert_eq!(later.find("a", kind, None), Some((client("2"), false)));
    }

    #[test]
    fn conversation_is_found_by_its_session_only() {
        let clients = Clients::new(Vec::new());
        let kind = ClientKind::ClaudeCode;
        clients.record("a", client("1"), Some("f1"));
        clients.record("a", client("2"), Some("f2"));
        // The first conversation was closed and resumed.
        let row = clients.record("a", client("1"), Some("f3"));
        let later = Clients::new(row.into_iter().collect());
        let there = later.add_connection("a", "f2");
        for (session, live) in [("1", false), ("2", true)] {
            let found = later.find("a", kind, Some(session));
            assert_eq!(found, Some((client(session), live)), "{session}");
        }
        let readers = later.connected_readers(BTreeSet::new());
        assert_eq!(readers.agents, ["a".to_owned()].into());
        let live = [("a".to_owned(), kind.conversation("2"))];
        assert_eq!(
            readers.conversations, live,
            "the other one is not connected"
        );
        drop(there);
        assert!(later.connected_agents().is_empty());
        let readers = later.connected_readers(BTreeSet::new());
        assert!(readers.conversations.is_empty());
        assert_eq!(later.find("a", kind, None), Some((client("1"), false)));
        assert_eq!(later.find("a", kind, Some("9")), None);
        let both = ["2", "1"].map(|session| kind.conversation(session));
        assert_eq!(later.conversations("a", kind), both);
        assert_eq!(kind.session_of(&both[0]), Some("2"));
        assert_eq!(ClientKind::Codex.session_of(&both[0]), None);
    }

    #[test]
    fn conversation_beyond_the_maximum_drops_the_oldest() {
        let kind = ClientKind::ClaudeCode;
        let clients = Clients::new(Vec::new());
        clients.record("a", client("old"), Some("f"));
        assert_eq!(clients.find("a", kind, None), Some((client("old"), false)));
        for n in 0..MAX_CONVERSATIONS {
            clients.record("a", client(&n.to_string()), Some(&format!("f{n}")));
        }
        assert_eq!(clients.find("a", kind, Some("old")), None);
    }
}
