//! Who has read how far in a session, so that two readers take nothing from each other.
//!
//! A client that is connected is a reader of its own. Whoever connects later goes on where clients
//! before it have come; what was read while it was there already is still unread for it. All other
//! callers of an agent are one reader.

use super::lines::Cursor;
use crate::world::unread::Unread;

/// Callers that are not connected.
const CALLERS: &str = "-";
/// The furthest that any client has come: where the next one begins.
const FURTHEST: &str = "*";
/// Clients of which it is known how far they have come; the one that was added first is forgotten.
const MOST: usize = 32;

/// A reader.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    /// The client's connection, where it is one.
    pub client: Option<&'a str>,
    /// The connections of the agent that are there now.
    pub connected: &'a [String],
}

impl Reader<'_> {
    /// How far it has read.
    pub fn position(self, unread: &mut Unread) -> Cursor {
        let known = Positions::read(unread);
        let own = known.of(self.name());
        let begin = || self.client.and_then(|_| known.of(FURTHEST));
        own.or_else(begin).unwrap_or_default()
    }

    /// It has read up to here.
    pub fn remember(self, unread: &mut Unread, cursor: Cursor) {
        let before = Positions::read(unread);
        let mut known = before.clone();
        if self.client.is_some() {
            let furthest = known.of(FURTHEST).unwrap_or_default();
            for other in self.connected {
                if known.of(other).is_none() {
                    known.set(other, furthest);
                }
            }
            if cursor.offset() >= furthest.offset() {
                known.set(FURTHEST, cursor);
            }
        }
        known.set(self.name(), cursor);
        if known != before {
            known.write(unread);
        }
    }

    fn name(&self) -> &str {
        self.client.unwrap_or(CALLERS)
    }
}

#[derive(Clone, PartialEq, Eq)]
struct Positions(Vec<(String, Cursor)>);

impl Positions {
    fn read(unread: &mut Unread) -> Self {
        let read = |(name, cursor): (String, String)| Some((name, cursor.parse().ok()?));
        let known = unread.positions();
        Positions(known.into_iter().filter_map(read).collect())
    }

    fn of(&self, name: &str) -> Option<Cursor> {
        let known = self.0.iter().find(|(known, _)| known == name);
        known.map(|(_, cursor)| *cursor)
    }

    fn set(&mut self, name: &str, cursor: Cursor) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = cursor,
            None => self.0.push((name.to_owned(), cursor)),
        }
    }

    fn write(&self, unread: &mut Unread) {
        let is_client = |name: &str| name != CALLERS && name != FURTHEST;
        let clients = self.0.iter().filter(|(name, _)| is_client(name)).count();
        let mut surplus = clients.saturating_sub(MOST);
        let kept = self.0.iter().filter(|(name, _)| {
            let goes = surplus > 0 && is_client(name);
            surplus -= usize::from(goes);
            !goes
        });
        let kept: Vec<_> = kept
            .map(|(name, cursor)| (name.as_str(), cursor.to_string()))
            .collect();
        unread.remember(&kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client<'a>(name: &'a str, connected: &'a [String]) -> Reader<'a> {
        Reader {
            client: Some(name),
            connected,
        }
    }

    #[test]
    fn nobody_takes_anything_from_anybody() {
        let folder = tempfile::tempdir().unwrap();
        let path = &mut Unread::of(folder.path());
        let both = ["a".to_owned(), "b".to_owned()];
        let (a, b) = (client("a", &both), client("b", &both));
        let caller = Reader {
            client: None,
            connected: &both,
        };
        a.remember(path, Cursor::at(5));
        assert_eq!(a.position(path), Cursor::at(5));
        assert_eq!(b.position(path), Cursor::at(0));
        assert_eq!(caller.position(path), Cursor::at(0));
        caller.remember(path, Cursor::at(3));
        a.remember(path, Cursor::at(9));
        assert_eq!(b.position(path), Cursor::at(0));
        assert_eq!(caller.position(path), Cursor::at(3));
        // Whoever comes later goes on where clients have come.
        let alone = ["c".to_owned()];
        assert_eq!(client("c", &alone).position(path), Cursor::at(9));
    }

    #[test]
    fn clients_without_number_are_not_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let unread = &mut Unread::of(folder.path());
        for n in 0..100 {
            let name = format!("front{n}");
            client(&name, &[]).remember(unread, Cursor::at(n));
        }
        assert_eq!(Positions::read(unread).0.len(), MOST + 1);
        let last = client("front99", &[]).position(unread);
        assert_eq!(last, Cursor::at(99));
    }
}
