//! MCP over HTTP in version 2026-07-28: every request is independent.

use serde_json::{Value, json};

use crate::harness::{Abide, Answer, feed};

fn meta(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "by-hand", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

fn headers(method: &str, name: &str) -> String {
    let name = match name {
        "" => String::new(),
        name => format!("mcp-name: {name}\r\n"),
    };
    format!(
        "accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
         mcp-method: {method}\r\n{name}"
    )
}

/// Calls a tool with these parameters in addition to name and arguments.
fn call(abide: &Abide, tool: &str, arguments: &Value, more: &Value) -> Answer {
    let mut params = json!({"name": tool, "arguments": arguments, "_meta": meta(&json!({}))});
    for (field, value) in more.as_object().into_iter().flatten() {
        params[field] = value.clone();
    }
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let answer = abide.open("POST /mcp", &headers("tools/call", tool), &call.to_string());
    assert_eq!(answer.status, 200);
    answer
}

#[test]
fn discover_and_tool_call_succeed() {
    let abide = Abide::new();
    let ask = json!({"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {
        "_meta": meta(&json!({})),
    }});
    let mut answer = abide.open(
        "POST /mcp",
        &headers("server/discover", ""),
        &ask.to_string(),
    );
    let found = answer.event();
    let versions = found["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")), "{found}");
    let mut answer = call(
        &abide,
        "shell",
        &json!({"command": "echo hello"}),
        &json!({}),
    );
    let result = answer.event();
    assert_eq!(
        result["result"]["structuredContent"]["status"], "SUCCESS",
        "{result}"
    );
}

/// A request as it is sent.
#[derive(Clone)]
struct Sent {
    headers: String,
    message: Value,
}

impl Sent {
    fn new(method: &str, name: &str, mut params: Value) -> Self {
        params["_meta"] = meta(&json!({}));
        Sent {
            headers: headers(method, name),
            message: json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}),
        }
    }

    fn replacing(mut self, part: &str, other: &str) -> Self {
        assert!(self.headers.contains(part), "{}", self.headers);
        self.headers = self.headers.replace(part, other);
        self
    }

    fn of_version(mut self, version: &str) -> Self {
        let named = "io.modelcontextprotocol/protocolVersion";
        self.message["params"]["_meta"][named] = version.into();
        self
    }

    /// Without this field of `_meta`.
    fn without(mut self, field: &str) -> Self {
        let meta = self.message["params"]["_meta"].as_object_mut().unwrap();
        meta.remove(&format!("io.modelcontextprotocol/{field}"));
        self
    }
}

#[test]
fn request_whose_head_or_metadata_is_wrong_is_refused() {
    let abide = Abide::new();
    let list = || Sent::new("tools/list", "", json!({}));
    let prompt = || Sent::new("prompts/get", "none", json!({"name": "none"}));
    let named = "mcp-name: none";
    let method = "mcp-method: tools/list\r\n";
    let version = "mcp-protocol-version: 2026-07-28\r\n";
    let unknown = list().replacing("2026-07-28", "2099-01-01");
    for (sent, status, code) in [
        (list().replacing(", text/event-stream", ""), 406, None),
        (list().replacing(version, ""), 400, Some(-32020)),
        (
            list().replacing("2026-07-28", "2025-11-25"),
            400,
            Some(-32020),
        ),
        (unknown.of_version("2099-01-01"), 400, Some(-32022)),
        (list().replacing(method, ""), 400, Some(-32020)),
        (
            list().replacing("tools/list", "tools/call"),
            400,
            Some(-32020),
        ),
        (
            list().replacing(method, &method.repeat(2)),
            400,
            Some(-32020),
        ),
        (prompt().replacing(named, "mcp-other: 1"), 400, Some(-32020)),
        (
            prompt().replacing(named, "mcp-name: other"),
            400,
            Some(-32020),
        ),
        (
            prompt().replacing(named, "mcp-name: =?base64?!?="),
            400,
            Some(-32020),
        ),
        (list().without("protocolVersion"), 400, Some(-32602)),
        (list().without("clientCapabilities"), 400, Some(-32602)),
        (Sent::new("ping", "", json!({})), 404, Some(-32601)),
    ] {
        let refused = abide.ask("POST /mcp", &sent.headers, &sent.message);
        let (headers, message) = (sent.headers, sent.message);
        assert_eq!(refused.0, status, "{refused:?} {headers} {message}");
        assert_eq!(
            refused.1["error"]["code"].as_i64(),
            code,
            "{refused:?} {headers}"
        );
    }
    let encoded = prompt().replacing(named, "mcp-name: =?base64?bm9uZQ==?=");
    let mut answer = abide.open("POST /mcp", &encoded.headers, &encoded.message.to_string());
    assert_eq!(
        (answer.status, &answer.event()["error"]["code"]),
        (200, &json!(-32602))
    );
    for line in ["GET /mcp", "DELETE /mcp"] {
        let answer = abide.open(line, &list().headers, "");
        assert_eq!((answer.status, answer.header("allow")), (405, Some("post")));
    }
}

