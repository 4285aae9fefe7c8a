//! Arguments of the tools: one struct per tool or action. The input schema is derived from the struct, and
//! `arguments!` reads it, so that a wrong field is refused with one sentence that names the field, what was given and
//! what is allowed.

mod tools;
mod value;

pub use tools::{
    ACTIONS, Cols, CommandArgs, ExecuteCommandArgs, ExtendArgs, LimitArgs, ListArgs,
    PauseTimerArgs, ReadMessagesArgs, ReadOutputArgs, ReadTimerArgs, ResizeArgs, Rows,
    SANDBOX_FIELDS, SearchArgs, SendInputArgs, SessionArgs, ShellArgs, SignalArgs, SizeArgs,
    StartArgs, TerminalSessionArgs, TimerActionArgs, TimerArgs, WaitArgs,
};
pub use value::{
    AnySeconds, AnyText, ConditionFields, Env, FilledText, FromArgument, IdleSeconds, KeyText,
    NeededPermissions, Needs, NetworkArgument, PositiveSeconds, SandboxArgument, ShellSeconds,
    Text, TextOrNumber, WholeNumber, Words, shown_text, whole,
};

use serde_json::{Map, Value};

/// Input that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadInput {
    /// Field with the fault, such as `until.all[1].url`; `None`: the fault concerns several fields or none.
    pub field: Option<String>,
    /// Whole sentence about it.
    pub sentence: String,
}

impl BadInput {
    /// Fault that concerns several fields or none.
    pub fn new(sentence: String) -> Self {
        BadInput {
            field: None,
            sentence,
        }
    }

    /// Fault of one field. `rest` is the sentence behind the name of the field.
    pub fn about(field: impl std::fmt::Display, rest: impl std::fmt::Display) -> Self {
        let (field, rest) = (field.to_string(), rest.to_string());
        let space = if rest.starts_with(':') { "" } else { " " };
        BadInput {
            sentence: format!("`{field}`{space}{rest}"),
            field: Some(field),
        }
    }
}

impl std::fmt::Display for BadInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for BadInput {}

/// Takes a field out. `null` counts as absent, and so does an empty value of a type for which it means nothing: some
/// clients send every field and leave unused ones empty.
fn take<T: FromArgument>(
    fields: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<T>, BadInput> {
    let value = fields.remove(name);
    let value = value.filter(|value| !value.is_null() && !T::is_unused(value));
    value.map(|value| T::read(name, value)).transpose()
}

/// All fields have been read: what is left belongs to none.
fn finish(fields: Map<String, Value>, part: &str, known: &[&str]) -> Result<(), BadInput> {
    let is_unused = |value: &Value| value.is_null() || value == "";
    match fields.into_iter().find(|(_, value)| !is_unused(value)) {
        None => Ok(()),
        Some((field, _)) => Err(BadInput::about(
            shown_text(&field),
            format!(
                "is not a field of {part}; the fields are {}.",
                known.join(", ")
            ),
        )),
    }
}

/// Defines a struct of optional fields that can be read from JSON. Fields are checked in the order of the struct.
macro_rules! arguments {
    ($(
        $(#[$about:meta])*
        $name:ident $(<$generic:ident>)? { $($(#[$field_about:meta])* $field:ident: $type:ty,)* }
    )*) => {$(
        #[derive(Clone, Debug, JsonSchema)]
        $(#[$about])*
        #[serde(deny_unknown_fields)]
        pub struct $name $(<$generic>)? { $($(#[$field_about])* pub $field: Option<$type>,)* }

        impl $(<$generic: FromArgument>)? $name $(<$generic>)? {
            /// Reads the fields. `part` is named if one of them is unknown: `this tool`, or an action.
            pub fn read(mut fields: Map<String, Value>, part: &str) -> Result<Self, BadInput> {
                let read = $name { $($field: take(&mut fields, field_name(stringify!($field)))?,)* };
                finish(fields, part, &[$(field_name(stringify!($field))),*])?;
                Ok(read)
            }
        }
    )*};
}
use arguments;

/// Name in JSON of a field whose name is a word of Rust.
fn field_name(name: &'static str) -> &'static str {
    name.strip_prefix("r#").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(given: Value) -> String {
        let Value::Object(fields) = given else {
            panic!("arguments are an object");
        };
        TimerActionArgs::read(fields, "this tool")
            .unwrap_err()
            .sentence
    }

    #[test]
    fn wrong_field_is_named_with_what_was_given() {
        assert_eq!(
            refused(json!({"timer_id": 5})),
            "`timer_id` must be text; got 5."
        );
        assert_eq!(
            refused(json!({"timer_id": "x", "why": "y"})),
            "`why` is not a field of this tool; the fields are timer_id, reason."
        );
    }

    #[test]
    fn empty_value_of_an_unused_field_counts_as_absent() {
        let given = json!({
            "session_id": "s", "cwd": "", "env": {}, "sandbox": "", "network": "", "action": "",
        });
        let Value::Object(fields) = given else {
            unreachable!("it is an object");
        };
        let read = ShellArgs::read(fields, "this tool").unwrap();
        assert_eq!(read.session_id, Some(AnyText("s".into())));
        assert_eq!((read.cwd, read.env), (None, None));
        assert_eq!((read.sandbox, read.network), (None, None));
    }

    #[test]
    fn blank_idempotency_key_is_refused() {
        for blank in ["", " "] {
            let Value::Object(fields) = json!({"command": "x", "idempotency_key": blank}) else {
                unreachable!("it is an object");
            };
            let refused = ShellArgs::read(fields, "this tool").unwrap_err().sentence;
            let expected = format!(
                "`idempotency_key` must be text that is not blank, or left out; got \"{blank}\"."
            );
            assert_eq!(refused, expected);
        }
    }

    #[test]
    fn null_counts_as_absent() {
        let Value::Object(fields) = json!({"timer_id": "x", "reason": null, "why": null}) else {
            unreachable!("it is an object");
        };
        let read = TimerActionArgs::read(fields, "this tool").unwrap();
        assert_eq!((read.timer_id, read.reason), (Some(Text("x".into())), None));
    }
}
