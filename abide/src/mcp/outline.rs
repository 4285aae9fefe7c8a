//! Outline of a JSON-RPC message, found without decoding its params: id, method and kind. Both ends of the front's socket
//! use it, so both count the same lines as requests. A line may be invalid JSON: rejecting it is the decoder's task.

use std::fmt;
use std::io::Read;

use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Deserializer, Value, de};

/// UTF-8 byte order mark, which is allowed before a message.
pub const BOM: &[u8] = b"\xef\xbb\xbf";

/// Id and method of one message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// Id as JSON in a normalised spelling (`7`, `"a"`), so that ids can be compared.
    pub id: Option<Vec<u8>>,
    /// True if there is an id that is neither a string nor a number.
    pub has_invalid_id: bool,
    /// The method; empty if it is not a string.
    pub method: Option<String>,
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
        let line = line.strip_prefix(BOM).unwrap_or(line);
        Outline::found_by(Deserializer::from_slice(line))
    }

    /// Outline of a line that is read piece by piece.
    pub fn read(line: impl Read) -> Self {
        Outline::found_by(Deserializer::from_reader(line))
    }

    fn found_by<'de>(mut reader: Deserializer<impl de::Read<'de>>) -> Self {
        let mut found = Outline::default();
        // After a syntax error the outline has what was found before.
        let _ = reader.deserialize_map(OutlineVisitor(&mut found));
        found
    }

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
        self.method.as_deref() == Some(method)
    }
}

/// Reads the fields of an outline, and skips the others.
struct OutlineVisitor<'a>(&'a mut Outline);

impl<'de> Visitor<'de> for OutlineVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut read = Outline::default();
        while let Some(name) = fields.next_key::<String>()? {
            // A value counts if something valid follows it: `1x` is no number.
            self.0.clone_from(&read);
            match name.as_str() {
                "id" => {
                    let id: Box<RawValue> = fields.next_value()?;
                    read.id = normalize_id(id.get());
                    read.has_invalid_id = read.id.is_none();
                }
                "method" => {
                    let method: Box<RawValue> = fields.next_value()?;
                    read.method = Some(serde_json::from_str(method.get()).unwrap_or_default());
                }
                name => {
                    read.has_outcome |= matches!(name, "result" | "error");
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        *self.0 = read;
        Ok(())
    }
}

/// Id in the spelling of our own encoder. `None`: no valid id.
pub fn normalize_id(id: &str) -> Option<Vec<u8>> {
    match serde_json::from_str(id).ok()? {
        Value::String(text) => serde_json::to_vec(&text).ok(),
        // A number keeps its spelling, because it may be larger than our types.
        Value::Number(_) => Some(id.into()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(line: &str) -> (Option<String>, Option<String>, MessageKind) {
        let found = Outline::of(line.as_bytes());
        assert_eq!(Outline::read(line.as_bytes()), found);
        let id = found.id.clone().map(|id| String::from_utf8(id).unwrap());
        (id, found.method.clone(), found.kind())
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
