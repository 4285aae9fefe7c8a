use std::fs;
use std::io::{BufRead, BufReader};

use serde_json::{Value, json};

use crate::harness::{Abide, look_for, receive};
use crate::{call, is_noted_as_seen, mission, newest};

#[test]
fn read_messages_waits_for_an_event() {
    let abide = Abide::started();
    let waiting = abide.begin("/v1/tools/read_messages", &json!({"timeout_seconds": 180}));
    let id = mission(&abide, "m");
    let told = receive(waiting).expect("an answer").body;
    assert_eq!(told["messages"][0]["timer_id"], id, "{told}");
    assert_eq!(told["messages"][0]["repeated"], false);
    let none = call(&abide, "read_messages", json!({"timeout_seconds": 0.05}));
    assert_eq!(none["messages"], json!([]), "{none}");
}

#[test]
fn completion_in_an_answer_causes_no_message() {
    let abide = Abide::started();
    let waited = json!({"total_duration": 0.01, "reason": "r"});
    assert_eq!(call(&abide, "timer", waited)["status"], "completed");
    assert_eq!(abide.get("/v1/messages")["messages"], json!([]));
    let id = mission(&abide, "m");
    let message = newest(&abide, Value::is_object);
    assert_eq!(message["timer_id"], id, "{message}");
    let all = abide.get("/v1/messages");
    assert_eq!(all["messages"].as_array().map(Vec::len), Some(1), "{all}");
}

#[test]
fn completion_in_an_undelivered_answer_becomes_a_message() {
    let abide = Abide::new();
    abide.start_to_crash_at("message.seen.pre");
    let waited = json!({"total_duration": 0.01, "reason": "r"});
    let waited = abide.post("/v1/tools/timer", &waited);
    assert_eq!(waited.body["status"], "completed", "{}", waited.body);
    look_for("the end of the daemon", || {
        let answer = abide.request("GET", "/v1/health", &Value::Null);
        answer.is_none().then_some(())
    });
    abide.start();
    let message = newest(&abide, Value::is_object);
    assert_eq!(message["timer_id"], waited.body["timer_id"], "{message}");
    assert_eq!(message["seen_at"], Value::Null, "{message}");
    let told = call(&abide, "read_messages", json!({}));
    assert_eq!(told["messages"][0]["repeated"], true, "{told}");
}

#[test]
fn a_message_is_appended_once_to_the_next_result() {
    let abide = Abide::started();
    let id = mission(&abide, "m");
    newest(&abide, Value::is_object);
    let result = call(&abide, "shell", json!({"command": "true"}));
    let text = result["text"].as_str().expect("a text");
    assert!(text.contains("[System] Timer"), "{result}");
    is_published(&abide, "shell", &result);
    let told = result["messages"].as_array().expect("messages");
    assert_eq!(told.len(), 1, "{result}");
    assert_eq!(told[0]["timer_id"], id, "{result}");
    let after = call(&abide, "shell", json!({"command": "true"}));
    assert_eq!(after["messages"], Value::Null, "{after}");
}

