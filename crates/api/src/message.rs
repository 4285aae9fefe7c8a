//! Messages to agents.

use abide_core::{MessageId, SessionId, TimerId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Id, Seconds};

/// A message as a tool result delivers it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DeliveredMessage {
    /// Id of the message.
    pub message_id: Id<MessageId>,
    /// Timer that the message is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer_id: Option<Id<TimerId>>,
    /// Session that the message is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Id<SessionId>>,
    /// An earlier result may have delivered the message already.
    pub repeated: bool,
    /// Closed conversation that the message was for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_over_from: Option<String>,
    /// Creation, in Unix milliseconds.
    pub created_at: Option<u64>,
    /// The message.
    pub text: String,
}

/// Fields of a `read_messages` result, besides the messages.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ReadMessagesResult {
    /// Messages that are left.
    pub more: usize,
    /// Seconds that this call could wait, fitted to the client's own limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_timeout: Option<Seconds>,
}

/// A message to an agent, with its deliveries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// Id of the message.
    pub message_id: Id<MessageId>,
    /// Timer that the message is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer_id: Option<Id<TimerId>>,
    /// Session that the message is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Id<SessionId>>,
    /// Recipient.
    pub agent: String,
    /// The message.
    pub text: String,
    /// Creation, in Unix milliseconds.
    pub created_at: u64,
    /// Time at which the agent saw the message, in Unix milliseconds.
    pub seen_at: Option<u64>,
    /// First time at which a waker delivered the message, in Unix milliseconds.
    pub woken_at: Option<u64>,
    /// Attempts of all wakers.
    pub wake_attempts: u64,
    /// Fault of the last attempt.
    pub wake_fault: Option<String>,
    /// State of each waker.
    pub deliveries: Vec<Delivery>,
}

/// Delivery of a message by one waker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Delivery {
    /// Name of the waker.
    pub waker: String,
    /// State of the delivery.
    pub state: String,
    /// True if the message has arrived.
    pub ok: bool,
    /// Last attempt, in Unix milliseconds.
    pub at: Option<u64>,
    /// Number of attempts.
    pub attempts: u64,
    /// Fault of the last attempt.
    pub fault: Option<String>,
    /// Next attempt, in Unix milliseconds.
    pub next_at: Option<u64>,
}

/// A page of messages, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Messages")]
pub struct MessagePage {
    /// Messages of this page.
    pub messages: Vec<Message>,
    /// `after` of the next page.
    pub next: Option<String>,
    /// Sentence about a database that is away, in which the messages are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}
