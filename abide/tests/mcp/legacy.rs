//! Versions up to 2025-11-25: a handshake first, and questions within the call.

use serde_json::{Value, json};

use crate::harness::{Client, ERAS, Era, Fifo, Home, LEGACY, Process, Setup};
use crate::harness::{is_error, setup, setup_in, text};

#[test]
fn initialize_succeeds_in_every_version_and_lists_tools() {
    let home = Home::new();
    for (asked, given) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let mut client = Client::silent(&home, LEGACY);
        let info = client.initialize(asked, true);
        assert_eq!(info["protocolVersion"], given, "{asked}");
        assert_eq!(info["serverInfo"]["name"], "abide");
        assert!(
            info["instructions"]
                .as_str()
                .is_some_and(|text| text.contains("shell"))
        );
        let id = client.request("tools/list", json!({}));
        let list = client.result(id);
        assert_eq!(
            list["tools"].as_array().map(Vec::len),
            Some(list_names(&list).len())
        );
        assert!(
            list.get("resultType").is_none() && list.get("ttlMs").is_none(),
            "{list}"
        );
        for tool in list["tools"].as_array().expect("tools") {
            assert_eq!(tool["inputSchema"]["type"], "object");
            assert_eq!(tool["outputSchema"]["type"], "object");
            assert!(tool["annotations"]["destructiveHint"].is_boolean());
        }
        let id = client.request("ping", json!({}));
        assert_eq!(client.result(id), json!({}));
    }
}

fn list_names(list: &Value) -> Vec<&str> {
    let tools = list["tools"].as_array().expect("tools");
    let names: Vec<&str> = tools
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    for needed in ["shell", "execute_command"] {
        assert!(names.contains(&needed), "{names:?}");
    }
    names
}

#[test]
fn list_of_prompts_is_empty() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let id = client.request("prompts/list", json!({}));
    assert_eq!(client.result(id)["prompts"], json!([]));
    let id = client.request("prompts/get", json!({"name": "nonsense"}));
    assert_eq!(client.answer(id)["error"]["code"], -32602);
}

#[test]
fn command_runs_in_the_clients_directory_and_environment() {
    let home = Home::new();
    let env = [("GREETING", "good day")];
    for era in ERAS {
        let mut client = Client::start(&home, setup_in(era, &env));
        let result = client.call("shell", json!({"command": "echo $GREETING; pwd; exit 3"}));
        let facts = &result["structuredContent"];
        assert_eq!(facts["status"], "ERROR");
        assert_eq!(facts["return_code"], 3);
        assert!(!is_error(&result));
        let folder = std::fs::canonicalize(home.path(".")).expect("the folder");
        let wanted = format!("STDOUT:\ngood day\n{}\nSTDERR:", folder.display());
        assert!(text(&result).contains(&wanted), "{result}");
    }
}

#[test]
fn bad_input_is_an_error_result_and_an_unknown_tool_a_protocol_error() {
    let home = Home::new();
    for era in ERAS {
        let mut client = Client::start(&home, setup(era));
        let result = client.call("shell", json!({"command": "  "}));
        assert!(is_error(&result));
        assert_eq!(text(&result), "ERROR: Shell command cannot be empty.");
        let result = client.call("shell", json!({"command": "true", "timeout": 0}));
        assert!(
            is_error(&result) && text(&result).contains("`timeout`"),
            "{result}"
        );
        let id = client.begin("no_such_tool", json!({}));
        let error = client.answer(id)["error"].clone();
        assert_eq!(error["code"], -32602);
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|said| said.contains("no_such_tool"))
        );
        let id = client.request("no/such/method", json!({}));
        assert_eq!(client.answer(id)["error"]["code"], -32601);
        for list in ["tools/list", "prompts/list", "resources/list"] {
            let id = client.request(list, json!({"cursor": "nonsense"}));
            let error = client.answer(id)["error"].clone();
            assert_eq!(error["code"], -32602, "{list}");
            let sentence = error["message"].as_str().unwrap_or_default();
            assert!(sentence.contains("got nonsense"), "{error}");
        }
        let id = client.request("tools/call", json!({"name": "shell", "arguments": ["ls"]}));
        let error = client.answer(id)["error"].clone();
        let sentence = "`arguments` must be an object; got [\"ls\"]";
        assert_eq!(error["message"], sentence);
    }
}

/// A command that prints its pid and then nothing.
fn silent(fifo: &Fifo) -> String {
    format!("echo $$ > {}; exec sleep 1000", fifo.path())
}

