//! Backlog of recent events in encoded form, and the latest output event of each running session.

use std::collections::{BTreeMap, VecDeque};

use abide_core::{Agent, SessionId};
use bytes::Bytes;

/// Limits of the backlog: number of events, and their total size in bytes.
const EVENT_LIMIT: usize = 1_024;
const BYTE_LIMIT: usize = 4 << 20;
/// Number of events that one client takes in one batch.
const BATCH: usize = 64;

/// Cursor of one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCursor {
    /// Number of the last event that the client received.
    pub event: u64,
    /// Version of the outputs that the client received.
    output: u64,
    /// Set if the client wants output events.
    pub tails: bool,
}

/// Encoded event with its owner; `None` means that all clients may see it.
struct Entry {
    agent: Option<Agent>,
    bytes: Bytes,
    /// Event for agents, if it differs: without secrets.
    masked: Option<Bytes>,
}

impl Entry {
    fn size(&self) -> usize {
        self.bytes.len() + self.masked.as_ref().map_or(0, Bytes::len)
    }
}

/// Latest output event of a session. A slow client misses the ones in between.
struct OutputEvent {
    version: u64,
    agent: Agent,
    bytes: Bytes,
}

/// Result of taking a batch of events.
#[derive(Debug, PartialEq, Eq)]
pub enum TakeResult {
    /// The batch was taken; it may be empty.
    Taken,
    /// The client's next event is no longer in the backlog.
    Lagged,
}

#[derive(Default)]
pub struct EventBacklog {
    /// Number of the newest event.
    last: u64,
    entries: VecDeque<Entry>,
    bytes: usize,
    outputs: BTreeMap<SessionId, OutputEvent>,
    version: u64,
}

impl EventBacklog {
    /// Number of the newest event.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Returns `true` if every event after `event` is still in the backlog.
    pub fn contains(&self, event: u64) -> bool {
        (self.last - self.entries.len() as u64..=self.last).contains(&event)
    }

    /// Appends an event for clients that can see this agent (`None`: for all clients) and drops the
    /// oldest events over the limits.
    pub fn push(&mut self, agent: Option<Agent>, bytes: impl FnOnce(u64) -> Bytes) {
        self.push_each(agent, |number| (bytes(number), None));
    }

    /// Appends an event of which agents get the second one, if there is one.
    pub fn push_each(
        &mut self,
        agent: Option<Agent>,
        bytes: impl FnOnce(u64) -> (Bytes, Option<Bytes>),
    ) {
        self.last += 1;
        let (bytes, masked) = bytes(self.last);
        let entry = Entry {
            agent,
            bytes,
            masked,
        };
        self.bytes += entry.size();
        self.entries.push_back(entry);
        while self.entries.len() > EVENT_LIMIT || self.bytes > BYTE_LIMIT {
            let Some(oldest) = self.entries.pop_front() else {
                break;
            };
            self.bytes -= oldest.size();
        }
    }

    /// Replaces the output event of a session.
    pub fn put_output(&mut self, session: SessionId, agent: Agent, bytes: Bytes) {
        self.version += 1;
        let version = self.version;
        let output = OutputEvent {
            version,
            agent,
            bytes,
        };
        self.outputs.insert(session, output);
    }

    /// Drops the output events of all sessions for which `keep` returns `false`.
    pub fn retain_outputs(&mut self, keep: impl Fn(SessionId) -> bool) {
        self.outputs.retain(|session, _| keep(*session));
    }

