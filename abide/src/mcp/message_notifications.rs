//! Notifications to a connected client that a message waits for its agent. Most clients only log such
//! notifications, so they never mark a message as read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use abide_core::Agent;
use abide_core::message::About;
use rmcp::model::{CustomNotification, ServerNotification};
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::client_channel::ClientChannel;
use super::conversations::ConnectionConversations;
use crate::tools::timer_row_fields;
use abide_engine::store::MessageRow;
use abide_engine::text::message_text;
use abide_engine::{Change, Handle};

/// Variable in the environment of a front that turns on notifications for Claude Code's channels.
pub const CHANNEL: &str = "ABIDE_CHANNEL";
/// Capability that announces channel notifications.
pub const CHANNEL_CAPABILITY: &str = "claude/channel";

/// Log level of the notifications.
const LEVEL: &str = "notice";
/// Minimum levels under which the notifications are sent.
const SENT_LEVELS: [&str; 3] = ["debug", "info", LEVEL];

/// Minimum log level of a client; true if it is above [`LEVEL`].
#[derive(Default)]
pub struct LogLevelFilter(AtomicBool);

impl LogLevelFilter {
    /// Sets the minimum level.
    pub fn set(&self, level: &Value) {
        let sent = level
            .as_str()
            .is_some_and(|level| SENT_LEVELS.contains(&level));
        self.0.store(!sent, Ordering::Relaxed);
    }

    fn is_quiet(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Client that receives notifications.
pub struct Listener {
    /// Agent whose messages are announced.
    pub agent: Agent,
    /// Destination of the notifications.
    pub client_channel: ClientChannel,
    /// Minimum log level of the client.
    pub level: Arc<LogLevelFilter>,
    /// True if the client listens to a channel.
    pub channel: bool,
    /// Conversations whose messages are announced.
    pub conversations: Weak<ConnectionConversations>,
}

/// Announces every new message until the client is gone.
pub async fn announce(handle: Handle, listener: Listener) {
    let mut changes = handle.published().follow();
    loop {
        let change = changes.recv().await;
        if listener.client_channel.is_closed() {
            return;
        }
        match change {
            Ok(Change::Message(agent, id)) if agent == listener.agent => {
                let reader = handle.store_reader();
                let row = reader.message(reader.message_number(id)).await;
                let row = row.ok().flatten();
                if let Some(row) = row.filter(|row| listener.is_for(row))
                    && !listener.announce(&handle, &row).await
                {
                    return;
                }
            }
            // A missed notification loses nothing: the next result contains the message.
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

impl Listener {
    /// True if an unread message belongs to a conversation of this client, or to none.
    fn is_for(&self, row: &MessageRow) -> bool {
        let is_connected = |conversation| {
            let conversations = self.conversations.upgrade();
            conversations.is_some_and(|conversations| conversations.has(&self.agent, conversation))
        };
        row.seen.is_none() && row.conversation.as_ref().is_none_or(is_connected)
    }

    /// Sends the notification. `false`: the client is gone.
    async fn announce(&self, handle: &Handle, row: &MessageRow) -> bool {
        let text = message_text(handle, row.about).await;
        let (about, id) = match row.about {
            About::Timer(id) => ("timer_id", id.to_string()),
            About::Session(id) => ("session_id", id.to_string()),
            About::Question(id) => ("question_id", id.to_string()),
        };
        let message = row.id.to_string();
        if self.channel {
            let meta = json!({"message_id": message, about: id});
            let params = json!({"content": text, "meta": meta});
            return self.send("notifications/claude/channel", params);
        }
        let mut data = json!({"message_id": message, about: id, "text": text});
        if let About::Timer(timer) = row.about
            && let Ok(Some(timer)) = handle.store_reader().timer(timer).await
        {
            data["timer"] = json!(timer_row_fields(&timer));
        }
        let params = json!({"level": LEVEL, "logger": "abide", "data": data});
        self.level.is_quiet() || self.send("notifications/message", params)
    }

    fn send(&self, method: &str, params: Value) -> bool {
        let notification = CustomNotification::new(method, Some(params));
        let notification = ServerNotification::CustomNotification(notification);
        self.client_channel.notify(notification)
    }
}
