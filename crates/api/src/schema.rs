//! JSON Schemas of the types.

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::ToolResult;

/// Output schema of a tool whose fields are `O`: one plain object without references. Only `text` is required, because a
/// refused call has nothing else.
pub fn tool_output<O: JsonSchema>() -> Value {
    let mut settings = answers();
    settings.inline_subschemas = true;
    let generator = settings.into_generator();
    let mut schema = generator.into_root_schema_for::<ToolResult<O>>().to_value();
    plain(&mut schema);
    if let Value::Object(object) = &mut schema {
        merge_forms(object);
        object.remove("description");
        object.insert("required".into(), json!(["text"]));
    }
    schema
}

/// Input schema of a tool with the arguments `A`: one plain object without references.
pub fn tool_input<A: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let settings = settings.with_transform(AbsentNotNull);
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<A>()
        .to_value();
    if let Value::Object(object) = &mut schema {
        let forms = object.contains_key("anyOf");
        merge_forms(object);
        object.remove("title");
        object.remove("description");
        object.insert("additionalProperties".into(), false.into());
        if forms {
            object.insert("required".into(), json!(["action"]));
        }
    }
    schema
}

/// The output schema with `is_error`, as HTTP and the command line have it.
pub fn with_is_error(mut output: Value) -> Value {
    output["properties"]["is_error"] = json!({
        "type": "boolean",
        "description": "True if the call failed.",
    });
    output
}

/// Schema of a type that a command prints, with its parts in `$defs`.
pub fn printed<T: JsonSchema>() -> Value {
    let generator = answers().into_generator();
    generator.into_root_schema_for::<T>().to_value()
}

/// Settings for types that are sent: a field is required if it is always written, and one that may be missing is never
/// `null`.
pub fn answers() -> SchemaSettings {
    SchemaSettings::draft2020_12()
        .with(|settings| settings.meta_schema = None)
        .with_transform(AbsentNotNull)
        .for_serialize()
}

/// Takes `null` from the types of fields that are left out when there is no value. A field of an optional group that may
/// be `null` as well says so with `x-nullable`.
#[derive(Clone, Copy, Debug)]
struct AbsentNotNull;

impl Transform for AbsentNotNull {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(object) = schema.as_object_mut() else {
            return;
        };
        let required = object.get("required").cloned().unwrap_or_default();
        let required: Vec<&str> = required
            .as_array()
            .map(|names| names.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let fields = object.get_mut("properties").and_then(Value::as_object_mut);
        for (name, field) in fields.into_iter().flatten() {
            if !required.contains(&name.as_str()) {
                without_null(field);
            }
        }
    }
}

fn without_null(field: &mut Value) {
    let Value::Object(field) = field else {
        return;
    };
    if field.remove("x-nullable").is_some() {
        return;
    }
    for list in ["type", "enum", "anyOf"] {
        if let Some(Value::Array(values)) = field.get_mut(list) {
            values.retain(|value| !value.is_null() && *value != "null" && value["type"] != "null");
        }
    }
    if let Some(Value::Array(kinds)) = field.get("type")
        && let [only] = kinds.as_slice()
    {
        let only = only.clone();
        field.insert("type".into(), only);
    }
    if let Some(Value::Array(forms)) = field.get("anyOf")
        && let [Value::Object(only)] = forms.as_slice()
    {
        let only = only.clone();
        field.remove("anyOf");
        for (name, value) in only {
            field.entry(name).or_insert(value);
        }
    }
}

/// Removes what says little to a client of a tool: titles, sizes of numbers, descriptions within lists. Fields within lists
/// that may be `null` are not required: MCP clients get no nulls.
fn plain(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            let is_schema = object.contains_key("type") || object.contains_key("anyOf");
            if is_schema && !object.get("type").is_some_and(Value::is_object) {
                for word in ["title", "format", "minimum", "maximum"] {
                    object.remove(word);
                }
            }
            if let Some(Value::Object(items)) = object.get_mut("items") {
                items.remove("description");
                let mut nullable = Vec::new();
                let fields = items.get_mut("properties").and_then(Value::as_object_mut);
                for (name, field) in fields.into_iter().flatten() {
                    if let Some(field) = field.as_object_mut() {
                        field.remove("description");
                    }
                    let kinds = field["type"].as_array();
                    if kinds.is_some_and(|kinds| kinds.contains(&json!("null"))) {
                        nullable.push(json!(name));
                    }
                }
                if let Some(Value::Array(required)) = items.get_mut("required") {
                    required.retain(|name| !nullable.contains(name));
                }
            }
            object.values_mut().for_each(plain);
        }
        Value::Array(list) => list.iter_mut().for_each(plain),
        _ => {}
    }
}

/// Input schema for models, which pay for every word: without the idempotency key, which only programs use, and without
/// bounds that no sensible value reaches. The arguments are checked against all of them.
pub fn for_models(mut input: Value) -> Value {
    let fields = input["properties"].as_object_mut();
    for (_, field) in fields.into_iter().flatten() {
        if let Some(field) = field.as_object_mut() {
            field.remove("maximum");
            field.remove("exclusiveMinimum");
            field.retain(|word, value| {
                !(word == "minimum" && *value == 0)
                    && !(word == "default" && (*value == 0 || *value == false || *value == true))
            });
        }
    }
    if let Some(object) = input.as_object_mut() {
        object.remove("additionalProperties");
    }
    if let Some(fields) = input["properties"].as_object_mut() {
        fields.remove("idempotency_key");
    }
    input
}

