//! Reference pages of the guide: the tools from their schemas, the commands from their help. They are
//! generated, so that they cannot become outdated.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::tools::{ToolDescription, ToolEffect, add_machine_argument};

const TOOLS_HEAD: &str = "# The tools

<!-- Made by `make reference` out of the tools' schemas. Do not edit it by hand. -->

This is what a model is told about each tool, and what each result holds. It is the same over MCP, over HTTP
(`POST /v1/tools/NAME` with the fields as a JSON object), in Rust and in [text blocks](../start/text.md).

*Fields* are what a call may give. *Facts* are what a result holds besides its text; a fact that does not concern a
result is left out of it; [what a result says](results.md) explains them. Times are in seconds; stamps (`…_at`,
`pause_until`) are Unix milliseconds.
";

const COMMANDS_HEAD: &str = "# The command line

<!-- Made by `make reference` out of the commands' help. Do not edit it by hand. -->

Every command prints the same with `--help`. `abide completions` makes completions for your shell, `abide man` writes
manual pages.
";

/// Shell that runs commands, in a description that holds on every machine.
const SHELL: &str = "bash, or in sh where bash is not installed";

/// Page about the tools.
pub fn tools(all: &[ToolDescription]) -> String {
    let mut page = String::from(TOOLS_HEAD);
    for tool in all {
        let _ = write!(
            page,
            "\n## {}\n\n{}\n\n{}\n\n### Fields of {}\n\n",
            tool.name,
            safe(&tool.template.replace("{shell}", SHELL)),
            effect_sentence(tool),
            tool.name
        );
        let mut input = (tool.input)();
        if let Some(input) = input.as_object_mut() {
            add_machine_argument(tool.name, input);
        }
        fields(&mut page, &input);
        let _ = write!(page, "\n### Facts of {}\n\n", tool.name);
        facts(&mut page, &(tool.output)());
    }
    page
}

/// Sentence about what a tool may change, for the page.
fn effect_sentence(tool: &ToolDescription) -> String {
    let acts = match tool.effect {
        ToolEffect::Reads => "only looks",
        ToolEffect::Changes => "changes things but destroys nothing",
        ToolEffect::Ends => "may change or end things",
        ToolEffect::Runs => {
            "may run commands, which can change or end things and reach beyond this machine"
        }
    };
    format!("For clients that ask before a call: it {acts}.")
}

fn properties(schema: &Value) -> Map<String, Value> {
    let known = schema["properties"].as_object();
    known.cloned().unwrap_or_default()
}

fn fields(page: &mut String, schema: &Value) {
    page.push_str("| field | type | default | meaning |\n| --- | --- | --- | --- |\n");
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let needed = |name: &str| required.iter().any(|known| *known == *name);
    let mut all: Vec<(String, Value)> = properties(schema).into_iter().collect();
    all.sort_by_key(|(name, _)| !needed(name));
    for (name, field) in all {
        let default = match &field["default"] {
            _ if needed(&name) => "required".to_owned(),
            Value::Null => String::new(),
            default => format!("`{default}`"),
        };
        let about = safe(field["description"].as_str().unwrap_or_default());
        let _ = writeln!(
            page,
            "| `{name}` | {} | {default} | {about} |",
            kind(&field)
        );
    }
}

fn facts(page: &mut String, schema: &Value) {
    page.push_str("| fact | type | meaning |\n| --- | --- | --- |\n");
    for (name, fact) in properties(schema) {
        let mut about = safe(fact["description"].as_str().unwrap_or_default());
        let parts = properties(&fact["items"]);
        if !parts.is_empty() {
            let names: Vec<String> = parts.keys().map(|part| format!("`{part}`")).collect();
            let _ = write!(about, " Each with {}.", names.join(", "));
        }
        let _ = writeln!(page, "| `{name}` | {} | {} |", kind(&fact), about.trim());
    }
}

/// Type of a value, with its allowed values or bounds.
fn kind(field: &Value) -> String {
    let mut kind = match &field["type"] {
        Value::String(one) => one.clone(),
        Value::Array(several) => {
            let names: Vec<&str> = several.iter().filter_map(Value::as_str).collect();
            names.join(" or ")
        }
        _ => "any".to_owned(),
    };
    if let Some(items) = field["items"]["type"].as_str() {
        let _ = write!(kind, " of {items}s");
    }
    if let Some(values) = field["enum"].as_array() {
        let words: Vec<String> = values
            .iter()
            .filter_map(Value::as_str)
            .map(|word| format!("`{word}`"))
            .collect();
        let _ = write!(kind, ": {}", words.join(", "));
    }
    for (bound, words) in [
        ("minimum", "at least"),
        ("exclusiveMinimum", "more than"),
        ("maximum", "at most"),
    ] {
        if let Some(number) = field.get(bound) {
            let _ = write!(kind, ", {words} {number}");
        }
    }
    kind
}

/// Text escaped for a Markdown table cell, and for HTML outside of code.
fn safe(text: &str) -> String {
    let bars = text.replace('|', "\\|");
    let parts = bars.split('`').enumerate().map(|(number, part)| {
        if number % 2 == 0 {
            part.replace('<', "&lt;")
        } else {
            part.to_owned()
        }
    });
    parts.collect::<Vec<_>>().join("`")
}

/// Page about the commands.
pub fn commands(mut root: clap::Command) -> String {
    root.build();
    let mut page = String::from(COMMANDS_HEAD);
    command(&mut page, &mut root, "abide", 2);
    page
}

fn command(page: &mut String, here: &mut clap::Command, name: &str, depth: usize) {
    let help = here.render_long_help().to_string();
    let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    let marks = "#".repeat(depth);
    let _ = write!(
        page,
        "\n{marks} {name}\n\n```text\n{}\n```\n",
        lines.join("\n")
    );
    for below in here
        .get_subcommands_mut()
        .filter(|below| !below.is_hide_set())
    {
        let name = format!("{name} {}", below.get_name());
        command(page, below, &name, (depth + 1).min(3));
    }
}
