//! Lines of a log by number, search within a log, and deletion of a session.

use serde_json::{Value, json};

use crate::harness::{Abide, feed};

const PERSON: &str = "abide-person: true\r\n";

fn get(abide: &Abide, session: &str, path: &str) -> Value {
    let line = format!("GET /v1/sessions/{session}/{path}");
    abide.good(&line, PERSON, &Value::Null)
}

fn session_of(result: &Value) -> &str {
    result["session_id"].as_str().expect("a session id")
}

#[test]
fn lines_of_a_long_log_are_read_by_number() {
    let abide = Abide::new();
    let run = abide.shell("seq -f 'line %.0f' 300000; printf 'no newline' >&2");
    let session = session_of(&run);
    let page = get(&abide, session, "lines?from=299999&limit=2");
    assert_eq!(page["total"], 300_001);
    let texts: Vec<_> = page["lines"].as_array().unwrap().iter().collect();
    assert_eq!(texts.len(), 2);
    assert_eq!(texts[0]["text"], "line 299999");
    assert_eq!(texts[0]["number"], 299_999);
    assert_eq!(texts[0]["stream"], "stdout");
    assert!(texts[0]["at"].as_u64().unwrap() > 0);
    let last = get(&abide, session, "lines?from=300001");
    assert_eq!(last["lines"][0]["text"], "no newline");
    assert_eq!(last["lines"][0]["stream"], "stderr");
    let beyond = get(&abide, session, "lines?from=300002");
    assert_eq!(beyond["lines"], json!([]));
}

#[test]
fn lines_have_colours_and_marked_matches() {
    let abide = Abide::new();
    let run = abide.shell(r"printf 'ok\n\033[31merror\033[0m: é disk\n10%%\r99%%\n'");
    let page = get(&abide, session_of(&run), "lines?pattern=disk%7Cok");
    let lines = &page["lines"];
    assert_eq!(lines[0]["matches"], json!([{"start": 0, "end": 2}]));
    assert_eq!(lines[1]["text"], "error: é disk");
    assert_eq!(
        lines[1]["styles"],
        json!([{"start": 0, "end": 5, "colour": 1}])
    );
    assert_eq!(lines[1]["matches"], json!([{"start": 9, "end": 13}]));
    assert_eq!(lines[2]["text"], "99%");
}

#[test]
fn matches_are_counted_beyond_the_page_and_continued() {
    let abide = Abide::new();
    let run = abide.shell("seq 25000");
    let session = session_of(&run);
    let page = get(&abide, session, "matches?pattern=.");
    assert_eq!(page["total"], 25_000);
    let next = page["next"].as_u64().unwrap();
    let page = get(&abide, session, &format!("matches?pattern=.&after={next}"));
    assert_eq!(
        (&page["lines"][0], &page["total"]),
        (&json!(10_001), &json!(15_000))
    );
    let next = page["next"].as_u64().unwrap();
    let page = get(&abide, session, &format!("matches?pattern=.&after={next}"));
    assert_eq!(page["lines"][0], 20_001);
    assert_eq!(
        (&page["total"], &page["next"]),
        (&json!(5_000), &Value::Null)
    );
    let line = format!("GET /v1/sessions/{session}/matches?pattern=(");
    let (status, problem) = abide.ask(&line, PERSON, &Value::Null);
    assert_eq!(status, 400, "{problem}");
}

#[test]
fn only_a_person_deletes_a_session_and_only_after_its_end() {
    let abide = Abide::new();
    let run = abide.shell("echo secret");
    let session = session_of(&run);
    let delete = format!("POST /v1/sessions/{session}/delete");
    assert_eq!(abide.ask(&delete, "", &json!({})).0, 403);
    abide.good(&delete, PERSON, &json!({}));
    let line = format!("GET /v1/sessions/{session}/log");
    assert_eq!(abide.ask(&line, PERSON, &Value::Null).0, 404);
    assert!(!abide.path("sessions").join(session).exists());

    let body = json!({"command": "cat"});
    let (_, running) = abide.ask("POST /v1/sessions", "", &body);
    let delete = format!("POST /v1/sessions/{}/delete", session_of(&running));
    let (status, problem) = abide.ask(&delete, PERSON, &json!({}));
    assert_eq!(status, 409, "{problem}");
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("kill it first")
    );
}

#[test]
fn numbers_of_lines_are_those_of_the_whole_log_everywhere() {
    let abide = Abide::new();
    // Lines that differ in words, because those that differ in numbers are folded.
    let script = "i=0; { while [ $i -lt 1500 ]; do i=$((i + 1)); k=$((i * 7919 % 1511)); \
        echo \"out$k of $((k * k)) in $((i % 13))\"; [ $i -ne 700 ] || echo 'error: disk a is full'; \
        [ $((i % 3)) -ne 0 ] || { echo \"err$k to $((k + i * i)) is\" >&2; }; \
        [ $i -ne 600 ] || echo 'error: disk b is full' >&2; done; } | tr 0-9 a-j";
    let run = abide.good(
        "POST /v1/tools/shell",
        "",
        &json!({"command": script, "max_output": 4_000}),
    );
    let text = run["text"].as_str().expect("a text");
    let session = session_of(&run);
    for error in ["error: disk a is full", "error: disk b is full"] {
        let line = text.lines().find(|line| line.ends_with(error));
        let (number, _) = line.and_then(|line| line.split_once(": ")).expect(text);
        let number: u64 = number.parse().expect(text);
        let page = get(&abide, session, &format!("lines?from={number}&limit=1"));
        assert_eq!(page["lines"][0]["text"], error, "{page}");
        let search = json!({"action": "search", "session_id": session, "pattern": error});
        let found = abide.good("POST /v1/tools/terminal_session", "", &search);
        let found = found["text"].as_str().expect("a text");
        assert!(found.contains(&format!("{number}:{error}")), "{found}");
    }
}

#[test]
fn lines_of_a_log_beyond_its_quota_say_when_they_have_other_numbers() {
    let abide = Abide::with("log_quota = 1048576\n");
    let fifo = abide.fifo("go");
    // Lines of 8 bytes.
    let script = format!(
        "seq -w 1 1000000 | head -n 200000; cat {}; seq -w 1 1000000 | tail -n 800000",
        fifo.display()
    );
    let body = json!({"command": script, "pty": false});
    let (_, run) = abide.ask("POST /v1/sessions", PERSON, &body);
    let session = session_of(&run);
    let end = format!("GET /v1/sessions/{session}/log?follow=true&from=1599992&to=1600000");
    assert_eq!(abide.open(&end, PERSON, "").rest(), "0200000\n");
    let before = get(&abide, session, "lines?limit=1");
    feed(&fifo, "");
    let ended = abide.ended(session);
    let after = get(&abide, session, "lines?limit=1");
    let dropped = |page: &Value| page["dropped"].as_u64().expect("a number");
    assert!(dropped(&before) > 0, "{before}");
    assert!(dropped(&after) > dropped(&before), "{after}");
    assert_eq!(after["dropped"], ended["bytes_dropped"]);
    let last = |page: &Value| {
        let line = get(&abide, session, &format!("lines?from={}", page["total"]));
        line["lines"][0]["text"].clone()
    };
    assert_eq!(last(&after), "1000000");
    // The line with this number was the last one, and is another one now or none.
    assert_ne!(last(&before), "0200000");
}
