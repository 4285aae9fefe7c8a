//! The event stream as a page receives it.

use std::net::TcpStream;

use serde_json::{Value, json};
use tungstenite::client::IntoClientRequest;
use tungstenite::{Message, WebSocket};

use crate::harness::{Abide, Answer, feed};

const PERSON: &str = "abide-person: true\r\n";

fn follow(abide: &Abide, query: &str, headers: &str) -> Answer {
    let stream = abide.open(&format!("GET /v1/events{query}"), headers, "");
    assert_eq!(stream.status, 200);
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    stream
}

fn timer(abide: &Abide, agent: &str, more: &Value) -> Value {
    let mut body = json!({"total_duration": 1000, "mission": "later"});
    for (field, value) in more.as_object().expect("fields") {
        body[field] = value.clone();
    }
    let agent = format!("abide-agent: {agent}\r\n");
    abide.good("POST /v1/timers", &agent, &body)
}

#[test]
fn stream_begins_with_hello_and_sends_session_events() {
    let abide = Abide::new();
    let mut stream = follow(&abide, "", PERSON);
    let (id, name, hello) = stream.next_event();
    assert_eq!(name, "hello");
    assert!(id.contains('-'), "{id}");
    assert_eq!(hello["pid"], abide.status()["daemon"]["pid"]);
    assert!(hello["now"].as_u64().unwrap() >= hello["started_at"].as_u64().unwrap());
    let ran = abide.shell("echo hello");
    let session = ran["session_id"].clone();
    let over = |told: &Value| told["session_id"] == session && told["status"] == "exited";
    let (_, told) = stream.until("session", over);
    let line = format!("GET /v1/sessions/{}", session.as_str().unwrap());
    assert_eq!(told, abide.good(&line, "", &Value::Null), "the same object");
}

#[test]
fn agent_gets_events_of_its_own_sessions() {
    let abide = Abide::new();
    let mut mine = follow(&abide, "", "abide-agent: me\r\n");
    timer(&abide, "other", &json!({"mission": "not mine"}));
    timer(&abide, "me", &json!({"mission": "mine"}));
    let (_, told) = mine.until("timer", |_| true);
    assert_eq!(told["mission"], "mine", "{told}");
    assert_eq!(told["agent"], "me");
}

#[test]
fn stream_resumes_after_last_event_id() {
    let abide = Abide::new();
    let mut stream = follow(&abide, "", PERSON);
    let first = timer(&abide, "a", &json!({"mission": "first"}));
    let (id, told) = stream.until("timer", |_| true);
    assert_eq!(told["timer_id"], first["timer_id"]);
    drop(stream);
    let missed = timer(&abide, "a", &json!({"mission": "missed"}));
    let headers = format!("{PERSON}last-event-id: {id}\r\n");
    let mut again = follow(&abide, "", &headers);
    let (hello_id, name, _) = again.next_event();
    assert_eq!((hello_id, name.as_str()), (id, "hello"));
    let (_, name, told) = again.next_event();
    assert_eq!(name, "timer", "{told}");
    assert_eq!(told["timer_id"], missed["timer_id"]);
}

#[test]
fn removed_try_of_a_condition_is_an_event_for_its_agent() {
    let abide = Abide::new();
    let mut person = follow(&abide, "", PERSON);
    let mut other = follow(&abide, "", "abide-agent: other\r\n");
    let until = json!({"command": "exit 1", "every": 0.1});
    let made = timer(&abide, "me", &json!({"mission": "m", "until": until}));
    let of_try = |told: &Value| told["started_by"] == made["timer_id"];
    let (_, first) = person.until("session", of_try);
    let removed = loop {
        let (_, name, told) = person.next_event();
        assert_ne!(name, "reset", "{told}");
        if name == "session_removed" {
            break told;
        }
    };
    assert_eq!(removed, json!({"session_id": first["session_id"]}));
    timer(&abide, "other", &json!({"mission": "own"}));
    let (_, name, _) = other.next_event();
    assert_eq!(name, "hello");
    assert_eq!(other.next_event().1, "timer");
}

