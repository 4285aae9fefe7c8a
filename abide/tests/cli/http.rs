//! The HTTP interface, with handwritten requests.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use crate::harness::Abide;

pub struct Answered {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answered {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("{:?}", String::from_utf8_lossy(&self.body)))
    }

    #[track_caller]
    fn problem(&self, status: u16, detail: &str) {
        let body = self.json();
        assert_eq!(self.status, status, "{body}");
        assert!(
            self.head
                .to_lowercase()
                .contains("content-type: application/problem+json"),
            "{}",
            self.head
        );
        assert_eq!(body["status"], status);
        assert!(
            body["type"].is_string() && body["title"].is_string(),
            "{body}"
        );
        assert!(body["detail"].as_str().unwrap().contains(detail), "{body}");
    }
}

pub fn ask(abide: &Abide, line: &str, headers: &str, body: &[u8]) -> Answered {
    if !abide.socket().exists() {
        abide.output(["status"]);
    }
    let mut stream = UnixStream::connect(abide.socket()).expect("the daemon listens");
    let length = body.len();
    write!(
        stream,
        "{line} HTTP/1.0\r\n{headers}content-length: {length}\r\n\r\n"
    )
    .unwrap();
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let end = answer
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .expect("a head");
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    Answered {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head,
        body: answer.split_off(end + 4),
    }
}

fn tool(abide: &Abide, name: &str, arguments: &Value) -> Answered {
    let line = format!("POST /v1/tools/{name}");
    let headers = "content-type: application/json\r\n";
    ask(abide, &line, headers, arguments.to_string().as_bytes())
}

/// Sends a request that must be accepted.
pub fn post(abide: &Abide, path: &str, body: &Value) -> Value {
    let (line, headers) = (format!("POST {path}"), "content-type: application/json\r\n");
    let answered = ask(abide, &line, headers, body.to_string().as_bytes());
    assert_eq!(answered.status, 200, "{}", answered.json());
    answered.json()
}

#[test]
fn tools_are_listed_and_called() {
    let abide = Abide::new();
    let list = ask(&abide, "GET /v1/tools", "", b"").json();
    assert!(
        list["tools"]
            .as_array()
            .unwrap()
            .iter()
            .any(|tool| tool["name"] == "shell")
    );
    let result = tool(&abide, "shell", &json!({"command": "echo hello"}));
    assert_eq!(result.status, 200);
    let facts = result.json();
    assert_eq!(facts["status"], "SUCCESS");
    assert_eq!(facts["is_error"], false);
    assert!(
        facts["text"].as_str().unwrap().contains("STDOUT:\nhello"),
        "{facts}"
    );
    let id = facts["session_id"].as_str().unwrap();
    let session = ask(&abide, &format!("GET /v1/sessions/{id}"), "", b"").json();
    for field in [
        "session_id",
        "command",
        "agent",
        "status",
        "exit_code",
        "signal",
        "end",
        "duration",
        "bytes_total",
        "bytes_dropped",
        "still_running",
        "contained_by",
        "created_at",
        "cwd",
        "pty",
        "last_activity",
    ] {
        assert!(session.get(field).is_some(), "{field} in {session}");
    }
}

#[test]
fn s2_request_with_the_same_key_runs_once() {
    let abide = Abide::new();
    let count = abide.path("count");
    let command = json!({"command": format!("echo x >> {}", count.display())}).to_string();
    let headers = "content-type: application/json\r\nidempotency-key: k1\r\n";
    let first = ask(&abide, "POST /v1/tools/shell", headers, command.as_bytes()).json();
    let second = ask(&abide, "POST /v1/tools/shell", headers, command.as_bytes()).json();
    assert_eq!(first["session_id"], second["session_id"]);
    assert_eq!(std::fs::read_to_string(count).unwrap(), "x\n");
}

