//! Types of single arguments, each with its check and its schema.

use std::borrow::Cow;
use std::ffi::OsString;

use abide_core::{Millis, limit, shorten};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::BadInput;
use crate::{NetworkMode, SandboxMode};

/// Longest text of one argument, in bytes.
const TEXT_LIMIT: usize = 1 << 20;

/// A value of one field.
pub trait FromArgument: Sized {
    /// Checks the value of a field.
    fn read(field: &str, value: Value) -> Result<Self, BadInput>;

    /// True for a value that says no more than an absent field.
    fn is_unused(_: &Value) -> bool {
        false
    }
}

/// Defines types with the schema of their values.
macro_rules! values {
    ($($(#[$about:meta])* $name:ident($type:ty) = $schema:tt;)*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name(pub $type);

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    )*};
}

values! {
    /// Text without NUL bytes.
    Text(String) = {"type": "string"};
    /// Text without NUL bytes; blank text counts as absent.
    FilledText(String) = {"type": "string"};
    /// Idempotency key: text that is not blank.
    KeyText(String) = {"type": "string"};
    /// Text that may hold anything.
    AnyText(String) = {"type": "string"};
    /// Text that some clients write as a number.
    TextOrNumber(String) = {"type": "string"};
    /// Seconds, fractions allowed, more than none.
    PositiveSeconds(Millis) = {"type": "number", "exclusiveMinimum": 0};
    /// Hard limit of `shell`.
    ShellSeconds(Millis) = {"type": "integer", "minimum": 1, "default": limit::DEADLINE_DEFAULT.as_secs(),
        "description": "Hard limit in seconds."};
    /// Limit of `execute_command` without output.
    IdleSeconds(Millis) = {"type": "number", "exclusiveMinimum": 0, "default": limit::IDLE_DEFAULT.as_secs(),
        "description": "Seconds without output until a person is asked."};
    /// Seconds, fractions allowed, or 0.
    AnySeconds(Millis) = {"type": "number", "minimum": 0};
    /// A list of words, or one text of words with blanks or commas between them.
    Words(Vec<String>) = {"type": "array", "items": {"type": "string"}};
    /// Variables to set; `null` takes one away.
    Env(Vec<(OsString, Option<OsString>)>) = {"type": "object", "additionalProperties": {"type": "string"}};
    /// Sandbox with less than the agent has.
    SandboxArgument(SandboxMode) = {"type": "string", "enum": ["read-only", "workspace-write"]};
    /// Network with less than the agent has.
    NetworkArgument(NetworkMode) = {"type": "string", "enum": ["off", "allowlist"]};
    /// Permissions that a person is asked for.
    Needs(NeededPermissions) = {"type": "object"};
    /// A condition, read by the daemon. The schema has the fields of every kind.
    ConditionFields(Value) = {
        "type": "object",
        "properties": {
            "port": {"type": ["integer", "string"]},
            "url": {"type": "string"},
            "status": {"type": "integer"},
            "body": {"type": "string"},
            "file": {"type": "string"},
            "is": {"type": "string"},
            "matches": {"type": "string"},
            "session": {"type": "string"},
            "output": {"type": "string"},
            "command": {"type": "string"},
            "every": {"type": "number"},
            "all": {"type": "array", "items": {"type": "object"}},
            "any": {"type": "array", "items": {"type": "object"}}
        }
    };
}

/// Permissions beyond the sandbox that a call asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NeededPermissions {
    /// Files and folders to write.
    pub write: Vec<String>,
    /// Files and folders to read.
    pub read: Vec<String>,
    /// Names and ports to connect to, or `on`.
    pub network: Vec<String>,
    /// True for a run without a sandbox.
    pub no_sandbox: bool,
}

