//! Waits that can no longer succeed end at once, with the reason.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::clients::Client;
use crate::conditions::Port;
use crate::harness::{Abide, look_for};
use crate::sink::Sink;
use crate::{call, id_of, newest};

/// Waits in standby for a condition that becomes impossible.
fn impossible(abide: &Abide, until: Value) -> String {
    let arguments = json!({"total_duration": 600, "reason": "something", "until": until});
    let result = call(abide, "timer", arguments);
    assert_eq!(result["completed_by"], "impossible", "{result}");
    assert_eq!(result["status"], "completed", "{result}");
    assert_eq!(result["timeout"], false, "{result}");
    result["text"].as_str().expect("text").to_owned()
}

fn shell(abide: &Abide, command: &str) -> String {
    let result = call(abide, "shell", json!({"command": command}));
    result["session_id"].as_str().expect("an id").to_owned()
}

/// A session that runs until a word is written to its fifo.
fn begin(abide: &Abide, name: &str, then: &str) -> (String, PathBuf) {
    let go = abide.fifo(name);
    let command = format!("read _ < {}; {then}", go.display());
    let start = json!({"action": "start", "command": command, "pty": false});
    let started = call(abide, "terminal_session", start);
    let id = started["session_id"].as_str().expect("an id").to_owned();
    (id, go)
}

#[test]
fn output_of_ended_session_without_match_ends_wait_with_its_last_lines() {
    let abide = Abide::started();
    let session = shell(&abide, "echo starting; echo cannot bind >&2; exit 3");
    let text = impossible(&abide, json!({"session": session, "output": "listening"}));
    let why = format!(
        "The condition can no longer hold: {session} has ended, exited with code 3, without output that \
         matches \"listening\". Its last output:\nstarting\ncannot bind"
    );
    assert!(text.ends_with(&why), "{text}");
}

#[test]
fn session_that_ends_without_output_ends_waits_and_reports_the_mission() {
    let abide = Abide::started();
    let (session, go) = begin(&abide, "go", "echo bye; exit 1");
    let output = json!({"session": session, "output": "listening"});
    let arguments = json!({"total_duration": 600, "mission": "check", "until": output});
    let timer = id_of(&call(&abide, "timer", arguments));
    fs::write(&go, "go\n").expect("a word");
    let message = look_for("the timer's message", || {
        let told = call(&abide, "read_messages", json!({"timeout_seconds": 180}));
        let told = told["messages"].as_array()?.clone();
        told.into_iter()
            .find(|message| message["timer_id"] == timer.as_str())
    });
    let text = message["text"].as_str().expect("text");
    assert!(text.contains("exited with code 1"), "{text}");
    assert!(text.ends_with("Its last output:\nbye"), "{text}");
    let over = call(&abide, "read_timer", json!({"timer_id": timer}));
    assert_eq!(over["completed_by"], "impossible", "{over}");
}

#[test]
fn end_of_session_that_made_a_wait_impossible_is_told_once() {
    let abide = Abide::started();
    let (session, go) = begin(&abide, "go", "echo bye; exit 1");
    fs::write(&go, "go\n").expect("a word");
    newest(&abide, |message| message["session_id"] == session.as_str());
    let text = impossible(&abide, json!({"session": session, "output": "listening"}));
    assert!(text.ends_with("Its last output:\nbye"), "{text}");
    let left = call(&abide, "read_messages", json!({}));
    assert_eq!(left["text"], "No messages.");
}

#[test]
fn all_is_impossible_with_one_member_and_any_with_every_member() {
    let abide = Abide::started();
    let session = shell(&abide, "echo nothing");
    let never = json!({"session": session, "output": "listening"});
    let absent = json!({"file": abide.path("absent")});
    impossible(&abide, json!({"all": [absent, never]}));
    impossible(&abide, json!({"any": [never, {"all": [never, absent]}]}));
    let there = abide.path("there");
    let any = json!({"any": [never, {"file": there}]});
    let arguments = json!({"total_duration": 600, "timeout_duration": 0.01, "reason": "r",
        "until": any});
    let timer = id_of(&call(&abide, "timer", arguments));
    look_for("a look at the session", || {
        let stands = call(&abide, "read_timer", json!({"timer_id": timer}));
        assert_eq!(stands["status"], "running", "{stands}");
        let looked = stands["last_look"].as_str()?;
        looked.contains("without a match").then_some(())
    });
    fs::write(&there, "").expect("a file");
    let result = call(&abide, "timer", json!({"timer_id": timer}));
    assert_eq!(result["completed_by"], "condition", "{result}");
    let ended = json!({"total_duration": 600, "reason": "r", "until": {"session": session}});
    let result = call(&abide, "timer", ended);
    assert_eq!(result["completed_by"], "condition", "{result}");
}

