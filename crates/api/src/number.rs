//! Values that several types share: ids as text, and durations.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use abide_core::Millis;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

/// Id as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id<T>(pub T);

impl<T: Display> Serialize for Id<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de, T: FromStr> Deserialize<'de> for Id<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let id = text.parse().map_err(|_| D::Error::custom("no valid id"))?;
        Ok(Id(id))
    }
}

impl<T> JsonSchema for Id<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Id".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schema_of(json!({"type": "string"}))
    }
}

/// Duration in seconds; a whole number is written without a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub Millis);

impl From<Millis> for Seconds {
    fn from(time: Millis) -> Self {
        Seconds(time)
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.0 % 1_000 {
            0 => serializer.serialize_u64(self.0.0 / 1_000),
            _ => serializer.serialize_f64(self.0.0 as f64 / 1_000.0),
        }
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Ok(Seconds(Millis((seconds * 1_000.0).round() as u64)))
    }
}

impl Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.0 % 1_000 {
            0 => (self.0.0 / 1_000).fmt(f),
            _ => (self.0.0 as f64 / 1_000.0).fmt(f),
        }
    }
}

impl JsonSchema for Seconds {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Seconds".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schema_of(json!({"type": "number"}))
    }
}

fn schema_of(value: serde_json::Value) -> Schema {
    value.try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_are_written_without_a_fraction_and_read_back() {
        for (millis, written) in [(0, "0"), (2_000, "2"), (2_007, "2.007"), (90_500, "90.5")] {
            let seconds = Seconds(Millis(millis));
            assert_eq!(serde_json::to_string(&seconds).unwrap(), written);
            assert_eq!(seconds.to_string(), written);
            assert_eq!(serde_json::from_str::<Seconds>(written).unwrap(), seconds);
        }
    }

    #[test]
    fn id_is_written_as_text() {
        let id = abide_core::TimerId::from_bits(1);
        let written = serde_json::to_value(Id(id)).unwrap();
        assert_eq!(written, id.to_string());
    }
}
