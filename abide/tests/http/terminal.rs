//! Terminal of a session as the page shows it, with input.

use std::net::TcpStream;

use serde_json::{Value, json};
use tungstenite::Message;
use tungstenite::client::IntoClientRequest;

use crate::harness::{Abide, feed};
use crate::terminal_page::TerminalPage;

const PERSON: &str = "abide-person: true\r\n";

/// Parts of 900 kB of a flood, more than the buffers of a TCP connection take.
const FLOOD_PARTS: usize = 8;

fn open(abide: &Abide, browser: &str, session: &str) -> TerminalPage<TcpStream> {
    let address = abide.address();
    let url = format!("ws://{address}/v1/sessions/{session}/terminal");
    let mut request = url.into_client_request().expect("a request");
    for line in browser.lines() {
        let (name, value) = line.split_once(": ").expect("a header");
        let name = tungstenite::http::HeaderName::try_from(name).expect("a name");
        request
            .headers_mut()
            .insert(name, value.parse().expect("a value"));
    }
    TerminalPage::open(request, abide.connect())
}

fn start(abide: &Abide, browser: &str, body: &Value) -> String {
    let (status, started) = abide.ask_bare("POST /v1/sessions", browser, body);
    assert_eq!(status, 201, "{started}");
    started["session_id"].as_str().expect("an id").to_owned()
}

#[test]
fn websocket_terminal_takes_input_and_shows_output() {
    let abide = Abide::new();
    let browser = abide.log_in();
    let body = json!({"command": "cat", "agent": "helper", "cwd": "/"});
    let session = start(&abide, &browser, &body);
    let mut page = open(&abide, &browser, &session);
    let hello = page.until_event("hello");
    let expected = json!({"type": "hello", "cols": 120, "rows": 40, "pty": true, "running": true});
    assert_eq!(hello, expected);
    page.type_in("hello\r");
    page.until_painted("hello\r\nhello\r\n");
    // Other users of the terminal are notified.
    let read = json!({"action": "read_output", "session_id": session});
    let agent = "abide-agent: helper\r\n";
    let read = abide.good("POST /v1/tools/terminal_session", agent, &read);
    let text = read["text"].as_str().unwrap();
    assert!(text.contains("a person is at this terminal too"), "{text}");
    // Another page resizes the terminal, and this one is notified.
    let mut other = open(&abide, &browser, &session);
    other.until_event("hello");
    other.until_painted("hello");
    let size = r#"{"type": "resize", "cols": 100, "rows": 30}"#;
    other.send(Message::Text(size.into()));
    let resized = page.until_event("resized");
    assert_eq!(
        (&resized["cols"], &resized["rows"]),
        (&json!(100), &json!(30))
    );
    page.type_in("\u{4}");
    let ended = page.until_event("ended");
    assert_eq!(
        (&ended["exit_code"], &ended["session_id"]),
        (&json!(0), &json!(session))
    );
    assert_eq!(page.until_closed(), Some(1000));
}

#[test]
fn ended_session_shows_its_last_screen() {
    let abide = Abide::new();
    let browser = abide.log_in();
    let session = start(
        &abide,
        &browser,
        &json!({"command": "printf 'last\\nwords'"}),
    );
    let mut page = open(&abide, &browser, &session);
    page.until_event("ended");
    page.until_painted("words");
    let mut late = open(&abide, &browser, &session);
    assert_eq!(late.until_event("hello")["running"], false);
    late.until_event("ended");
    late.until_painted("words");
    assert_eq!(late.until_closed(), Some(1000));
}

#[test]
fn session_without_pty_shows_the_end_of_its_log() {
    let abide = Abide::new();
    let browser = abide.log_in();
    let fifo = abide.fifo("go");
    let flood = "head -c 400000 /dev/zero | tr '\\0' x";
    let command = format!(
        "echo first; {flood}; echo; echo before; cat {}",
        fifo.display()
    );
    let session = start(&abide, &browser, &json!({"command": command, "pty": false}));
    let all = "first\n".len() + 400_000 + "\nbefore\n".len();
    abide.written(&session, all as u64);
    let mut page = open(&abide, &browser, &session);
    assert_eq!(page.until_event("hello")["pty"], false);
    page.until_painted("before");
    assert!(page.painted.len() <= 256 << 10, "{}", page.painted.len());
    feed(&fifo, "after\n");
    page.until_event("ended");
    page.until_painted("after");
}

#[test]
fn unsafe_sequences_are_filtered() {
    let abide = Abide::new();
    let browser = abide.log_in();
    let fifo = abide.fifo("go");
    let hostile = "printf 'a\\033]52;c;aGk=\\007b\\033]0;title\\007c\\033[6nd\\033[5ie'";
    let command = format!("cat {0} >/dev/null; {hostile}; cat {0}", fifo.display());
    let session = start(&abide, &browser, &json!({"command": command}));
    let mut page = open(&abide, &browser, &session);
    page.until_event("hello");
    feed(&fifo, "");
    page.until_painted("abcde");
    feed(&fifo, "");
    page.until_event("ended");
}