#[test]
fn output_of_session_whose_folder_is_gone_is_impossible() {
    let abide = Abide::started();
    let (session, go) = begin(&abide, "go", "exit 0");
    let output = json!({"session": session, "output": "listening"});
    let arguments = json!({"total_duration": 600, "mission": "check", "until": output});
    let timer = id_of(&call(&abide, "timer", arguments));
    call(
        &abide,
        "pause_timer",
        json!({"timer_id": timer, "pause_duration": 3600}),
    );
    fs::write(&go, "go\n").expect("a word");
    abide.waits_until(&json!({"session": session, "is": "ended"}));
    abide.kill_daemon();
    fs::remove_dir_all(abide.path("sessions").join(&session)).expect("a folder");
    abide.start();
    call(&abide, "resume_timer", json!({"timer_id": timer}));
    let over = look_for("the end of the timer", || {
        let timer = call(&abide, "read_timer", json!({"timer_id": timer}));
        (timer["status"] == "completed").then_some(timer)
    });
    assert_eq!(over["completed_by"], "impossible", "{over}");
    let seen = format!("{session} is no longer known, so no output of it can match");
    assert_eq!(over["seen"], seen, "{over}");
}

#[test]
fn port_wait_ends_when_failed_session_was_last_that_could_open_it() {
    let abide = Abide::started();
    let closed = Port::closed();
    let port = closed.number();
    let (session, go) = begin(&abide, "go", "echo address in use >&2; exit 3");
    let urls = format!("http://localhost:{port}/");
    let waits = [json!({"port": port}), json!({"url": urls})];
    let timers = waits.map(|until| {
        let arguments = json!({"total_duration": 600, "timeout_duration": 0.01, "reason": "server",
            "until": until});
        let result = call(&abide, "timer", arguments);
        assert_eq!(result["status"], "running", "{result}");
        id_of(&result)
    });
    fs::write(&go, "go\n").expect("a word");
    for timer in timers {
        let result = call(&abide, "timer", json!({"timer_id": timer}));
        assert_eq!(result["completed_by"], "impossible", "{result}");
        let text = result["text"].as_str().expect("text");
        let named = format!("No session is left that could open it: {session} (`read _ <");
        assert!(text.contains(&named), "{text}");
        // The message about the session's end does not follow in the same result.
        let end = "has ended, exited with code 3. Its last output:\naddress in use";
        assert!(text.ends_with(end), "{text}");
    }
}

