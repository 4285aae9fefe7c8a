//! Values of fields: text in the type of its schema, or elements that are written instead of JSON.

use serde_json::{Map, Value};

/// Text fields that hold one id or path: blanks around them are indentation.
const TRIMMED: [&str; 4] = ["session_id", "timer_id", "question_id", "cwd"];
/// Fields of a condition that hold a number. All others hold text, also if it looks like a number.
const NUMBERS: [&str; 3] = ["port", "status", "every"];

/// Value of a field in the type of its schema. The error says what is allowed.
pub fn parse_value(field: &str, text: &str, schema: &Value) -> Result<Value, &'static str> {
    let trimmed = text.trim();
    match schema["type"].as_str() {
        Some("integer") => {
            let whole = trimmed.parse::<i64>().map(Value::from);
            whole.map_err(|_| "a whole number")
        }
        Some("number") => {
            let number = serde_json::from_str::<serde_json::Number>(trimmed);
            number.map(Value::Number).map_err(|_| "a number")
        }
        Some("boolean") => match trimmed {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ => Err("true or false"),
        },
        Some("object") => match serde_json::from_str(trimmed) {
            Ok(value @ Value::Object(_)) => Ok(value),
            _ => parse_object(trimmed, &schema["additionalProperties"], 0).ok_or("a JSON object"),
        },
        Some("array") => match serde_json::from_str(trimmed) {
            Ok(value @ Value::Array(_)) => Ok(value),
            // A list of words may be written as one text, such as `<keys>enter</keys>`.
            Err(_) if schema["items"]["type"] == "string" && !trimmed.starts_with(['[', '<']) => {
                Ok(Value::from(trimmed))
            }
            _ => parse_list(trimmed).ok_or("a JSON list"),
        },
        _ if schema["enum"].is_array() || TRIMMED.contains(&field) => {
            Ok(Value::String(trimmed.to_owned()))
        }
        _ => Ok(Value::String(text.to_owned())),
    }
}

/// Limit on nested elements; no valid condition is as deep.
const DEPTH_LIMIT: usize = 16;

/// Object that is written as elements, as in `<until><port>3000</port></until>`. Values have the type of
/// `kind`, or else that of a field of a condition.
fn parse_object(text: &str, kind: &Value, depth: usize) -> Option<Value> {
    if depth > DEPTH_LIMIT {
        return None;
    }
    let mut fields = Map::new();
    for (name, inner) in elements(text)? {
        let value = match name {
            "all" | "any" => Value::Array(
                elements(inner)?
                    .into_iter()
                    .map(|(name, inner)| member(name, inner, depth + 1))
                    .collect::<Option<_>>()?,
            ),
            _ if kind["type"] == "string" => Value::String(inner.to_owned()),
            _ => condition_value(name, inner.trim()),
        };
        if fields.insert(name.to_owned(), value).is_some() {
            return None;
        }
    }
    (!fields.is_empty()).then_some(Value::Object(fields))
}

/// Member of `all` or `any`: an element around a condition, or the condition itself if it has a single field.
fn member(name: &str, inner: &str, depth: usize) -> Option<Value> {
    let whole = match name {
        "all" | "any" => None,
        _ => parse_object(inner.trim(), &Value::Null, depth),
    };
    let as_json = || serde_json::from_str(inner).ok().filter(Value::is_object);
    let as_field = || parse_object(&format!("<{name}>{inner}</{name}>"), &Value::Null, depth);
    whole.or_else(as_json).or_else(as_field)
}

/// List that is written as elements, as in `<keys><key>up</key><key>enter</key></keys>`.
fn parse_list(text: &str) -> Option<Value> {
    let items = elements(text)?.into_iter();
    let items: Vec<Value> = items.map(|(_, inner)| Value::from(inner)).collect();
    (!items.is_empty()).then_some(Value::Array(items))
}

fn condition_value(field: &str, text: &str) -> Value {
    let number = NUMBERS.contains(&field).then(|| serde_json::from_str(text));
    match number {
        Some(Ok(number)) => Value::Number(number),
        _ => Value::String(text.to_owned()),
    }
}

/// Elements of a text. `None`: the text contains anything else.
fn elements(text: &str) -> Option<Vec<(&str, &str)>> {
    let mut found = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let tag = rest.strip_prefix('<')?;
        let (name, after) = tag.split_once('>')?;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(plain) {
            return None;
        }
        let (inner, after) = split_at_closing_tag(after, name)?;
        found.push((name, inner));
        rest = after.trim_start();
    }
    Some(found)
}

/// Text before and after the closing tag of this name. Elements of the same name may be nested inside.
fn split_at_closing_tag<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut depth = 0;
    let mut at = 0;
    loop {
        let ends = at + text[at..].find(&close)?;
        depth += text[at..ends].matches(&open).count();
        at = ends + close.len();
        if depth == 0 {
            return Some((&text[..ends], &text[at..]));
        }
        depth -= 1;
    }
}