#[test]
fn root_and_agent_headers_apply_to_commands() {
    let abide = Abide::new();
    let params =
        json!({"name": "shell", "arguments": {"command": "pwd"}, "_meta": meta(&json!({}))});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let headers = headers("tools/call", "shell") + "abide-agent: other\r\nabide-root: /usr\r\n";
    let result = abide.open("POST /mcp", &headers, &call.to_string()).event();
    let facts = &result["result"]["structuredContent"];
    assert!(
        facts["text"].as_str().unwrap().contains("/usr\n"),
        "{result}"
    );
    let one = format!("GET /v1/sessions/{}", facts["session_id"].as_str().unwrap());
    let session = abide.good(&one, "abide-agent: other\r\n", &Value::Null);
    assert_eq!(session["agent"], "other");
    let wrong = headers.replace("/usr", "usr");
    assert_eq!(abide.ask("POST /mcp", &wrong, &call).0, 400);
}

#[test]
fn silent_call_gets_a_comment_at_once() {
    let abide = Abide::new();
    let fifo = abide.fifo("go");
    let command = json!({"command": format!("cat {}", fifo.display())});
    // The response head arrives although the command waits and has written nothing.
    let mut answer = call(&abide, "execute_command", &command, &json!({}));
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    assert_eq!(answer.line(), ":\n");
    feed(&fifo, "done\n");
    let result = answer.event();
    let text = result["result"]["structuredContent"]["text"].as_str();
    assert!(text.unwrap().contains("done"), "{result}");
}

#[test]
fn progress_is_sent_at_once_on_request() {
    let abide = Abide::new();
    let fifo = abide.fifo("go");
    let command = json!({"command": format!("cat {}", fifo.display())});
    let mut meta = meta(&json!({}));
    meta["progressToken"] = json!("p");
    let mut answer = call(&abide, "execute_command", &command, &json!({"_meta": meta}));
    let progress = answer.event();
    assert_eq!(progress["method"], "notifications/progress", "{progress}");
    assert_eq!(progress["params"]["progressToken"], "p");
    feed(&fifo, "done\n");
    assert_eq!(answer.event()["id"], 1);
}

#[test]
fn client_that_stops_reading_leaves_the_command_running() {
    let abide = Abide::new();
    let fifo = abide.fifo("go");
    let command = json!({"command": format!("echo begun > {0}; cat {0}", fifo.display())});
    let answer = call(&abide, "execute_command", &command, &json!({}));
    assert_eq!(std::fs::read_to_string(&fifo).unwrap(), "begun\n");
    drop(answer);
    let session = abide.running()[0]["session_id"]
        .as_str()
        .unwrap()
        .to_owned();
    // The next call is processed after the end of the wait.
    abide.shell("true");
    feed(&fifo, "done\n");
    let ended = abide.ended(&session);
    assert_eq!(ended["exit_code"], 0, "{ended}");
}

#[test]
fn question_returns_the_call() {
    let abide = Abide::new();
    let arguments = json!({"command": "sleep 1000", "timeout": 1});
    let asks = json!({"_meta": meta(&json!({"elicitation": {}}))});
    let asked = call(&abide, "execute_command", &arguments, &asks).event();
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required", "{asked}");
    let (question, _) = result["inputRequests"]
        .as_object()
        .unwrap()
        .iter()
        .next()
        .unwrap();
    let again = json!({
        "_meta": meta(&json!({"elicitation": {}})),
        "requestState": result["requestState"],
        "inputResponses": {question: {"action": "decline"}},
    });
    let result = call(&abide, "execute_command", &arguments, &again).event();
    assert_eq!(
        result["result"]["structuredContent"]["end"], "idle_declined",
        "{result}"
    );
    assert_eq!(abide.running().len(), 0, "it was run once");
}

#[test]
fn message_is_delivered_once() {
    let abide = Abide::new();
    let mut coming = abide.open("GET /v1/events", "", "");
    let mission = json!({"total_duration": 1, "mission": "look again"});
    call(&abide, "timer", &mission, &json!({})).event();
    while coming.next_event().1 != "message" {}
    let told = || {
        let mut answer = call(&abide, "shell", &json!({"command": "true"}), &json!({}));
        let result = answer.event();
        answer.rest();
        result.to_string().contains("look again")
    };
    assert!(told(), "with the next result");
    assert!(!told(), "and not again");
}