#[test]
fn stream_that_cannot_resume_gets_reset() {
    let abide = Abide::new();
    for last in ["0123456789ab-7", "nonsense", "-", "0123456789ab-"] {
        let headers = format!("{PERSON}last-event-id: {last}\r\n");
        let mut stream = follow(&abide, "", &headers);
        assert_eq!(stream.next_event().1, "hello");
        assert_eq!(stream.next_event().1, "reset", "{last}");
    }
}

#[test]
fn timer_events_have_all_fields() {
    let abide = Abide::new();
    let mut stream = follow(&abide, "", PERSON);
    let wait = json!({
        "total_duration": 1000, "reason": "a file", "until": {"file": abide.path("never"), "is": "present"},
    });
    let call = abide.send("POST /v1/timers", "abide-agent: me\r\n", &wait.to_string());
    let (_, told) = stream.until("timer", |_| true);
    assert_eq!(told["standing_by"], true, "{told}");
    assert_eq!(told["until"]["is"], "present");
    assert_eq!(
        (&told["agent"], &told["reason"]),
        (&json!("me"), &json!("a file"))
    );
    let sum = told["elapsed_time"].as_f64().unwrap() + told["remaining_time"].as_f64().unwrap();
    assert_eq!(sum, 1000.0);
    drop(call);
    let (_, told) = stream.until("timer", |told| told["standing_by"] == false);
    let id = told["timer_id"].as_str().unwrap();
    let pause = json!({"pause_duration": 500});
    abide.good(&format!("POST /v1/timers/{id}/pause"), PERSON, &pause);
    stream.until("timer", |told| told["status"] == "paused");
    abide.good(&format!("POST /v1/timers/{id}/stop"), PERSON, &json!({}));
    let (_, told) = stream.until("timer", |told| told["status"] == "stopped");
    assert_eq!(told["timer_id"], id);
}

/// The response about a timer without a waiting call is built without reading the stored row, with the same fields.
#[test]
fn timer_event_is_the_same_for_every_way_to_create_it() {
    let abide = Abide::new();
    let plain = json!({"total_duration": 900, "mission": "later"});
    let until = json!({"total_duration": 900, "mission": "later", "until": {"port": 1}});
    let keyed = "idempotency-key: one\r\n";
    let mut names = Vec::new();
    for (headers, body) in [("", &plain), (keyed, &plain), (keyed, &plain), ("", &until)] {
        let told = abide.good("POST /v1/timers", headers, body);
        assert_eq!(told["standing_by"], false, "{told}");
        assert_eq!(told["until"].is_null(), *body == plain, "{told}");
        // The first check of a condition may or may not have happened yet.
        let told = told.as_object().expect("facts").keys().cloned();
        names.push(told.filter(|name| name != "last_look").collect::<Vec<_>>());
    }
    assert_eq!(names[0], names[1]);
    assert_eq!(names[1], names[2]);
    assert_eq!(names[2], names[3]);
}

#[test]
fn idempotency_key_is_the_same_as_header_and_as_argument() {
    let abide = Abide::new();
    let plain = json!({"command": "true"});
    let keyed = json!({"command": "true", "idempotency_key": "one"});
    let header = "idempotency-key: one\r\n";
    let sessions = [(header, &plain), ("", &keyed), (header, &plain)].map(|(headers, body)| {
        abide.good("POST /v1/tools/shell", headers, body)["session_id"].clone()
    });
    assert_eq!(sessions[0], sessions[1]);
    assert_eq!(sessions[0], sessions[2]);
}

#[test]
fn s25_many_timer_changes_become_one_event() {
    let abide = Abide::new();
    let mut stream = follow(&abide, "", PERSON);
    assert_eq!(stream.next_event().1, "hello");
    let all: Vec<Value> = (0..500)
        .map(|_| json!({"total_duration": 1000, "mission": "later"}))
        .collect();
    abide.good("POST /v1/timers", "", &json!({"timers": all}));
    assert_eq!(stream.next_event().1, "timers_changed");
}

#[test]
fn message_event_is_sent() {
    let abide = Abide::new();
    let mut stream = follow(&abide, "", PERSON);
    let soon = timer(
        &abide,
        "me",
        &json!({"total_duration": 0.05, "mission": "look"}),
    );
    let (_, told) = stream.until("message", |_| true);
    assert_eq!(told["agent"], "me");
    assert!(told["text"].as_str().unwrap().contains("look"), "{told}");
    assert!(
        told["text"]
            .as_str()
            .unwrap()
            .contains(soon["timer_id"].as_str().unwrap())
    );
}

