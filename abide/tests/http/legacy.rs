//! MCP over HTTP up to version 2025-11-25: a handshake, then sessions.

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
        Self::of("2025-11-25", abide, capabilities)
    }

    /// With this protocol version.
    fn of(version: &str, abide: &'a Abide, capabilities: Value) -> Self {
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": version,
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
        assert_eq!(info["result"]["protocolVersion"], version, "{info}");
        let client = Client {
            abide,
            headers: format!(
                "{ACCEPT}mcp-session-id: {session}\r\nmcp-protocol-version: {version}\r\n"
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
fn tool_call_returns_its_result() {
    let abide = Abide::new();
    let client = Client::new(&abide, json!({}));
    let mut answer = client.call(1, "shell", &json!({"command": "echo hello"}));
    let result = answer.event();
    assert_eq!(result["id"], 1, "{result}");
    let facts = &result["result"]["structuredContent"];
    assert_eq!(facts["status"], "SUCCESS", "{result}");
    assert!(!answer.rest().contains("data:"), "nothing follows");
    let ended = abide.ask("DELETE /mcp", &client.headers, &Value::Null);
    assert_eq!(ended.0, 204, "{ended:?}");
    let gone = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    assert_eq!(abide.ask("POST /mcp", &client.headers, &gone).0, 404);
}

#[test]
fn two_sessions_read_the_same_output() {
    let abide = Abide::new();
    let clients = [0, 1].map(|_| Client::new(&abide, json!({})));
    let start = json!({"action": "start", "command": "echo one; echo two; cat", "pty": false});
    let started = clients[0].call(1, "terminal_session", &start).event();
    let facts = &started["result"]["structuredContent"];
    let session = facts["session_id"].as_str().expect("an id");
    let read = json!({"action": "read_output", "session_id": session});
    // The start has returned both lines to the first session.
    let text = facts["text"].as_str().expect("a text");
    assert!(text.ends_with("[stdout] one\n[stdout] two"), "{text}");
    for (id, client, expected) in [
        (2, &clients[1], "[stdout] one\n[stdout] two\n[cursor: 8]"),
        (3, &clients[1], "No output available"),
        (2, &clients[0], "No output available"),
    ] {
        let result = client.call(id, "terminal_session", &read).event();
        assert_eq!(result["result"]["structuredContent"]["text"], expected);
    }
    let kill = json!({"action": "kill", "session_id": session});
    clients[0].call(3, "terminal_session", &kill).event();
}

#[test]
fn question_is_an_elicitation_within_the_call() {
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
fn cancellation_ends_the_command_and_a_timeout_does_not() {
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
    // While the client still reads, it would receive messages for the next one.
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
fn broken_connection_leaves_the_command_running() {
    let abide = Abide::new();
    let client = Client::new(&abide, json!({}));
    let fifo = abide.fifo("go");
    let call = json!({"command": format!("echo begun > {0}; cat {0}", fifo.display())});
    let mut answer = client.call(1, "execute_command", &call);
    let event = loop {
        // The stream begins with an event whose id allows it to be resumed.
        let line = answer.line();
        if let Some(id) = line.strip_prefix("id:") {
            break id.trim().to_owned();
        }
    };
    assert_eq!(std::fs::read_to_string(&fifo).unwrap(), "begun\n");
    drop(answer);
    assert_eq!(abide.running().len(), 1);
    let headers = format!("{}last-event-id: {event}\r\n", client.headers);
    let mut again = abide.open("GET /mcp", &headers, "");
    assert_eq!(again.status, 200);
    feed(&fifo, "taken up\n");
    let told = again.event();
    assert_eq!(told["id"], 1, "{told}");
    let text = told["result"]["structuredContent"]["text"].as_str();
    assert!(text.unwrap().contains("taken up"), "{told}");
    // A client that reconnects after the end receives the same.
    let mut late = abide.open("GET /mcp", &headers, "");
    assert_eq!(late.event(), told);
}

fn call(id: &str, command: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
        "name": "shell", "arguments": {"command": command},
    }})
}

#[test]
fn batch_is_refused() {
    let abide = Abide::new();
    for client in [
        Client::of("2025-03-26", &abide, json!({})),
        Client::new(&abide, json!({})),
    ] {
        let list = json!({"jsonrpc": "2.0", "id": "list", "method": "tools/list"});
        for batch in [json!([]), json!([list])] {
            let (status, error) = abide.ask("POST /mcp", &client.headers, &batch);
            assert_eq!(status, 400, "{error}");
            assert_eq!(error["error"]["code"], -32600, "{error}");
            let why = "batches are not supported; send each message in a request of its own";
            assert_eq!(error["error"]["message"], why);
        }
    }
}

#[test]
fn duplicate_field_is_named() {
    let abide = Abide::new();
    let client = Client::of("2025-03-26", &abide, json!({}));
    let twice = call("a", "touch ran").to_string();
    let twice = twice.replace("\"command\":", "\"command\":\"true\",\"command\":");
    let sentence = "the field 'command' is given twice";
    let (status, error) = abide.open("POST /mcp", &client.headers, &twice).whole();
    assert_eq!(status, 200, "{error}");
    assert_eq!(error["id"], "a", "{error}");
    assert_eq!(error["error"]["code"], -32602, "{error}");
    assert_eq!(error["error"]["message"], sentence);
    assert!(!abide.path("ran").exists());
}

#[test]
fn request_with_an_id_in_use_is_refused() {
    let abide = Abide::new();
    let client = Client::of("2025-03-26", &abide, json!({}));
    let fifo = abide.fifo("go");
    let slow = format!("echo begun > {0}; cat {0}", fifo.display());
    let mut first = client.call(1, "shell", &json!({"command": slow}));
    assert_eq!(std::fs::read_to_string(&fifo).unwrap(), "begun\n");
    let again = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "shell", "arguments": {"command": "touch ran"},
    }});
    let (status, error) = abide.ask("POST /mcp", &client.headers, &again);
    assert_eq!(status, 200, "{error}");
    assert_eq!(error["id"], 1, "{error}");
    assert_eq!(error["error"]["code"], -32600, "{error}");
    let said = error["error"]["message"].as_str().unwrap();
    assert!(said.starts_with("a request under this id has not been answered yet"));
    feed(&fifo, "over\n");
    let result = first.event();
    assert_eq!(result["result"]["structuredContent"]["status"], "SUCCESS");
    assert!(!abide.path("ran").exists());
    let mut later = client.call(1, "shell", &json!({"command": "true"}));
    assert_eq!(later.event()["id"], 1, "it may be used again");
}

