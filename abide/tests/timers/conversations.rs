//! Several conversations of one agent: each receives its own messages, and those of another one only after that one
//! has ended.

use std::fs;
use std::path::PathBuf;
use std::process::Child;

use serde_json::{Value, json};

use crate::clients::{Client, stand_in};
use crate::harness::{Abide, look_for, receive};
use crate::{appears, call, come_due, configured, delivered, newest, program};

const WAKER: &str = "[[wakers]]\nclaude_code = true\nafter = 0\n";

/// A Claude Code client with this session.
fn window(abide: &Abide, session: &str) -> Client {
    Client::start(
        abide,
        &[
            ("CLAUDE_CODE_SESSION_ID", session),
            ("CLAUDE_CODE_MESSAGING_SOCKET", "/nowhere/inbox.sock"),
        ],
    )
}

/// Completes a mission of this client and waits for its message.
fn completes(abide: &Abide, client: &mut Client, text: &str) {
    come_due(&client.mission(abide, text, json!({})));
    is_posted(abide, text);
}

fn is_posted(abide: &Abide, words: &str) -> Value {
    newest(abide, |message| {
        let text = message["text"].as_str();
        text.is_some_and(|text| text.contains(words))
    })
}

fn text_of(result: &Value) -> &str {
    result["structuredContent"]["text"]
        .as_str()
        .expect("a text")
}

#[test]
fn end_in_the_result_of_a_start_causes_no_message() {
    let abide = configured("");
    let mut client = window(&abide, "one");
    for _ in 0..5 {
        let start = json!({"action": "start", "command": "exit 3"});
        let started = client.call("terminal_session", start);
        assert!(
            text_of(&started).contains("[exited with code 3"),
            "{started}"
        );
    }
    let listed = abide.get("/v1/messages");
    assert_eq!(listed["messages"], json!([]), "{listed}");
}

#[test]
fn replayed_call_does_not_set_the_remaining_time_again() {
    let abide = configured("");
    let mut client = window(&abide, "one");
    let made = client.call("timer", json!({"total_duration": 3600, "mission": "later"}));
    let id = made["structuredContent"]["timer_id"].clone();
    let longer = json!({"timer_id": id, "total_duration": 7200, "timeout_duration": 7200});
    client.begin("timer", longer);
    // The total duration is the time that had passed and the new remaining time.
    let total = || {
        look_for("a call that stands by", || {
            let timers = abide.request("GET", "/v1/timers", &Value::Null)?.body;
            let timer = &timers["timers"][0];
            let total = timer["total_duration"].as_f64()?;
            (timer["standing_by"] == true && total >= 7200.0).then_some(total.to_bits())
        })
    };
    let before = total();
    abide.kill_daemon();
    assert_eq!(total(), before);
    client.leave();
}

#[test]
fn message_of_one_window_is_not_delivered_to_another_and_not_seen() {
    let abide = configured("");
    let (mut one, mut two) = (window(&abide, "one"), window(&abide, "two"));
    completes(&abide, &mut one, "in project A");
    for (tool, arguments) in [
        ("shell", json!({"command": "true"})),
        ("read_messages", json!({})),
        ("read_messages", json!({"timeout_seconds": 0.05})),
    ] {
        let result = two.call(tool, arguments);
        assert!(!text_of(&result).contains("[System]"), "{result}");
    }
    // A call without a conversation counts as another conversation.
    let none = call(&abide, "read_messages", json!({}));
    assert_eq!(none["messages"], json!([]), "{none}");
    let message = newest(&abide, Value::is_object);
    assert_eq!(message["seen_at"], Value::Null, "{message}");
    let told = one.call("shell", json!({"command": "true"}));
    assert!(text_of(&told).contains("Mission: in project A"), "{told}");
    assert!(!text_of(&told).contains("another conversation"), "{told}");
    one.leave();
    two.leave();
}

#[test]
fn end_of_a_session_that_another_window_waits_for_is_delivered_to_its_owner() {
    let abide = configured("");
    let (mut one, mut two) = (window(&abide, "one"), window(&abide, "two"));
    let started = one.call(
        "terminal_session",
        json!({"action": "start", "command": "read line; exit 7"}),
    );
    let session = started["structuredContent"]["session_id"].clone();
    let typed = json!({"action": "send_input", "session_id": session, "input": "\n"});
    two.call("terminal_session", typed);
    let until = json!({"action": "read_output", "session_id": session, "until": "never", "timeout_seconds": 60});
    let ended = two.call("terminal_session", until);
    assert!(text_of(&ended).contains("exited with code 7"), "{ended}");
    is_posted(&abide, "exited with code 7");
    let told = one.call("read_messages", json!({}));
    assert!(
        text_of(&told).contains(session.as_str().expect("an id")),
        "{told}"
    );
    one.leave();
    two.leave();
}