#[test]
fn errors_are_problem_details() {
    let abide = Abide::new();
    let json_type = "content-type: application/json\r\n";
    tool(&abide, "shell", &json!({"command": ""})).problem(400, "Shell command cannot be empty");
    tool(&abide, "shell", &json!({"command": "x", "timeout": 0})).problem(400, "`timeout`");
    tool(&abide, "nonsense", &json!({})).problem(404, "nonsense");
    ask(&abide, "POST /v1/tools/shell", json_type, b"{").problem(400, "not JSON");
    ask(&abide, "POST /v1/tools/shell", json_type, b"[]").problem(400, "object");
    ask(
        &abide,
        "POST /v1/tools/shell",
        "content-type: text/plain\r\n",
        b"{}",
    )
    .problem(415, "application/json");
    ask(&abide, "GET /v1/sessions/session_00000000", "", b"")
        .problem(404, "Session 'session_00000000' not found");
    ask(&abide, "GET /v1/sessions/..%2F..%2Fetc", "", b"").problem(404, "not found");
    ask(&abide, "GET /v1/sessions?limit=0", "", b"").problem(400, "`limit`");
    ask(&abide, "GET /v1/sessions?nonsense=1", "", b"").problem(400, "nonsense");
    ask(&abide, "GET /v1/nonsense", "", b"").problem(404, "/v1/nonsense");
    ask(&abide, "GET /v1/stop", "", b"").problem(405, "GET");
    ask(
        &abide,
        "POST /v1/questions/question_00000000/answer",
        json_type,
        br#"{"answer":"maybe"}"#,
    )
    .problem(400, "maybe");
    ask(
        &abide,
        "POST /v1/questions/question_00000000/answer",
        json_type,
        br#"{"answer":"yes"}"#,
    )
    .problem(404, "not found");
    ask(&abide, "GET /v1/status", "abide-agent: \r\n", b"").problem(400, "abide-agent");
}

#[test]
fn s7_too_large_body_is_refused() {
    let abide = Abide::new();
    let body = vec![b' '; (8 << 20) + 1];
    let headers = "content-type: application/json\r\n";
    ask(&abide, "POST /v1/tools/shell", headers, &body).problem(413, "8388608");
}

#[test]
fn agent_cannot_answer_or_stop_the_daemon() {
    let abide = Abide::new();
    let headers = "content-type: application/json\r\nabide-agent: one\r\n";
    let line = "POST /v1/questions/question_00000000/answer";
    ask(&abide, line, headers, br#"{"answer":"yes"}"#).problem(403, "only a person can");
    ask(&abide, "POST /v1/stop", headers, b"").problem(403, "only a person can");
}

#[test]
fn s10_agent_sees_only_its_own_sessions() {
    let abide = Abide::new();
    let mine = "content-type: application/json\r\nabide-agent: mine\r\n";
    let other = "abide-agent: other\r\n";
    let run = ask(
        &abide,
        "POST /v1/tools/shell",
        mine,
        br#"{"command":"echo secret"}"#,
    )
    .json();
    let id = run["session_id"].as_str().unwrap();
    let line = format!("GET /v1/sessions/{id}");
    assert_eq!(ask(&abide, &line, mine, b"").status, 200);
    assert_eq!(ask(&abide, &line, "", b"").status, 200);
    ask(&abide, &line, other, b"").problem(404, "not found");
    ask(&abide, &format!("{line}/log"), other, b"").problem(404, "not found");
    ask(&abide, &format!("POST /v1/sessions/{id}/kill"), other, b"").problem(404, "not found");
}

#[test]
fn log_is_read_by_offset_and_stream() {
    let abide = Abide::new();
    let run = tool(
        &abide,
        "shell",
        &json!({"command": "printf 0123456789; printf err >&2"}),
    )
    .json();
    let id = run["session_id"].as_str().unwrap();
    let log = |query: &str| {
        ask(
            &abide,
            &format!("GET /v1/sessions/{id}/log{query}"),
            "",
            b"",
        )
        .body
    };
    assert_eq!(log("?stream=stdout"), b"0123456789");
    assert_eq!(log("?stream=stderr"), b"err");
    // The order of output on two streams is not guaranteed.
    let at = if log("").starts_with(b"err") { 3 } else { 0 };
    let middle = format!("?stream=stdout&from={}&to={}", at + 3, at + 6);
    assert_eq!(log(&middle), b"345");
    assert_eq!(log("?from=99"), b"");
    assert_eq!(log("?follow=true").len(), 13);
}

#[test]
fn lists_are_paged() {
    let abide = Abide::new();
    for n in 0..5 {
        tool(&abide, "shell", &json!({"command": format!("exit {n}")}));
    }
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = ask(
            &abide,
            &format!("GET /v1/sessions?include_ended=true&limit=2{after}"),
            "",
            b"",
        )
        .json();
        seen.extend(
            page["sessions"]
                .as_array()
                .unwrap()
                .iter()
                .map(|session| session["exit_code"].clone()),
        );
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen, [4, 3, 2, 1, 0].map(Value::from));
}

