//! `abide call`: runs the tool calls in a model's text, in order, and prints their results.

use std::io::Read;
use std::path::Path;

use abide_output::sanitizer::Sanitizer;
use serde_json::{Value, json};

use super::args::CallArgs;
use super::client::{Client, ClientError, ToolResult};
use super::error::CliError;
use super::show;
use super::show::errln;
use crate::xml;

/// Longest text that is read, in bytes.
const TEXT_LIMIT: u64 = 16 << 20;

pub async fn call(client: Client, call: CallArgs) -> Result<u8, CliError> {
    let file = call.file.as_deref().filter(|path| *path != Path::new("-"));
    let text = read_text(file)?;
    let parsed = xml::parse(&text).map_err(|fault| CliError::new(fault.to_string()).code(2))?;
    let blocks = parsed.blocks;
    if blocks.is_empty() {
        return Err(
            CliError::new("the text contains no <tool name=\"…\"> block")
                .next("`abide tools --format xml` prints how to write one")
                .code(2),
        );
    }
    let mut code = 0;
    for foreign in parsed.foreign {
        code = 1;
        errln!("abide: not run: {}", foreign.error);
        if call.json.json {
            let result = ToolResult::refused(foreign.error.sentence);
            show::json(
                &json!({"tool": foreign.tool, "line": foreign.error.line, "result": result}),
            );
        }
    }
    for block in blocks {
        let path = format!("/v1/tools/{}", block.tool);
        let arguments = Value::Object(block.arguments);
        let result = match client.post_retrying(&path, &arguments).await {
            Ok(result) => result,
            // A refused call is a result too, for the model that wrote it.
            Err(ClientError::Refused { detail, .. }) => ToolResult::refused(detail),
            Err(other) => return Err(other.into()),
        };
        if result.is_error {
            code = 1;
        }
        if call.json.json {
            show::json(&json!({"tool": block.tool, "line": block.line, "result": result}));
        } else {
            // A model wrote the call, and the result may repeat it: remove control sequences for a terminal.
            let text = match super::stdout_is_terminal() {
                true => Sanitizer::default().clean(result.text.as_bytes()),
                false => result.text,
            };
            let tool = block.tool;
            let out = format!("<tool_result name=\"{tool}\">\n{text}\n</tool_result>\n");
            super::print(out.as_bytes())?;
        }
    }
    Ok(code)
}

/// Text of a file; without one, of standard input.
fn read_text(file: Option<&Path>) -> Result<String, CliError> {
    let mut text = String::new();
    let read = match file {
        Some(path) => std::fs::File::open(path)
            .and_then(|file| file.take(TEXT_LIMIT).read_to_string(&mut text)),
        None => std::io::stdin().take(TEXT_LIMIT).read_to_string(&mut text),
    };
    match read {
        Ok(_) => Ok(text),
        Err(fault) => {
            let named = file.map_or("standard input".into(), Path::to_string_lossy);
            Err(CliError::new(format!("cannot read {named}: {fault}")).code(2))
        }
    }
}