#[test]
fn accepting_continues_to_wait_any_number_of_times() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let go = Fifo::new(&home, "go");
    let command = format!("echo run >> count; echo one; cat {}; echo two", go.path());
    let id = client.begin(
        "execute_command",
        json!({"command": command, "timeout": 0.2}),
    );
    for _ in 0..3 {
        let question = client.asked();
        let params = &question["params"];
        let message = params["message"].as_str().expect("a message");
        assert!(message.starts_with("Command has been idle for 200ms. Continue waiting?\n"));
        assert!(
            message.contains("echo run >> count") && message.contains("one"),
            "{message}"
        );
        assert_eq!(
            params["requestedSchema"],
            json!({"type": "object", "properties": {}})
        );
        client.reply(&question, "accept");
    }
    std::fs::write(home.path("go"), "").expect("the command reads");
    let result = client.result(id);
    assert!(
        text(&result).contains("one\ntwo\n[exited with code 0 after "),
        "{result}"
    );
    assert_eq!(home.lines("count"), 1);
}

#[test]
fn declining_ends_the_command() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let fifo = Fifo::new(&home, "fifo");
    let command = format!("echo before; {}", silent(&fifo));
    let id = client.begin("execute_command", json!({"command": command}));
    let process = fifo.read_process();
    home.set_idle_limit("300ms");
    let question = client.asked();
    client.reply(&question, "decline");
    let result = client.result(id);
    assert!(is_error(&result));
    let said = text(&result);
    assert!(
        said.starts_with("command execution timeout: no output for 300ms"),
        "{said}"
    );
    assert!(said.contains("before"), "{said}");
    assert!(
        said.contains("a person was asked whether to keep waiting and said to stop"),
        "{said}"
    );
    assert_eq!(result["structuredContent"]["end"], "idle_declined");
    process.wait_gone();
}

#[test]
fn cancelled_or_failed_elicitation_means_no_person() {
    let home = Home::new();
    for how in ["cancel", "error"] {
        let mut client = Client::start(&home, LEGACY);
        let fifo = Fifo::new(&home, how);
        let id = client.begin(
            "execute_command",
            json!({"command": silent(&fifo), "timeout": 0.3}),
        );
        let process = fifo.read_process();
        let question = client.asked();
        if how == "cancel" {
            client.reply(&question, "cancel");
        } else {
            let error = json!({"code": -32603, "message": "no dialog here"});
            client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "error": error}));
        }
        let result = client.result(id);
        still_running(&result, &process);
        // A person may have cancelled the form, so the text does not say that no person is there.
        let said = text(&result);
        assert!(said.contains("is open for a person"), "{said}");
        assert!(!said.contains("no person"), "{said}");
    }
}

fn still_running(result: &Value, process: &Process) {
    let facts = &result["structuredContent"];
    assert_eq!(facts["status"], "running", "{result}");
    assert!(
        facts["session_id"]
            .as_str()
            .is_some_and(|id| id.starts_with("session_"))
    );
    assert!(!is_error(result));
    assert!(process.is_alive());
}

#[test]
fn client_without_elicitation_gets_running() {
    let home = Home::new();
    for era in ERAS {
        let mut client = Client::start(
            &home,
            Setup {
                asks: false,
                ..setup(era)
            },
        );
        let fifo = Fifo::new(&home, &format!("{era:?}"));
        let id = client.begin(
            "execute_command",
            json!({"command": silent(&fifo), "timeout": 0.3}),
        );
        let process = fifo.read_process();
        still_running(&client.result(id), &process);
    }
}

#[test]
fn obsolete_question_is_withdrawn() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let go = Fifo::new(&home, "go");
    let command = format!("cat {}; echo awake; exit 4", go.path());
    let id = client.begin(
        "execute_command",
        json!({"command": command, "timeout": 0.3}),
    );
    let question = client.asked();
    std::fs::write(home.path("go"), "").expect("the command reads");
    assert_eq!(
        client.notified("notifications/cancelled")["requestId"],
        question["id"]
    );
    assert_ne!(question["id"], 0, "some clients cannot cancel that one");
    let result = client.result(id);
    assert!(
        text(&result).starts_with("awake\n[exited with code 4"),
        "{result}"
    );
    // Too late, and without effect.
    client.reply(&question, "decline");
    let result = client.call("shell", json!({"command": "echo fine"}));
    assert_eq!(result["structuredContent"]["status"], "SUCCESS");
}