#[test]
fn follower_gets_each_new_message_once() {
    let abide = Abide::started();
    mission(&abide, "seen");
    let told = call(&abide, "read_messages", json!({"timeout_seconds": 180}));
    assert_eq!(told["messages"].as_array().map(Vec::len), Some(1), "{told}");
    is_noted_as_seen(&abide);
    let mut follow = abide
        .command(["messages", "--unseen", "--follow", "--json"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("abide runs");
    let mut lines = BufReader::new(follow.stdout.take().expect("its output")).lines();
    for text in ["one", "two"] {
        let id = mission(&abide, text);
        let line = lines.next().expect("a line").expect("text");
        let message: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(message["timer_id"], id, "{message}");
    }
    follow.kill().expect("it runs");
    follow.wait().expect("it ends");
}

/// Every field of a result is in its published schema.
fn is_published(abide: &Abide, tool: &str, result: &Value) {
    let tools = abide.get("/v1/tools");
    let mut tools = tools["tools"].as_array().expect("tools").iter();
    let tool = tools.find(|told| told["name"] == tool).expect("the tool");
    for field in result.as_object().expect("fields").keys() {
        let known = tool["output_schema"]["properties"].get(field).is_some();
        assert!(known || field == "is_error", "{field} in {result}");
    }
}

#[test]
fn end_of_a_session_without_a_waiting_call_is_a_message() {
    let abide = Abide::started();
    let fifo = abide.fifo("go");
    let command = format!("read line < {}; exit 7", fifo.display());
    // No person can be asked, so the call returns while the command keeps running.
    let result = call(
        &abide,
        "execute_command",
        json!({"command": command, "timeout": 0.1}),
    );
    assert_eq!(result["status"], "running", "{result}");
    std::fs::write(&fifo, "go\n").expect("a word");
    let told = call(&abide, "read_messages", json!({"timeout_seconds": 180}));
    assert_eq!(
        told["messages"][0]["session_id"], result["session_id"],
        "{told}"
    );
    let text = told["text"].as_str().unwrap();
    assert!(
        text.contains("has ended") && text.contains("exited with code 7"),
        "{text}"
    );
}

/// A command that was handed over to its agent and runs until the test ends it.
fn handed_over(abide: &Abide, code: u8) -> (String, std::path::PathBuf) {
    let fifo = abide.fifo(&format!("go{code}"));
    let done = abide.path(&format!("done{code}"));
    let command = format!(
        "read line < {}; : > {}; exit {code}",
        fifo.display(),
        done.display()
    );
    let arguments = json!({"command": command, "timeout": 0.1});
    let result = call(abide, "execute_command", arguments);
    assert_eq!(result["status"], "running", "{result}");
    (result["session_id"].as_str().unwrap().to_owned(), fifo)
}

#[test]
fn session_that_ended_without_a_daemon_is_reported_once() {
    let abide = Abide::started();
    // The call in standby has reported this one.
    let received = call(&abide, "shell", json!({"command": "exit 3"}));
    assert_eq!(received["return_code"], 3, "{received}");
    let (id, fifo) = handed_over(&abide, 7);
    abide.kill_daemon();
    fs::write(&fifo, "go\n").expect("a word");
    // The command may end a moment before the next daemon starts, or after.
    look_for("its last act", || {
        abide.path("done7").exists().then_some(())
    });
    abide.start();
    let told = call(&abide, "read_messages", json!({"timeout_seconds": 180}));
    let messages = told["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 1, "{told}");
    assert_eq!(messages[0]["session_id"], id);
    let text = messages[0]["text"].as_str().unwrap();
    assert!(text.contains("exited with code 7"), "{text}");
    is_noted_as_seen(&abide);
    abide.kill_daemon();
    abide.start();
    for session in [&received["session_id"], &json!(id)] {
        let read = json!({"action": "read_output", "session_id": session});
        call(&abide, "terminal_session", read);
    }
    // Longer than a new daemon waits for reconnecting clients.
    let none = call(&abide, "read_messages", json!({"timeout_seconds": 3}));
    assert_eq!(none["messages"], json!([]), "{none}");
}

#[test]
fn agent_gets_a_message_when_a_person_ends_its_session() {
    let abide = Abide::started();
    let (id, _) = handed_over(&abide, 8);
    let out = abide.output(["session", "kill", &id]);
    assert!(out.status.success(), "{out:?}");
    let told = call(&abide, "read_messages", json!({"timeout_seconds": 180}));
    assert_eq!(told["messages"][0]["session_id"], id, "{told}");
    // An agent gets no message about a session that it ended itself.
    let (id, _) = handed_over(&abide, 9);
    let arguments = json!({"action": "kill", "session_id": id});
    call(&abide, "terminal_session", arguments);
    let none = call(&abide, "read_messages", json!({}));
    assert_eq!(none["messages"], json!([]), "{none}");
}