#[test]
fn s1_session_continues_when_its_client_disconnects() {
    let abide = Abide::new();
    abide.output(["status"]);
    let fifo = abide.fifo("go");
    let made = abide.path("made");
    let command = format!("cat {} > {}", fifo.display(), made.display());
    let body = json!({"command": command}).to_string();
    let mut stream = UnixStream::connect(abide.socket()).unwrap();
    let length = body.len();
    write!(stream, "POST /v1/tools/shell HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
    // Opening the fifo blocks until the command has opened it.
    let mut go = std::fs::File::options().write(true).open(&fifo).unwrap();
    drop(stream);
    go.write_all(b"on").unwrap();
    drop(go);
    let list = ask(&abide, "GET /v1/sessions?include_ended=true", "", b"").json();
    let id = list["sessions"][0]["session_id"].as_str().unwrap();
    ask(
        &abide,
        &format!("GET /v1/sessions/{id}/log?follow=true"),
        "",
        b"",
    );
    assert_eq!(std::fs::read(made).unwrap(), b"on");
}

#[test]
fn duplicate_field_is_refused() {
    let abide = Abide::new();
    let body = br#"{"command": "true", "env": {"A": "1", "A": "2"}}"#;
    let json_type = "content-type: application/json\r\n";
    let refused = ask(&abide, "POST /v1/tools/shell", json_type, body);
    refused.problem(400, "the field 'A' is given twice");
}

#[test]
fn person_who_disconnected_is_not_asked() {
    let abide = Abide::new();
    abide.output(["status"]);
    let mut person = UnixStream::connect(abide.socket()).unwrap();
    write!(person, "GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut head = [0; 12];
    person.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    let body = json!({"command": "sleep 1000", "timeout": 0.2}).to_string();
    let length = body.len();
    let mut call = UnixStream::connect(abide.socket()).unwrap();
    write!(call, "POST /v1/tools/execute_command HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
    let mut seen = Vec::new();
    let mut byte = [0];
    while !String::from_utf8_lossy(&seen).contains("Continue waiting?") {
        person.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
    drop(person);
    let mut answer = String::new();
    call.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"status\":\"running\""), "{answer}");
    // The question stays open for the next person.
    let status = ask(&abide, "GET /v1/status", "", b"").json();
    assert_eq!(status["questions"]["open"], 1, "{status}");
}

#[test]
fn input_signal_and_resize_need_a_running_session() {
    let abide = Abide::new();
    let json_type = "content-type: application/json\r\n";
    let run = tool(&abide, "shell", &json!({"command": "true"})).json();
    let id = run["session_id"].as_str().unwrap();
    let post = |what: &str, body: &[u8]| {
        ask(
            &abide,
            &format!("POST /v1/sessions/{id}/{what}"),
            json_type,
            body,
        )
    };
    post("signal", br#"{"signal":"INT"}"#).problem(409, "has ended");
    post("signal", br#"{"signal":"NOPE"}"#).problem(400, "NOPE");
    post("resize", br#"{"cols":80,"rows":24}"#).problem(409, "no terminal");
    for size in [
        r#"{"cols":0,"rows":24}"#,
        r#"{"cols":5000}"#,
        r#"{"cols":"80"}"#,
    ] {
        post("resize", size.as_bytes())
            .problem(400, "`cols` must be a whole number from 2 to 1000");
    }
    post("resize", b"{}").problem(400, "`cols` or `rows` is required");
    post("input", b"text").problem(409, "has ended");
    post("extend", br#"{"timeout":5}"#).problem(409, "has ended");
    post("extend", b"{}").problem(400, "`timeout`, `idle` or `inactivity_timeout` is required");
    post("extend", br#"{"idle":-1}"#).problem(400, "`idle`");
    assert_eq!(post("kill", b"").status, 200);
}

#[test]
fn run_with_the_same_key_resumes() {
    let abide = Abide::new();
    let count = abide.path("count");
    let body = |from: u64| {
        json!({
            "command": format!("echo x >> {}; printf 0123456789", count.display()),
            "cwd": "/", "env": [["PATH", "/usr/bin:/bin"]], "key": "k", "from": from,
        })
        .to_string()
    };
    let run = |from| {
        ask(
            &abide,
            "POST /v1/runs",
            "content-type: application/json\r\n",
            body(from).as_bytes(),
        )
    };
    let whole = run(0);
    assert_eq!(whole.status, 200);
    assert!(whole.body.windows(10).any(|window| window == b"0123456789"));
    let rest = run(7);
    assert!(
        rest.body
            .windows(8)
            .any(|window| window == b"\x02\x03\0\0\x00789"),
        "{:?}",
        rest.body
    );
    assert_eq!(std::fs::read_to_string(&count).unwrap(), "x\n");
    let other = json!({"command": "true", "cwd": "/", "env": [], "key": "k"}).to_string();
    ask(
        &abide,
        "POST /v1/runs",
        "content-type: application/json\r\n",
        other.as_bytes(),
    )
    .problem(409, "another command");
}
