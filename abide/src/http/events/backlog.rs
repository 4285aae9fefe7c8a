//! Backlog of recent events in encoded form, and the latest output event of each running session.

use std::collections::{BTreeMap, VecDeque};

use abide_core::{Agent, SessionId};
use bytes::Bytes;

/// Limits of the backlog: number of events, and their total size in bytes.
const EVENTS: usize = 1_024;
const BYTES: usize = 4 << 20;
/// Number of events that one client takes in one batch.
const AT_ONCE: usize = 64;

/// Cursor of one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
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
}

/// Latest output event of a session. A slow client misses the ones in between.
struct Output {
    version: u64,
    agent: Agent,
    bytes: Bytes,
}

/// Result of taking a batch of events.
#[derive(Debug, PartialEq, Eq)]
pub enum Took {
    /// The batch was taken; it may be empty.
    All,
    /// The client's next event is no longer in the backlog.
    Lost,
}

#[derive(Default)]
pub struct Ring {
    /// Number of the newest event.
    last: u64,
    entries: VecDeque<Entry>,
    bytes: usize,
    outputs: BTreeMap<SessionId, Output>,
    version: u64,
}

impl Ring {
    /// Number of the newest event.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Returns `true` if every event after `event` is still in the backlog.
    pub fn remembers(&self, event: u64) -> bool {
        (self.last - self.entries.len() as u64..=self.last).contains(&event)
    }

    /// Appends an event for clients that can see this agent (`None`: for all clients) and drops the
    /// oldest events over the limits.
    pub fn push(&mut self, agent: Option<Agent>, bytes: impl FnOnce(u64) -> Bytes) {
        self.last += 1;
        let bytes = bytes(self.last);
        self.bytes += bytes.len();
        self.entries.push_back(Entry { agent, bytes });
        while self.entries.len() > EVENTS || self.bytes > BYTES {
            let Some(oldest) = self.entries.pop_front() else {
                break;
            };
            self.bytes -= oldest.bytes.len();
        }
    }

    /// Replaces the output event of a session.
    pub fn put_output(&mut self, session: SessionId, agent: Agent, bytes: Bytes) {
        self.version += 1;
        let version = self.version;
        let output = Output {
            version,
            agent,
            bytes,
        };
        self.outputs.insert(session, output);
    }

    /// Drops the output events of all sessions for which `stay` returns `false`.
    pub fn keep_outputs(&mut self, stay: impl Fn(SessionId) -> bool) {
        self.outputs.retain(|session, _| stay(*session));
    }

    /// Advances the cursor by at most one batch, and appends the events that the client may see to `into`.
    pub fn take(
        &self,
        place: &mut Place,
        agent: Option<&Agent>,
        into: &mut VecDeque<Bytes>,
    ) -> Took {
        if !self.remembers(place.event) {
            place.event = self.last;
            return Took::Lost;
        }
        let sees = |owner: Option<&Agent>| match (owner, agent) {
            (Some(owner), Some(me)) => owner == me,
            (None, _) | (_, None) => true,
        };
        let missing = (self.last - place.event) as usize;
        let from = self.entries.len() - missing;
        for entry in self.entries.range(from..).take(AT_ONCE) {
            place.event += 1;
            if sees(entry.agent.as_ref()) {
                into.push_back(entry.bytes.clone());
            }
        }
        // Output events carry the number of the newest event as their id. A client that is further
        // behind gets them later; otherwise it would skip events when it resumes from that id.
        if place.tails && place.event == self.last && place.output < self.version {
            let newer = self.outputs.values();
            let newer = newer.filter(|output| output.version > place.output);
            let seen = newer.filter(|output| sees(Some(&output.agent)));
            into.extend(seen.map(|output| output.bytes.clone()));
            place.output = self.version;
        }
        Took::All
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> Agent {
        Agent(name.into())
    }

    fn ring(events: u64) -> Ring {
        let mut ring = Ring::default();
        for _ in 0..events {
            ring.push(None, |n| Bytes::from(n.to_string()));
        }
        ring
    }

    fn all(ring: &Ring, place: &mut Place, requester: Option<&Agent>) -> Vec<String> {
        let mut got = VecDeque::new();
        loop {
            let before = got.len();
            assert_eq!(ring.take(place, requester, &mut got), Took::All);
            if got.len() == before {
                break;
            }
        }
        let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        got.into_iter().map(text).collect()
    }

    #[test]
    fn everybody_gets_every_event_once() {
        let mut ring = ring(200);
        let mut place = Place::default();
        assert_eq!(all(&ring, &mut place, None).len(), 200);
        ring.push(None, |n| Bytes::from(n.to_string()));
        assert_eq!(all(&ring, &mut place, None), ["201"]);
    }

    #[test]
    fn an_agent_gets_its_own() {
        let mut ring = Ring::default();
        ring.push(Some(agent("a")), |_| Bytes::from("a"));
        ring.push(Some(agent("b")), |_| Bytes::from("b"));
        ring.push(None, |_| Bytes::from("all"));
        let mut place = Place::default();
        assert_eq!(all(&ring, &mut place, Some(&agent("b"))), ["b", "all"]);
        let mut place = Place::default();
        assert_eq!(all(&ring, &mut place, None), ["a", "b", "all"]);
    }

    #[test]
    fn whoever_is_too_far_behind_is_told() {
        let ring = ring(EVENTS as u64 + 2);
        let mut place = Place {
            event: 2,
            ..Place::default()
        };
        assert!(ring.remembers(2));
        assert_eq!(all(&ring, &mut place, None).len(), EVENTS);
        let mut place = Place {
            event: 1,
            ..Place::default()
        };
        let mut got = VecDeque::new();
        assert_eq!(ring.take(&mut place, None, &mut got), Took::Lost);
        assert_eq!((place.event, got.len()), (ring.last(), 0));
    }

    #[test]
    fn a_number_from_another_life_is_not_remembered() {
        assert!(!ring(3).remembers(4));
        assert!(ring(0).remembers(0));
    }

    #[test]
    fn memory_is_bounded_by_bytes_too() {
        let mut ring = Ring::default();
        for _ in 0..10 {
            ring.push(None, |_| Bytes::from(vec![0; BYTES / 4]));
        }
        assert!(ring.bytes <= BYTES);
        assert!(!ring.remembers(0) && ring.remembers(10));
    }

    #[test]
    fn of_an_output_only_the_newest_is_kept() {
        let mut ring = ring(1);
        let session = SessionId::from_bits(1);
        let mut place = Place {
            tails: true,
            ..Place::default()
        };
        ring.put_output(session, agent("a"), Bytes::from("old"));
        ring.put_output(session, agent("a"), Bytes::from("new"));
        assert_eq!(all(&ring, &mut place, None), ["1", "new"]);
        assert_eq!(all(&ring, &mut place, None).len(), 0);
        let mut other = Place {
            tails: true,
            ..Place::default()
        };
        assert_eq!(all(&ring, &mut other, Some(&agent("b"))), ["1"]);
        ring.keep_outputs(|_| false);
        let mut late = Place {
            tails: true,
            ..Place::default()
        };
        assert_eq!(all(&ring, &mut late, None), ["1"]);
    }
}