impl FromArgument for SandboxArgument {
    fn read(field: &str, value: Value) -> Result<Self, BadInput> {
        match value.as_str().and_then(SandboxMode::of) {
            Some(mode @ (SandboxMode::ReadOnly | SandboxMode::WorkspaceWrite)) => {
                Ok(SandboxArgument(mode))
            }
            Some(SandboxMode::Off) => Err(BadInput::new(format!(
                "`{field}` must be \"read-only\" or \"workspace-write\"; got \"off\". To ask a person for more, send \
                 `needs` and `justification`."
            ))),
            None => Err(wrong(field, "\"read-only\" or \"workspace-write\"", &value)),
        }
    }

    fn is_unused(value: &Value) -> bool {
        value == ""
    }
}

impl FromArgument for NetworkArgument {
    fn read(field: &str, value: Value) -> Result<Self, BadInput> {
        match value.as_str() {
            Some("off") => Ok(NetworkArgument(NetworkMode::Off)),
            Some("allowlist") => Ok(NetworkArgument(NetworkMode::Allowlist)),
            Some(_) => Err(BadInput::about(
                field,
                format!(
                    "must be \"off\" or \"allowlist\"; got {}. To ask a person for more, send `needs` and `justification`.",
                    shown(&value)
                ),
            )),
            None => Err(wrong(field, "\"off\" or \"allowlist\"", &value)),
        }
    }

    fn is_unused(value: &Value) -> bool {
        value == ""
    }
}

impl FromArgument for Needs {
    fn read(field: &str, value: Value) -> Result<Self, BadInput> {
        let Value::Object(fields) = value else {
            return Err(wrong(field, "an object", &value));
        };
        let mut needs = NeededPermissions::default();
        for (name, value) in fields {
            let part = format!("{field}.{name}");
            match name.as_str() {
                "write" => needs.write = Words::read(&part, value)?.0,
                "read" => needs.read = Words::read(&part, value)?.0,
                "network" => needs.network = Words::read(&part, value)?.0,
                "sandbox" if value == "off" => needs.no_sandbox = true,
                "sandbox" => return Err(wrong(&part, "\"off\"", &value)),
                _ => {
                    return Err(BadInput::about(
                        field,
                        format!(
                            "has the fields write, read, network and sandbox; got `{}`.",
                            shown_text(&name)
                        ),
                    ));
                }
            }
        }
        Ok(Needs(needs))
    }
}

/// A whole number within bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WholeNumber<const MIN: u64, const MAX: u64>(pub u64);

impl<const MIN: u64, const MAX: u64> JsonSchema for WholeNumber<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "WholeNumber".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "minimum": MIN, "maximum": MAX})
    }
}

impl FromArgument for Text {
    fn read(field: &str, value: Value) -> Result<Self, BadInput> {
        match value {
            Value::String(text) if text.contains('\0') => Err(BadInput::about(
                field,
                format!(
                    "must be text without NUL bytes; got one at byte {}.",
                    text.find('\0').unwrap_or(0)
                ),
            )),
            Value::String(text) if text.len() > TEXT_LIMIT => Err(BadInput::about(
                field,
                format!(
                    "must be at most {TEXT_LIMIT} bytes long; got {}.",
                    text.len()
                ),
            )),
            Value::String(text) => Ok(Text(text)),
            other => Err(wrong(field, "text", &other)),
        }
    }
}

impl FromArgument for FilledText {
    fn read(field: &str, value: Value) -> Result<Self, BadInput> {
        Text::read(field, value).map(|text| FilledText(text.0))
    }

    fn is_unused(value: &Value) -> bool {
        value.as_str().is_some_and(|text| text.trim().is_empty())
    }
}

impl FromArgument for KeyText {
    fn read(field: &str, value: Value) -> Result<Self, BadInput> {
        let Text(text) = Text::read(field, value)?;
        match text.trim().is_empty() {
            // A call that counts on its key would be carried out again.
            true => Err(BadInput::about(
                field,
                format!("must be text that is not blank, or left out; got \"{text}\"."),
            )),
            false => Ok(KeyText(text)),
        }
    }
}

