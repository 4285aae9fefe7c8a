//! The page's types, derived from the public types. `make reference` writes `web/src/api.gen.ts`; without
//! `ABIDE_WRITE_TYPES` this test fails if the file is out of date.

use std::fmt::Write as _;
use std::path::Path;

use abide_api::{
    AuditPage, AuditVerified, FleetMachines, Hello, LogLines, LogMatches, MatchPage, Message,
    PolicyRules, PolicyTested, QuestionDetails, RefusalPage, Session, SessionPulse, SessionStats,
    TimerDetails, TimerStats,
};
use serde_json::{Map, Value};

const HEAD: &str = "\
// Types of what the daemon sends, generated from crates/api by `make reference`. Do not edit.
// Times are Unix milliseconds, durations seconds.
";

#[test]
fn types_of_the_page_are_those_of_the_daemon() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/src/api.gen.ts");
    let wanted = generated();
    if std::env::var_os("ABIDE_WRITE_TYPES").is_some() {
        std::fs::write(&path, &wanted).expect("the file is written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "web/src/api.gen.ts is out of date; `make reference` writes it again"
    );
}

fn generated() -> String {
    let mut generator = abide_api::schema::answers().into_generator();
    generator.subschema_for::<Session>();
    generator.subschema_for::<SessionPulse>();
    generator.subschema_for::<SessionStats>();
    generator.subschema_for::<TimerDetails>();
    generator.subschema_for::<TimerStats>();
    generator.subschema_for::<QuestionDetails>();
    generator.subschema_for::<Message>();
    generator.subschema_for::<MatchPage>();
    generator.subschema_for::<LogLines>();
    generator.subschema_for::<LogMatches>();
    generator.subschema_for::<Hello>();
    generator.subschema_for::<PolicyRules>();
    generator.subschema_for::<PolicyTested>();
    generator.subschema_for::<AuditPage>();
    generator.subschema_for::<AuditVerified>();
    generator.subschema_for::<RefusalPage>();
    generator.subschema_for::<FleetMachines>();
    let mut text = HEAD.to_owned();
    for (name, schema) in generator.take_definitions(true) {
        let about = schema["description"].as_str().unwrap_or_default();
        let _ = write!(text, "\n/** {about} */\nexport interface {name} {{\n");
        fields(&schema, &mut text);
        text.push_str("}\n");
    }
    text
}

fn fields(schema: &Value, text: &mut String) {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(about) = field["description"].as_str() {
            let _ = writeln!(text, "  /** {about} */");
        }
        let missing = match required.iter().any(|known| known == name) {
            true => "",
            false => "?",
        };
        let _ = writeln!(text, "  {name}{missing}: {};", kind(field));
    }
}

/// A schema as a TypeScript type.
fn kind(schema: &Value) -> String {
    if let Some(path) = schema["$ref"].as_str() {
        return path.rsplit('/').next().unwrap_or_default().to_owned();
    }
    if let Some(forms) = schema["anyOf"].as_array() {
        return union(forms.iter().map(kind));
    }
    if let Some(words) = schema["enum"].as_array() {
        return union(words.iter().map(|word| match word {
            Value::String(word) => format!("'{word}'"),
            other => other.to_string(),
        }));
    }
    match &schema["type"] {
        Value::Array(kinds) => union(kinds.iter().map(|kind| one(kind, schema))),
        kind => one(kind, schema),
    }
}

fn one(kind_name: &Value, schema: &Value) -> String {
    match kind_name.as_str() {
        Some("integer" | "number") => "number".into(),
        Some("array") => match kind(&schema["items"]) {
            items if items.contains(' ') => format!("({items})[]"),
            items => format!("{items}[]"),
        },
        Some("object") => match schema.get("additionalProperties") {
            Some(Value::Object(values)) => {
                format!(
                    "Record<string, {}>",
                    kind(&Value::Object(Map::clone(values)))
                )
            }
            _ => "Record<string, unknown>".into(),
        },
        Some(plain) => plain.to_owned(),
        None => "unknown".into(),
    }
}

fn union(kinds: impl Iterator<Item = String>) -> String {
    kinds.collect::<Vec<_>>().join(" | ")
}
