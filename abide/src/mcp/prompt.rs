//! The one MCP prompt: run a command, wait for its end, and report the result.

use rmcp::ErrorData;
use rmcp::model::{
    GetPromptRequestParams, GetPromptResult, Prompt, PromptArgument, PromptMessage, Role,
};
use serde_json::Value;

const NAME: &str = "see_it_through";

/// Server instructions: a short guide for agents to the tools.
pub const INSTRUCTIONS: &str = "\
Prefer abide to a built-in shell for commands that may take long, go quiet, need a terminal or must outlive the call.
- Ends in seconds: shell. Unknown duration: execute_command. REPL, server, ssh, editor: terminal_session.
- Wait for a port, URL, file, session or command: timer with `until`. Something to do later: timer with `mission`.
- Never poll and never `sleep`: one call waits. `running` means that the command continues: call the tool again with its session_id, not \
with the command.
- All output is kept: search it instead of running a command again.";

/// All prompts.
pub fn list() -> Vec<Prompt> {
    let command = PromptArgument::new("command")
        .with_description("The command line to run.")
        .with_required(true);
    let goal = PromptArgument::new("goal")
        .with_description("What it should achieve; it is checked at the end.")
        .with_required(false);
    let description = "Run a command that may take long, wait for its end without polling, and \
        report how it went.";
    vec![
        Prompt::new(NAME, Some(description), Some(vec![command, goal]))
            .with_title("Run it and see it through"),
    ]
}

/// Prompt with its arguments filled in.
pub fn get(request: &GetPromptRequestParams) -> Result<GetPromptResult, ErrorData> {
    if request.name != NAME {
        let sentence = format!("there is no prompt '{}'; there is {NAME}", request.name);
        return Err(ErrorData::invalid_params(sentence, None));
    }
    let argument = |name: &str| {
        let given = request.arguments.as_ref()?.get(name)?;
        given
            .as_str()
            .map(str::trim)
            .filter(|text| !text.is_empty())
    };
    let Some(command) = argument("command") else {
        let given = request
            .arguments
            .as_ref()
            .and_then(|all| all.get("command"));
        let given = given.map_or_else(|| "nothing".into(), Value::to_string);
        let sentence = format!("`command` is required and must be text; got {given}.");
        return Err(ErrorData::invalid_params(sentence, None));
    };
    let mut text = format!(
        "Run this command with execute_command:\n\n{command}\n\n\
         If the result says `running`, the command goes on in its session: wait for it under its \
         session_id, and do not start it again. When it has ended, say in a few lines how it ended \
         (exit code, duration) and quote the lines of its output that matter."
    );
    if let Some(goal) = argument("goal") {
        text.push_str(&format!(
            "\nThen check whether this was achieved, and say so plainly: {goal}"
        ));
    }
    let message = PromptMessage::new_text(Role::User, text);
    Ok(GetPromptResult::new(vec![message]).with_description("Run a command and see it through"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn prompt_text(arguments: Value) -> Result<String, ErrorData> {
        let mut request = GetPromptRequestParams::new(NAME);
        request.arguments = arguments.as_object().cloned();
        let result = get(&request)?;
        Ok(serde_json::to_string(&result).unwrap_or_default())
    }

    #[test]
    fn prompt_contains_the_given_arguments() {
        let text = prompt_text(json!({"command": "make all", "goal": "it builds"})).unwrap();
        assert!(
            text.contains("make all") && text.contains("it builds"),
            "{text}"
        );
        assert_eq!(
            prompt_text(json!({"command": 5})).unwrap_err().message,
            "`command` is required and must be text; got 5."
        );
        assert_eq!(
            prompt_text(json!({})).unwrap_err().message,
            "`command` is required and must be text; got nothing."
        );
        assert!(get(&GetPromptRequestParams::new("other")).is_err());
    }
}