#[test]
fn message_of_a_closed_window_is_delivered_to_another_with_its_origin() {
    let abide = configured("");
    let (mut one, mut two) = (window(&abide, "one"), window(&abide, "two"));
    let due = one.mission(&abide, "left behind", json!({}));
    one.leave();
    come_due(&due);
    let told = two.call("read_messages", json!({"timeout_seconds": 120}));
    let text = text_of(&told);
    assert!(text.contains("Mission: left behind"), "{told}");
    assert!(
        text.contains("another conversation of this agent, Claude Code session one"),
        "{told}"
    );
    two.leave();
}

#[test]
fn front_without_a_session_id_keeps_its_messages_over_a_restart_of_the_daemon() {
    let abide = configured("");
    let (mut one, mut two) = (Client::start(&abide, &[]), Client::start(&abide, &[]));
    let due = one.mission(&abide, "over a restart", json!({}));
    abide.kill_daemon();
    // Each front starts or finds the next daemon with its next call.
    let (one_is_back, two_is_back) = (
        one.call("shell", json!({"command": "true"})),
        two.call("shell", json!({"command": "true"})),
    );
    for result in [one_is_back, two_is_back] {
        assert!(text_of(&result).contains("SUCCESS"), "{result}");
    }
    come_due(&due);
    is_posted(&abide, "over a restart");
    let none = two.call("read_messages", json!({}));
    assert!(text_of(&none).starts_with("No messages"), "{none}");
    let told = one.call("shell", json!({"command": "true"}));
    assert!(text_of(&told).contains("Mission: over a restart"), "{told}");
    one.leave();
    two.leave();
}

#[test]
fn message_of_a_resumable_session_is_not_delivered_to_another_window() {
    let abide = configured(WAKER);
    stand_in(&abide, "claude");
    let (mut one, mut two) = (window(&abide, "one"), window(&abide, "two"));
    let due = one.mission(&abide, "resumed", json!({}));
    one.leave();
    come_due(&due);
    let called = appears(&abide, "called");
    assert!(called.contains("<one>"), "{called}");
    // Longer than a front may take to reconnect.
    let none = two.call("read_messages", json!({"timeout_seconds": 7}));
    assert!(text_of(&none).starts_with("No messages"), "{none}");
    two.leave();
}

#[test]
fn two_codex_threads_get_their_own_messages() {
    let abide = configured("");
    let mut client = Client::start(&abide, &[]);
    let thread = |id: &str| json!({"threadId": id});
    come_due(&client.mission(&abide, "of thread a", thread("a")));
    is_posted(&abide, "of thread a");
    let none = client.call_with("shell", json!({"command": "true"}), thread("b"));
    assert!(!text_of(&none).contains("[System]"), "{none}");
    let told = client.call_with("shell", json!({"command": "true"}), thread("a"));
    assert!(text_of(&told).contains("Mission: of thread a"), "{told}");
    client.leave();
}

#[test]
fn hook_of_one_window_is_not_woken_by_the_message_of_another() {
    let abide = configured("");
    let (mut one, mut two) = (window(&abide, "one"), window(&abide, "two"));
    let due_one = one.mission(&abide, "of one", json!({}));
    let due_two = two.mission(&abide, "of two", json!({}));
    let hook_two = crate::clients::hook(&abide, "two");
    let hook_one = crate::clients::hook(&abide, "one");
    come_due(&due_one);
    let said = said_by(hook_one);
    assert!(said.contains("Mission: of one"), "{said}");
    come_due(&due_two);
    let said = said_by(hook_two);
    assert!(said.contains("Mission: of two"), "{said}");
    assert!(!said.contains("of one"), "{said}");
    one.leave();
    two.leave();
}

