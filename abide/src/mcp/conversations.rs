//! Conversations of one connection.

use std::collections::VecDeque;
use std::sync::Mutex;

use abide_core::{Agent, Conversation};
use abide_engine::ConversationGuard;

/// Conversations that use one connection. Each counts as connected while the connection lives.
#[derive(Default)]
pub struct ConnectionConversations(Mutex<VecDeque<(Agent, Conversation, ConversationGuard)>>);

/// Limit on conversations of one connection; the oldest is forgotten first.
const CONVERSATION_LIMIT: usize = 64;

impl ConnectionConversations {
    /// True if this conversation of an agent uses the connection.
    pub fn has(&self, agent: &Agent, conversation: &Conversation) -> bool {
        let all = self.0.lock().expect("no holder panics");
        all.iter()
            .any(|(owner, known, _)| owner == agent && known == conversation)
    }

    /// Adds a conversation, which counts as connected from now on.
    pub fn add(&self, agent: &Agent, conversation: &Conversation, guard: ConversationGuard) {
        let mut all = self.0.lock().expect("no holder panics");
        if all.len() == CONVERSATION_LIMIT {
            all.pop_front();
        }
        all.push_back((agent.clone(), conversation.clone(), guard));
    }
}
