//! From 2026-07-28 on: no handshake, and a call that has to ask returns and is repeated.

use serde_json::{Value, json};

use crate::harness::{Client, Fifo, Home, MODERN, Setup, is_error, text};

#[test]
fn discover_list_and_call_work_without_handshake() {
    let home = Home::new();
    let mut client = Client::start(&home, MODERN);
    let id = client.request("server/discover", json!({}));
    let found = client.result(id);
    let versions = found["supportedVersions"].as_array().expect("versions");
    assert!(versions.contains(&json!("2026-07-28")), "{found}");
    assert!(
        found["capabilities"]["tools"].is_object() && found["capabilities"]["prompts"].is_object()
    );
    let id = client.request("ping", json!({}));
    let error = client.receive(|message| message["id"] == id);
    assert_eq!(error["error"]["code"], -32601, "{error}");
    let id = client.request("tools/list", json!({}));
    let list = client.result(id);
    assert_eq!(list["resultType"], "complete");
    assert!(
        list["ttlMs"].is_u64() && list["cacheScope"].is_string(),
        "{list}"
    );
    let result = client.call("shell", json!({"command": "echo hi"}));
    assert_eq!(result["resultType"], "complete");
    assert!(text(&result).contains("STDOUT:\nhi\n"), "{result}");
}

#[test]
fn call_without_metadata_is_refused_after_earlier_calls() {
    let home = Home::new();
    let mut client = Client::start(&home, MODERN);
    client.call("shell", json!({"command": "true"}));
    let call = |id: &str, meta: Value| {
        let arguments = json!({"command": "echo run >> runs"});
        let params = json!({"name": "shell", "arguments": arguments, "_meta": meta});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    };
    let version = "io.modelcontextprotocol/protocolVersion";
    let abilities = "io.modelcontextprotocol/clientCapabilities";
    client.send(&call("bare", json!({})));
    client.send(&call("half", json!({version: "2026-07-28"})));
    client.send(&call("odd", json!({version: "2199-01-01", abilities: {}})));
    for id in ["bare", "half", "odd"] {
        let error = client.receive(|message| message["id"] == id);
        assert!(error["error"]["code"].is_i64(), "{error}");
    }
    assert_eq!(home.lines("runs"), 0);
    let whole = json!({version: "2026-07-28", abilities: {}});
    client.send(&call("whole", whole));
    let answer = client.receive(|message| message["id"] == "whole");
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    assert_eq!(home.lines("runs"), 1);
}

#[test]
fn claude_code_is_offered_2025_11_25() {
    let home = Home::new();
    let claude = Setup {
        name: "claude-code",
        ..MODERN
    };
    let mut client = Client::start(&home, claude);
    let id = client.request("server/discover", json!({}));
    let found = client.result(id);
    let versions = found["supportedVersions"].as_array().expect("versions");
    assert_eq!(versions.last(), Some(&json!("2025-11-25")), "{found}");
    let info = client.initialize("2025-11-25", true);
    assert_eq!(info["protocolVersion"], "2025-11-25");
}

/// Calls `execute_command`, and again whenever it returns with a question.
fn retry(client: &mut Client, arguments: &Value, asked: &Value, action: &str) -> u64 {
    let responses: serde_json::Map<String, Value> = asked["inputRequests"]
        .as_object()
        .expect("requests")
        .keys()
        .map(|key| (key.clone(), json!({"action": action, "content": {}})))
        .collect();
    client.request(
        "tools/call",
        json!({
            "name": "execute_command",
            "arguments": arguments,
            "inputResponses": responses,
            "requestState": asked["requestState"],
        }),
    )
}

/// Result of a call after any number of questions: a slow command causes another question.
fn finished(client: &mut Client, arguments: &Value, mut id: u64) -> Value {
    loop {
        let result = client.result(id);
        if result["resultType"] != "input_required" {
            return result;
        }
        id = retry(client, arguments, &result, "accept");
    }
}

fn returned(client: &mut Client, id: u64) -> Value {
    let result = client.result(id);
    assert_eq!(result["resultType"], "input_required", "{result}");
    result
}

#[test]
fn s3_returned_call_runs_its_command_once() {
    let home = Home::new();
    let mut client = Client::start(&home, MODERN);
    let go = Fifo::new(&home, "go");
    let command = format!("echo run >> count; echo one; cat {}; echo two", go.path());
    let arguments = json!({"command": command, "timeout": 0.2});
    let mut id = client.begin("execute_command", arguments.clone());
    for _ in 0..3 {
        let asked = returned(&mut client, id);
        let requests = asked["inputRequests"].as_object().expect("requests");
        let request = requests.values().next().expect("one");
        assert_eq!(request["method"], "elicitation/create");
        let message = request["params"]["message"].as_str().expect("a message");
        assert!(message.starts_with("Command has been idle for 200ms. Continue waiting?\n"));
        id = retry(&mut client, &arguments, &asked, "accept");
    }
    // The last call may be waiting or have returned again: the result is the same.
    std::fs::write(home.path("go"), "").expect("the command reads");
    let result = finished(&mut client, &arguments, id);
    assert!(
        text(&result).contains("one\ntwo\n[exited with code 0"),
        "{result}"
    );
    assert_eq!(home.lines("count"), 1);
}

