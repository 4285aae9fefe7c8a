//! `abide top` in a real terminal.

use rustix::process::{Pid, Signal};

use crate::harness::{Abide, Pty, text};

/// Starts a command that keeps running, and returns its session.
fn start(abide: &Abide, command: &str) -> String {
    let words = [
        "session",
        "start",
        "--json",
        "--no-pty",
        "--inactivity",
        "never",
    ];
    let started = abide.json(words.into_iter().chain(["--", command]));
    started["session_id"].as_str().expect("an id").to_owned()
}

/// A terminal that is wide enough to show everything.
fn open_top(abide: &Abide) -> Pty {
    let pty = Pty::run(abide.command(["top"]));
    pty.resize(160, 40);
    pty
}

/// The alternate screen was entered and left.
const TAKEN: &str = "\u{1b}[?1049h";
const GIVEN_BACK: &str = "\u{1b}[?1049l";

#[test]
fn top_without_a_terminal_is_an_error() {
    let abide = Abide::new();
    let output = abide.output(["top"]);
    assert_eq!(output.status.code(), Some(125));
    let said = text(&output.stderr);
    assert!(said.contains("there is no terminal to draw on"), "{said}");
    assert!(!text(&output.stdout).contains('\u{1b}'));
}

#[test]
fn top_json_has_all_lists() {
    let abide = Abide::new();
    let session = start(&abide, "sleep 1000");
    abide.json(["timer", "start", "1h", "--mission", "later", "--json"]);
    let snapshot = abide.json(["top", "--json"]);
    assert_eq!(snapshot["sessions"][0]["session_id"], session.as_str());
    assert_eq!(snapshot["timers"][0]["mission"], "later");
    for list in ["questions", "messages"] {
        assert!(snapshot[list].is_array(), "{snapshot}");
    }
    assert!(snapshot["daemon"]["pid"].is_u64());
}

#[test]
fn top_shows_sessions_and_restores_the_terminal() {
    let abide = Abide::new();
    let session = start(&abide, "echo first; exec sleep 1000");
    let mut pty = open_top(&abide);
    pty.wait_for(TAKEN);
    pty.wait_for(&session);
    pty.wait_for("sleep 1000");
    pty.wait_for("no timers");
    abide.json(["timer", "start", "1h", "--mission", "look later", "--json"]);
    pty.wait_for("look later");
    pty.type_in(b"\r");
    pty.wait_for("first");
    pty.type_in(b"\x1b");
    pty.wait_for("look later");
    pty.type_in(b"?");
    pty.wait_for("sessions and timers continue");
    pty.type_in(b" q");
    let before = pty.modes_before.clone();
    pty.wait_for(GIVEN_BACK);
    pty.wait_for_end();
    assert_eq!(pty.modes(), before);
    let (status, _) = pty.end();
    assert!(status.success());
}

#[test]
fn kill_in_top_needs_confirmation() {
    let abide = Abide::new();
    let session = start(&abide, "sleep 1000");
    let mut pty = open_top(&abide);
    pty.wait_for(&session);
    pty.type_in(b"K");
    pty.wait_for("everything it started? y/N");
    pty.type_in(b"n");
    pty.wait_for("q quit");
    let list = abide.json(["session", "list", "--json"]);
    assert_eq!(list["sessions"].as_array().unwrap().len(), 1);
    pty.type_in(b"K");
    pty.wait_for("everything it started? y/N");
    pty.type_in(b"y");
    pty.wait_for_all(&["with every process it started", "no running sessions"]);
    pty.type_in(b"q");
    assert!(pty.end().0.success());
}

#[test]
fn top_pauses_resumes_and_stops_timers() {
    let abide = Abide::new();
    let made = abide.json(["timer", "start", "1h", "--mission", "later", "--json"]);
    let timer = made["timer_id"].as_str().unwrap().to_owned();
    let mut pty = open_top(&abide);
    pty.wait_for(&timer);
    pty.type_in(b"\tp");
    pty.wait_for("paused");
    let read = || abide.json(["timer", "read", &timer, "--json"])["status"].clone();
    pty.wait_for("paused");
    assert_eq!(read(), "paused");
    pty.type_in(b"r");
    pty.wait_for("resumed");
    pty.type_in(b"s");
    pty.wait_for("Nobody is notified. y/N");
    pty.type_in(b"y");
    pty.wait_for("stopped");
    assert_eq!(read(), "stopped");
    pty.type_in(b"\x03");
    assert!(pty.end().0.success());
}

