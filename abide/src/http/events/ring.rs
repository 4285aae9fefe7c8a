//! The last events, as they were sent, and the newest output of everything that runs.

use std::collections::{BTreeMap, VecDeque};

use abide_core::{Agent, SessionId};
use bytes::Bytes;

/// Events that are remembered, and how many bytes they may take.
const EVENTS: usize = 1_024;
const BYTES: usize = 4 << 20;
/// Events that one client takes at once.
const AT_ONCE: usize = 64;

/// How far a client has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The number of the last event it has.
    pub event: u64,
    /// The version of the outputs it has.
    output: u64,
    /// Whether it wants outputs.
    pub tails: bool,
}

/// An event on its way to everybody who may know of it.
struct Entry {
    agent: Option<Agent>,
    bytes: Bytes,
}

/// The newest output of a session. Whoever is slow misses those in between.
struct Output {
    version: u64,
    agent: Agent,
    bytes: Bytes,
}

/// What a client gets next.
#[derive(Debug, PartialEq, Eq)]
pub enum Took {
    /// What there is, which may be nothing.
    All,
    /// It is too far behind.
    Lost,
}

#[derive(Default)]
pub struct Ring {
    /// The number of the newest event.
    last: u64,
    entries: VecDeque<Entry>,
    bytes: usize,
    outputs: BTreeMap<SessionId, Output>,
    version: u64,
}

impl Ring {
    /// The number of the newest event.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Whether a client that has come this far misses nothing.
    pub fn remembers(&self, event: u64) -> bool {
        (self.last - self.entries.len() as u64..=self.last).contains(&event)
    }

    /// Adds an event for those who see what this agent has; `None`: for everybody.
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

    /// Replaces the output of a session.
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

    /// Forgets the output of all sessions but those that `stay`.
    pub fn keep_outputs(&mut self, stay: impl Fn(SessionId) -> bool) {
        self.outputs.retain(|session, _| stay(*session));
    }

    /// Moves a client on, and hands it what it passes.
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
        // Outputs carry the number of the newest event, so whoever has not come that far waits.
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

    fn all(ring: &Ring, place: &mut Place, who: Option<&Agent>) -> Vec<String> {
        let mut got = VecDeque::new();
        loop {
            let before = got.len();
            assert_eq!(ring.take(place, who, &mut got), Took::All);
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
