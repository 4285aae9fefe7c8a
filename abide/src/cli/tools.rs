//! `abide tools`: descriptions of the tools in the format of each kind of client.

use serde_json::{Value, json};

use super::args::ToolFormat;
use super::{reference, show};
use crate::tools::{ToolDescription, all, name_shell};
use abide_engine::config::{Config, Paths};

pub fn print(format: ToolFormat) {
    // A configuration that cannot be read names no shell.
    let config = Paths::from_env().and_then(|paths| Config::load(&paths.config));
    if let Ok(config) = config {
        name_shell(&config.shell);
    }
    match format {
        ToolFormat::Mcp => show::json(&json!({"tools": each(mcp)})),
        ToolFormat::Openai => show::json(&each(openai)),
        ToolFormat::Anthropic => show::json(&each(anthropic)),
        ToolFormat::Xml => show::outln!("{}", xml().trim_end()),
        ToolFormat::Markdown => show::outln!("{}", reference::tools(all()).trim_end()),
    }
}

fn each(describe: fn(&ToolDescription) -> Value) -> Value {
    all().iter().map(describe).collect()
}

fn mcp(tool: &ToolDescription) -> Value {
    json!({
        "name": tool.name,
        "title": tool.title,
        "description": tool.description(),
        "inputSchema": (tool.input)(),
        "outputSchema": abide_api::schema::without_descriptions((tool.output)()),
        "annotations": {
            "title": tool.title,
            "readOnlyHint": tool.effect.read_only(),
            "destructiveHint": tool.effect.destructive(),
            "idempotentHint": tool.effect.idempotent(),
            "openWorldHint": tool.effect.open_world(),
        },
    })
}

fn openai(tool: &ToolDescription) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description(),
            "parameters": (tool.input)(),
        },
    })
}

fn anthropic(tool: &ToolDescription) -> Value {
    json!({
        "name": tool.name,
        "description": tool.description(),
        "input_schema": (tool.input)(),
    })
}

/// Prompt text that lists the tools and explains how to call them.
fn xml() -> String {
    let mut text = String::from(
        "You have tools. To use one, write a block of this form, with one element for each field:\n\n\
         <tool name=\"shell\">\n  <command>ls -l</command>\n  <timeout>10</timeout>\n</tool>\n\n\
         Several blocks are run in order. Leave out fields that you do not need. Write <, > and & \
         within a field as &lt;, &gt; and &amp;, and objects and lists as JSON.\n",
    );
    for tool in all() {
        text.push_str(&format!(
            "\n## {}\n\n{}\n\nFields:\n",
            tool.name,
            tool.description()
        ));
        let schema = (tool.input)();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let Some(fields) = schema["properties"].as_object() else {
            continue;
        };
        for (name, field) in fields {
            let kind = field["type"].as_str().unwrap_or("any");
            let need = if required.iter().any(|known| known == name) {
                ", required"
            } else {
                ""
            };
            let about = field["description"].as_str().unwrap_or_default();
            let default = match &field["default"] {
                Value::Null => String::new(),
                default => format!(" Default: {default}."),
            };
            text.push_str(&format!("- {name} ({kind}{need}): {about}{default}\n"));
        }
    }
    text
}