#[test]
fn declining_ends_the_command_and_cancelling_does_not() {
    let home = Home::new();
    for action in ["decline", "cancel"] {
        let mut client = Client::start(&home, MODERN);
        let fifo = Fifo::new(&home, action);
        let command = format!("echo before; echo $$ > {}; exec sleep 1000", fifo.path());
        let arguments = json!({"command": command});
        let id = client.begin("execute_command", arguments.clone());
        let process = fifo.read_process();
        home.set_idle_limit("300ms");
        let asked = returned(&mut client, id);
        let id = retry(&mut client, &arguments, &asked, action);
        let result = client.result(id);
        if action == "decline" {
            assert!(is_error(&result));
            assert!(text(&result).starts_with("command execution timeout: no output for 300ms"));
            process.wait_gone();
        } else {
            assert_eq!(result["structuredContent"]["status"], "running", "{result}");
            assert!(process.is_alive());
        }
    }
}

#[test]
fn call_repeated_after_the_question_closed_gets_the_result() {
    let home = Home::new();
    let mut client = Client::start(&home, MODERN);
    let (go, fifo) = (Fifo::new(&home, "go"), Fifo::new(&home, "fifo"));
    let (go_at, fifo_at) = (go.path(), fifo.path());
    let command = format!("echo run >> count; echo $$ > {fifo_at}; cat {go_at}; echo over; exit 5");
    let arguments = json!({"command": command, "timeout": 0.2});
    let id = client.begin("execute_command", arguments.clone());
    let process = fifo.read_process();
    let asked = returned(&mut client, id);
    std::fs::write(home.path("go"), "").expect("the command reads");
    process.wait_gone();
    let id = retry(&mut client, &arguments, &asked, "accept");
    let result = finished(&mut client, &arguments, id);
    assert!(
        text(&result).starts_with("over\n[exited with code 5"),
        "{result}"
    );
    let id = retry(&mut client, &arguments, &asked, "decline");
    assert!(text(&client.result(id)).starts_with("over\n[exited with code 5"));
    assert_eq!(home.lines("count"), 1);
}

#[test]
fn altered_request_state_is_refused() {
    let home = Home::new();
    let mut client = Client::start(&home, MODERN);
    let fifo = Fifo::new(&home, "fifo");
    let command = format!("echo run >> count; echo $$ > {}; sleep 1000", fifo.path());
    let arguments = json!({"command": command, "timeout": 0.2});
    let id = client.begin("execute_command", arguments.clone());
    fifo.read();
    let asked = returned(&mut client, id);
    let mut forged = asked.clone();
    forged["requestState"] = json!(format!("{}x", asked["requestState"].as_str().unwrap_or("")));
    let id = retry(&mut client, &arguments, &forged, "accept");
    assert_eq!(client.answer(id)["error"]["code"], -32602);
    let other = json!({"command": "echo other >> count; sleep 1000", "timeout": 0.2});
    let id = retry(&mut client, &other, &asked, "accept");
    assert_eq!(client.answer(id)["error"]["code"], -32602);
    assert_eq!(home.lines("count"), 1);
    let id = retry(&mut client, &arguments, &asked, "decline");
    assert!(is_error(&client.result(id)));
}

#[test]
fn call_stops_returning_before_the_clients_round_limit() {
    let home = Home::new();
    let mut client = Client::start(&home, MODERN);
    let fifo = Fifo::new(&home, "fifo");
    let command = format!("echo run >> count; echo $$ > {}; sleep 1000", fifo.path());
    let arguments = json!({"command": command, "timeout": 0.05});
    let mut id = client.begin("execute_command", arguments.clone());
    fifo.read();
    for round in 0.. {
        let result = client.result(id);
        if result["resultType"] == "complete" {
            assert_eq!(result["structuredContent"]["status"], "running", "{result}");
            assert!((5..10).contains(&round), "{round} rounds");
            break;
        }
        id = retry(&mut client, &arguments, &result, "accept");
    }
    assert_eq!(home.lines("count"), 1);
}

#[test]
fn returned_call_survives_a_restart() {
    let home = Home::new();
    let mut client = Client::start(&home, MODERN);
    let go = Fifo::new(&home, "go");
    let command = format!("echo run >> count; cat {}; echo over", go.path());
    let arguments = json!({"command": command, "timeout": 0.2});
    let id = client.begin("execute_command", arguments.clone());
    let asked = returned(&mut client, id);
    home.kill_daemon();
    std::fs::write(home.path("go"), "").expect("the command reads");
    let id = retry(&mut client, &arguments, &asked, "accept");
    let result = finished(&mut client, &arguments, id);
    assert!(
        text(&result).starts_with("over\n[exited with code 0"),
        "{result}"
    );
    assert_eq!(home.lines("count"), 1);
}
