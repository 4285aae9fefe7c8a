//! Events of one machine about the sessions and questions of another.

use std::io::BufRead;

use super::*;
use harness::line_with;

/// Next event of this name, as JSON.
fn next(events: &mut impl BufRead, name: &str) -> Value {
    line_with(events, &format!("event: {name}\n"));
    let data = line_with(events, "data: ");
    let data = data.trim_start_matches("data: ");
    serde_json::from_str(data).expect("JSON")
}

#[test]
fn session_of_the_other_machine_is_an_event_when_it_starts_and_when_it_ends() {
    let pair = Pair::with("");
    let mut events = pair.desk.events();
    let id = pair.cat();
    let started = next(&mut events, "session");
    assert_eq!(started["session_id"], json!(id), "{started}");
    assert_eq!(started["machine"], "build", "{started}");
    assert_eq!(started["status"], "running", "{started}");
    assert_eq!(pair.build.kill_session(&id).status, 200);
    let ended = look_for("the end of the session", || {
        let ended = next(&mut events, "session");
        (ended["status"] == "exited").then_some(ended)
    });
    assert_eq!(ended["session_id"], json!(id), "{ended}");
}

#[test]
fn question_of_the_other_machine_is_an_event_when_it_is_asked_and_when_it_is_answered() {
    let pair = Pair::with("[fleet]\ntype = [\"desk\"]\n");
    let mut events = pair.desk.events();
    let begun = pair.build.begin(
        "/v1/tools/execute_command",
        &json!({"command": "sleep 600", "timeout": 1}),
    );
    let asked = next(&mut events, "question");
    assert_eq!(asked["state"], "open", "{asked}");
    assert_eq!(asked["machine"], "build", "{asked}");
    let id = asked["question_id"].as_str().expect("an id");
    let path = format!("/v1/questions/{id}/answer");
    let answered = pair.desk.post(&path, &json!({"answer": "no"}));
    assert_eq!(answered.status, 200);
    let closed = next(&mut events, "question");
    assert_eq!(closed["state"], "closed", "{closed}");
    assert_eq!(closed["question_id"], json!(id), "{closed}");
    harness::receive(begun).expect("an answer");
}
