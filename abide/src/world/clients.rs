//! Through which clients the agents speak: what a waker needs to find one that is idle, or to take up
//! a session that was closed. Kept per agent and kind, over restarts; never a secret.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use super::store::ClientRow;

/// Kinds of clients that can be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientKind {
    /// Claude Code.
    ClaudeCode,
    /// Codex.
    Codex,
}

impl ClientKind {
    /// As it is kept.
    pub const fn as_str(self) -> &'static str {
        match self {
            ClientKind::ClaudeCode => "claude_code",
            ClientKind::Codex => "codex",
        }
    }
}

/// One client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Of what kind.
    pub kind: ClientKind,
    /// Its own name for the conversation.
    pub session: String,
    /// The socket at which the conversation takes messages.
    pub inbox: Option<PathBuf>,
    /// Where it works.
    pub cwd: PathBuf,
    /// What its program needs to be found and to find its settings.
    pub env: Vec<(String, String)>,
}

/// All that is known of them.
#[derive(Default)]
pub struct Clients {
    known: Mutex<HashMap<(String, ClientKind), Known>>,
    /// The connections that are there now.
    connected: Mutex<HashSet<String>>,
}

struct Known {
    client: Client,
    /// The connection by which it was last heard of.
    connection: Option<String>,
}

/// A connection that is there for as long as this is held.
pub struct Connected(Arc<Clients>, String);

impl Drop for Connected {
    fn drop(&mut self) {
        let mut connected = self.0.connected.lock().expect("no holder panics");
        connected.remove(&self.1);
    }
}

impl Clients {
    /// Those that were kept. One that cannot be read is as good as unknown.
    pub fn new(rows: Vec<ClientRow>) -> Arc<Self> {
        let read = |row: ClientRow| {
            let client: Client = serde_json::from_str(&row.facts).ok()?;
            let known = Known {
                client,
                connection: None,
            };
            Some(((row.agent, known.client.kind), known))
        };
        Arc::new(Clients {
            known: Mutex::new(rows.into_iter().filter_map(read).collect()),
            connected: Mutex::default(),
        })
    }

    /// A connection is there, until the guard is dropped.
    pub fn connected(self: &Arc<Self>, connection: &str) -> Connected {
        let mut connected = self.connected.lock().expect("no holder panics");
        connected.insert(connection.to_owned());
        Connected(self.clone(), connection.to_owned())
    }

    /// An agent speaks through this client. Returns what is to be kept, where that is news.
    pub fn heard(
        &self,
        agent: &str,
        client: Client,
        connection: Option<&str>,
    ) -> Option<ClientRow> {
        let mut known = self.known.lock().expect("no holder panics");
        let name = (agent.to_owned(), client.kind);
        let connection = connection.map(str::to_owned);
        if let Some(before) = known.get_mut(&name)
            && before.client == client
        {
            before.connection = connection;
            return None;
        }
        let row = ClientRow {
            agent: agent.to_owned(),
            kind: client.kind.as_str().into(),
            facts: serde_json::to_string(&client).unwrap_or_default(),
        };
        known.insert(name, Known { client, connection });
        Some(row)
    }

    /// The client through which an agent last spoke, and whether it is there now.
    pub fn of(&self, agent: &str, kind: ClientKind) -> Option<(Client, bool)> {
        let known = self.known.lock().expect("no holder panics");
        let known = known.get(&(agent.to_owned(), kind))?;
        let connected = self.connected.lock().expect("no holder panics");
        let live = known.connection.as_ref();
        let live = live.is_some_and(|connection| connected.contains(connection));
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
    fn the_last_one_counts_and_outlives_a_restart() {
        let clients = Clients::new(Vec::new());
        let there = clients.connected("front");
        assert!(clients.heard("a", client("1"), Some("front")).is_some());
        let row = clients.heard("a", client("2"), Some("front"));
        assert!(clients.heard("a", client("2"), Some("front")).is_none());
        let kind = ClientKind::ClaudeCode;
        assert_eq!(clients.of("a", kind), Some((client("2"), true)));
        assert_eq!(clients.of("b", kind), None);
        drop(there);
        assert_eq!(clients.of("a", kind), Some((client("2"), false)));
        let later = Clients::new(row.into_iter().collect());
        assert_eq!(later.of("a", kind), Some((client("2"), false)));
    }
}
