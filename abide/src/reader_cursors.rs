//! Read cursors of a session, one per reader, so that two readers do not take output from each other.
//!
//! A connected client is a reader of its own. A client that connects later starts at the furthest position
//! that any client has reached; output that others read while it was already connected is still unread for
//! it. All other callers of an agent share one cursor.
//!
//! A cursor is stored when the answer has left the daemon, and the daemon may die before the client has the answer. So
//! the starting position of each client's last request is stored too: a replayed request reads the same output again.

use super::mcp::front_of;
use super::unread_lines::Cursor;
use abide_session::read_cursors::Cursors;

/// Name of the cursor that all callers without a connection share.
const CALLERS: &str = "-";
/// Name of the furthest position that any client has reached, where the next client starts.
const FURTHEST: &str = "*";
/// Limit on clients whose cursors are stored; the oldest is forgotten first.
const READER_LIMIT: usize = 32;

/// Reader of a session.
#[derive(Clone, Copy)]
pub struct SessionReader<'a> {
    /// Connection of the client, if the caller has one.
    pub client: Option<&'a str>,
    /// Open connections of the agent.
    pub connected: &'a [String],
    /// Idempotency key of the reading request, if the request may be replayed.
    pub request: Option<&'a str>,
}

impl SessionReader<'_> {
    /// Read cursor of this reader.
    pub fn position(self, cursors: &Cursors) -> Cursor {
        self.start(&Positions::decode(cursors))
    }

    /// Cursor where this request starts to read.
    fn start(self, positions: &Positions) -> Cursor {
        let again = self.request.and_then(|request| positions.get(request));
        let own = || positions.get(self.name());
        let first = || self.client.and_then(|_| positions.get(FURTHEST));
        again.or_else(own).or_else(first).unwrap_or_default()
    }

    /// Stores the cursor up to which this reader has read.
    pub fn store(self, cursors: &mut Cursors, cursor: Cursor) {
        let before = Positions::decode(cursors);
        let mut positions = before.clone();
        if self.client.is_some() {
            let furthest = positions.get(FURTHEST).unwrap_or_default();
            for other in self.connected {
                if positions.get(other).is_none() {
                    positions.set(other, furthest);
                }
            }
            if cursor.offset() >= furthest.offset() {
                positions.set(FURTHEST, cursor);
            }
        }
        if let (Some(client), Some(request)) = (self.client, self.request)
            && self.start(&before) != cursor
        {
            positions
                .0
                .retain(|(name, _)| front_of(name) != Some(client));
            positions.set(request, self.start(&before));
        }
        positions.set(self.name(), cursor);
        if positions != before {
            *cursors = positions.encode();
        }
    }

    fn name(&self) -> &str {
        self.client.unwrap_or(CALLERS)
    }
}

#[derive(Clone, PartialEq, Eq)]
struct Positions(Vec<(String, Cursor)>);

impl Positions {
    fn decode(cursors: &Cursors) -> Self {
        let read = |(name, cursor): &(String, String)| Some((name.clone(), cursor.parse().ok()?));
        Positions(cursors.iter().filter_map(read).collect())
    }

    fn get(&self, name: &str) -> Option<Cursor> {
        let entry = self.0.iter().find(|(key, _)| key == name);
        entry.map(|(_, cursor)| *cursor)
    }

    fn set(&mut self, name: &str, cursor: Cursor) {
        match self.0.iter_mut().find(|(key, _)| key == name) {
            Some((_, stored)) => *stored = cursor,
            None => self.0.push((name.to_owned(), cursor)),
        }
    }

    fn encode(&self) -> Cursors {
        let is_client =
            |name: &str| name != CALLERS && name != FURTHEST && front_of(name).is_none();
        let names = self.0.iter().map(|(name, _)| name.as_str());
        let clients: Vec<&str> = names.filter(|name| is_client(name)).collect();
        let dropped = &clients[..clients.len().saturating_sub(READER_LIMIT)];
        let kept = self
            .0
            .iter()
            .filter(|(name, _)| !dropped.contains(&front_of(name).unwrap_or(name)));
        kept.map(|(name, cursor)| (name.clone(), cursor.to_string()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client<'a>(name: &'a str, connected: &'a [String]) -> SessionReader<'a> {
        SessionReader {
            client: Some(name),
            connected,
            request: None,
        }
    }

    #[test]
    fn readers_have_independent_cursors() {
        let cursors = &mut Cursors::new();
        let both = ["a".to_owned(), "b".to_owned()];
        let (a, b) = (client("a", &both), client("b", &both));
        let caller = SessionReader {
            client: None,
            connected: &both,
            request: None,
        };
        a.store(cursors, Cursor::at(5));
        assert_eq!(a.position(cursors), Cursor::at(5));
        assert_eq!(b.position(cursors), Cursor::at(0));
        assert_eq!(caller.position(cursors), Cursor::at(0));
        caller.store(cursors, Cursor::at(3));
        a.store(cursors, Cursor::at(9));
        assert_eq!(b.position(cursors), Cursor::at(0));
        assert_eq!(caller.position(cursors), Cursor::at(3));
        // A client that connects later starts where clients have read to.
        let later = ["c".to_owned()];
        assert_eq!(client("c", &later).position(cursors), Cursor::at(9));
    }

    #[test]
    fn replayed_request_reads_the_same_output() {
        let cursors = &mut Cursors::new();
        let keys = [1, 2, 3].map(|ordinal| crate::mcp::client::request_key("a", ordinal));
        let [first, second, third] = keys.each_ref().map(|key| SessionReader {
            request: Some(key),
            ..client("a", &[])
        });
        first.store(cursors, Cursor::at(5));
        assert_eq!(first.position(cursors), Cursor::at(0));
        first.store(cursors, Cursor::at(7));
        assert_eq!(first.position(cursors), Cursor::at(0));
        assert_eq!(second.position(cursors), Cursor::at(7));
        second.store(cursors, Cursor::at(9));
        assert_eq!(second.position(cursors), Cursor::at(7));
        // A request that read nothing stores no starting position.
        third.store(cursors, Cursor::at(9));
        assert_eq!(second.position(cursors), Cursor::at(7));
        assert_eq!(third.position(cursors), Cursor::at(9));
        assert_eq!(client("a", &[]).position(cursors), Cursor::at(9));
    }

    #[test]
    fn oldest_reader_cursors_are_dropped_over_the_limit() {
        let cursors = &mut Cursors::new();
        for n in 0..100 {
            let name = format!("front{n}");
            let reader = SessionReader {
                request: Some(&crate::mcp::client::request_key(&name, 7)),
                ..client(&name, &[])
            };
            reader.store(cursors, Cursor::at(n + 1));
        }
        assert_eq!(Positions::decode(cursors).0.len(), 2 * READER_LIMIT + 1);
        let last = client("front99", &[]).position(cursors);
        assert_eq!(last, Cursor::at(100));
    }
}
