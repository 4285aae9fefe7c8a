//! Timers, conditions and messages through a real daemon with a real database, killed at will. Rows
//! carry the numbers under which the faults are known.

#[path = "../faults/harness.rs"]
#[expect(dead_code, reason = "each test program uses a part")]
mod harness;

mod clients;
mod clocks;
mod conditions;
mod crashes;
mod faults;
mod messages;
mod power;
mod recorded;
mod shim;
mod sink;
mod tools;
mod wakers;
mod webhooks;

use harness::{Abide, Answer};
use serde_json::Value;

/// Calls a tool that must be taken up.
fn call(abide: &Abide, tool: &str, arguments: Value) -> Value {
    let answer = abide
        .post(&format!("/v1/tools/{tool}"), &arguments)
        .expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

/// Calls a tool that must be refused; the sentence.
fn refused(abide: &Abide, tool: &str, arguments: Value) -> String {
    let answer = abide
        .post(&format!("/v1/tools/{tool}"), &arguments)
        .expect("an answer");
    let Answer { status, body } = answer;
    let said = if status == 200 {
        assert_eq!(body["is_error"], true, "{body}");
        &body["text"]
    } else {
        assert_eq!(status, 400, "{body}");
        &body["detail"]
    };
    said.as_str().expect("a sentence").to_owned()
}

/// An abide with this configuration, not started yet.
fn configured(config: &str) -> Abide {
    let abide = Abide::new();
    std::fs::write(abide.path("config.toml"), config).expect("a configuration");
    abide
}

/// Waits until a file has something in it; the daemon itself does the waiting.
fn appears(abide: &Abide, name: &str) -> String {
    let path = abide.path(name);
    let body = serde_json::json!({"until": {"file": path, "matches": "(?s)..*\\n"}, "for": 180});
    let answer = abide.post("/v1/wait", &body).expect("an answer").body;
    assert_eq!(answer["held"], true, "{name}: {answer}");
    std::fs::read_to_string(path).expect("a file")
}

/// The newest message, as soon as its first delivery is so.
fn delivered(abide: &Abide, is_so: impl Fn(&Value) -> bool) -> Value {
    loop {
        let message = abide.get("/v1/messages")["messages"][0].clone();
        if is_so(&message["deliveries"][0]) {
            return message;
        }
    }
}

/// Makes a mission that is due at once.
fn mission(abide: &Abide, text: &str) -> String {
    let arguments = serde_json::json!({"total_duration": 0.05, "mission": text});
    id_of(&call(abide, "timer", arguments))
}

fn id_of(result: &Value) -> String {
    result["timer_id"].as_str().expect("a timer").to_owned()
}