impl FromArgument for AnyText {
    fn read(field: &str, value: Value) -> Result<Self, BadInput> {
        match value {
            Value::String(text) => Ok(AnyText(text)),
            other => Err(wrong(field, "text", &other)),
        }
    }
}

impl FromArgument for TextOrNumber {
    fn read(field: &str, value: Value) -> Result<Self, BadInput> {
        match value {
            Value::String(text) => Ok(TextOrNumber(text)),
            Value::Number(number) => Ok(TextOrNumber(number.to_string())),
            other => Err(wrong(field, "text", &other)),
        }
    }

    fn is_unused(value: &Value) -> bool {
        value == ""
    }
}

impl FromArgument for bool {
    fn read(field: &str, value: Value) -> Result<Self, BadInput> {
        match value {
            Value::Bool(flag) => Ok(flag),
            other => Err(wrong(field, "true or false", &other)),
        }
    }
}

impl FromArgument for ConditionFields {
    fn read(_: &str, value: Value) -> Result<Self, BadInput> {
        Ok(ConditionFields(value))
    }

    fn is_unused(value: &Value) -> bool {
        FilledText::is_unused(value)
    }
}

impl FromArgument for Value {
    fn read(_: &str, value: Value) -> Result<Self, BadInput> {
        Ok(value)
    }
}

/// A whole number. 5.0 is one too, and some clients know no other kind.
pub fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        value
            .as_f64()
            .filter(|n| n.fract() == 0.0 && (0.0..1e15).contains(n))
            .map(|n| n as u64)
    })
}

impl<const MIN: u64, const MAX: u64> FromArgument for WholeNumber<MIN, MAX> {
    fn read(field: &str, value: Value) -> Result<Self, BadInput> {
        match whole(&value) {
            Some(number) if (MIN..=MAX).contains(&number) => Ok(WholeNumber(number)),
            _ => {
                let allowed = format!("a whole number from {MIN} to {MAX}");
                Err(wrong(field, &allowed, &value))
            }
        }
    }
}

impl FromArgument for ShellSeconds {
    fn read(field: &str, value: Value) -> Result<Self, BadInput> {
        let most = Millis::MAX.0 / 1_000;
        match whole(&value) {
            Some(secs) if (1..=most).contains(&secs) => Ok(ShellSeconds(Millis::from_secs(secs))),
            _ => {
                let allowed = "a whole number of seconds, at least 1 and at most 100 years";
                Err(wrong(field, allowed, &value))
            }
        }
    }
}

/// A duration of more than none and at most 100 years.
fn positive(value: &Value) -> Option<Millis> {
    let most = Millis::MAX.0 as f64 / 1_000.0;
    let secs = value.as_f64()?;
    (secs.is_finite() && secs > 0.0 && secs <= most).then(|| in_millis(secs))
}

impl FromArgument for PositiveSeconds {
    fn read(field: &str, value: Value) -> Result<Self, BadInput> {
        let allowed = "a number of seconds above 0 and at most 100 years";
        let time = positive(&value).ok_or_else(|| wrong(field, allowed, &value));
        time.map(PositiveSeconds)
    }
}

impl FromArgument for IdleSeconds {
    fn read(field: &str, value: Value) -> Result<Self, BadInput> {
        PositiveSeconds::read(field, value).map(|time| IdleSeconds(time.0))
    }
}

impl FromArgument for AnySeconds {
    fn read(field: &str, value: Value) -> Result<Self, BadInput> {
        if value.as_f64() == Some(0.0) {
            return Ok(AnySeconds(Millis(0)));
        }
        let allowed = "a number of seconds from 0 to 100 years";
        let time = positive(&value).ok_or_else(|| wrong(field, allowed, &value));
        time.map(AnySeconds)
    }
}