#[test]
fn codex_shows_one_question_at_a_time() {
    let home = Home::new();
    let codex = Setup {
        name: "codex-mcp-client",
        ..LEGACY
    };
    let mut client = Client::start(&home, codex);
    let fifo = Fifo::new(&home, "fifo");
    let id = client.begin(
        "execute_command",
        json!({"command": silent(&fifo), "timeout": 0.3}),
    );
    let process = fifo.read_process();
    let first = client.asked();
    let message = first["params"]["message"].as_str().expect("a message");
    assert!(
        message.contains("\n  Allow keeps waiting, Deny ends the command; "),
        "{message}"
    );
    assert!(
        message.contains("\n  Cancel leaves the question open elsewhere"),
        "{message}"
    );
    let open = home
        .command(["answer", "--json"])
        .output()
        .expect("it runs");
    let open = String::from_utf8_lossy(&open.stdout).into_owned();
    let question = open
        .split('"')
        .find(|word| word.starts_with("question_") && *word != "question_id")
        .expect("an open question");
    let answered = home.command(["answer", question, "yes"]).output();
    assert!(answered.expect("it runs").status.success());
    // The form that Codex still shows is outdated: "no" does not kill the command, and the current question is shown.
    let reads = json!({"command": "sleep 0.5"});
    client.call("shell", reads.clone());
    client.reply(&first, "decline");
    let second = client.asked();
    assert!(process.is_alive());
    assert!(!client.has_received(|message| message["method"] == "notifications/cancelled"));
    client.call("shell", reads);
    client.reply(&second, "decline");
    assert!(text(&client.result(id)).starts_with("command execution timeout: no output for 300ms"));
    process.wait_gone();
}

#[test]
fn cancellation_by_a_person_ends_the_command() {
    let home = Home::new();
    for (era, reason) in [
        (Era::Legacy, json!("User requested cancellation")),
        (Era::Legacy, Value::Null),
        (Era::Modern, json!("AbortError: This operation was aborted")),
    ] {
        let mut client = Client::start(&home, setup(era));
        let fifo = Fifo::new(&home, &format!("{era:?}{}", reason.is_null()));
        let id = client.begin("execute_command", json!({"command": silent(&fifo)}));
        let process = fifo.read_process();
        cancel(&mut client, id, &reason);
        process.wait_gone();
        client.call("shell", json!({"command": "true"}));
        assert!(
            !client.has_received(|message| message["id"] == id),
            "a cancelled call is not answered"
        );
    }
}

#[test]
fn reused_id_after_cancellation_gets_only_the_second_answer() {
    let home = Home::new();
    for era in ERAS {
        let mut client = Client::start(&home, setup(era));
        // The library knows the client from its first call on, in both generations.
        client.call("shell", json!({"command": "true"}));
        let fifo = Fifo::new(&home, &format!("{era:?}"));
        let id = client.begin("shell", json!({"command": silent(&fifo)}));
        let process = fifo.read_process();
        cancel(&mut client, id, &json!("User requested cancellation"));
        client.forget_id();
        let again = client.begin("shell", json!({"command": "echo second"}));
        assert_eq!(again, id);
        let result = client.result(id);
        assert!(text(&result).contains("STDOUT:\nsecond\n"), "{result}");
        process.wait_gone();
        client.call("shell", json!({"command": "true"}));
        assert!(!client.has_received(|message| message["id"] == id));
    }
}

fn cancel(client: &mut Client, id: u64, reason: &Value) {
    let mut params = json!({"requestId": id});
    if !reason.is_null() {
        params["reason"] = reason.clone();
    }
    client.notify("notifications/cancelled", params);
}

#[test]
fn cancellation_by_timeout_leaves_the_command_running() {
    let home = Home::new();
    for era in ERAS {
        let mut client = Client::start(&home, setup(era));
        let fifo = Fifo::new(&home, &format!("{era:?}"));
        let id = client.begin("shell", json!({"command": silent(&fifo)}));
        let process = fifo.read_process();
        cancel(
            &mut client,
            id,
            &json!("McpError: MCP error -32001: Request timed out"),
        );
        client.call("shell", json!({"command": "sleep 0.5"}));
        assert!(process.is_alive());
        assert!(!client.has_received(|message| message["id"] == id));
    }
}

#[test]
fn cancelled_call_withdraws_its_question() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let fifo = Fifo::new(&home, "fifo");
    let id = client.begin(
        "execute_command",
        json!({"command": silent(&fifo), "timeout": 0.2}),
    );
    let process = fifo.read_process();
    let question = client.asked();
    cancel(&mut client, id, &Value::Null);
    assert_eq!(
        client.notified("notifications/cancelled")["requestId"],
        question["id"]
    );
    process.wait_gone();
}

#[test]
fn cancelled_read_leaves_the_output_unread() {
    let home = Home::new();
    let mut client = Client::start(&home, LEGACY);
    let go = home.fifo("go");
    let start = json!({"action": "start", "command": "cat go; exit 7", "pty": false});
    let started = client.call("terminal_session", start);
    let session = &started["structuredContent"]["session_id"];
    let read = json!({"action": "read_output", "session_id": session, "timeout_seconds": 60, "until": "7"});
    let waiting = client.begin("terminal_session", read.clone());
    cancel(&mut client, waiting, &Value::Null);
    // An answer to a later request: the daemon knows of the cancellation.
    client.call("read_timer", json!({}));
    std::fs::write(go, "late\n").expect("the command reads");
    let result = client.call("terminal_session", read);
    assert!(text(&result).contains("[stdout] late\n"), "{result}");
    assert!(text(&result).contains("[exited with code 7"), "{result}");
}

