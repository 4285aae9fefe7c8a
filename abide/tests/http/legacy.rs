//! MCP over HTTP in the generation of 2025-11-25: a handshake, then sessions.

use serde_json::{Value, json};

use crate::harness::{Abide, Answer, feed};

const ACCEPT: &str = "accept: application/json, text/event-stream\r\n";

/// A client after its handshake.
struct Client<'a> {
    abide: &'a Abide,
    headers: String,
}

impl<'a> Client<'a> {
    fn new(abide: &'a Abide, capabilities: Value) -> Self {
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "by-hand", "version": "1"},
        }});
        let mut answer = abide.open("POST /mcp", ACCEPT, &hello.to_string());
        assert_eq!(answer.status, 200);
        let session = answer
            .header("mcp-session-id")
            .expect("a session")
            .to_owned();
        let info = answer.event();
        assert_eq!(info["result"]["serverInfo"]["name"], "abide", "{info}");
        assert_eq!(info["result"]["protocolVersion"], "2025-11-25", "{info}");
        let client = Client {
            abide,
            headers: format!(
                "{ACCEPT}mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n"
            ),
        };
        client.tell(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn tell(&self, message: &Value) {
        let (status, answer) = self.abide.ask("POST /mcp", &self.headers, message);
        assert_eq!(status, 202, "{answer}");
    }

    fn call(&self, id: u32, tool: &str, arguments: &Value) -> Answer {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
            "name": tool, "arguments": arguments,
        }});
        let answer = self
            .abide
            .open("POST /mcp", &self.headers, &call.to_string());
        assert_eq!(answer.status, 200);
        answer
    }
}

#[test]
fn a_tool_is_called() {
    let abide = Abide::new();
    let client = Client::new(&abide, json!({}));
    let mut answer = client.call(1, "shell", &json!({"command": "echo hello"}));
    let result = answer.event();
    assert_eq!(result["id"], 1, "{result}");
    let facts = &result["result"]["structuredContent"];
    assert_eq!(facts["status"], "SUCCESS", "{result}");
    assert!(!answer.rest().contains("data:"), "nothing follows");
    let ended = abide.ask("DELETE /mcp", &client.headers, &Value::Null);
    assert_eq!(ended.0, 202, "{ended:?}");
    let gone = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    assert_eq!(abide.ask("POST /mcp", &client.headers, &gone).0, 404);
}

#[test]
fn a_person_is_asked_within_the_call() {
    let abide = Abide::new();
    let client = Client::new(&abide, json!({"elicitation": {}}));
    let call = json!({"command": "sleep 1000", "timeout": 1});
    let mut answer = client.call(1, "execute_command", &call);
    let question = answer.event();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let message = question["params"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("Command has been idle for 1s. Continue waiting?"),
        "{message}"
    );
    client.tell(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}));
    let result = answer.event();
    assert_eq!(
        result["result"]["structuredContent"]["end"], "idle_declined",
        "{result}"
    );
}

#[test]
fn a_cancelled_call_ends_its_command_and_a_time_limit_does_not() {
    let abide = Abide::new();
    let client = Client::new(&abide, json!({}));
    let cancelled = |id: u32, reason: &str| {
        client.tell(
            &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {
                "requestId": id, "reason": reason,
            }}),
        );
    };
    let fifo = abide.fifo("go");
    let call = json!({"command": format!("echo begun > {0}; cat {0}", fifo.display())});
    let begun = || assert_eq!(std::fs::read_to_string(&fifo).unwrap(), "begun\n");

    let answer = client.call(1, "execute_command", &call);
    begun();
    cancelled(1, "Request timed out");
    answer.rest();
    let running = abide.running();
    assert_eq!(running.len(), 1, "it goes on");
    feed(&fifo, "");
    // While it still reads, it would hear what the next one says.
    abide.ended(running[0]["session_id"].as_str().unwrap());

    let answer = client.call(2, "execute_command", &call);
    begun();
    let running = abide.running();
    cancelled(2, "the user pressed Escape");
    answer.rest();
    let ended = abide.ended(running[0]["session_id"].as_str().unwrap());
    assert_eq!(ended["end"], "user", "{ended}");
}

#[test]
fn a_connection_that_breaks_ends_no_command() {
    let abide = Abide::new();
    let client = Client::new(&abide, json!({}));
    let fifo = abide.fifo("go");
    let call = json!({"command": format!("echo begun > {0}; cat {0}", fifo.display())});
    let mut answer = client.call(1, "execute_command", &call);
    let event = loop {
        // The stream opens with an event that says where it can be taken up again.
        let line = answer.line();
        if let Some(id) = line.strip_prefix("id:") {
            break id.trim().to_owned();
        }
    };
    assert_eq!(std::fs::read_to_string(&fifo).unwrap(), "begun\n");
    drop(answer);
    assert_eq!(abide.running().len(), 1);
    feed(&fifo, "taken up\n");
    let headers = format!("{}last-event-id: {event}\r\n", client.headers);
    let mut again = abide.open("GET /mcp", &headers, "");
    assert_eq!(again.status, 200);
    let result = again.event();
    assert_eq!(result["id"], 1, "{result}");
    let text = result["result"]["structuredContent"]["text"].as_str();
    assert!(text.unwrap().contains("taken up"), "{result}");
}
