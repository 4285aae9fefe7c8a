//! JSON without duplicate fields. Other readers silently take the last of two fields with the same name,
//! although the author must have meant something else.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Value};

/// JSON value that was read strictly.
#[derive(Debug)]
pub struct StrictJson(pub Value);

/// Beginning and end of the error sentence about a duplicate field.
const PREFIX: &str = "the field '";
const SUFFIX: &str = "' is given twice";

/// Sentence of an error that reports a duplicate field; `None` for other errors.
pub fn duplicate_field(fault: &serde_json::Error) -> Option<String> {
    let message = fault.to_string();
    let end = message
        .find(SUFFIX)
        .filter(|_| message.starts_with(PREFIX))?;
    Some(message[..end + SUFFIX.len()].to_owned())
}

impl<'de> Deserialize<'de> for StrictJson {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(StrictVisitor).map(StrictJson)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
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
        while let Some(StrictJson(value)) = given.next_element()? {
            all.push(value);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut given: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some((name, StrictJson(value))) = given.next_entry::<String, StrictJson>()? {
            match fields.entry(name) {
                Entry::Vacant(field) => {
                    field.insert(value);
                }
                Entry::Occupied(field) => {
                    let name = field.key().escape_debug();
                    return Err(A::Error::custom(format_args!("{PREFIX}{name}{SUFFIX}")));
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
    fn valid_json_reads_as_serde_json_reads_it() {
        for text in [
            "null",
            r#"[true, -1, 18446744073709551615, 1.5, 1e300, "a\u00e9\n", {}]"#,
            r#"{"a": {"b": [{"a": null}]}, "b": 1}"#,
        ] {
            let strict: StrictJson = serde_json::from_str(text).unwrap();
            assert_eq!(strict.0, serde_json::from_str::<Value>(text).unwrap());
        }
        assert!(serde_json::from_str::<StrictJson>(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn duplicate_field_is_named_in_the_error() {
        for (text, field) in [
            (r#"{"a": 1, "b": 2, "\u0061": 3}"#, "a"),
            (r#"[{"x": {"it's\n": 1, "it's\n": 1}}]"#, r"it\'s\n"),
        ] {
            let fault = serde_json::from_str::<StrictJson>(text).unwrap_err();
            let sentence = format!("the field '{field}' is given twice");
            assert_eq!(duplicate_field(&fault), Some(sentence));
        }
        let fault = serde_json::from_str::<StrictJson>("{\"a\"").unwrap_err();
        assert_eq!(duplicate_field(&fault), None);
    }
}
