//! Timers, conditions and messages through a real daemon with a real database, killed at will. Rows
//! carry the numbers under which the faults are known.

#[path = "../faults/harness.rs"]
#[expect(dead_code, reason = "each test program uses a part")]
mod harness;

mod conditions;
mod faults;
mod messages;
mod sink;
mod tools;
mod wakers;

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

fn id_of(result: &Value) -> String {
    result["timer_id"].as_str().expect("a timer").to_owned()
}
