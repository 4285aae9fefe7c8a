//! OpenAPI document as an HTML page. The page is rendered here, so that the browser needs no script and
//! no further request.

use std::fmt::Write as _;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::openapi::OpenApiDocument;

const STYLE: &str = "\
:root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}\
body{max-width:60rem;margin:0 auto;padding:1rem}\
code,pre{font-family:ui-monospace,monospace;font-size:.9em}\
section{border-top:1px solid #8884;padding:.5rem 0}\
h2{margin:2rem 0 .5rem}h3{margin:.5rem 0;font-size:1rem}\
h3 b{display:inline-block;min-width:4rem;text-transform:uppercase}\
table{border-collapse:collapse;width:100%;margin:.5rem 0}\
td,th{text-align:left;vertical-align:top;padding:.15rem .75rem .15rem 0;border-top:1px solid #8882}\
td{overflow-wrap:anywhere}td:first-child{min-width:6rem}td:nth-child(-n+3){overflow-wrap:break-word}\
nav{line-height:2}\
a{color:inherit}nav a{margin-right:1rem}";

/// Groups of routes that most programs use. They come first, in this order, the others after them by name.
const FIRST: [&str; 6] = [
    "tools",
    "sessions",
    "timers",
    "questions",
    "messages",
    "events",
];

/// Renders the page, with a content security policy that allows only its own style sheet.
pub fn page(document: &OpenApiDocument) -> Response {
    let html = html(document);
    let digest = STANDARD.encode(Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    let mut response = html.into_response();
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

fn html(document: &Value) -> String {
    let mut out = String::new();
    let info = &document["info"];
    let title = format!("{} {}", text(&info["title"]), text(&info["version"]));
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title}: HTTP</title><style>{STYLE}</style><body><main><h1>{title}: HTTP</h1><p>{}</p>\
         <p>For programs: <a href=\"/v1/openapi.json\">openapi.json</a> (OpenAPI 3.1).</p>",
        inline_code(text(&info["description"])),
    );
    let operations = operations(document);
    let mut tags: Vec<&str> = operations
        .iter()
        .map(|(_, _, op)| text(&op["tags"][0]))
        .collect();
    let place = |tag: &str| FIRST.iter().position(|first| *first == tag);
    tags.sort_unstable_by_key(|tag| (place(tag).unwrap_or(FIRST.len()), *tag));
    tags.dedup();
    out.push_str("<nav>");
    for tag in &tags {
        let _ = write!(out, "<a href=\"#{tag}\">{tag}</a> ");
    }
    out.push_str("<a href=\"#schemas\">schemas</a></nav>");
    for tag in tags {
        let _ = write!(out, "<h2 id=\"{tag}\">{tag}</h2>");
        for (path, method, op) in operations.iter().filter(|(_, _, op)| op["tags"][0] == tag) {
            operation(&mut out, path, method, op);
        }
    }
    out.push_str("<h2 id=\"schemas\">Schemas</h2>");
    for (name, shape) in members(&document["components"]["schemas"]) {
        let about = inline_code(text(&shape["description"]));
        let _ = write!(
            out,
            "<section id=\"schema-{name}\"><h3>{name}</h3><p>{about}</p>"
        );
        fields(&mut out, shape);
        out.push_str("</section>");
    }
    out.push_str("</main></body></html>");
    out
}

fn members(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object.as_object().into_iter().flatten()
}

fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
    members(&document["paths"])
        .flat_map(|(path, item)| {
            members(item).map(move |(method, op)| (path.as_str(), method.as_str(), op))
        })
        .collect()
}

