//! Read cursors of a session, one per reader, so that two readers do not take output from each other.
//!
//! A connected client is a reader of its own: what other connected clients have read is still unread for it. A client
//! that connects later continues where clients that are gone had read to, because it may be the same program, started
//! again. A conversation without a connection is a reader too. All other callers of an agent share one cursor.
//!
//! A cursor is stored when the answer has left the daemon, and the daemon may die before the client has the answer. So
//! the starting position of each client's last request is stored too: a replayed request reads the same output again.

use super::mcp::client::front_of;
use super::unread_lines::Cursor;
use abide_session::daemon_record::Cursors;

/// Name of the cursor that all callers without a connection share.
const CALLERS: &str = "-";
/// Limit on clients whose cursors are stored; the oldest is forgotten first.
const READER_LIMIT: usize = 32;

/// Reader of a session.
#[derive(Clone, Copy)]
pub struct SessionReader<'a> {
    /// Connection of the client, if the caller has one.
    pub client: Option<&'a str>,
    /// Conversation of a caller that has no connection.
    pub conversation: Option<&'a str>,
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
        let first = || {
            self.client
                .and_then(|_| positions.furthest_of_gone(self.connected))
        };
        again.or_else(own).or_else(first).unwrap_or_default()
    }

    /// Stores the cursor up to which this reader has read.
    pub fn store(self, cursors: &mut Cursors, cursor: Cursor) {
        let before = Positions::decode(cursors);
        let mut positions = before.clone();
        if self.client.is_some() {
            // The others keep their start when this client is gone.
            let first = positions.furthest_of_gone(self.connected);
            for other in self.connected {
                if positions.get(other).is_none() {
                    positions.set(other, first.unwrap_or_default());
                }
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
        self.client.or(self.conversation).unwrap_or(CALLERS)
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

    /// Furthest cursor of the clients that are no longer connected.
    fn furthest_of_gone(&self, connected: &[String]) -> Option<Cursor> {
        // Names of conversations contain a colon. That a conversation is over is not always told.
        let gone = self.0.iter().filter(|(name, _)| {
            is_client(name) && !name.contains(':') && !connected.contains(name)
        });
        gone.map(|(_, cursor)| *cursor)
            .max_by_key(|cursor| cursor.offset())
    }

    fn encode(&self) -> Cursors {
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

/// True for the name of a client or conversation, which is neither that of all other callers nor a request.
fn is_client(name: &str) -> bool {
    name != CALLERS && front_of(name).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client<'a>(name: &'a str, connected: &'a [String]) -> SessionReader<'a> {
        SessionReader {
            client: Some(name),
            conversation: None,
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
            conversation: None,
            connected: &both,
            request: None,
        };
        let over_http = SessionReader {
            conversation: Some("http:1"),
            ..caller
        };
        a.store(cursors, Cursor::at(5));
        assert_eq!(a.position(cursors), Cursor::at(5));
        assert_eq!(b.position(cursors), Cursor::at(0));
        assert_eq!(caller.position(cursors), Cursor::at(0));
        caller.store(cursors, Cursor::at(3));
        a.store(cursors, Cursor::at(9));
        assert_eq!(b.position(cursors), Cursor::at(0));
        assert_eq!(caller.position(cursors), Cursor::at(3));
        over_http.store(cursors, Cursor::at(12));
        assert_eq!(over_http.position(cursors), Cursor::at(12));
        assert_eq!(caller.position(cursors), Cursor::at(3));
        // A client that connects later starts at the beginning if the readers are still there,
        let all = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(client("c", &all).position(cursors), Cursor::at(0));
        // and where they have read to if they are gone.
        let later = ["c".to_owned()];
        assert_eq!(client("c", &later).position(cursors), Cursor::at(9));
        // A client that was there when another one read does not continue for it.
        b.store(cursors, Cursor::at(0));
        let without_a = ["b".to_owned()];
        assert_eq!(client("b", &without_a).position(cursors), Cursor::at(0));
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
        assert_eq!(Positions::decode(cursors).0.len(), 2 * READER_LIMIT);
        let last = client("front99", &[]).position(cursors);
        assert_eq!(last, Cursor::at(100));
    }
}
