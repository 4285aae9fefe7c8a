//! `abide tools`: descriptions of the tools in the format of each kind of client.

use serde_json::{Value, json};

use super::args::ToolFormat;
use super::{reference, show};
use crate::mcp;
use crate::tools::{ToolDescription, all, name_shell};
use abide_engine::config::{Config, Paths};

/// Prints what a model is offered with the configuration of this machine, or, as Markdown, everything that there is.
pub fn print(format: ToolFormat) {
    // A configuration that cannot be read names no shell and no sandbox.
    let config = Paths::from_env().and_then(|paths| Config::load(&paths.config));
    if let Ok(config) = &config {
        name_shell(&config.shell);
    }
    let has_sandbox = config.is_ok_and(|config| config.sandbox.is_used());
    match format {
        ToolFormat::Mcp => show::json(&json!({"tools": mcp::tool_list(has_sandbox)})),
        ToolFormat::Openai => show::json(&each(|tool| openai(tool, has_sandbox))),
        ToolFormat::Anthropic => show::json(&each(|tool| anthropic(tool, has_sandbox))),
        ToolFormat::Xml => show::outln!("{}", xml(has_sandbox).trim_end()),
        ToolFormat::Markdown => show::outln!("{}", reference::tools(all()).trim_end()),
    }
}

fn each(describe: impl Fn(&ToolDescription) -> Value) -> Value {
    all().iter().map(describe).collect()
}

fn openai(tool: &ToolDescription, has_sandbox: bool) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description(),
            "parameters": tool.input_for_models(has_sandbox),
        },
    })
}

fn anthropic(tool: &ToolDescription, has_sandbox: bool) -> Value {
    json!({
        "name": tool.name,
        "description": tool.description(),
        "input_schema": tool.input_for_models(has_sandbox),
    })
}

/// Prompt text that lists the tools and explains how to call them.
fn xml(has_sandbox: bool) -> String {
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
        let schema = tool.input_for_models(has_sandbox);
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
