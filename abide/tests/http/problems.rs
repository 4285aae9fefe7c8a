//! Errors of requests all have the same form.

use serde_json::{Value, json};

use crate::harness::Abide;

#[test]
fn every_refusal_is_a_problem_with_a_sentence() {
    let abide = Abide::new();
    let (address, token) = (abide.address(), abide.token());
    let json = "content-type: application/json\r\n";
    for (line, headers, body, wanted) in [
        ("GET /v1/nothing", "", "", 404),
        ("GET /nothing", "", "", 404),
        ("DELETE /v1/sessions", "", "", 405),
        ("GET /v1/runs", "", "", 405),
        ("GET /v1/sessions?limit=x", "", "", 400),
        ("GET /v1/sessions?limit=-1", "", "", 400),
        ("GET /v1/sessions?unknown=1", "", "", 400),
        ("GET /v1/sessions/%ff", "", "", 400),
        ("GET /v1/sessions/%00", "", "", 404),
        ("GET /v1/sessions/session_00000000", "", "", 404),
        ("GET /v1/sessions/session_00000000/terminal", "", "", 404),
        ("GET /v1/search", "", "", 400),
        ("GET /v1/timers", "abide-conversation: a\tb\r\n", "", 400),
        ("GET /v1/messages", "abide-conversation: \r\n", "", 400),
        ("GET /v1/events?tails=perhaps", "", "", 400),
        ("POST /v1/timers", json, "{", 400),
        ("POST /v1/timers", json, "[]", 400),
        ("POST /v1/timers", json, "{}", 400),
        ("POST /v1/tools/none", json, "{}", 404),
        ("POST /v1/tools/%ff", json, "{}", 400),
        (
            "POST /v1/tools/shell",
            "content-type: text/plain\r\n",
            "{}",
            415,
        ),
        ("POST /v1/runs", json, "{\"command\": 7}", 400),
        (
            "POST /v1/questions/question_00000000/answer",
            json,
            "{}",
            403,
        ),
        ("POST /v1/stop", json, "{}", 403),
        ("POST /v1/logout", json, "{}", 409),
    ] {
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.0\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n{headers}\
             content-length: {length}\r\n\r\n{body}"
        );
        let (status, answer) = abide.raw(request.as_bytes()).expect("an answer");
        assert_eq!(status, wanted, "{line} {body}\n{answer}");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let head = head.to_lowercase();
        assert!(
            head.contains("content-type: application/problem+json"),
            "{line}\n{answer}"
        );
        assert!(
            head.contains(&format!("content-length: {}", body.len())),
            "{line}\n{answer}"
        );
        let problem: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(problem["status"], wanted, "{line}");
        assert!(
            problem["type"]
                .as_str()
                .unwrap()
                .starts_with("urn:abide:problem:"),
            "{line}"
        );
        for field in ["title", "detail"] {
            assert!(
                !problem[field].as_str().unwrap().is_empty(),
                "{line}: {problem}"
            );
        }
        if wanted == 405 {
            assert!(head.contains("allow: "), "{line}\n{answer}");
        }
    }
}

#[test]
fn refused_tool_call_has_text_and_is_error() {
    let abide = Abide::new();
    let (status, refused) = abide.ask("POST /v1/tools/shell", "", &json!({"command": " "}));
    assert_eq!(status, 400);
    for field in ["detail", "text"] {
        assert_eq!(refused[field], "ERROR: Shell command cannot be empty.");
    }
    assert_eq!(refused["is_error"], true);
    let (_, elsewhere) = abide.ask("GET /v1/nothing", "", &Value::Null);
    assert_eq!(elsewhere.get("text"), None, "{elsewhere}");
}
