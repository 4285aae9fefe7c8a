//! `abide top` in a real terminal.

use rustix::process::{Pid, Signal};

use crate::harness::{Abide, Seat, text};

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
fn sit(abide: &Abide) -> Seat {
    let seat = Seat::at(abide.command(["top"]));
    seat.resize(160, 40);
    seat
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
    let mut seat = sit(&abide);
    seat.wait_for(TAKEN);
    seat.wait_for(&session);
    seat.wait_for("sleep 1000");
    seat.wait_for("no timers");
    abide.json(["timer", "start", "1h", "--mission", "look later", "--json"]);
    seat.wait_for("look later");
    seat.type_in(b"\r");
    seat.wait_for("first");
    seat.type_in(b"\x1b");
    seat.wait_for("look later");
    seat.type_in(b"?");
    seat.wait_for("sessions and timers continue");
    seat.type_in(b" q");
    let before = seat.modes_before.clone();
    seat.wait_for(GIVEN_BACK);
    seat.wait_for_end();
    assert_eq!(seat.modes(), before);
    let (status, _) = seat.end();
    assert!(status.success());
}

#[test]
fn kill_in_top_needs_confirmation() {
    let abide = Abide::new();
    let session = start(&abide, "sleep 1000");
    let mut seat = sit(&abide);
    seat.wait_for(&session);
    seat.type_in(b"K");
    seat.wait_for("everything it started? y/N");
    seat.type_in(b"n");
    seat.wait_for("q quit");
    let list = abide.json(["session", "list", "--json"]);
    assert_eq!(list["sessions"].as_array().unwrap().len(), 1);
    seat.type_in(b"K");
    seat.wait_for("everything it started? y/N");
    seat.type_in(b"y");
    seat.wait_for_all(&["with every process it started", "no running sessions"]);
    seat.type_in(b"q");
    assert!(seat.end().0.success());
}

#[test]
fn top_pauses_resumes_and_stops_timers() {
    let abide = Abide::new();
    let made = abide.json(["timer", "start", "1h", "--mission", "later", "--json"]);
    let timer = made["timer_id"].as_str().unwrap().to_owned();
    let mut seat = sit(&abide);
    seat.wait_for(&timer);
    seat.type_in(b"\tp");
    seat.wait_for("paused");
    let read = || abide.json(["timer", "read", &timer, "--json"])["status"].clone();
    seat.wait_for("paused");
    assert_eq!(read(), "paused");
    seat.type_in(b"r");
    seat.wait_for("resumed");
    seat.type_in(b"s");
    seat.wait_for("Nobody is notified. y/N");
    seat.type_in(b"y");
    seat.wait_for("stopped");
    assert_eq!(read(), "stopped");
    seat.type_in(b"\x03");
    assert!(seat.end().0.success());
}

#[test]
fn top_answers_a_question_with_a_key() {
    let abide = Abide::new();
    let mut run = abide.command(["run", "--idle", "1s", "--", "exec sleep 1000"]);
    let mut top = sit(&abide);
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
    let mut seat = sit(&abide);
    seat.wait_for("0 sessions  3 timers");
    seat.wait_for("AGENT");
    seat.type_in(b"q");
    assert!(seat.end().0.success());
}

#[test]
fn top_attaches_and_comes_back() {
    let abide = Abide::new();
    let words = ["session", "start", "--json", "--name", "cat", "--"];
    abide.json(words.into_iter().chain(["stty -echo; echo ready; cat -u"]));
    let mut seat = sit(&abide);
    seat.wait_for("cat -u");
    seat.type_in(b"a");
    seat.wait_for("Ctrl-] detaches");
    seat.type_in(b"typed\r");
    seat.wait_for("typed");
    seat.type_in(b"\x1d");
    seat.wait_for("it is still running");
    seat.wait_for("back from session_");
    seat.type_in(b"q");
    let before = seat.modes_before.clone();
    seat.wait_for(GIVEN_BACK);
    seat.wait_for_end();
    assert_eq!(seat.modes(), before);
}

#[test]
fn top_answers_a_question_of_a_rule_with_any_of_its_answers() {
    let rule = "[[policy.rule]]\nrun = [\"touch\", \"...\"]\ndo = \"ask\"\nwhy = \"test\"\n";
    let abide = Abide::with_config(rule);
    let call = "<tool name=\"execute_command\"><command>touch made</command></tool>";
    std::fs::write(abide.path("call"), call).unwrap();
    let mut seat = sit(&abide);
    seat.wait_for("no questions");
    let call = abide.command(["call", "--agent", "ann", "call"]).spawn();
    let call = call.unwrap();
    seat.wait_for_all(&["Allow this command?", "Enter all answers"]);
    seat.type_in(b"\r");
    seat.wait_for("no, because");
    seat.type_in(b"bnot now\r");
    seat.wait_for("No: the command is not started.");
    call.wait_with_output().unwrap();
    assert!(!abide.path("made").exists());
    seat.type_in(b"q");
    assert!(seat.end().0.success());
}

#[test]
fn top_redraws_on_resize_and_restores_the_terminal_on_sigterm() {
    let abide = Abide::new();
    start(&abide, "sleep 1000");
    let mut seat = sit(&abide);
    seat.wait_for("sleep 1000");
    seat.resize(120, 30);
    seat.wait_for("\u{1b}[30;1H");
    let pid = Pid::from_raw(seat.pid()).expect("a pid");
    rustix::process::kill_process(pid, Signal::TERM).expect("it runs");
    seat.wait_for(GIVEN_BACK);
    let before = seat.modes_before.clone();
    seat.wait_for_end();
    assert_eq!(seat.modes(), before);
}

#[test]
fn c11_top_escapes_control_sequences() {
    let abide = Abide::new();
    let command =
        "printf '\\033]0;owned\\007\\033[31mred\\n'; : \u{1b}]0;named\u{7}; exec sleep 1000";
    start(&abide, command);
    let mut seat = sit(&abide);
    seat.wait_for("printf");
    seat.type_in(b"\r");
    seat.wait_for("red");
    seat.type_in(b"\x03");
    let (_, screen) = seat.end();
    assert!(!screen.contains("\u{1b}]0;"), "{screen:?}");
}
