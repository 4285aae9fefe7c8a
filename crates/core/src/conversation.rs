//! Connected conversations, and the time for which messages stay reserved for a conversation that is not connected.
//!
//! A message is reserved for its conversation while that is connected, shortly after (its client may be about to
//! reconnect), and, if a waker can resume the conversation, for a day after the message was posted. Then another
//! conversation of the same agent may read it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::id::{Agent, Conversation};
use crate::limit;
use crate::time::Steady;

/// Conversations of all agents, as far as messages depend on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conversations {
    /// Conversations that are connected or were until a moment ago.
    present: BTreeMap<(Agent, Conversation), Presence>,
    /// Conversations that a waker can resume.
    resumable: BTreeMap<Agent, BTreeSet<Conversation>>,
    /// Start of the daemon: clients from before may reconnect.
    started: Steady,
    /// Times at which messages of an agent may become readable for its other conversations.
    look_again: BTreeSet<(Steady, Agent)>,
}

/// Messages of a conversation that other conversations of the agent may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// None: the conversation is connected or may reconnect.
    Nothing,
    /// Those posted before this time, because a waker can resume the conversation.
    MadeBefore(Steady),
    /// All: the conversation has ended.
    All,
}

impl Released {
    /// Returns whether a message that was posted at this time is released.
    pub fn has(self, made: Steady) -> bool {
        match self {
            Released::Nothing => false,
            Released::MadeBefore(then) => made < then,
            Released::All => true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    /// Number of connections.
    Connected(u32),
    /// Time at which the last connection was closed.
    Left(Steady),
}

impl Conversations {
    /// Begins the time for reconnecting after a start. `agents` have messages for particular conversations.
    pub fn open(&mut self, now: Steady, agents: impl Iterator<Item = Agent>) {
        self.started = now;
        let until = now + limit::RECONNECT;
        self.look_again.extend(agents.map(|agent| (until, agent)));
    }

    pub fn connected(&mut self, agent: Agent, conversation: Conversation) {
        let entry = self.present.entry((agent, conversation));
        let presence = entry.or_insert(Presence::Connected(0));
        *presence = match *presence {
            Presence::Connected(count) => Presence::Connected(count + 1),
            Presence::Left(_) => Presence::Connected(1),
        };
    }

    pub fn is_connected(&self, agent: &Agent, conversation: &Conversation) -> bool {
        let presence = self.present.get(&(agent.clone(), conversation.clone()));
        matches!(presence, Some(Presence::Connected(_)))
    }

    pub fn disconnected(&mut self, now: Steady, agent: Agent, conversation: Conversation) {
        let key = (agent, conversation);
        let Some(presence) = self.present.get_mut(&key) else {
            return;
        };
        match *presence {
            Presence::Connected(count @ 2..) => *presence = Presence::Connected(count - 1),
            Presence::Connected(_) => {
                *presence = Presence::Left(now);
                self.look_again.insert((now + limit::RECONNECT, key.0));
            }
            Presence::Left(_) => {}
        }
    }

    /// Looks at the messages of an agent when the time for reconnecting after a start is over.
    pub fn look_after_start(&mut self, now: Steady, agent: &Agent) {
        let until = self.started + limit::RECONNECT;
        if now <= until {
            self.look_again.insert((until, agent.clone()));
        }
    }

    /// Looks at the messages of an agent at a time at which some may become readable for its other conversations.
    pub fn look_at(&mut self, at: Steady, agent: &Agent) {
        self.look_again.insert((at, agent.clone()));
    }

    pub fn resumable(&mut self, agent: Agent, conversations: Vec<Conversation>) {
        let conversations = conversations.into_iter().collect();
        self.resumable.insert(agent, conversations);
    }

    /// Returns which messages of this conversation other conversations of the agent may read.
    pub fn released(&self, now: Steady, agent: &Agent, conversation: &Conversation) -> Released {
        let left = match self.present.get(&(agent.clone(), conversation.clone())) {
            Some(Presence::Connected(_)) => return Released::Nothing,
            Some(Presence::Left(at)) => *at,
            None => self.started,
        };
        if now <= left + limit::RECONNECT {
            return Released::Nothing;
        }
        let resumable = self.resumable.get(agent);
        match resumable.is_some_and(|all| all.contains(conversation)) {
            true => Released::MadeBefore(Steady(now.0.saturating_sub(limit::RESUME.0))),
            false => Released::All,
        }
    }

    /// Removes and returns an agent whose messages may have become readable for its other conversations.
    pub fn pop_released(&mut self, now: Steady) -> Option<Agent> {
        let (at, _) = self.look_again.first()?;
        if *at >= now {
            return None;
        }
        let (_, agent) = self.look_again.pop_first()?;
        // A conversation whose time for reconnecting is over is treated like an unknown one.
        let is_present = |presence: &Presence| match presence {
            Presence::Connected(_) => true,
            Presence::Left(at) => now <= *at + limit::RECONNECT,
        };
        self.present
            .retain(|(whose, _), presence| *whose != agent || is_present(presence));
        Some(agent)
    }

    pub fn alarm(&self) -> Option<Steady> {
        self.look_again.first().map(|(at, _)| *at)
    }
}
