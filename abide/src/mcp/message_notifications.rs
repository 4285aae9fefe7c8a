//! Tells a connected client that a message waits for its agent. Most clients only write such
//! notifications down, so nothing counts as seen by them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use abide_core::Agent;
use abide_core::message::About;
use rmcp::model::{CustomNotification, ServerNotification};
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::peer::Peer;
use super::server::Speaks;
use abide_engine::store::MessageRow;
use abide_engine::text::message_text;
use abide_engine::{Change, Handle};

/// Turns the notifications of Claude Code's channels on, in the environment of a front.
pub const CHANNEL: &str = "ABIDE_CHANNEL";
/// The capability that says so.
pub const CHANNEL_CAPABILITY: &str = "claude/channel";

/// As what messages are told.
const LEVEL: &str = "notice";
/// Levels that let it pass.
const TAKEN: [&str; 3] = ["debug", "info", LEVEL];

/// Whether a client wants to hear of nothing less than a warning.
#[derive(Default)]
pub struct Level(AtomicBool);

impl Level {
    /// The least that it wants to hear of.
    pub fn set(&self, level: &Value) {
        let taken = level.as_str().is_some_and(|level| TAKEN.contains(&level));
        self.0.store(!taken, Ordering::Relaxed);
    }

    fn is_quiet(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How one client is told.
pub struct Listener {
    /// Whose messages.
    pub agent: Agent,
    /// Where to.
    pub peer: Peer,
    /// What it wants to hear of.
    pub level: Arc<Level>,
    /// Whether it listens to a channel.
    pub channel: bool,
    /// The conversations that it is told of the messages of.
    pub speaks: Weak<Speaks>,
}

/// Tells of every message that comes, for as long as the client is there.
pub async fn bring(handle: Handle, listener: Listener) {
    let mut changes = handle.published().follow();
    loop {
        let change = changes.recv().await;
        if listener.peer.is_closed() {
            return;
        }
        match change {
            Ok(Change::Message(agent, id)) if agent == listener.agent => {
                let reader = handle.store_reader();
                let row = reader.message(reader.message_number(id)).ok().flatten();
                if let Some(row) = row.filter(|row| listener.is_for(row))
                    && !listener.tell(&handle, &row)
                {
                    return;
                }
            }
            // What was missed is not lost: the next result brings it.
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

impl Listener {
    /// Whether a message is to be told here: it belongs to a conversation that speaks here, or to any.
    fn is_for(&self, row: &MessageRow) -> bool {
        let speaks = |conversation| {
            let speaks = self.speaks.upgrade();
            speaks.is_some_and(|speaks| speaks.has(&self.agent, conversation))
        };
        row.seen.is_none() && row.conversation.as_ref().is_none_or(speaks)
    }

    /// `false`: nobody is there any more.
    fn tell(&self, handle: &Handle, row: &MessageRow) -> bool {
        let text = message_text(handle, row.about);
        let (about, id) = match row.about {
            About::Timer(id) => ("timer_id", id.to_string()),
            About::Session(id) => ("session_id", id.to_string()),
        };
        let message = row.id.to_string();
        if self.channel {
            let meta = json!({"message_id": message, about: id});
            let said = json!({"content": text, "meta": meta});
            return self.send("notifications/claude/channel", said);
        }
        let data = json!({"message_id": message, about: id, "text": text});
        let said = json!({"level": LEVEL, "logger": "abide", "data": data});
        self.level.is_quiet() || self.send("notifications/message", said)
    }

    fn send(&self, method: &str, params: Value) -> bool {
        let told = CustomNotification::new(method, Some(params));
        let told = ServerNotification::CustomNotification(told);
        self.peer.notify(told)
    }
}
