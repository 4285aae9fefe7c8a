//! `kill -9` of the daemon: a terminal session continues, accepts input, and loses no byte.

use serde_json::{Value, json};

use crate::harness::Abide;

fn call(abide: &Abide, arguments: Value) -> Value {
    abide.post("/v1/tools/terminal_session", &arguments).body
}

fn started(abide: &Abide, command: &str) -> String {
    let body = call(abide, json!({"action": "start", "command": command}));
    body["session_id"].as_str().expect("an id").to_owned()
}

fn until(abide: &Abide, id: &str, pattern: &str) -> Value {
    let wait = json!({"action": "read_output", "session_id": id, "since": "0", "until": pattern,
        "timeout_seconds": 180, "max_lines": 10_000});
    let read = call(abide, wait);
    assert_eq!(read["matched"], json!(true), "{read}");
    read
}

#[test]
fn session_continues_and_loses_no_byte() {
    let abide = Abide::started();
    let command = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo line $i; \
                   [ $((i % 10)) = 0 ] && sleep 0.005; done; \
                   read word; echo heard $word; read word";
    let id = started(&abide, command);
    until(&abide, &id, "^line 100$");
    for _ in 0..3 {
        abide.kill_daemon();
        abide.start();
    }
    until(&abide, &id, "^line 3000$");
    let send = json!({"action": "send_input", "session_id": id, "input": "hello\n"});
    let answer = call(&abide, send);
    let text = answer["text"].as_str().expect("text");
    if !text.contains("heard hello") {
        until(&abide, &id, "^heard hello$");
    }
    let all = json!({"action": "read_output", "session_id": id, "since": "0", "max_lines": 10_000});
    let all = call(&abide, all);
    let text = all["text"].as_str().expect("text");
    let lines = text.lines().filter(|line| line.starts_with("line "));
    let wanted: Vec<String> = (1..=3_000).map(|n| format!("line {n}")).collect();
    assert_eq!(lines.collect::<Vec<_>>(), wanted);
    call(&abide, json!({"action": "kill", "session_id": id}));
}

#[test]
fn read_cursor_survives_and_the_screen_is_rebuilt() {
    let abide = Abide::started();
    // Sends a query to its terminal, so that an old answer would be visible if it were sent again. The first line
    // must not be a query: it may arrive at any time.
    let command = r"stty -echo; printf 'first\n\033[6n'; read -r x; printf 'second\n'; cat -v";
    let id = started(&abide, command);
    until(&abide, &id, "first");
    let size = json!({"action": "resize", "session_id": id, "cols": 60, "rows": 10});
    call(&abide, size);
    abide.kill_daemon();
    abide.start();
    let screen = call(&abide, json!({"action": "screen", "session_id": id}));
    assert_eq!((&screen["cols"], &screen["rows"]), (&json!(60), &json!(10)));
    let text = screen["text"].as_str().expect("text");
    assert!(text.starts_with("first\n"), "{text}");
    let enter = json!({"action": "send_input", "session_id": id, "input": "\n"});
    let mut read = call(&abide, enter);
    while !read["text"].as_str().expect("text").contains("second") {
        let more = json!({"action": "read_output", "session_id": id, "timeout_seconds": 180});
        read = call(&abide, more);
    }
    let read = read["text"].as_str().expect("text");
    assert!(!read.contains("first"), "{read}");
    let text = screen_text(&abide, &id);
    assert!(text.contains("second"), "{text}");
    assert_eq!(
        text.matches(";1R").count(),
        0,
        "no answer was typed again: {text}"
    );
    call(&abide, json!({"action": "kill", "session_id": id}));
}

fn screen_text(abide: &Abide, id: &str) -> String {
    let screen = call(abide, json!({"action": "screen", "session_id": id}));
    screen["text"].as_str().expect("text").to_owned()
}

#[test]
fn changed_limits_survive() {
    let abide = Abide::started();
    let id = started(&abide, "cat");
    let untouched = started(&abide, "cat");
    call(
        &abide,
        json!({"action": "extend", "session_id": id, "idle": 777}),
    );
    abide.kill_daemon();
    abide.start();
    let limits_of = |id: &str| {
        let session = abide.get(&format!("/v1/sessions/{id}"));
        ["idle", "inactivity_timeout"].map(|limit| session[limit].clone())
    };
    assert_eq!(limits_of(&id), [json!(777.0), json!(300.0)]);
    assert_eq!(limits_of(&untouched), [Value::Null, json!(300.0)]);
    for id in [id, untouched] {
        call(&abide, json!({"action": "kill", "session_id": id}));
    }
}

#[test]
fn secrets_stay_hidden() {
    let abide = Abide::started();
    let env = json!({"API_TOKEN": "correct-horse-battery", "PLACE": "over-the-rainbow"});
    let lived = json!({"action": "start", "command": "echo $API_TOKEN at $PLACE; cat",
        "env": env, "pty": false});
    let lived = call(&abide, lived)["session_id"].clone();
    let lived = lived.as_str().expect("an id");
    until(&abide, lived, "rainbow");
    let ran = json!({"command": "echo $API_TOKEN at $PLACE", "env": env});
    let ran = abide.post("/v1/tools/shell", &ran).body;
    let ran = ran["session_id"].as_str().expect("an id");
    abide.kill_daemon();
    abide.start();
    for id in [lived, ran] {
        let all = json!({"action": "read_output", "session_id": id, "since": "0"});
        let found = json!({"action": "search", "session_id": id, "pattern": "rainbow"});
        for asked in [all, found] {
            let answer = call(&abide, asked).to_string();
            let hidden = "[masked:API_TOKEN] at over-the-rainbow";
            assert!(answer.contains(hidden), "{answer}");
            assert!(!answer.contains("correct-horse-battery"), "{answer}");
        }
    }
    call(&abide, json!({"action": "kill", "session_id": lived}));
}

#[test]
fn repeated_end_of_input_is_typed_once() {
    let abide = Abide::started();
    let id = started(
        &abide,
        "stty raw -echo; echo ready; head -c 5 | od -An -c; echo over",
    );
    until(&abide, &id, "ready");
    for query in ["?eof=true&key=a", "?eof=true&key=a", "?key=b"] {
        let path = format!("/v1/sessions/{id}/input{query}");
        let written = abide.post(&path, &json!({})).body;
        assert_eq!(written["written"], 2, "{written}");
    }
    let read = until(&abide, &id, "over");
    let text = read["text"].as_str().expect("text");
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(
        words
            .windows(5)
            .any(|typed| typed == ["{", "}", "004", "{", "}"]),
        "{text}"
    );
}