/// Message of a hook, which exits with it.
fn said_by(hook: Child) -> String {
    let out = hook.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// A stub of Claude Code that records its arguments, one file for each call.
fn counting(abide: &Abide) {
    fs::create_dir_all(abide.path("bin")).expect("a folder");
    let script = "#!/bin/sh\n{ for word; do echo \"<$word>\"; done; echo input:; cat; } > \"$ABIDE_DIR/draft\"\n\
        cat \"$ABIDE_DIR/draft\" >> \"$ABIDE_DIR/calls\"\n";
    program(&abide.path("bin").join("claude"), script);
}

/// A client that has left a session and a mission; a person has ended the session.
fn left_behind(abide: &Abide) -> PathBuf {
    let mut one = window(abide, "one");
    let start = json!({"action": "start", "command": "cat", "inactivity_timeout": 0});
    let started = one.call("terminal_session", start);
    let session = &started["structuredContent"]["session_id"];
    let due = one.mission(abide, "asked for", json!({}));
    one.leave();
    let killed = abide.output(["session", "kill", session.as_str().expect("an id")]);
    assert!(killed.status.success(), "{killed:?}");
    is_posted(abide, "has ended");
    due
}

#[test]
fn closed_session_is_resumed_for_a_mission_and_not_for_a_session_that_ended() {
    let abide = configured(WAKER);
    counting(&abide);
    let due = left_behind(&abide);
    come_due(&due);
    is_posted(&abide, "asked for");
    delivered(&abide, |delivery| delivery["ok"] == true);
    let calls = appears(&abide, "calls");
    assert_eq!(calls.matches("<--resume>").count(), 1, "{calls}");
    assert!(!calls.contains("Session '"), "{calls}");
    // The text is contained once.
    assert_eq!(calls.matches("Mission: asked for").count(), 1, "{calls}");
    let listed = abide.get("/v1/messages");
    let ended = &listed["messages"][1];
    assert_eq!(ended["seen_at"], Value::Null, "it waits: {ended}");
    assert_eq!(ended["deliveries"], json!([]), "{ended}");
    // The next call of that session delivers it.
    let mut one = window(&abide, "one");
    let told = one.call("shell", json!({"command": "true"}));
    assert!(text_of(&told).contains("[System] Session '"), "{told}");
    one.leave();
}

#[test]
fn closed_session_is_resumed_for_every_message_where_the_waker_says_so() {
    let abide = configured(&format!("{WAKER}for = \"all\"\n"));
    counting(&abide);
    left_behind(&abide);
    let calls = look_for("a call", || {
        let calls = fs::read_to_string(abide.path("calls")).ok()?;
        calls.contains("Session '").then_some(calls)
    });
    assert!(calls.contains("<--resume>"), "{calls}");
}

#[test]
fn mission_says_whether_a_waker_will_wake_this_conversation() {
    let mission = json!({"total_duration": 600, "mission": "m"});
    let made = |client: &mut Client| {
        let made = client.call("timer", mission.clone());
        let id = made["structuredContent"]["timer_id"].clone();
        let cancelled = client.call("cancel_timer", json!({"timer_id": id}));
        (text_of(&made).to_owned(), text_of(&cancelled).to_owned())
    };
    let is_woken = |(made, cancelled): (String, String)| {
        assert!(made.contains("you will be woken"), "{made}");
        assert!(cancelled.contains("a message wakes you"), "{cancelled}");
    };
    let is_told = |(made, cancelled): (String, String)| {
        assert!(made.contains("told with your next abide call"), "{made}");
        assert!(!made.contains("will be woken"), "{made}");
        assert!(
            cancelled.contains("told with your next abide call"),
            "{cancelled}"
        );
    };
    let abide = configured(WAKER);
    let (mut claude, mut plain) = (window(&abide, "one"), Client::start(&abide, &[]));
    is_woken(made(&mut claude));
    is_told(made(&mut plain));
    claude.leave();
    plain.leave();
    let abide = configured("[[wakers]]\ndesktop = true\n");
    let mut claude = window(&abide, "one");
    is_told(made(&mut claude));
    claude.leave();
    let abide = configured("[[wakers]]\ncommand = [\"true\"]\n");
    let mut plain = Client::start(&abide, &[]);
    is_woken(made(&mut plain));
    plain.leave();
}

/// A session that has ended with this code, with a message about it for its agent.
fn ended(abide: &Abide, code: u8) -> Value {
    let command = format!("read line; exit {code}");
    let start = json!({"action": "start", "command": command});
    let session = call(abide, "terminal_session", start)["session_id"].clone();
    let id = session.as_str().expect("an id");
    // A person types; a person gets no messages for the agent.
    let typed = abide.output(["session", "send", id, "--key", "enter"]);
    assert!(typed.status.success(), "{typed:?}");
    is_posted(abide, &format!("exited with code {code}"));
    session
}

#[test]
fn end_of_a_session_is_reported_once_by_its_result() {
    let abide = configured("");
    abide.start();
    for (code, action) in [(3, "read_output"), (4, "screen"), (5, "kill")] {
        let session = ended(&abide, code);
        let arguments = json!({"action": action, "session_id": session});
        let result = call(&abide, "terminal_session", arguments);
        let text = result["text"].as_str().expect("a text");
        let told = text.matches(&format!("exited with code {code}")).count();
        assert_eq!(told, 1, "{action}: {text}");
        assert_eq!(result["messages"], Value::Null, "{action}: {result}");
        newest(&abide, |message| message["seen_at"].is_u64());
    }
    // A message that the result does not cover is appended to it.
    let session = ended(&abide, 6);
    let other = call(&abide, "shell", json!({"command": "true"}));
    assert_eq!(other["messages"][0]["session_id"], session, "{other}");
}

#[test]
fn end_of_a_session_is_reported_once_by_the_timer_that_waited() {
    let abide = configured("");
    abide.start();
    let start = json!({"action": "start", "command": "read line; exit 7"});
    let session = call(&abide, "terminal_session", start)["session_id"].clone();
    let until = json!({"any": [{"session": session, "is": "ended"}, {"file": "/nowhere/at/all"}]});
    let arguments = json!({"total_duration": 600, "reason": "r", "until": until});
    let waiting = abide.begin("/v1/tools/timer", &arguments);
    let id = session.as_str().expect("an id");
    let typed = abide.output(["session", "send", id, "--key", "enter"]);
    assert!(typed.status.success(), "{typed:?}");
    let result = receive(waiting).expect("an answer").body;
    let text = result["text"].as_str().expect("a text");
    assert_eq!(text.matches("has ended").count(), 1, "{text}");
    assert_eq!(result["messages"], Value::Null, "{result}");
    let message = newest(&abide, |message| message["seen_at"].is_u64());
    assert_eq!(message["session_id"], session, "{message}");
}

#[test]
fn completion_is_reported_once_when_the_call_is_repeated_after_a_crash() {
    let abide = configured("");
    abide.start_to_crash_at("message.seen.pre");
    let waited = json!({"total_duration": 0.01, "reason": "r", "idempotency_key": "k"});
    let first = abide.post("/v1/tools/timer", &waited);
    assert_eq!(first.body["status"], "completed", "{}", first.body);
    look_for("the end of the daemon", || {
        let answer = abide.request("GET", "/v1/health", &Value::Null);
        answer.is_none().then_some(())
    });
    abide.start();
    let again = call(&abide, "timer", waited);
    assert_eq!(again["timer_id"], first.body["timer_id"], "{again}");
    let text = again["text"].as_str().expect("a text");
    assert_eq!(text.matches("has completed").count(), 1, "{text}");
    newest(&abide, |message| message["seen_at"].is_u64());
    let none = call(&abide, "read_messages", json!({}));
    assert_eq!(none["messages"], json!([]), "{none}");
}

#[test]
fn end_of_a_session_that_a_timer_tells_is_not_told_to_a_call_that_waits_for_messages() {
    let abide = configured("");
    abide.start();
    let start = json!({"action": "start", "command": "read line; exit 7"});
    let session = call(&abide, "terminal_session", start)["session_id"].clone();
    let until = json!({"session": session, "is": "ended"});
    let arguments = json!({"total_duration": 600, "reason": "r", "until": until});
    let timer = abide.begin("/v1/tools/timer", &arguments);
    let reader = abide.begin("/v1/tools/read_messages", &json!({"timeout_seconds": 180}));
    look_for("a look at the session", || {
        let timers = call(&abide, "read_timer", json!({}));
        let id = timers["timers"][0]["timer_id"].clone();
        let looked = call(&abide, "read_timer", json!({"timer_id": id}));
        let looked = looked["last_look"].as_str()?.contains("has not ended");
        looked.then_some(())
    });
    let id = session.as_str().expect("an id");
    let typed = abide.output(["session", "send", id, "--key", "enter"]);
    assert!(typed.status.success(), "{typed:?}");
    let result = receive(timer).expect("an answer").body;
    let text = result["text"].as_str().expect("a text");
    assert_eq!(text.matches("has ended").count(), 1, "{text}");
    // The call gets the next message only.
    let mission = crate::mission(&abide, "m");
    let told = receive(reader).expect("an answer").body;
    assert_eq!(told["messages"].as_array().map(Vec::len), Some(1), "{told}");
    assert_eq!(told["messages"][0]["timer_id"], mission, "{told}");
}

#[test]
fn end_of_a_session_is_not_told_again_to_the_window_that_read_it_when_its_own_window_is_closed() {
    let abide = configured("");
    let (mut one, mut two) = (window(&abide, "one"), window(&abide, "two"));
    let start = json!({"action": "start", "command": "read line; exit 7"});
    let started = one.call("terminal_session", start);
    let session = started["structuredContent"]["session_id"].clone();
    let typed = json!({"action": "send_input", "session_id": session, "input": "\n"});
    two.call("terminal_session", typed);
    is_posted(&abide, "exited with code 7");
    let read = json!({"action": "read_output", "session_id": session});
    let ended = two.call("terminal_session", read);
    assert!(text_of(&ended).contains("exited with code 7"), "{ended}");
    one.leave();
    // Longer than a front may take to reconnect.
    let none = two.call("read_messages", json!({"timeout_seconds": 7}));
    assert!(text_of(&none).starts_with("No messages"), "{none}");
    two.leave();
}