#[test]
fn top_answers_a_question_with_a_key() {
    let abide = Abide::new();
    let mut run = abide.command(["run", "--idle", "1s", "--", "exec sleep 1000"]);
    let mut top = open_top(&abide);
    top.wait_for("no questions");
    let run = run.spawn().unwrap();
    // The cursor moves to the question.
    top.wait_for_all(&["Continue waiting?", "n end it"]);
    top.type_in(b"n");
    top.wait_for("is being ended");
    let ended = run.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(124), "{ended:?}");
    top.type_in(b"q");
    assert!(top.end().0.success());
}

#[test]
fn top_lists_the_next_due_timers_first_and_counts_all() {
    let abide = Abide::new();
    for (time, mission) in [("1h", "sooner"), ("3h", "latest"), ("2h", "later")] {
        abide.json(["timer", "start", time, "--mission", mission, "--json"]);
    }
    let snapshot = abide.json(["top", "--json"]);
    let timers = snapshot["timers"].as_array().unwrap();
    let missions: Vec<_> = timers
        .iter()
        .map(|timer| timer["mission"].as_str())
        .collect();
    assert_eq!(missions, [Some("sooner"), Some("later"), Some("latest")]);
    let mut pty = open_top(&abide);
    pty.wait_for("0 sessions  3 timers");
    pty.wait_for("AGENT");
    pty.type_in(b"q");
    assert!(pty.end().0.success());
}

#[test]
fn top_attaches_and_comes_back() {
    let abide = Abide::new();
    let words = ["session", "start", "--json", "--name", "cat", "--"];
    abide.json(words.into_iter().chain(["stty -echo; echo ready; cat -u"]));
    let mut pty = open_top(&abide);
    pty.wait_for("cat -u");
    pty.type_in(b"a");
    pty.wait_for("Ctrl-] detaches");
    pty.type_in(b"typed\r");
    pty.wait_for("typed");
    pty.type_in(b"\x1d");
    pty.wait_for("it is still running");
    pty.wait_for("back from session_");
    pty.type_in(b"q");
    let before = pty.modes_before.clone();
    pty.wait_for(GIVEN_BACK);
    pty.wait_for_end();
    assert_eq!(pty.modes(), before);
}

#[test]
fn top_answers_a_question_of_a_rule_with_any_of_its_answers() {
    let rule = "[[policy.rule]]\nrun = [\"touch\", \"...\"]\ndo = \"ask\"\nwhy = \"test\"\n";
    let abide = Abide::with_config(rule);
    let call = "<tool name=\"execute_command\"><command>touch made</command></tool>";
    std::fs::write(abide.path("call"), call).unwrap();
    let mut pty = open_top(&abide);
    pty.wait_for("no questions");
    let call = abide.command(["call", "--agent", "ann", "call"]).spawn();
    let call = call.unwrap();
    pty.wait_for_all(&["Allow this command?", "Enter all answers"]);
    pty.type_in(b"\r");
    pty.wait_for("no, because");
    pty.type_in(b"bnot now\r");
    pty.wait_for("No: the command is not started.");
    call.wait_with_output().unwrap();
    assert!(!abide.path("made").exists());
    pty.type_in(b"q");
    assert!(pty.end().0.success());
}

#[test]
fn top_redraws_on_resize_and_restores_the_terminal_on_sigterm() {
    let abide = Abide::new();
    start(&abide, "sleep 1000");
    let mut pty = open_top(&abide);
    pty.wait_for("sleep 1000");
    pty.resize(120, 30);
    pty.wait_for("\u{1b}[30;1H");
    let pid = Pid::from_raw(pty.pid()).expect("a pid");
    rustix::process::kill_process(pid, Signal::TERM).expect("it runs");
    pty.wait_for(GIVEN_BACK);
    let before = pty.modes_before.clone();
    pty.wait_for_end();
    assert_eq!(pty.modes(), before);
}

#[test]
fn c11_top_escapes_control_sequences() {
    let abide = Abide::new();
    let command =
        "printf '\\033]0;owned\\007\\033[31mred\\n'; : \u{1b}]0;named\u{7}; exec sleep 1000";
    start(&abide, command);
    let mut pty = open_top(&abide);
    pty.wait_for("printf");
    pty.type_in(b"\r");
    pty.wait_for("red");
    pty.type_in(b"\x03");
    let (_, screen) = pty.end();
    assert!(!screen.contains("\u{1b}]0;"), "{screen:?}");
}
