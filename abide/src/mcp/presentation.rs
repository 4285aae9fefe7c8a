//! Form in which a client gets results. A model pays for every character that its client shows it.

use abide_api::ToolResult;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value};

use super::client_quirks::ClientQuirks;

/// Fields that a client gets which shows a model nothing else: the text, what the text does not say, and ids that later calls need. It also gets
/// `session_id` while the command runs, and `sandboxed_by` if there is a sandbox.
const NEEDED_BY_MODELS: [&str; 4] = ["text", "waiting_for_input", "timer_id", "sandbox_gaps"];

/// Fields that repeat what the text of the same result says. HTTP has them.
const REPEATS_OF_THE_TEXT: [&str; 2] = ["screen", "found"];

/// Fields whose zero is an answer.
const MEANINGFUL_ZEROS: [&str; 4] = ["exit_code", "return_code", "elapsed_time", "remaining_time"];

/// Lists that are the answer of a tool, even if they are empty.
const ANSWERS: [&str; 3] = ["messages", "sessions", "timers"];

/// Form in which a client gets results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presentation {
    /// Text, and the few fields that a model needs.
    ForModels {
        /// The call has named the session, so its id is not repeated.
        names_session: bool,
    },
    /// Text, and all fields but those that say nothing.
    Lean,
}

impl Presentation {
    /// Form for the client of this name. `names_session`: the call has a session id as argument.
    pub fn of(client: &str, names_session: bool) -> Self {
        match ClientQuirks::of(client).shows_fields_only {
            true => Presentation::ForModels { names_session },
            false => Presentation::Lean,
        }
    }

    /// Result for a client.
    pub fn result(self, result: ToolResult) -> CallToolResult {
        let mut fields = without_empty_fields(result.to_fields());
        if let Presentation::ForModels { names_session } = self {
            let status = fields.get("status").and_then(Value::as_str);
            let running = status.is_some_and(|status| status.eq_ignore_ascii_case("running"));
            let needs_id = running && !names_session;
            fields.retain(|name, value| match name.as_str() {
                "session_id" => needs_id,
                "sandboxed_by" => *value != "off",
                name => NEEDED_BY_MODELS.contains(&name),
            });
        }
        let is_error = result.is_error();
        let mut answer = CallToolResult::success(vec![ContentBlock::text(result.text)]);
        answer.is_error = Some(is_error);
        answer.structured_content = Some(Value::Object(fields));
        answer
    }
}

/// Fields without nulls, zeros, empty lists and repeats of the text. Entries of lists lose their nulls only: their schemas
/// require the other fields.
fn without_empty_fields(mut fields: Map<String, Value>) -> Map<String, Value> {
    remove_nulls(&mut fields);
    fields.retain(|name, value| {
        let name = name.as_str();
        match value {
            Value::Number(number) => {
                number.as_f64() != Some(0.0) || MEANINGFUL_ZEROS.contains(&name)
            }
            Value::Array(list) if list.is_empty() => ANSWERS.contains(&name),
            Value::Array(list) => {
                let entries = list.iter_mut().filter_map(Value::as_object_mut);
                entries.for_each(remove_nulls);
                !REPEATS_OF_THE_TEXT.contains(&name)
            }
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Object(_) => true,
        }
    });
    fields
}

/// Removes nulls. An exit code that nobody saw stays `null`.
fn remove_nulls(fields: &mut Map<String, Value>) {
    let lost = fields.get("end").is_some_and(|end| end == "lost");
    fields.retain(|name, value| !value.is_null() || (lost && name == "exit_code"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn presented(fields: Value) -> Value {
        let Value::Object(fields) = fields else {
            panic!("fields are an object");
        };
        Value::Object(without_empty_fields(fields))
    }

    #[test]
    fn fields_that_say_nothing_are_left_out() {
        let full = json!({
            "text": "hi", "exit_code": 0, "signal": null, "bytes_total": 3, "bytes_dropped": 0,
            "still_running": [], "timeout": false, "screen": ["hi"],
            "timers": [{"elapsed_time": 0, "stop_reason": null}],
        });
        let expected = json!({
            "text": "hi", "exit_code": 0, "bytes_total": 3, "timeout": false,
            "timers": [{"elapsed_time": 0}],
        });
        assert_eq!(presented(full), expected);
    }

    #[test]
    fn exit_code_of_a_lost_session_stays_null() {
        let lost = json!({"end": "lost", "exit_code": null});
        assert_eq!(presented(lost.clone()), lost);
        let listed = json!({"sessions": [lost]});
        assert_eq!(presented(listed.clone()), listed);
        let running = json!({"status": "running", "exit_code": null});
        assert_eq!(presented(running), json!({"status": "running"}));
    }

    const FEW: Presentation = Presentation::ForModels {
        names_session: true,
    };

    #[test]
    fn claude_code_and_codex_get_few_fields() {
        for (client, expected) in [
            ("claude-code", FEW),
            ("codex-mcp-client", FEW),
            ("Codex", FEW),
            ("gemini-cli-mcp-client", Presentation::Lean),
            ("", Presentation::Lean),
        ] {
            assert_eq!(Presentation::of(client, true), expected, "{client}");
        }
    }
}
