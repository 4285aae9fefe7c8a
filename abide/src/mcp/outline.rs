//! Outline of a JSON-RPC line, found without parsing its content: id, method and kind. Both ends of the
//! front's socket use this scanner, so both count the same lines as requests.
//!
//! The scanner takes bytes in pieces, needs no recursion for nested values, and stores only the few bytes
//! that it reports. It tolerates invalid JSON: rejecting a line is the decoder's task.

use memchr::memchr2;
use serde_json::Number;

use super::json_line::MESSAGE_LIMIT;

/// Limit on a stored key or method, in bytes; a longer method is truncated.
const CAPTURE_LIMIT: usize = 512;
/// Limit on a stored id, in bytes. No message may be longer, so no forwarded message has a longer id.
const ID_LIMIT: usize = MESSAGE_LIMIT;

/// UTF-8 byte order mark, which is allowed before a message.
pub const BOM: &[u8] = b"\xef\xbb\xbf";

/// Id and method of one message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// Id as JSON in a normalised spelling (`7`, `"a"`), so that ids can be compared.
    pub id: Option<Vec<u8>>,
    /// The method; empty if it is not a string.
    pub method: Option<Vec<u8>>,
    /// True if there is a `result` or an `error`.
    pub has_outcome: bool,
}

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// Expects an answer.
    Request,
    /// Expects no answer.
    Notification,
    /// Response to a request.
    Response,
    /// None of these.
    Unknown,
}

impl Outline {
    /// Outline of a whole line.
    pub fn of(line: &[u8]) -> Self {
        let mut scanner = Scanner::default();
        scanner.feed(line);
        scanner.finish()
    }

    /// Kind of the message.
    pub fn kind(&self) -> MessageKind {
        match (&self.method, &self.id) {
            (Some(_), Some(_)) => MessageKind::Request,
            (Some(method), None) if method.is_empty() => MessageKind::Unknown,
            (Some(_), None) => MessageKind::Notification,
            (None, Some(_)) if self.has_outcome => MessageKind::Response,
            // Invalid, and its sender waits for an answer under this id.
            (None, Some(_)) => MessageKind::Request,
            (None, None) => MessageKind::Unknown,
        }
    }

    /// True if the message has this method.
    pub fn is(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method.as_bytes())
    }
}

/// Incremental scanner of one message.
#[derive(Debug, Default)]
pub struct Scanner {
    depth: u64,
    position: Position,
    text: TextState,
    /// Bytes of the current key, id or method.
    captured: Vec<u8>,
    found: Outline,
}

/// Position in the outermost object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    #[default]
    Before,
    Key,
    Value(Field),
    After,
}

/// Fields that the scanner distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Id,
    Method,
    Outcome,
    Other,
}

/// Position relative to a string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TextState {
    #[default]
    Outside,
    Inside,
    /// The last byte of the string was a backslash.
    Escape,
}

