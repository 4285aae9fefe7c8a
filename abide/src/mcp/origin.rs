//! Sender of the calls of one client.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

use abide_core::{Agent, Conversation};
use abide_engine::peer::Peer;

/// Sender of a client's calls.
#[derive(Debug)]
pub struct Origin {
    /// Transport of the client.
    pub transport: Transport,
    /// Agent on whose behalf the client calls.
    pub agent: Agent,
    /// Conversation of calls that name none themselves.
    pub conversation: Option<Conversation>,
    /// Root folder of the agent.
    pub root: PathBuf,
    /// Environment that commands inherit.
    pub env: Arc<[(OsString, OsString)]>,
    /// Process at the other end of the connection.
    pub peer: Peer,
}

/// Transport by which a client reaches the daemon.
#[derive(Debug)]
pub enum Transport {
    /// Through the front of this name.
    Front(String),
    /// Over HTTP.
    Http,
}

impl Origin {
    /// Variable of the client's environment. `None` also over HTTP, where the environment is not the client's.
    pub fn var(&self, name: &str) -> Option<&OsStr> {
        if matches!(self.transport, Transport::Http) {
            return None;
        }
        let (_, value) = self.env.iter().find(|(key, _)| key == name)?;
        Some(value)
    }
}