#[test]
fn person_on_the_stream_is_asked_and_can_set_quiet_for() {
    let abide = Abide::new();
    let browser = abide.log_in();
    let mut stream = Answer::begin(abide.send_bare("GET /v1/events", &browser, ""));
    assert_eq!(stream.next_event().1, "hello");
    let fifo = abide.fifo("go");
    let command = format!("echo one; echo two; cat {}", fifo.display());
    let call = json!({"command": command, "timeout": 3600}).to_string();
    let call = abide.send("POST /v1/tools/execute_command", "", &call);
    let (_, begun) = stream.until("session", |_| true);
    abide.set_idle_limit_after(begun["session_id"].as_str().unwrap(), 8);
    let (_, asked) = stream.until("question", |_| true);
    assert_eq!(asked["state"], "open", "{asked}");
    assert_eq!(asked["tail"], json!(["one", "two"]), "{asked}");
    assert!(asked["idle_for"].as_f64().unwrap() >= 1.0, "{asked}");
    for field in ["command", "asked_at", "running_for", "agent", "session_id"] {
        assert!(!asked[field].is_null(), "{field}: {asked}");
    }
    let id = asked["question_id"].as_str().unwrap();
    let listed = abide
        .ask_bare("GET /v1/questions", &browser, &Value::Null)
        .1;
    assert_eq!(listed["questions"][0]["tail"], asked["tail"], "{listed}");
    let line = format!("POST /v1/questions/{id}/answer");
    for wrong in [
        json!({"answer": "no", "quiet_for": 600}),
        json!({"answer": "yes", "quiet_for": 0}),
        json!({"answer": "yes", "quiet_for": -1}),
        json!({"answer": "yes", "quiet_for": "long"}),
        json!({"answer": "yes", "quiet_for": 1e12}),
    ] {
        let (status, problem) = abide.ask_bare(&line, &browser, &wrong);
        assert_eq!(status, 400, "{wrong}: {problem}");
    }
    let yes = json!({"answer": "yes", "quiet_for": 600});
    assert_eq!(abide.ask_bare(&line, &browser, &yes).0, 200);
    let (_, closed) = stream.until("question", |told| told["state"] == "closed");
    assert_eq!(closed["question_id"], id);
    assert_eq!(closed["closing"], "yes", "{closed}");
    feed(&fifo, "");
    let answer = Answer::begin(call).whole().1;
    assert_eq!(answer["exit_code"], 0, "{answer}");
}

#[test]
fn output_events_are_sent_on_request() {
    let abide = Abide::new();
    let fifo = abide.fifo("go");
    let mut stream = follow(&abide, "?tails=true", PERSON);
    let mut plain = follow(&abide, "", PERSON);
    let command = format!(
        "for n in 1 2 3 4 5 6 7 8; do printf '\\033[31mline %s\\033[0m\\n' $n; done; cat {}",
        fifo.display()
    );
    let call = json!({"command": command}).to_string();
    let call = abide.send("POST /v1/tools/shell", "", &call);
    let full = |told: &Value| {
        let tail = told["tail"].as_array();
        tail.and_then(|tail| tail.last()) == Some(&json!("line 8"))
    };
    let (_, told) = stream.until("output", full);
    let lines: Vec<String> = (3..=8).map(|n| format!("line {n}")).collect();
    assert_eq!(told["tail"], json!(lines), "{told}");
    assert!(told["bytes_total"].as_u64().unwrap() > 8 * 6, "{told}");
    assert!(told["last_activity"].as_u64().is_some());
    let (_, told) = stream.until("output", |told| told["memory"].as_u64() > Some(0));
    assert_eq!(told["waiting_for_input"], false);
    let list = abide.good("GET /v1/sessions?tails=true", PERSON, &Value::Null);
    assert_eq!(list["sessions"][0]["tail"], json!(lines), "{list}");
    assert!(list["sessions"][0]["memory"].as_u64() > Some(0), "{list}");
    feed(&fifo, "");
    Answer::begin(call).rest();
    loop {
        let (_, name, told) = plain.next_event();
        assert_ne!(name, "output", "it was not asked for");
        if told["status"] == "exited" {
            break;
        }
    }
}