impl Scanner {
    /// Scans more bytes.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let used = match self.text {
                TextState::Outside => self.outside(bytes[0]),
                TextState::Inside => self.inside(bytes),
                TextState::Escape => {
                    self.capture(&bytes[..1]);
                    self.text = TextState::Inside;
                    1
                }
            };
            bytes = &bytes[used..];
        }
    }

    /// Outline of the scanned message.
    pub fn finish(mut self) -> Outline {
        self.value_ended();
        self.found
    }

    fn inside(&mut self, bytes: &[u8]) -> usize {
        let Some(at) = memchr2(b'"', b'\\', bytes) else {
            self.capture(bytes);
            return bytes.len();
        };
        self.capture(&bytes[..=at]);
        if bytes[at] == b'\\' {
            self.text = TextState::Escape;
        } else {
            self.text = TextState::Outside;
            if self.depth == 1 && self.position == Position::Key {
                self.key_ended();
            }
        }
        at + 1
    }

    /// Scans one byte outside of strings.
    fn outside(&mut self, byte: u8) -> usize {
        if self.position == Position::Before && !byte.is_ascii_whitespace() && !BOM.contains(&byte)
        {
            // A message is an object; nothing is searched for in other values.
            self.position = match byte {
                b'{' => Position::Key,
                _ => Position::After,
            };
        }
        match byte {
            b'"' => {
                self.text = TextState::Inside;
                self.capture(b"\"");
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                if self.depth == 1 {
                    self.value_ended();
                    self.position = Position::After;
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b',' if self.depth == 1 && self.position != Position::After => {
                self.value_ended();
                self.position = Position::Key;
            }
            b' ' | b'\t' | b'\r' | b'\n' | b':' => {}
            byte if self.position != Position::Key => self.capture(&[byte]),
            _ => {}
        }
        1
    }

    fn key_ended(&mut self) {
        let field = match self.captured.as_slice() {
            b"\"id\"" => Field::Id,
            b"\"method\"" => Field::Method,
            b"\"result\"" | b"\"error\"" => Field::Outcome,
            _ => Field::Other,
        };
        self.found.has_outcome |= field == Field::Outcome;
        self.position = Position::Value(field);
        self.captured.clear();
    }

    /// Takes the captured value. A nested value is not captured: it is no id, and no method that is known.
    fn value_ended(&mut self) {
        let captured = std::mem::take(&mut self.captured);
        match self.position {
            Position::Value(Field::Id) => {
                let whole = captured.len() <= ID_LIMIT;
                self.found.id = whole.then_some(captured).and_then(normalize_id);
            }
            // A method that is too long is unknown, but its request must be answered.
            Position::Value(Field::Method) if captured.len() > CAPTURE_LIMIT => {
                self.found.method = Some(captured[1..CAPTURE_LIMIT].to_vec());
            }
            Position::Value(Field::Method) => {
                self.found.method = Some(unquoted(&captured).unwrap_or_default());
            }
            Position::Value(Field::Outcome | Field::Other)
            | Position::Before
            | Position::Key
            | Position::After => {}
        }
    }

    /// Stores the bytes of a key, an id or a method, up to one byte over the limit.
    fn capture(&mut self, bytes: &[u8]) {
        let limit = match self.position {
            Position::Key | Position::Value(Field::Method) => CAPTURE_LIMIT,
            Position::Value(Field::Id) => ID_LIMIT,
            Position::Value(Field::Outcome | Field::Other) | Position::Before | Position::After => {
                return;
            }
        };
        if self.depth == 1 && self.captured.len() <= limit {
            let most = bytes.len().min(limit + 1);
            self.captured.extend_from_slice(&bytes[..most]);
        }
    }
}

/// Id in the spelling of our own encoder. `None`: no valid id.
pub fn normalize_id(id: Vec<u8>) -> Option<Vec<u8>> {
    match id.first()? {
        b'"' if id.contains(&b'\\') => {
            let text: String = serde_json::from_slice(&id).ok()?;
            serde_json::to_vec(&text).ok()
        }
        // Trailing bytes, or an invalid string, would make the answer invalid JSON.
        b'"' => serde_json::from_slice::<&str>(&id).is_ok().then_some(id),
        b'1'..=b'9' if id.iter().all(u8::is_ascii_digit) => Some(id),
        // An invalid number would do the same.
        b'-' | b'0'..=b'9' => serde_json::from_slice::<Number>(&id).is_ok().then_some(id),
        _ => None,
    }
}

fn unquoted(text: &[u8]) -> Option<Vec<u8>> {
    if text.contains(&b'\\') {
        return serde_json::from_slice::<String>(text)
            .ok()
            .map(String::into_bytes);
    }
    Some(text.strip_prefix(b"\"")?.strip_suffix(b"\"")?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(line: &str) -> (Option<String>, Option<String>, MessageKind) {
        let found = Outline::of(line.as_bytes());
        // The outline does not depend on how the bytes are split.
        for cut in 0..line.len() {
            let mut scanner = Scanner::default();
            scanner.feed(&line.as_bytes()[..cut]);
            scanner.feed(&line.as_bytes()[cut..]);
            assert_eq!(scanner.finish(), found, "cut at {cut}");
        }
        let text = |bytes: &Option<Vec<u8>>| bytes.clone().map(|b| String::from_utf8(b).unwrap());
        (text(&found.id), text(&found.method), found.kind())
    }

    fn some(text: &str) -> Option<String> {
        Some(text.into())
    }

    #[test]
    fn fields_inside_strings_are_ignored() {
        assert_eq!(
            outline(r#"{"params":{"command":"echo \"}\",\"id\":9,{"},"method":"m","id":1}"#),
            (some("1"), some("m"), MessageKind::Request)
        );
        assert_eq!(
            outline(r#"{"a":"id","b":"\\","id":"q\"r"}"#).0,
            some(r#""q\"r""#)
        );
        assert_eq!(outline(r#"{"id":"\u0041\/"}"#).0, some(r#""A/""#));
        assert_eq!(outline(r#"{"method":"tools\/call"}"#).1, some("tools/call"));
    }

    #[test]
    fn invalid_ids_are_none() {
        for line in [
            r#"{"id":null,"error":{}}"#,
            r#"{"id":{"a":1},"x":2}"#,
            r#"{"id":[1]}"#,
            r#"{"id":true}"#,
            r#"{"id":1x}"#,
            r#"{"id":007}"#,
            r#"{"id":-}"#,
            r#"{"id":1e999}"#,
            r#"{"id":"a"b}"#,
            "{\"id\":\"a\tb\"}",
            r#"{"id":"a"#,
            r#"[{"id":1,"method":"m"}]"#,
            "garbage",
            "\"id\":4",
            "",
            "}}}{\"id\":1}",
        ] {
            assert_eq!(outline(line), (None, None, MessageKind::Unknown), "{line}");
        }
    }

    #[test]
    fn message_with_an_id_that_is_no_response_is_a_request() {
        for line in [
            r#"{"id":1,"method":7}"#,
            r#"{"method":null,"id":1}"#,
            r#"{"id":1,"method":["m"],"params":{}}"#,
            r#"{"method":{"result":1},"id":1}"#,
            r#"{"id":1}"#,
            r#"{"id":1,"params":{"result":2}}"#,
        ] {
            let (id, _, kind) = outline(line);
            assert_eq!((id, kind), (some("1"), MessageKind::Request), "{line}");
        }
        for line in [r#"{"id":1,"error":{}}"#, r#"{"result":null,"id":1}"#] {
            assert_eq!(outline(line).2, MessageKind::Response, "{line}");
        }
        assert_eq!(outline(r#"{"method":7}"#).2, MessageKind::Unknown);
    }

    #[test]
    fn request_with_long_id_or_method_is_a_request() {
        let long = "x".repeat(3 * CAPTURE_LIMIT);
        let line = format!(r#"{{"id":"{long}","method":"{long}"}}"#);
        let found = Outline::of(line.as_bytes());
        assert_eq!(found.id, Some(format!("\"{long}\"").into_bytes()));
        assert_eq!(found.kind(), MessageKind::Request);
        let line = format!(r#"{{"method":"m","id":"{}"}}"#, "x".repeat(ID_LIMIT));
        assert_eq!(Outline::of(line.as_bytes()).id, None);
    }

    #[test]
    fn deep_nesting_is_scanned() {
        let deep = format!(
            r#"{{"params":{}{},"id":5,"method":"m"}}"#,
            "[".repeat(1 << 20),
            "]".repeat(1 << 20)
        );
        assert_eq!(
            Outline::of(deep.as_bytes()).id.as_deref(),
            Some(b"5".as_slice())
        );
    }
}