/// Removes the descriptions of all fields, for clients that show schemas to a model, which pays for every word.
pub fn without_descriptions(mut schema: Value) -> Value {
    remove_descriptions(&mut schema);
    schema
}

fn remove_descriptions(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.get("description").is_some_and(Value::is_string) {
                object.remove("description");
            }
            object.values_mut().for_each(remove_descriptions);
        }
        Value::Array(list) => list.iter_mut().for_each(remove_descriptions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Several forms of an object become one with the fields of all.
fn merge_forms(object: &mut Map<String, Value>) {
    let mut forms = Vec::new();
    for word in ["anyOf", "oneOf", "allOf"] {
        if let Some(Value::Array(found)) = object.remove(word) {
            forms.extend(found);
        }
    }
    for form in forms {
        let Value::Object(mut form) = form else {
            continue;
        };
        merge_forms(&mut form);
        let Some(Value::Object(fields)) = form.remove("properties") else {
            continue;
        };
        let all = object.entry("properties").or_insert_with(|| json!({}));
        for (name, field) in fields {
            let known = all.get_mut(&name);
            match known {
                // The first form that has the field describes it.
                Some(known) => widen(known, &field),
                None => all[name] = field,
            }
        }
    }
    object.insert("type".into(), json!("object"));
}

/// A field that two forms have takes the types of both.
fn widen(known: &mut Value, other: &Value) {
    if let (Some(Value::Array(words)), Some(Value::Array(more))) =
        (known.get_mut("enum"), other.get("enum"))
    {
        let new: Vec<Value> = more
            .iter()
            .filter(|word| !words.contains(word))
            .cloned()
            .collect();
        words.extend(new);
    }
    let kinds = |schema: &Value| match &schema["type"] {
        Value::Array(kinds) => kinds.clone(),
        kind => vec![kind.clone()],
    };
    let mut all = kinds(known);
    for kind in kinds(other) {
        if !all.contains(&kind) {
            all.push(kind);
        }
    }
    if let [_, _, ..] = all.as_slice() {
        known["type"] = Value::Array(all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        LiveActivity, ReadTimerResult, Session, ShellResult, StartsCommand, TerminalSessionResult,
    };

    /// True if every `type` below is a word, or a list of different words.
    fn has_plain_types(schema: &Value) -> bool {
        match schema {
            Value::Object(fields) => {
                let listed = fields.get("type").and_then(Value::as_array);
                let is_plain = |kinds: &Vec<Value>| {
                    let different = |(at, kind): (usize, &Value)| !kinds[..at].contains(kind);
                    kinds.iter().all(Value::is_string) && kinds.iter().enumerate().all(different)
                };
                listed.is_none_or(is_plain) && fields.values().all(has_plain_types)
            }
            Value::Array(all) => all.iter().all(has_plain_types),
            _ => true,
        }
    }

    #[test]
    fn fields_of_two_forms_have_plain_types_and_all_words() {
        let schema = tool_output::<StartsCommand<ShellResult>>();
        assert!(has_plain_types(&schema), "{schema}");
        let words = schema["properties"]["status"]["enum"].as_array();
        let words = words.expect("words");
        for word in ["SUCCESS", "held", "refused", "expired"] {
            assert!(words.contains(&json!(word)), "{word}: {schema}");
        }
    }

    #[test]
    fn output_schema_is_one_object_without_references() {
        for schema in [
            tool_output::<ShellResult>(),
            tool_output::<TerminalSessionResult>(),
            tool_output::<ReadTimerResult>(),
        ] {
            assert_eq!(schema["type"], "object");
            assert_eq!(schema["required"], json!(["text"]));
            for word in ["$ref", "anyOf", "oneOf", "allOf", "format"] {
                let written = schema.to_string();
                assert!(
                    !written.contains(&format!("\"{word}\"")),
                    "{word}: {written}"
                );
            }
        }
    }

    #[test]
    fn schema_without_descriptions_keeps_its_fields() {
        let schema = tool_output::<ReadTimerResult>();
        let short = without_descriptions(schema.clone());
        assert!(schema.to_string().contains("\"description\":\""));
        assert!(!short.to_string().contains("\"description\":\""));
        let fields = |schema: &Value| -> Vec<String> {
            let fields = schema["properties"].as_object().expect("properties");
            fields.keys().cloned().collect()
        };
        assert_eq!(fields(&short), fields(&schema));
    }

    #[test]
    fn forms_of_a_result_become_one_object() {
        let schema = tool_output::<TerminalSessionResult>();
        for field in [
            "cursor", "screen", "found", "gone", "sessions", "sent", "pty",
        ] {
            assert!(schema["properties"][field].is_object(), "{field}");
        }
    }

    #[test]
    fn field_that_may_be_missing_is_never_null() {
        let mut generator = answers().into_generator();
        generator.subschema_for::<Session>();
        generator.subschema_for::<LiveActivity>();
        let all = generator.take_definitions(true);
        let kind = |field: &str| all["Session"]["properties"][field]["type"].clone();
        assert_eq!(kind("ended_at"), "integer");
        assert_eq!(kind("exit_code"), json!(["integer", "null"]));
        assert_eq!(kind("cpu"), json!(["number", "null"]));
        let required = all["Session"]["required"].as_array().unwrap();
        assert!(required.contains(&json!("exit_code")));
        assert!(!required.contains(&json!("ended_at")));
        assert!(!required.contains(&json!("tail")));
    }
}
