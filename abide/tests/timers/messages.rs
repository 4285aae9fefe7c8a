use serde_json::{Value, json};

use crate::harness::{Abide, receive};
use crate::{call, id_of};

#[test]
fn reading_waits_by_event() {
    let abide = Abide::new();
    abide.start();
    let waiting = abide.begin("/v1/tools/read_messages", &json!({"timeout_seconds": 60}));
    let id = id_of(&call(
        &abide,
        "timer",
        json!({"total_duration": 0.1, "mission": "m"}),
    ));
    let told = receive(waiting).expect("an answer").body;
    assert_eq!(told["messages"][0]["timer_id"], id, "{told}");
    assert_eq!(told["messages"][0]["repeated"], false);
    let none = call(&abide, "read_messages", json!({"timeout_seconds": 0.05}));
    assert_eq!(none["messages"], json!([]), "{none}");
}

#[test]
fn a_message_is_appended_once_to_the_next_result() {
    let abide = Abide::new();
    abide.start();
    let id = id_of(&call(
        &abide,
        "timer",
        json!({"total_duration": 0.05, "mission": "m"}),
    ));
    let mut seen: Vec<Value> = Vec::new();
    let mut results = 0;
    while seen.is_empty() {
        results += 1;
        assert!(results < 1_000, "it was never told");
        let result = call(&abide, "shell", json!({"command": "true"}));
        if let Some(told) = result["messages"].as_array() {
            assert!(
                result["text"].as_str().unwrap().contains("[System] Timer"),
                "{result}"
            );
            seen.extend(told.iter().cloned());
        }
    }
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0]["timer_id"], id);
    let after = call(&abide, "shell", json!({"command": "true"}));
    assert_eq!(after["messages"], Value::Null, "{after}");
}

#[test]
fn a_session_that_nobody_waits_for_is_told_of() {
    let abide = Abide::new();
    abide.start();
    let fifo = abide.path("go");
    call(
        &abide,
        "shell",
        json!({"command": format!("mkfifo {}", fifo.display())}),
    );
    let command = format!("read line < {}; exit 7", fifo.display());
    // Nobody can be asked, so the call returns while the command runs on.
    let result = call(
        &abide,
        "execute_command",
        json!({"command": command, "timeout": 0.1}),
    );
    assert_eq!(result["status"], "running", "{result}");
    std::fs::write(&fifo, "go\n").expect("a word");
    let told = call(&abide, "read_messages", json!({"timeout_seconds": 30}));
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