fn operation(out: &mut String, path: &str, method: &str, op: &Value) {
    let (path, summary) = (escape_html(path), inline_code(text(&op["summary"])));
    let _ = write!(
        out,
        "<section><h3><b>{method}</b> <code>{path}</code></h3><p>{summary}</p>"
    );
    if let Some(about) = op["description"].as_str() {
        let _ = write!(out, "<p>{}</p>", inline_code(about));
    }
    if let Some(parameters) = op["parameters"].as_array() {
        out.push_str("<table>");
        for parameter in parameters {
            let is_required = parameter["required"] == true;
            let (name, about) = (text(&parameter["name"]), &parameter["description"]);
            row(out, name, &parameter["schema"], is_required, about);
        }
        out.push_str("</table>");
    }
    for (kind, body) in members(&op["requestBody"]["content"]) {
        let (kind, shape) = (escape_html(kind), schema_link(&body["schema"]));
        let _ = write!(out, "<p>Takes <code>{kind}</code>: {shape}</p>");
        fields(out, &body["schema"]);
    }
    for (status, response) in members(&op["responses"]) {
        for (kind, body) in members(&response["content"]) {
            let (kind, shape) = (escape_html(kind), schema_link(&body["schema"]));
            let _ = write!(out, "<p>{status}: <code>{kind}</code> {shape}</p>");
        }
    }
    out.push_str("</section>");
}

/// Table of the fields of an object schema.
fn fields(out: &mut String, shape: &Value) {
    let Some(properties) = shape["properties"].as_object() else {
        return;
    };
    let required = shape["required"].as_array().cloned().unwrap_or_default();
    out.push_str("<table>");
    for (name, field) in properties {
        let is_required = required.contains(&Value::String(name.clone()));
        row(out, name, field, is_required, &field["description"]);
    }
    out.push_str("</table>");
}

fn row(out: &mut String, name: &str, shape: &Value, is_required: bool, about: &Value) {
    let (name, kind, about) = (
        escape_html(name),
        type_name(shape),
        inline_code(text(about)),
    );
    let needed = if is_required { "required" } else { "" };
    let _ = write!(
        out,
        "<tr><td><code>{name}</code><td>{kind}<td>{needed}<td>{about}"
    );
}

/// Link to a named schema.
fn schema_link(shape: &Value) -> String {
    let name = shape["$ref"]
        .as_str()
        .and_then(|path| path.rsplit('/').next());
    name.map_or_else(String::new, |name| {
        format!("<a href=\"#schema-{name}\">{name}</a>")
    })
}

/// Short description of a schema's type.
fn type_name(shape: &Value) -> String {
    if shape.get("$ref").is_some() {
        return schema_link(shape);
    }
    if let Some(parts) = shape["anyOf"]
        .as_array()
        .or_else(|| shape["oneOf"].as_array())
    {
        let parts: Vec<String> = parts.iter().map(type_name).collect();
        return parts.join(" or ");
    }
    if let Some(word) = shape.get("const") {
        return escape_html(&word.to_string());
    }
    if let Some(words) = shape["enum"].as_array() {
        let words: Vec<String> = words
            .iter()
            .map(|word| escape_html(&word.to_string()))
            .collect();
        return words.join(" or ");
    }
    match &shape["type"] {
        Value::String(word) if word == "array" => format!("list of {}", type_name(&shape["items"])),
        Value::String(word) => escape_html(word),
        Value::Array(words) => {
            let words: Vec<&str> = words.iter().map(text).collect();
            escape_html(&words.join(" or "))
        }
        _ => String::new(),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Text with HTML special characters escaped.
fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Escaped text in which words between backticks become `<code>` elements.
fn inline_code(text: &str) -> String {
    let text = escape_html(text);
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return text;
    }
    let spelled = parts.iter().enumerate().map(|(at, part)| match at % 2 {
        0 => (*part).to_owned(),
        _ => format!("<code>{part}</code>"),
    });
    spelled.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn html_in_the_document_is_escaped() {
        let hostile = "<script>\"&";
        let document = json!({
            "info": {"title": "t", "version": "1", "description": hostile},
            "paths": {"/x": {"get": {"tags": ["x"], "summary": hostile, "parameters": [
                {"name": hostile, "schema": {"enum": [hostile]}, "description": hostile},
            ]}}},
        });
        let page = html(&document);
        assert!(!page.contains("<script"), "{page}");
        assert!(page.contains("&lt;script&gt;&quot;&amp;"), "{page}");
    }

    #[test]
    fn text_between_backticks_becomes_code() {
        assert_eq!(
            inline_code("a `b<` c `d`"),
            "a <code>b&lt;</code> c <code>d</code>"
        );
        assert_eq!(inline_code("a ` alone"), "a ` alone");
    }
}