#[test]
fn request_that_belongs_to_no_session_or_version_is_refused() {
    let abide = Abide::new();
    let client = Client::new(&abide, json!({}));
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "by-hand", "version": "1"},
    }});
    let initialize = initialize.to_string();
    let unknown = format!("{ACCEPT}mcp-session-id: unknown\r\n");
    let other = client.headers.replace("2025-11-25", "1999-01-01");
    let other_initialize = format!("{ACCEPT}mcp-protocol-version: 2025-11-25\r\n");
    let deaf = client.headers.replace("text/event-stream", "text/plain");
    for (line, headers, body, status) in [
        ("POST /mcp", ACCEPT, ping.as_str(), 400),
        ("POST /mcp", &unknown, &ping, 404),
        ("POST /mcp", &other, &ping, 400),
        ("POST /mcp", &deaf, &ping, 406),
        ("POST /mcp", &other_initialize, &initialize, 400),
        ("POST /mcp", &client.headers, "{", 400),
        ("POST /mcp", &client.headers, "42", 400),
        ("GET /mcp", ACCEPT, "", 400),
        ("GET /mcp", &unknown, "", 404),
        ("GET /mcp", &other, "", 400),
        ("GET /mcp", &deaf, "", 406),
        ("DELETE /mcp", "", "", 400),
        ("PUT /mcp", &client.headers, "", 405),
    ] {
        let refused = abide.open(line, headers, body).whole();
        assert_eq!(refused.0, status, "{line} {headers} {body}: {refused:?}");
    }
    // An unknown stream ends at once, so that a client does not request it forever.
    let resumes = format!("{}last-event-id: 1/99\r\n", client.headers);
    assert_eq!(abide.open("GET /mcp", &resumes, "").rest(), "");
}

