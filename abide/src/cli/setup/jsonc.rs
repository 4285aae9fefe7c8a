//! Edits one member of a JSON text and keeps the rest as it is, including comments and trailing commas, which
//! several clients allow in their settings. An object on one line that gets a member is spread over lines.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstObjectProp, CstRootNode};
use serde_json::Value;

/// JSON with comments and trailing commas, and no other extension.
const SYNTAX: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Parse error with its position, as a phrase that follows the name of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditError(pub String);

type Result<T> = std::result::Result<T, EditError>;

/// Parsed text, and the byte order mark before it.
struct JsonDocument {
    byte_order_mark: &'static str,
    root: CstRootNode,
}

impl JsonDocument {
    fn parse(text: &str) -> Result<Self> {
        let (byte_order_mark, text) = match text.strip_prefix('\u{feff}') {
            Some(text) => ("\u{feff}", text),
            None => ("", text),
        };
        let root = CstRootNode::parse(text, &SYNTAX);
        let root = root.map_err(|fault| {
            EditError(format!("line {}: {}", fault.line_display(), fault.kind()))
        })?;
        Ok(JsonDocument {
            byte_order_mark,
            root,
        })
    }

    fn text(&self) -> String {
        format!("{}{}", self.byte_order_mark, self.root)
    }

    /// Member at `path`, if any.
    fn member(&self, path: &[&str]) -> Option<CstObjectProp> {
        let (last, parents) = path.split_last()?;
        let mut object = self.root.object_value()?;
        for name in parents {
            object = member(&object, name)?.object_value()?;
        }
        member(&object, last)
    }
}

/// Last member of this name, because the last duplicate wins in JSON parsers.
fn member(object: &CstObject, name: &str) -> Option<CstObjectProp> {
    let is_named = |member: &CstObjectProp| member.decoded_name().as_deref() == Some(name);
    object.properties().into_iter().rev().find(is_named)
}

/// Value at `path`, if any.
pub fn get(text: &str, path: &[&str]) -> Result<Option<Value>> {
    let member = JsonDocument::parse(text)?.member(path);
    Ok(member.and_then(|member| member.value()?.to_serde_value()))
}

/// Text with `value` at `path`. Missing objects on the path are created.
pub fn set(text: &str, path: &[&str], value: Value) -> Result<String> {
    set_input(text, path, input(value))
}

/// Text with an object of these fields, in this order, at `path`.
pub fn set_object(text: &str, path: &[&str], fields: Vec<(&str, Value)>) -> Result<String> {
    let fields = fields.into_iter();
    let fields = fields.map(|(name, value)| (name.to_owned(), input(value)));
    set_input(text, path, CstInputValue::Object(fields.collect()))
}

fn set_input(text: &str, path: &[&str], value: CstInputValue) -> Result<String> {
    let document = JsonDocument::parse(text)?;
    let Some((last, parents)) = path.split_last() else {
        return Err(EditError("there is no member to set".into()));
    };
    let object_for = |object: Option<CstObject>, wanted: &str| {
        object.ok_or_else(|| EditError(format!("what should hold \"{wanted}\" is not an object")))
    };
    let mut object = object_for(document.root.object_value_or_create(), path[0])?;
    for (name, wanted) in parents.iter().zip(&path[1..]) {
        let child = match member(&object, name) {
            Some(found) => found.object_value(),
            None => {
                let empty = CstInputValue::Object(Vec::new());
                object.append(name, empty).object_value()
            }
        };
        object = object_for(child, wanted)?;
    }
    match member(&object, last) {
        Some(found) => found.set_value(value),
        None => drop(object.append(last, value)),
    }
    Ok(document.text())
}

/// Text without the member at `path`; unchanged if there is none.
pub fn remove(text: &str, path: &[&str]) -> Result<String> {
    let document = JsonDocument::parse(text)?;
    if let Some(member) = document.member(path) {
        member.remove();
    }
    Ok(document.text())
}

fn input(value: Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text),
        Value::Array(items) => CstInputValue::Array(items.into_iter().map(input).collect()),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, input(value)));
            CstInputValue::Object(fields.collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn added(text: &str) -> String {
        set(text, &["servers", "abide"], json!({"a": [1]})).unwrap()
    }

    #[test]
    fn new_member_has_the_indentation_of_the_file() {
        let two = "{\n  \"x\": 1,\n  \"servers\": {\n    \"y\": {}\n  }\n}\n";
        let wanted = two.replace(
            "\"y\": {}\n",
            "\"y\": {},\n    \"abide\": {\n      \"a\": [1]\n    }\n",
        );
        assert_eq!(added(two), wanted);
        let tabs = "{\r\n\t\"servers\": {},\r\n}";
        assert_eq!(
            added(tabs),
            "{\r\n\t\"servers\": {\r\n\t\t\"abide\": {\r\n\t\t\t\"a\": [1]\r\n\t\t}\r\n\t},\r\n}"
        );
        assert_eq!(
            added("{\"servers\": {\"y\": 1}}"),
            "{\"servers\": {\n    \"y\": 1,\n    \"abide\": {\n      \"a\": [1]\n    }\n  }}"
        );
        assert!(added("").starts_with("{\n  \"servers\": {\n    \"abide\": {"));
    }

    #[test]
    fn comments_are_kept() {
        let text =
            "// mine\n{\n  \"servers\": {\n    \"y\": 1 // keep\n    /* last */\n  } // end\n}";
        let with = added(text);
        assert!(
            with.starts_with("// mine\n{\n  \"servers\": {\n    \"y\": 1, // keep\n    \"abide\"")
        );
        assert_eq!(remove(&with, &["servers", "abide"]).unwrap(), text);
        assert_eq!(
            get(&with, &["servers", "abide", "a"]).unwrap(),
            Some(json!([1]))
        );
    }

    #[test]
    fn removing_an_added_member_restores_the_text() {
        for text in [
            "{\n  \"servers\": {\n    \"y\": 1\n  }\n}\n",
            "{\n  \"servers\": {\n    \"y\": 1,\n  },\n}\n",
            "{\n  \"servers\": {}\n}\n",
            "\u{feff}{\n  \"servers\": {}\n}\n",
        ] {
            let with = added(text);
            assert_eq!(remove(&with, &["servers", "abide"]).unwrap(), text);
            assert_eq!(added(&with), with, "a second time changes nothing");
        }
        let first = "{\"a\": 1, \"b\": 2}";
        assert_eq!(remove(first, &["a"]).unwrap(), "{ \"b\": 2}");
        assert_eq!(remove(first, &["nothing"]).unwrap(), first);
    }

    #[test]
    fn invalid_json_is_refused_with_its_line() {
        for (text, line) in [
            ("{\n\"a\": 1\n\"b\": 2}", "line 2"),
            ("{\"a\": nope}", "line 1"),
            ("{\"a\": \"x}", "line 1"),
            ("{} {}", "line 1"),
            ("/* x", "line 1"),
            ("{\"a\": 1e}", "line 1"),
        ] {
            let EditError(why) = set(text, &["servers", "abide"], json!(1)).unwrap_err();
            assert!(why.contains(line), "{text}: {why}");
        }
        assert!(set("{\"servers\": 3}", &["servers", "abide"], json!(1)).is_err());
        assert!(set("[]", &["servers", "abide"], json!(1)).is_err());
        let deep = "[".repeat(10_000);
        assert!(get(&deep, &[]).is_err());
    }
}
