//! Check of a JSON value against its schema. Used by several tests, each with its own document.

use serde_json::Value;

/// Differences between a value and its schema in `document`. Stricter than JSON Schema: a field that the schema does
/// not name is an error, because the schema has forgotten it.
pub fn wrong(document: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(path) = schema["$ref"].as_str() {
        let schema = document.pointer(&path[1..]).expect("a schema of this name");
        return wrong(document, schema, value, at);
    }
    if let Some(forms) = (schema["anyOf"].as_array()).or(schema["oneOf"].as_array()) {
        let tried = forms.iter().map(|form| wrong(document, form, value, at));
        return tried.min_by_key(Vec::len).unwrap_or_default();
    }
    if let Some(found) = of_another_kind(schema, value, at) {
        return vec![found];
    }
    let mut found = Vec::new();
    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
        let at = format!("{at}[{number}]");
        found.extend(wrong(document, &schema["items"], item, &at));
    }
    let (Some(fields), Some(known)) = (value.as_object(), schema["properties"].as_object()) else {
        return found;
    };
    for (name, field) in fields {
        match known.get(name) {
            Some(schema) => found.extend(wrong(document, schema, field, &format!("{at}.{name}"))),
            None => found.push(format!("{at}.{name} is not in the schema")),
        }
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        if !fields.contains_key(name.as_str().expect("a name")) {
            found.push(format!("{at}.{name} is missing"));
        }
    }
    found
}

fn of_another_kind(schema: &Value, value: &Value, at: &str) -> Option<String> {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() || number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.clone(),
        Value::Null => Vec::new(),
        one => vec![one.clone()],
    };
    let fits = |wanted: &Value| *wanted == kind || (*wanted == "number" && kind == "integer");
    let is_other = !kinds.is_empty() && !kinds.iter().any(fits);
    is_other.then(|| format!("{at} is {kind}, not {kinds:?}"))
}