#[test]
fn open_stream_gets_message_notifications() {
    let abide = Abide::new();
    let client = Client::new(&abide, json!({}));
    let mut received = abide.open("GET /mcp", &client.headers, "");
    assert_eq!(received.status, 200);
    let due = abide.path("due");
    let mission = json!({"total_duration": 600, "mission": "listen", "until": {"file": due}});
    client.call(1, "timer", &mission).rest();
    std::fs::write(&due, "").expect("a file");
    let told = received.event();
    assert_eq!(told["method"], "notifications/message", "{told}");
    let text = told["params"]["data"]["text"].as_str().expect("a text");
    assert!(text.contains("Mission: listen"), "{told}");
    let ended = abide.ask("DELETE /mcp", &client.headers, &Value::Null);
    assert_eq!(ended.0, 204, "{ended:?}");
    assert!(
        !received.rest().contains("data: {"),
        "it ends with the session"
    );
}

#[test]
fn session_over_the_limit_closes_the_longest_idle_one() {
    let abide = Abide::new();
    let waits = Client::new(&abide, json!({}));
    let fifo = abide.fifo("go");
    let mut answer = waits.call(
        1,
        "shell",
        &json!({"command": format!("cat {}", fifo.display())}),
    );
    let quiet = Client::new(&abide, json!({}));
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let answers = |client: &Client<'_>| abide.open("POST /mcp", &client.headers, &list.to_string());
    let others: Vec<Client<'_>> = (2..1_024).map(|_| Client::new(&abide, json!({}))).collect();
    assert_eq!(answers(&others[0]).status, 200, "there is room for all");
    let one_more = Client::new(&abide, json!({}));
    assert_eq!(answers(&quiet).status, 404);
    assert_eq!(answers(&others[0]).status, 200);
    assert_eq!(answers(&one_more).status, 200);
    feed(&fifo, "done\n");
    assert_eq!(answer.event()["id"], 1);
}

#[test]
fn message_moves_to_another_session_only_after_delete() {
    let abide = Abide::new();
    let (one, two) = (
        Client::new(&abide, json!({})),
        Client::new(&abide, json!({})),
    );
    let due = abide.path("due");
    let mission = json!({"total_duration": 600, "mission": "over http", "until": {"file": due}});
    let made = one.call(1, "timer", &mission).event();
    assert_eq!(made["result"]["isError"], false, "{made}");
    std::fs::write(&due, "").expect("a file");
    // A person sees all messages.
    while abide.json(["messages", "--json"])["messages"] == json!([]) {}
    let messages = |client: &Client<'_>, id: u32, seconds: u32| {
        let read = json!({"timeout_seconds": seconds});
        let read = client.call(id, "read_messages", &read).event();
        read["result"]["structuredContent"].clone()
    };
    let none = messages(&two, 1, 0);
    assert_eq!(none["messages"], json!([]), "{none}");
    let ended = abide.ask("DELETE /mcp", &one.headers, &Value::Null);
    assert_eq!(ended.0, 204, "{ended:?}");
    let told = messages(&two, 2, 40);
    let text = told["text"].as_str().expect("a text");
    assert!(text.contains("Mission: over http"), "{told}");
    assert!(
        text.contains("another conversation of this agent"),
        "{told}"
    );
}