#[test]
fn port_wait_ends_at_once_if_the_failure_of_its_session_is_untold() {
    let abide = Abide::started();
    let port = Port::closed();
    let (session, go) = begin(&abide, "go", "echo address in use >&2; exit 3");
    fs::write(&go, "go\n").expect("a word");
    newest(&abide, |message| message["session_id"] == session.as_str());
    let text = impossible(&abide, json!({"port": port.number()}));
    let end = "has ended, exited with code 3. Its last output:\naddress in use";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn port_wait_ends_at_once_if_its_session_failed_before_its_start_was_answered() {
    let abide = Abide::new();
    abide.start();
    let port = Port::closed();
    let start =
        json!({"action": "start", "command": "echo address in use >&2; exit 3", "pty": false});
    let started = call(&abide, "terminal_session", start);
    assert_eq!(started["exit_code"], 3, "{started}");
    let text = impossible(&abide, json!({"port": port.number()}));
    let end = "has ended, exited with code 3. Its last output:\naddress in use";
    assert!(text.ends_with(end), "{text}");
}

/// The agent was told of the failure, and may have started the server in another way, such as in a container.
#[test]
fn port_wait_goes_on_after_a_failure_after_which_something_else_was_started() {
    let abide = Abide::started();
    let port = Port::closed();
    let mut client = Client::start(&abide, &[]);
    for (command, code) in [("exit 3", 3), ("exit 0", 0)] {
        let start = json!({"action": "start", "command": command, "pty": false});
        let started = client.call("terminal_session", start);
        let text = started["structuredContent"]["text"].as_str().expect("text");
        assert!(text.contains(&format!("code {code}")), "{started}");
    }
    let arguments = json!({"total_duration": 600, "timeout_duration": 0.5, "reason": "server",
        "until": {"port": port.number()}});
    let waited = client.call("timer", arguments);
    assert_eq!(waited["structuredContent"]["status"], "running", "{waited}");
    client.leave();
}

/// Commands that end beside a port wait with this code: one of the same client, one of another client of the agent.
/// The timer completes by time.
fn port_wait_beside_commands_ending_with(code: u8) {
    let abide = Abide::started();
    let port = Port::closed();
    let (mut one, mut two) = (Client::start(&abide, &[]), Client::start(&abide, &[]));
    let gates = ["one", "two"].map(|name| (abide.path(name), abide.fifo(&format!("{name}.go"))));
    for (client, (begun, go)) in [&mut one, &mut two].into_iter().zip(&gates) {
        let (begun, go) = (begun.display(), go.display());
        let command = format!("touch {begun}; read _ < {go}; exit {code}");
        client.begin("shell", json!({"command": command}));
    }
    for (begun, _) in &gates {
        abide.waits_until(&json!({"file": begun}));
    }
    let arguments = json!({"total_duration": 2, "timeout_duration": 0.01, "reason": "server",
        "until": {"port": port.number()}});
    let made = one.call("timer", arguments);
    let timer = id_of(&made["structuredContent"]);
    for (_, go) in &gates {
        fs::write(go, "go\n").expect("a word");
    }
    let over = one.call("timer", json!({"timer_id": timer}));
    let over = &over["structuredContent"];
    assert_eq!(over["completed_by"], "time", "{over}");
    one.leave();
    two.leave();
}

#[test]
fn port_wait_goes_on_when_commands_beside_it_fail() {
    port_wait_beside_commands_ending_with(1);
}

#[test]
fn port_wait_goes_on_when_commands_beside_it_succeed() {
    port_wait_beside_commands_ending_with(0);
}

/// The agent may have looked whether the port is open.
#[test]
fn port_wait_goes_on_after_failure_of_a_command_with_a_limit() {
    let abide = Abide::new();
    abide.start();
    let port = Port::closed();
    shell(&abide, "exit 7");
    let arguments = json!({"total_duration": 600, "timeout_duration": 0.01, "reason": "server",
        "until": {"port": port.number()}});
    let result = call(&abide, "timer", arguments);
    assert_eq!(result["status"], "running", "{result}");
}

/// It may have launched a server elsewhere, such as in a container, or have nothing to do with the port. Its end is known
/// to the daemon before that of the later session, whose failure ends the wait.
#[test]
fn port_wait_goes_on_after_sessions_that_succeeded_or_were_killed() {
    let abide = Abide::started();
    let closed = Port::closed();
    let (_, done) = begin(&abide, "done", "exit 0");
    let (killed, _) = begin(&abide, "killed", "exit 0");
    let arguments = json!({"total_duration": 600, "timeout_duration": 0.01, "reason": "server",
        "until": {"port": closed.number()}});
    let timer = id_of(&call(&abide, "timer", arguments));
    fs::write(&done, "go\n").expect("a word");
    let kill = json!({"action": "kill", "session_id": killed});
    call(&abide, "terminal_session", kill);
    let (server, go) = begin(&abide, "server", "exit 3");
    fs::write(&go, "go\n").expect("a word");
    let result = call(&abide, "timer", json!({"timer_id": timer}));
    assert_eq!(result["completed_by"], "impossible", "{result}");
    let text = result["text"].as_str().expect("text");
    let named = format!("No session is left that could open it: {server} ");
    assert!(text.contains(&named), "{text}");
}

#[test]
fn url_that_another_server_answers_is_waited_for_after_session_failed() {
    let abide = Abide::started();
    let mut answers = vec!["503 Busy"; 40];
    answers.push("200 OK");
    let sink = Sink::new(&answers);
    let (session, go) = begin(&abide, "go", "exit 3");
    let url = format!("http://{}/", sink.address);
    let arguments = json!({"total_duration": 600, "timeout_duration": 0.01, "reason": "server",
        "until": {"url": url}});
    let timer = id_of(&call(&abide, "timer", arguments));
    fs::write(&go, "go\n").expect("a word");
    abide.waits_until(&json!({"session": session, "is": "ended"}));
    let result = call(&abide, "timer", json!({"timer_id": timer}));
    assert_eq!(result["completed_by"], "condition", "{result}");
}

#[test]
fn abide_wait_says_why_and_exits_with_1() {
    let abide = Abide::started();
    let session = shell(&abide, "echo nothing");
    let args = [
        "wait",
        "--for",
        "10m",
        "--session",
        &session,
        "--output",
        "up",
    ];
    let out = abide.output(args);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(
        said.contains("the condition can no longer be met"),
        "{said}"
    );
    assert!(said.ends_with("Its last output:\nnothing\n"), "{said}");
}
