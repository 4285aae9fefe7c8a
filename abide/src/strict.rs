//! JSON without duplicate fields. Other readers silently take the last of two fields with the same name,
//! although the author must have meant something else.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Value};

/// JSON value that was read strictly.
#[derive(Debug)]
pub struct Strict(pub Value);

/// Beginning and end of the error sentence about a duplicate field.
const FIELD: &str = "the field '";
const TWICE: &str = "' is given twice";
/// Beginning of the error sentence by which serde reports a duplicate field of a struct.
const DUPLICATE: &str = "duplicate field `";

/// Error sentence about a duplicate field.
pub fn sentence(field: &str) -> String {
    format!("{FIELD}{}{TWICE}", field.escape_debug())
}

/// Sentence of an error that reports a duplicate field; `None` for other errors.
pub fn twice(fault: &serde_json::Error) -> Option<String> {
    let said = fault.to_string();
    if let Some(end) = said.find(TWICE).filter(|_| said.starts_with(FIELD)) {
        return Some(said[..end + TWICE.len()].to_owned());
    }
    let (field, _) = said.strip_prefix(DUPLICATE)?.split_once('`')?;
    Some(format!("{FIELD}{field}{TWICE}"))
}

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader).map(Strict)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, given: bool) -> Result<Value, E> {
        Ok(given.into())
    }

    fn visit_i64<E>(self, given: i64) -> Result<Value, E> {
        Ok(given.into())
    }

    fn visit_u64<E>(self, given: u64) -> Result<Value, E> {
        Ok(given.into())
    }

    fn visit_f64<E>(self, given: f64) -> Result<Value, E> {
        Ok(given.into())
    }

    fn visit_str<E>(self, given: &str) -> Result<Value, E> {
        Ok(given.into())
    }

    fn visit_string<E>(self, given: String) -> Result<Value, E> {
        Ok(given.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut given: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Strict(value)) = given.next_element()? {
            all.push(value);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut given: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some((name, Strict(value))) = given.next_entry::<String, Strict>()? {
            match fields.entry(name) {
                Entry::Vacant(field) => {
                    field.insert(value);
                }
                Entry::Occupied(field) => {
                    return Err(A::Error::custom(sentence(field.key())));
                }
            }
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_others_read() {
        for text in [
            "null",
            r#"[true, -1, 18446744073709551615, 1.5, 1e300, "a\u00e9\n", {}]"#,
            r#"{"a": {"b": [{"a": null}]}, "b": 1}"#,
        ] {
            let strict: Strict = serde_json::from_str(text).unwrap();
            assert_eq!(strict.0, serde_json::from_str::<Value>(text).unwrap());
        }
        assert!(serde_json::from_str::<Strict>(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn names_what_is_given_twice() {
        for (text, field) in [
            (r#"{"a": 1, "b": 2, "\u0061": 3}"#, "a"),
            (r#"[{"x": {"it's\n": 1, "it's\n": 1}}]"#, r"it\'s\n"),
        ] {
            let fault = serde_json::from_str::<Strict>(text).unwrap_err();
            let sentence = format!("the field '{field}' is given twice");
            assert_eq!(twice(&fault), Some(sentence));
        }
        let fault = serde_json::from_str::<Strict>("{\"a\"").unwrap_err();
        assert_eq!(twice(&fault), None);
    }
}
