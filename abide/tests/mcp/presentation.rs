//! Form of results: few fields for clients that show a model the fields instead of the text, lean fields for all others.

use serde_json::{Value, json};

use crate::harness::{Client, Home, LEGACY, Setup, text};

/// Fields for clients that show only the fields to a model.
const NEEDED: [&str; 3] = ["text", "session_id", "waiting_for_input"];

fn client(home: &Home, name: &'static str) -> Client {
    Client::start(home, Setup { name, ..LEGACY })
}

fn tools(client: &mut Client) -> Vec<Value> {
    let id = client.request("tools/list", json!({}));
    let list = client.answer(id)["result"]["tools"].clone();
    list.as_array().expect("a list of tools").clone()
}

#[test]
fn claude_code_and_codex_get_the_text_and_ids_of_what_continues() {
    let home = Home::new();
    for name in ["claude-code", "codex-mcp-client"] {
        let mut client = client(&home, name);
        let result = client.call("execute_command", json!({"command": "echo hi"}));
        let only_text = json!({"text": "hi\n[exited with code 0 after 0s]"});
        assert_eq!(result["structuredContent"], only_text);
        let start = json!({"action": "start", "command": "read line"});
        let started = client.call("terminal_session", start);
        let fields = started["structuredContent"].as_object().expect("fields");
        assert!(
            fields.keys().all(|name| NEEDED.contains(&name.as_str())),
            "{started}"
        );
        assert!(text(&started).contains(fields["session_id"].as_str().expect("an id")));
    }
}

#[test]
fn other_clients_get_fields_without_nulls_zeros_and_empty_lists() {
    let home = Home::new();
    let mut client = client(&home, "some-client");
    assert!(
        tools(&mut client)
            .iter()
            .all(|tool| tool["outputSchema"]["type"] == "object")
    );
    let result = client.call("shell", json!({"command": "echo hi"}));
    let fields = result["structuredContent"].as_object().expect("fields");
    let says_nothing = |value: &Value| value.is_null() || *value == json!([]);
    assert!(!fields.values().any(says_nothing), "{result}");
    assert_eq!(fields["exit_code"], 0);
    assert_eq!(fields.get("bytes_dropped"), None);
    let start = json!({"action": "start", "command": "read line"});
    client.call("terminal_session", start);
    let list = client.call("terminal_session", json!({"action": "list"}));
    let listed = list["structuredContent"]["sessions"][0].as_object();
    let listed = listed.expect("a session");
    assert_eq!(listed["state"], "running", "{list}");
    assert!(!listed.values().any(Value::is_null), "{list}");
    // The schema allows that.
    let schema = tools(&mut client).into_iter();
    let schema = schema.filter(|tool| tool["name"] == "terminal_session");
    let required: Vec<Value> = schema
        .flat_map(|tool| {
            let entry = &tool["outputSchema"]["properties"]["sessions"]["items"];
            entry["required"].as_array().expect("fields").clone()
        })
        .collect();
    assert!(required.contains(&json!("state")), "{required:?}");
    for name in required {
        let name = name.as_str().expect("a name");
        assert!(listed.contains_key(name), "{name}: {list}");
    }
}
