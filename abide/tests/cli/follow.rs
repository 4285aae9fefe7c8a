//! Commands that follow or wait continue when the daemon dies and another one starts: nothing is reported twice, and
//! nothing is missed.

use serde_json::Value;

use crate::harness::{Abide, Pty, RunningCommand, wait_for_line};

/// Next line of its output.
#[track_caller]
fn line(child: &mut RunningCommand) -> Value {
    let line = wait_for_line(child.stdout.as_mut().expect("a pipe"), "\n");
    serde_json::from_slice(&line).expect("JSON")
}

/// Creates a message and waits until it is stored.
fn post(abide: &Abide, mission: &str) {
    let made = abide.json(["timer", "start", "1ms", "--mission", mission, "--json"]);
    let id = made["timer_id"].as_str().expect("an id");
    loop {
        let list = abide.json(["messages", "--json"]);
        let mut all = list["messages"].as_array().expect("messages").iter();
        if all.any(|message| message["timer_id"] == id) {
            return;
        }
    }
}

#[track_caller]
fn tells(follower: &mut RunningCommand, mission: &str) {
    let message = line(follower);
    let text = message["text"].as_str().expect("a text");
    assert!(text.contains(&format!("Mission: {mission}\n")), "{message}");
}

#[test]
fn messages_follow_continues_after_a_restart() {
    let abide = Abide::new();
    post(&abide, "one");
    let mut follower = RunningCommand::new(&abide, &["messages", "--follow", "--json"]);
    tells(&mut follower, "one");
    abide.kill_daemon();
    post(&abide, "two");
    tells(&mut follower, "two");
    post(&abide, "three");
    tells(&mut follower, "three");
    abide.kill_daemon();
    abide.kill_daemon();
    post(&abide, "four");
    tells(&mut follower, "four");
}

#[test]
fn messages_after_a_known_one_are_listed() {
    let abide = Abide::new();
    for mission in ["one", "two", "three"] {
        post(&abide, mission);
    }
    let seen = abide.json(["messages", "--json"]);
    let id = |at: usize| seen["messages"][at]["message_id"].as_str().expect("an id");
    let tool = crate::http::post(&abide, "/v1/tools/read_messages", &serde_json::json!({}));
    assert_eq!(tool["messages"].as_array().map(Vec::len), Some(3), "{tool}");
    let query = format!("GET /v1/messages?since={}", id(2));
    let later = crate::http::ask(&abide, &query, "", b"").json();
    let later = later["messages"].as_array().expect("messages");
    let later: Vec<_> = later.iter().map(|message| &message["message_id"]).collect();
    assert_eq!(later, [id(0), id(1)], "seen or not");
}

#[test]
fn answer_follow_continues_after_a_restart() {
    let abide = Abide::new();
    let mut follower = RunningCommand::new(&abide, &["answer", "--follow", "--json"]);
    let pty = Pty::run(abide.command(["run", "--idle", "200ms", "--", "sleep 1000"]));
    let asked = line(&mut follower);
    assert_eq!(asked["event"], "asked", "{asked}");
    abide.kill_daemon();
    let id = asked["question_id"].as_str().expect("an id");
    let answered = abide.output(["answer", id, "no"]);
    assert!(answered.status.success(), "{answered:?}");
    let closed = line(&mut follower);
    assert_eq!(
        (&closed["event"], &closed["question_id"]),
        (&"closed".into(), &asked["question_id"]),
        "asked once and closed once: {closed}"
    );
    assert_eq!(closed["closing"], "no");
    drop(follower);
    assert_eq!(pty.end().0.code(), Some(124));
}

#[test]
fn closing_of_a_known_question_is_listed() {
    let abide = Abide::new();
    let mut pty = Pty::run(abide.command(["run", "--idle", "200ms", "--", "sleep 1000"]));
    pty.wait_for("[Y/n] ");
    let open = abide.json(["answer", "--json"]);
    let id = open["questions"][0]["question_id"].as_str().expect("an id");
    abide.output(["answer", id, "no"]);
    pty.end();
    let query = format!("GET /v1/questions?told={id}");
    let listed = crate::http::ask(&abide, &query, "", b"").json();
    let closed = serde_json::json!([{"question_id": id, "closing": "no"}]);
    assert_eq!(listed["closed"], closed, "{listed}");
}

/// An abide whose first daemon crashes at this crash point.
fn dying(at: &str) -> Abide {
    let abide = Abide::new();
    let first = abide.command(["status"]).env("ABIDE_CRASH_AT", at).output();
    assert!(first.expect("abide runs").status.success());
    abide
}

#[test]
fn request_done_by_a_dying_daemon_is_reported_by_the_next() {
    let abide = dying("timer.stop.post");
    let made = abide.json(["timer", "start", "1h", "--mission", "later", "--json"]);
    let id = made["timer_id"].as_str().expect("an id");
    let stopped = abide.json(["timer", "stop", id, "--json"]);
    assert_eq!(stopped["status"], "stopped", "{stopped}");
    assert!(!abide.output(["timer", "stop", id]).status.success());

    let abide = dying("session.post_start");
    let started = abide.json(["session", "start", "--json", "--", "cat"]);
    let list = abide.json(["session", "list", "--all", "--json"]);
    let list = list["sessions"].as_array().expect("sessions");
    assert_eq!(list.len(), 1, "{list:?}");
    assert_eq!(list[0]["session_id"], started["session_id"]);
}

#[test]
fn wait_and_timer_continue_after_a_restart() {
    let abide = Abide::new();
    let look = "test -e done || { echo >> looked; exit 1; }";
    let mut wait = RunningCommand::new(&abide, &["wait", "--command", look, "--for", "1h"]);
    while !abide.path("looked").exists() {
        assert_eq!(wait.try_wait().expect("it was started"), None);
    }
    let mut standing = RunningCommand::new(&abide, &["timer", "start", "1h", "--reason", "r"]);
    let timers = || abide.json(["timer", "list", "--json"])["timers"].clone();
    while timers()[0].is_null() {
        assert_eq!(standing.try_wait().expect("it was started"), None);
    }
    abide.kill_daemon();
    std::fs::write(abide.path("done"), "").expect("a file");
    assert_eq!(wait.wait().expect("it ends").code(), Some(0));
    let all = timers();
    assert_eq!(all.as_array().map(Vec::len), Some(1), "{all}");
    let id = all[0]["timer_id"].as_str().expect("an id");
    assert!(abide.output(["timer", "stop", id]).status.success());
    let code = standing.wait().expect("it ends").code();
    assert_eq!(code, Some(3), "it says that the timer was stopped");
    assert_eq!(timers().as_array().map(Vec::len), Some(0));
}