#[test]
fn logout_ends_the_event_stream() {
    let abide = Abide::new();
    let browser = abide.log_in();
    let mut stream = Answer::begin(abide.send_bare("GET /v1/events", &browser, ""));
    assert_eq!(stream.next_event().1, "hello");
    assert_eq!(
        abide.ask_bare("POST /v1/logout", &browser, &json!({})).0,
        204
    );
    assert!(!stream.rest().contains("data:"), "the stream ends");
}

#[test]
fn logout_ends_a_followed_log() {
    let abide = Abide::new();
    let browser = abide.log_in();
    let start = json!({"action": "start", "command": "cat"});
    let started = abide.good("POST /v1/tools/terminal_session", PERSON, &start);
    let session = started["session_id"].as_str().expect("an id");
    let line = format!("GET /v1/sessions/{session}/log?follow=true");
    let stream = Answer::begin(abide.send_bare(&line, &browser, ""));
    let (status, _) = abide.ask_bare("POST /v1/logout", &browser, &json!({}));
    assert_eq!(status, 204);
    assert_eq!(stream.status, 200);
    stream.rest();
}

/// Next event of a WebSocket: id, name and data.
fn said(page: &mut WebSocket<TcpStream>) -> Option<(String, String, Value)> {
    loop {
        let text = match page.read().expect("a message") {
            Message::Text(text) => text,
            Message::Close(close) => {
                assert_eq!(u16::from(close.expect("a reason").code), 1000);
                return None;
            }
            other => panic!("{other:?}"),
        };
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name));
            value.unwrap_or_default().to_owned()
        };
        if let Ok(facts) = serde_json::from_str(&field("data: ")) {
            return Some((field("id: "), field("event: "), facts));
        }
    }
}

fn page(abide: &Abide, browser: &str, query: &str) -> WebSocket<TcpStream> {
    let url = format!("ws://{}/v1/events{query}", abide.address());
    let mut request = url.into_client_request().expect("a request");
    for line in browser.lines() {
        let (name, value) = line.split_once(": ").expect("a header");
        let name = tungstenite::http::HeaderName::try_from(name).expect("a name");
        let value = value.parse().expect("a value");
        request.headers_mut().insert(name, value);
    }
    tungstenite::client(request, abide.connect())
        .expect("a channel")
        .0
}

#[test]
fn websocket_sends_the_same_events_and_resumes() {
    let abide = Abide::new();
    let browser = abide.log_in();
    let mut first = page(&abide, &browser, "?tails=true");
    assert_eq!(said(&mut first).expect("hello").1, "hello");
    timer(&abide, "a", &json!({"mission": "first"}));
    let (id, name, told) = said(&mut first).expect("an event");
    assert_eq!((&*name, &told["mission"]), ("timer", &json!("first")));
    drop(first);
    timer(&abide, "a", &json!({"mission": "second"}));
    let mut again = page(&abide, &browser, &format!("?last={id}"));
    assert_eq!(said(&mut again).expect("hello").1, "hello");
    let (_, _, told) = said(&mut again).expect("what it missed");
    assert_eq!(told["mission"], "second");
    let (status, _) = abide.ask_bare("POST /v1/logout", &browser, &json!({}));
    assert_eq!(status, 204);
    assert_eq!(said(&mut again), None, "it ends with the login");
}

#[test]
fn message_update_is_sent() {
    let waker = "[[wakers]]\ncommand = [\"sh\", \"-c\", \"echo no way >&2; exit 3\"]\nafter = 0\n";
    let abide = Abide::with(waker);
    let mut stream = follow(&abide, "", PERSON);
    timer(&abide, "default", &json!({"total_duration": 0.05}));
    let tried = |told: &Value| told["deliveries"][0]["fault"].is_string();
    let (_, told) = stream.until("message", tried);
    let fault = told["deliveries"][0]["fault"].as_str().expect("a fault");
    assert!(fault.contains("no way"), "{told}");
    assert_eq!(told["seen_at"], Value::Null);
    abide.good("POST /v1/tools/read_messages", "", &json!({}));
    stream.until("message", |told| told["seen_at"].is_u64());
}