#[test]
fn call_is_answered_before_the_clients_timeout() {
    let home = Home::new();
    let env = [("ABIDE_CALL_LIMIT", "2")];
    for era in ERAS {
        for (tool, status) in [("shell", "RUNNING"), ("execute_command", "running")] {
            let mut client = Client::start(
                &home,
                Setup {
                    env: &env,
                    ..setup(era)
                },
            );
            let fifo = Fifo::new(&home, &format!("{era:?}{tool}"));
            let id = client.begin(tool, json!({"command": silent(&fifo)}));
            let process = fifo.read_process();
            let result = client.result(id);
            assert_eq!(result["structuredContent"]["status"], status, "{result}");
            let waited = result["structuredContent"]["effective_timeout"].as_f64();
            let shortly_before = waited.is_some_and(|waited| (1.0..2.0).contains(&waited));
            assert!(shortly_before, "{result}");
            let session = &result["structuredContent"]["session_id"];
            let cut = format!(
                "; no output in 1s (limit of this client). To wait for its end: \
                 {tool} {{\"session_id\": {session}}}, which returns only what is new."
            );
            assert!(text(&result).contains(&cut), "{result}");
            let now = "still running, now sleeping";
            assert!(text(&result).contains(now), "{result}");
            assert!(process.is_alive());
        }
    }
}

fn is_progress(message: &Value) -> bool {
    message["method"] == "notifications/progress"
}

#[test]
fn waiting_call_sends_progress_at_once() {
    let home = Home::new();
    for era in ERAS {
        let mut client = Client::start(&home, setup(era));
        let file = home.path(&format!("there{era:?}"));
        let until = json!({"file": file});
        let id = client.request(
            "tools/call",
            json!({
                "name": "timer",
                "arguments": {"total_duration": 1000, "reason": "a file", "until": until},
                "_meta": {"progressToken": "p1"},
            }),
        );
        let told = client.notified("notifications/progress");
        assert_eq!(told["progressToken"], "p1");
        // The next question would come after twelve seconds.
        assert!(
            told["progress"]
                .as_f64()
                .is_some_and(|seconds| seconds < 12.0),
            "{told}"
        );
        let message = told["message"].as_str().expect("a message");
        assert!(message.starts_with("waiting for "), "{told}");
        std::fs::write(file, "").expect("a file");
        let result = client.result(id);
        assert_eq!(
            result["structuredContent"]["completed_by"], "condition",
            "{result}"
        );
    }
}

#[test]
fn progress_is_sent_only_with_a_token() {
    let home = Home::new();
    // Both begin at once: the second notification of a call comes twelve seconds after the first.
    let clients = ERAS.map(|era| {
        let mut client = Client::start(&home, setup(era));
        let name = format!("go{era:?}");
        let go = Fifo::new(&home, &name);
        let call = json!({
            "name": "shell",
            "arguments": {"command": format!("cat {}", go.path())},
            "_meta": {"progressToken": "p1"},
        });
        let id = client.request("tools/call", call);
        (client, id, name)
    });
    for (mut client, id, name) in clients {
        let first = client.notified("notifications/progress");
        let second = client.notified("notifications/progress");
        assert_eq!(first["progressToken"], "p1");
        assert!(
            first["progress"].as_f64() < second["progress"].as_f64(),
            "{first} {second}"
        );
        let message = second["message"].as_str().expect("a message");
        assert!(message.starts_with("running for "), "{second}");
        std::fs::write(home.path(&name), "").expect("the command reads");
        client.result(id);
        while client.has_received(is_progress) {
            client.receive(is_progress);
        }
        client.call("shell", json!({"command": "true"}));
        assert!(!client.has_received(is_progress), "it is over");
    }
}

#[test]
fn batch_is_refused() {
    let home = Home::new();
    let mut client = Client::silent(&home, LEGACY);
    client.initialize("2025-03-26", false);
    let list = json!({"jsonrpc": "2.0", "id": "list", "method": "tools/list"});
    for batch in [json!([]), json!([list]), json!([list, 42])] {
        client.send(&batch);
        let error = client.receive(|message| message["error"].is_object());
        assert_eq!(error["error"]["code"], -32600, "{error}");
        let why = "batches are not supported; send each message on a line of its own";
        assert_eq!(error["error"]["message"], why);
    }
    let result = client.call("shell", json!({"command": "true"}));
    assert!(text(&result).contains("STATUS: SUCCESS"), "{result}");
}