impl FromArgument for Words {
    fn read(field: &str, value: Value) -> Result<Self, BadInput> {
        match value {
            Value::String(text) => {
                let words = text.split([' ', ',']).filter(|word| !word.is_empty());
                Ok(Words(words.map(str::to_owned).collect()))
            }
            Value::Array(list) => {
                let words = list.into_iter().map(|word| match word {
                    Value::String(word) => Ok(word),
                    other => Err(wrong(field, "a list of texts", &other)),
                });
                words.collect::<Result<_, _>>().map(Words)
            }
            other => Err(wrong(field, "a list of texts", &other)),
        }
    }
}

impl FromArgument for Env {
    fn read(field: &str, value: Value) -> Result<Self, BadInput> {
        let Value::Object(given) = value else {
            return Err(wrong(field, "an object of names and text values", &value));
        };
        let mut env = Vec::with_capacity(given.len());
        for (name, value) in given {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(BadInput::about(
                    field,
                    format!(
                        "names must not be empty and must hold neither '=' nor NUL; got {}.",
                        shown(&Value::String(name))
                    ),
                ));
            }
            let value = match value {
                Value::Null => None,
                Value::String(text) if !text.contains('\0') => Some(text.into()),
                Value::Number(number) => Some(number.to_string().into()),
                Value::Bool(flag) => Some(flag.to_string().into()),
                other => {
                    let field = format!("{field}.{}", shown_text(&name));
                    return Err(wrong(&field, "text without NUL bytes", &other));
                }
            };
            env.push((name.into(), value));
        }
        Ok(Env(env))
    }

    fn is_unused(value: &Value) -> bool {
        value.as_object().is_some_and(|names| names.is_empty())
    }
}

/// Never less than was asked for, and at least one. But 2.007 seconds, which is a little more than 2007 milliseconds
/// once it is multiplied, means just these.
fn in_millis(secs: f64) -> Millis {
    const ROUNDING: f64 = 1e-12;
    let exact = secs * 1_000.0;
    let near = exact.round();
    let meant = match (exact - near).abs() <= near * ROUNDING {
        true => near,
        false => exact.ceil(),
    };
    Millis((meant as u64).max(1))
}

fn wrong(field: &str, allowed: &str, given: &Value) -> BadInput {
    BadInput::about(field, format!("must be {allowed}; got {}.", shown(given)))
}

fn shown(value: &Value) -> String {
    shown_text(&value.to_string())
}

/// The given text on one line, short enough for one sentence.
pub fn shown_text(text: &str) -> String {
    const CHAR_LIMIT: usize = 80;
    let clean: String = text
        .chars()
        .map(|c| match c.is_control() {
            true => '\u{FFFD}',
            false => c,
        })
        .collect();
    shorten(&clean, CHAR_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_wrong_variable_is_shown_on_one_line_and_shortened() {
        let name = format!("A\x1b[2J\n{}", "B".repeat(1_000));
        let wrong = Env::read("env", serde_json::json!({name: []})).unwrap_err();
        let said = wrong.to_string();
        assert!(said.starts_with("`env.A\u{FFFD}[2J\u{FFFD}BB"), "{said}");
        assert!(
            said.contains("must be text without NUL bytes; got []."),
            "{said}"
        );
        assert!(said.chars().count() < 200, "{said}");
    }

    #[test]
    fn seconds_are_what_was_written() {
        for millis in (1..5_000).chain([10_203_007, 86_400_001, 3_153_600_000_000]) {
            let written: f64 = format!("{}.{:03}", millis / 1_000, millis % 1_000)
                .parse()
                .expect("a number");
            assert_eq!(in_millis(written), Millis(millis));
        }
        for (secs, millis) in [
            (0.1 + 0.2, 300),
            (0.000_1, 1),
            (1e-300, 1),
            (1.000_1, 1_001),
        ] {
            assert_eq!(in_millis(secs), Millis(millis), "{secs}");
        }
    }
}
