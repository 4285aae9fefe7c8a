//! `abide tools`: descriptions of the tools in the format of each kind of client.

use abide_api::ToolName;
use serde_json::{Value, json};

use super::args::ToolFormat;
use super::{reference, show};
use crate::mcp;
use crate::tools::{ToolDescription, add_machine_argument, all, name_shell};
use abide_engine::config::{Config, Paths};

/// Prints what a model is offered with the configuration of this machine, or, as Markdown, everything that there is.
pub fn print(format: ToolFormat) {
    // A configuration that cannot be read names no shell and no sandbox.
    let paths = Paths::from_env();
    let config = paths
        .as_ref()
        .ok()
        .and_then(|paths| Config::load(&paths.config).ok());
    if let Some(config) = &config {
        name_shell(&config.shell);
    }
    let has_store = config.as_ref().is_some_and(|config| config.store.is_some());
    let offer = Offer {
        has_sandbox: config.is_some_and(|config| config.sandbox.is_used()),
        in_fleet: has_store && paths.is_ok_and(|paths| paths.fleet_secret().exists()),
    };
    match format {
        ToolFormat::Mcp => {
            let tools = mcp::tool_list(offer.has_sandbox, offer.in_fleet);
            show::json(&json!({"tools": tools}));
        }
        ToolFormat::Openai => show::json(&each(|tool| openai(tool, offer))),
        ToolFormat::Anthropic => show::json(&each(|tool| anthropic(tool, offer))),
        ToolFormat::Xml => show::outln!("{}", xml(offer).trim_end()),
        ToolFormat::Markdown => show::outln!("{}", reference::tools(all()).trim_end()),
    }
}

/// Parts of this machine that tools have arguments about.
#[derive(Clone, Copy)]
struct Offer {
    has_sandbox: bool,
    in_fleet: bool,
}

impl Offer {
    /// Schema of the arguments of a tool.
    fn input(self, tool: &ToolDescription) -> Value {
        let mut input = tool.input_for_models(self.has_sandbox);
        if let Some(input) = input.as_object_mut().filter(|_| self.in_fleet) {
            add_machine_argument(tool.name, input);
        }
        input
    }
}

fn each(describe: impl Fn(&ToolDescription) -> Value) -> Value {
    all().iter().map(describe).collect()
}

fn openai(tool: &ToolDescription, offer: Offer) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": tool.name.as_str(),
            "description": tool.description(),
            "parameters": offer.input(tool),
        },
    })
}

fn anthropic(tool: &ToolDescription, offer: Offer) -> Value {
    json!({
        "name": tool.name.as_str(),
        "description": tool.description(),
        "input_schema": offer.input(tool),
    })
}

/// Description of a field as an element, where that of the schema is about JSON or missing.
fn about_element(tool: ToolName, field: &str) -> Option<&'static str> {
    match (tool, field) {
        (ToolName::Command(_), "command") => Some("Required, unless session_id is given."),
        (ToolName::TerminalSession, "command") => Some("start: required."),
        (ToolName::TerminalSession, "input") => Some(
            "send_input: text to type. A line break just before </input> is Enter; so is <keys>enter</keys>.",
        ),
        _ => None,
    }
}

/// Prompt text that lists the tools and explains how to call them.
fn xml(offer: Offer) -> String {
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
        let schema = offer.input(tool);
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
            text.push_str(&format!("- {name} ({kind}{need})"));
            let about = about_element(tool.name, name).or(field["description"].as_str());
            if let Some(about) = about {
                text.push_str(&format!(": {about}"));
            }
            if !field["default"].is_null() {
                text.push_str(&format!(" Default: {}.", field["default"]));
            }
            text.push('\n');
        }
    }
    text
}