    /// Advances the cursor by at most one batch, and appends the events that the client may see to `into`.
    pub fn take(
        &self,
        cursor: &mut EventCursor,
        agent: Option<&Agent>,
        into: &mut VecDeque<Bytes>,
    ) -> TakeResult {
        if !self.contains(cursor.event) {
            cursor.event = self.last;
            return TakeResult::Lagged;
        }
        let may_see = |owner: Option<&Agent>| match (owner, agent) {
            (Some(owner), Some(me)) => owner == me,
            (None, _) | (_, None) => true,
        };
        let missing = (self.last - cursor.event) as usize;
        let from = self.entries.len() - missing;
        for entry in self.entries.range(from..).take(BATCH) {
            cursor.event += 1;
            if may_see(entry.agent.as_ref()) {
                let masked = entry.masked.as_ref().filter(|_| agent.is_some());
                into.push_back(masked.unwrap_or(&entry.bytes).clone());
            }
        }
        // Output events carry the number of the newest event as their id. A client that is further
        // behind gets them later; otherwise it would skip events when it resumes from that id.
        if cursor.tails && cursor.event == self.last && cursor.output < self.version {
            let newer = self.outputs.values();
            let newer = newer.filter(|output| output.version > cursor.output);
            let seen = newer.filter(|output| may_see(Some(&output.agent)));
            into.extend(seen.map(|output| output.bytes.clone()));
            cursor.output = self.version;
        }
        TakeResult::Taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> Agent {
        Agent(name.into())
    }

    fn backlog(events: u64) -> EventBacklog {
        let mut backlog = EventBacklog::default();
        for _ in 0..events {
            backlog.push(None, |n| Bytes::from(n.to_string()));
        }
        backlog
    }

    fn all(
        backlog: &EventBacklog,
        cursor: &mut EventCursor,
        requester: Option<&Agent>,
    ) -> Vec<String> {
        let mut got = VecDeque::new();
        loop {
            let before = got.len();
            assert_eq!(backlog.take(cursor, requester, &mut got), TakeResult::Taken);
            if got.len() == before {
                break;
            }
        }
        let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        got.into_iter().map(text).collect()
    }

    #[test]
    fn client_gets_every_event_once() {
        let mut backlog = backlog(200);
        let mut cursor = EventCursor::default();
        assert_eq!(all(&backlog, &mut cursor, None).len(), 200);
        backlog.push(None, |n| Bytes::from(n.to_string()));
        assert_eq!(all(&backlog, &mut cursor, None), ["201"]);
    }

    #[test]
    fn agent_gets_its_own_events_and_those_for_all() {
        let mut backlog = EventBacklog::default();
        backlog.push(Some(agent("a")), |_| Bytes::from("a"));
        backlog.push(Some(agent("b")), |_| Bytes::from("b"));
        backlog.push(None, |_| Bytes::from("all"));
        let mut cursor = EventCursor::default();
        assert_eq!(all(&backlog, &mut cursor, Some(&agent("b"))), ["b", "all"]);
        let mut cursor = EventCursor::default();
        assert_eq!(all(&backlog, &mut cursor, None), ["a", "b", "all"]);
    }

    #[test]
    fn agent_gets_the_event_without_secrets() {
        let mut backlog = EventBacklog::default();
        let both = (Bytes::from("secret"), Some(Bytes::from("masked")));
        backlog.push_each(Some(agent("a")), |_| both);
        let mut cursor = EventCursor::default();
        assert_eq!(all(&backlog, &mut cursor, Some(&agent("a"))), ["masked"]);
        let mut cursor = EventCursor::default();
        assert_eq!(all(&backlog, &mut cursor, None), ["secret"]);
    }

    #[test]
    fn client_behind_the_backlog_gets_lagged() {
        let backlog = backlog(EVENT_LIMIT as u64 + 2);
        let mut cursor = EventCursor {
            event: 2,
            ..EventCursor::default()
        };
        assert!(backlog.contains(2));
        assert_eq!(all(&backlog, &mut cursor, None).len(), EVENT_LIMIT);
        let mut cursor = EventCursor {
            event: 1,
            ..EventCursor::default()
        };
        let mut got = VecDeque::new();
        assert_eq!(
            backlog.take(&mut cursor, None, &mut got),
            TakeResult::Lagged
        );
        assert_eq!((cursor.event, got.len()), (backlog.last(), 0));
    }

    #[test]
    fn event_number_of_the_future_is_not_in_the_backlog() {
        assert!(!backlog(3).contains(4));
        assert!(backlog(0).contains(0));
    }

    #[test]
    fn backlog_is_limited_in_bytes() {
        let mut backlog = EventBacklog::default();
        for _ in 0..10 {
            backlog.push(None, |_| Bytes::from(vec![0; BYTE_LIMIT / 4]));
        }
        assert!(backlog.bytes <= BYTE_LIMIT);
        assert!(!backlog.contains(0) && backlog.contains(10));
    }

    #[test]
    fn only_the_latest_output_event_of_a_session_is_kept() {
        let mut backlog = backlog(1);
        let session = SessionId::from_bits(1);
        let mut cursor = EventCursor {
            tails: true,
            ..EventCursor::default()
        };
        backlog.put_output(session, agent("a"), Bytes::from("old"));
        backlog.put_output(session, agent("a"), Bytes::from("new"));
        assert_eq!(all(&backlog, &mut cursor, None), ["1", "new"]);
        assert_eq!(all(&backlog, &mut cursor, None).len(), 0);
        let mut other = EventCursor {
            tails: true,
            ..EventCursor::default()
        };
        assert_eq!(all(&backlog, &mut other, Some(&agent("b"))), ["1"]);
        backlog.retain_outputs(|_| false);
        let mut late = EventCursor {
            tails: true,
            ..EventCursor::default()
        };
        assert_eq!(all(&backlog, &mut late, None), ["1"]);
    }
}