#[test]
fn slow_page_gets_a_new_snapshot() {
    let abide = Abide::new();
    let browser = abide.log_in();
    let (go, end) = (abide.fifo("go"), abide.fifo("end"));
    let size = 24_000_000;
    let flood = format!("head -c {size} /dev/zero | tr '\\0' x");
    let command = format!(
        "cat {} >/dev/null; {flood}; echo; echo over; cat {}",
        go.display(),
        end.display()
    );
    let session = start(&abide, &browser, &json!({"command": command, "pty": false}));
    let mut page = open(&abide, &browser, &session);
    page.until_event("hello");
    feed(&go, "");
    // Opened after the flood of output, which no client has read.
    feed(&end, "");
    page.until_event("ended");
    assert!(String::from_utf8_lossy(&page.painted).contains("over"));
    assert!(page.painted.len() < size, "{}", page.painted.len());
    assert!(
        page.painted.windows(2).any(|pair| pair == b"\x1bc"),
        "painted again"
    );
}

#[test]
fn resize_during_a_flood_is_told_before_the_next_snapshot() {
    let abide = Abide::new();
    let browser = abide.log_in();
    let part = "head -c 900000 /dev/zero | tr '\\0' x";
    let command = format!("stty -echo; while read -r word; do {part}; echo \"end $word\"; done");
    let session = start(&abide, &browser, &json!({"command": command}));
    let mut slow = open(&abide, &browser, &session);
    slow.until_event("hello");
    let mut other = open(&abide, &browser, &session);
    other.until_event("hello");
    // The page `slow` reads nothing, so the daemon waits until the connection takes more.
    for number in 0..FLOOD_PARTS {
        other.type_in(&format!("{number}\r"));
        other.until_painted(&format!("end {number}\r\n"));
        other.painted.clear();
    }
    let size = r#"{"type": "resize", "cols": 100, "rows": 30}"#;
    other.send(Message::Text(size.into()));
    other.until_event("resized");
    other.type_in("over\r");
    other.until_painted("end over");
    slow.until_event("resized");
    assert!(!String::from_utf8_lossy(&slow.painted).contains("end over"));
    slow.until_painted("end over");
}

#[test]
fn request_without_upgrade_is_refused() {
    let abide = Abide::new();
    let browser = abide.log_in();
    let session = start(&abide, &browser, &json!({"command": "cat"}));
    let line = format!("GET /v1/sessions/{session}/terminal");
    let (status, problem) = abide.ask_bare(&line, &browser, &Value::Null);
    assert_eq!(
        (status, &problem["status"]),
        (426, &json!(426)),
        "{problem}"
    );
    let none = "GET /v1/sessions/session_00000000/terminal";
    assert_eq!(abide.ask_bare(none, &browser, &Value::Null).0, 404);
}

#[test]
fn session_is_started_for_the_caller_or_by_a_person_for_an_agent() {
    let abide = Abide::new();
    let browser = abide.log_in();
    let session = start(
        &abide,
        &browser,
        &json!({"command": "pwd", "cwd": "/usr", "agent": "a"}),
    );
    let seen = abide.good(&format!("GET /v1/sessions/{session}"), PERSON, &Value::Null);
    assert_eq!(
        (&seen["agent"], &seen["cwd"]),
        (&json!("a"), &json!("/usr"))
    );
    let other = json!({"command": "true", "agent": "b"});
    let me = "abide-agent: a\r\n";
    assert_eq!(abide.ask("POST /v1/sessions", me, &other).0, 403);
    for wrong in [
        json!({}),
        json!({"command": " "}),
        json!({"command": "true", "agent": 7}),
        json!({"command": "true", "agent": ""}),
        json!({"command": "true", "cwd": "nowhere/else"}),
        json!({"command": "true", "unknown": 1}),
    ] {
        let (status, problem) = abide.ask_bare("POST /v1/sessions", &browser, &wrong);
        assert!(status == 400 || status == 409, "{wrong}: {problem}");
        assert!(problem["detail"].is_string(), "{wrong}: {problem}");
    }
}

#[test]
fn reading_a_log_or_resizing_prevents_inactivity() {
    let abide = Abide::new();
    let start = || {
        let call =
            json!({"action": "start", "command": "exec sleep 1000", "inactivity_timeout": 10});
        let started = abide.good("POST /v1/tools/terminal_session", "", &call);
        started["session_id"].as_str().expect("an id").to_owned()
    };
    // All are equally idle, and the last would be closed last.
    let (read, resized, unread) = (start(), start(), start());
    let of = |session: &str| {
        let line = format!("GET /v1/sessions/{session}");
        abide.good(&line, PERSON, &Value::Null)
    };
    while of(&unread)["end"].is_null() {
        let log = format!("GET /v1/sessions/{read}/log");
        abide.open(&log, PERSON, "").rest();
        let resize = format!("POST /v1/sessions/{resized}/resize");
        abide.good(&resize, PERSON, &json!({"cols": 100, "rows": 30}));
    }
    assert_eq!(of(&unread)["end"], "inactivity");
    assert_eq!(of(&resized)["status"], "running");
    assert_eq!(of(&read)["status"], "running");
}
